"""Limits in code: what is checked where they are declared, and who learns of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from typing import Any, cast

import pytest

from holdfast import Holdfast, Invalid, Limit, WrongState
from holdfast.testing import Workbench, use
from tests.support.sync_and_async import FACES, Ask

NOWHERE = "redis://127.0.0.1:1"


def test_a_limit_is_a_value() -> None:
    api = Limit("api", 5, per="1s")
    assert (api.name, api.slots, api.per) == ("api", 5, 1000)
    assert api == Limit("api", 5, per=1) != Limit("api", 5)
    assert (repr(api), repr(Limit("gpu", 2))) == ("Limit('api', 5, per='1s')", "Limit('gpu', 2)")
    assert {api: 1}[Limit("api", 5, per="1000ms")] == 1
    assert api.key("acme") == "api:acme"
    with pytest.raises(FrozenInstanceError):
        api.slots = 6  # type: ignore[misc]
    with pytest.raises(Invalid, match="api:acme"):
        api.key("a b")


@pytest.mark.parametrize(
    ("args", "per", "says"),
    [
        (("api:acme", 5), None, "expected the name of a limit without a key, got 'api:acme'"),
        (("a b", 5), None, "it must be a name"),
        (("api", 0), None, "slots is 0; it must be an int from 1 to 1000000"),
        (("api", True), None, "slots is True"),
        (("api", "5"), None, "slots is '5'"),
        (("api", 100_001), "1s", "slots is 100001; it must be an int from 1 to 100000"),
        (("api", 5), 0, "per"),
        (("api", 5), "soon", "per"),
    ],
)
def test_an_invalid_limit_is_refused_where_it_is_made(args: tuple[Any, ...], per: Any, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        Limit(*args, per=per)


def test_an_app_collects_its_limits() -> None:
    api, gpu, disk = Limit("api", 5, per="1s"), Limit("gpu", 2), Limit("disk", 1)
    app = Holdfast(NOWHERE, limits=[api], defaults={"limits": disk})

    @app.task(name="one", limits=gpu)
    def one() -> None: ...

    @app.task(name="two", limits=[gpu, "other:key", api])
    def two() -> None: ...

    assert app.declared_limits == {"api": api, "gpu": gpu, "disk": disk}
    assert one.effective_options.limits == ("gpu",)
    assert two.effective_options.limits == ("gpu", "other:key", "api")
    assert one.options(limits=[api, api.key("acme")]).effective_options.limits == ("api", "api:acme")


def test_one_name_stands_for_one_limit() -> None:
    app = Holdfast(NOWHERE, limits=[Limit("api", 5)])
    with pytest.raises(Invalid, match=r"limit api is declared twice: as Limit\('api', 5\), and as Limit\('api', 6\)"):

        @app.task(limits=Limit("api", 6))
        def task() -> None: ...

    with pytest.raises(Invalid, match="declared twice"):
        Holdfast(NOWHERE, limits=[Limit("api", 5), Limit("api", 6)])


@pytest.mark.parametrize("limits", ["api", Limit("api", 5), ["api"], 5, [("api", 5)]])
def test_an_app_takes_a_list_of_limits(limits: Any) -> None:
    with pytest.raises(Invalid, match=r"it must be a list such as \[Limit\('api', 5, per='1s'\)\]"):
        Holdfast(NOWHERE, limits=limits)


def test_a_call_names_only_limits_that_workers_know() -> None:
    app = Holdfast(NOWHERE, limits=[Limit("api", 5)])

    @app.task(name="task")
    def task() -> None: ...

    with pytest.raises(Invalid, match=r"Limit\('gpu', 1\) is not declared, so workers would not know it"):
        task.options(limits=Limit("gpu", 1))
    with pytest.raises(Invalid, match=r"limit api is declared as Limit\('api', 5\), not as Limit\('api', 6\)"):
        task.bind().options(limits=["gpu", Limit("api", 6)])
    with pytest.raises(Invalid, match="it must be a name or a Limit, or a list of these"):
        task.options(limits=cast(Any, iter([Limit("api", 5)])))


jobs = Holdfast(NOWHERE, limits=[Limit("tenant", 1)])


@jobs.task(name="fetch", limits=Limit("api", 1, per="1m"))
def fetch(number: int) -> int:
    return number


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    with use(jobs, server_url) as made:
        yield made


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, bench: Workbench) -> Ask:  # noqa: ARG001, the app is in its hands
    return FACES[request.param](jobs)


def test_the_workbench_enforces_declared_limits(bench: Workbench) -> None:
    for number in range(2):
        fetch.enqueue(number)

    assert len(bench.run_until_empty()) == 1
    bench.advance("1m")
    assert len(bench.run_until_empty()) == 1
    assert [limit.name for limit in jobs.limits()] == ["api", "tenant"]


def test_limits_are_set_reset_and_read(bench: Workbench, ask: Ask) -> None:
    bench.run_until_empty()

    assert ask("set_limit", "api", 2, per="1s", ttl="1h")
    api, _ = ask("limits")
    assert (api.slots, api.per, api.is_overridden, api.declared) == (2, 1000, True, Limit("api", 1, per="1m"))
    assert api.expires_at is not None
    assert ask("reset_limit", "api")
    assert not ask("reset_limit", "api")
    assert not ask("limits")[0].is_overridden
    ask("set_limit", "mine", 1)
    with pytest.raises(WrongState, match="limit mine is not declared by an app"):
        ask("reset_limit", "mine")


def test_who_holds_and_who_waits_is_iterated_over(bench: Workbench) -> None:
    bench.run_until_empty()
    for number in range(3):
        fetch.options(id=f"job-{number}", limits=["tenant:acme"]).enqueue(number)
    attempt = bench._claim(None, stopping=False)
    assert attempt
    assert bench.run_one() is None

    async def read() -> tuple[list[Any], list[str], list[str]]:
        keys = [(each.key, each.held, each.parked) async for each in jobs.alimit_keys("tenant")]
        holders = [job.id async for job in jobs.alimit_holders("tenant:acme")]
        parked = [job.id async for job in jobs.alimit_parked("tenant:acme")]
        await jobs.aclose()
        return keys, holders, parked

    wanted = [("acme", 1, 2)], ["job-0"], ["job-1", "job-2"]
    assert asyncio.run(read()) == wanted
    assert [(each.key, each.held, each.parked) for each in jobs.limit_keys("tenant")] == wanted[0]
    assert [job.id for job in jobs.limit_holders("tenant:acme")] == wanted[1]
    assert [job.id for job in jobs.limit_parked("tenant:acme")] == wanted[2]
    jobs.release_slot("tenant:acme", "job-0")
    assert [(each.key, each.held, each.parked) for each in jobs.limit_keys("tenant", limit=1)] == [("acme", 0, 1)]
