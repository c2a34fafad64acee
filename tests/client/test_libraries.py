"""Function libraries that nobody calls are removed; one that is called stays, and one that is missing is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from holdfast import Holdfast, Invalid
from holdfast.client.libraries import aremove_unused_libraries, remove_unused_libraries
from holdfast.store import Address, AsyncStore, Store, commands, library
from tests.conftest import TestClock
from tests.support.servers import running_server

DAY = 86_400


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as made:
        yield made


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as made:
        made.function_flush()
        yield made


Remove = Callable[..., list[str]]


@pytest.fixture(params=["sync", "async"])
def remove(
    request: pytest.FixtureRequest, url: str, namespace: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> Remove:
    """Another program under the test's clock: it uses the plain library only."""

    def run(url: str = url) -> list[str]:
        monkeypatch.setattr(library, "_extended", {})
        store = Store(Address.find(url, namespace=namespace), clock=clock)
        try:
            return remove_unused_libraries(store)
        finally:
            store.close()
            monkeypatch.undo()

    async def arun(url: str = url) -> list[str]:
        monkeypatch.setattr(library, "_extended", {})
        store = AsyncStore(Address.find(url, namespace=namespace), clock=clock)
        try:
            return await aremove_unused_libraries(store)
        finally:
            await store.close()
            monkeypatch.undo()

    return run if request.param == "sync" else lambda *args: asyncio.run(arun(*args))


@pytest.fixture
def app(url: str, client: redis.Redis, tmp_path: Path) -> Iterator[Holdfast]:
    """A program with Lua of its own, in another namespace, under the clock of the server."""
    client.ping()
    (tmp_path / "own.lua").write_text("holdfast.register('f', function() return 1 end)")
    made = Holdfast(url, namespace=f"other{tmp_path.name[-8:]}", extend=tmp_path / "own.lua")
    yield made
    made.close()


def libraries(client: redis.Redis) -> set[str]:
    return {row[1].decode() for row in client.function_list()}


def name_of(app: Holdfast) -> str:
    return f"holdfast_{app.extension.library.digest}"


def test_a_library_is_removed_30_days_after_its_last_call_and_loaded_by_the_next(
    app: Holdfast, client: redis.Redis, remove: Remove, clock: TestClock
) -> None:
    assert app.call("f") == 1
    assert remove() == []
    clock.advance(29 * DAY)
    assert remove() == []
    app.call("f")
    clock.advance(2 * DAY)
    assert remove() == []  # it was called since
    clock.advance(29 * DAY)
    assert remove() == []
    assert name_of(app) in libraries(client)
    clock.advance(DAY)
    assert remove() == [name_of(app)]
    assert libraries(client) == {f"holdfast_{library.digest()}"}
    assert app.call("f") == 1
    assert remove() == []


def test_a_restart_is_no_call(app: Holdfast, client: redis.Redis, remove: Remove, clock: TestClock) -> None:
    app.call("f")
    for _ in range(30):
        assert remove() == []
        client.function_load(app.extension.library.text, replace=True)
        clock.advance(DAY)
    assert remove() == [name_of(app)]


def test_a_clock_that_was_set_back_removes_nothing_too_early(app: Holdfast, remove: Remove, clock: TestClock) -> None:
    app.call("f")
    assert remove() == []
    clock.advance(-40 * DAY)
    assert remove() == []
    clock.advance(29 * DAY)
    assert remove() == []
    clock.advance(DAY)
    assert remove() == [name_of(app)]


def test_libraries_that_cannot_say_when_they_were_called_stay(
    client: redis.Redis, remove: Remove, clock: TestClock
) -> None:
    code = "redis.register_function('hf_0_x', function() return 1 end)"
    client.function_load(f"#!lua name=holdfast_0123456789ab\n{code}")
    client.function_load(f"#!lua name=others\n{code.replace('hf_0', 'o')}")
    for _ in range(3):
        assert remove() == []
        clock.advance(31 * DAY)
    assert {"holdfast_0123456789ab", "others"} <= libraries(client)


def test_without_the_rights_nothing_is_removed_and_nothing_breaks(
    app: Holdfast, client: redis.Redis, remove: Remove, clock: TestClock
) -> None:
    app.call("f")
    limited = app.url.replace("unix://", "unix://ann:x@")
    for right in ("delete", "list"):
        client.execute_command("ACL", "SETUSER", "ann", "reset", "on", ">x", "~*", "&*", "+@all", f"-function|{right}")
        for _ in range(3):
            assert remove(limited) == []
            clock.advance(31 * DAY)
    assert name_of(app) in libraries(client)
    client.execute_command("ACL", "DELUSER", "ann")


def test_the_consistency_check_knows_keys_of_own_lua_and_of_libraries(
    app: Holdfast, remove: Remove, url: str, namespace: str, client: redis.Redis
) -> None:
    here = Holdfast(url, namespace=namespace)
    app.call("f")
    assert remove() == []
    client.set(here.key("mine"), "x")
    found = here.check()
    assert client.exists(here.key("mine"), f"hf:{{{namespace}}}:libraries") == 2
    assert not found.findings
    here.close()


def test_what_is_sent_is_checked(store: Store) -> None:
    for wrong in ({"a b": 1}, {"x" * 13: 1}, {"ab": -1}, {"ab": 0.5}, {"ab": "x"}, {f"{n:x}": 1 for n in range(1001)}):
        with pytest.raises(Invalid):
            store.run(commands.track_libraries(wrong))  # type: ignore[arg-type]


def test_a_record_that_is_damaged_starts_again(store: Store, server_url: str, namespace: str, clock: TestClock) -> None:
    with redis.Redis.from_url(server_url) as client:
        store.run(commands.track_libraries({"ab": 5, "cd": 5}))
        client.hset(f"hf:{{{namespace}}}:libraries", "ab", "nonsense")
        clock.advance(30 * DAY)
        assert store.run(commands.track_libraries({"ab": 5, "cd": 0})) == ["cd"]
        assert store.run(commands.track_libraries({"ab": 5})) == []
        assert client.hlen(f"hf:{{{namespace}}}:libraries") == 1
