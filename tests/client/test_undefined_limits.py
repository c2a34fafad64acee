"""An undefined limit is not enforced; it may be misspelt, so workers, doctor and command line report it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import redis

from holdfast import Holdfast
from holdfast.doctor import probe, report
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.apps import worker_app as app
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, ask, end, keep, put, take
from tests.support.shells import Shell
from tests.support.workers import Crew, until


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as made:
        yield made


def slots(store: Store) -> dict[str, int]:
    return {row.name: row.slots for row in store.run(commands.limits()).limits}


def calls(client: redis.Redis, *words: str) -> list[int]:
    stats = client.info("commandstats")
    return [stats.get(f"cmdstat_{word}", {"calls": 0})["calls"] for word in words]


def test_a_claim_records_an_undefined_limit(store: Store) -> None:
    store.run(commands.set_limit("api", 5))
    put(store, "right", limits=("api",))
    put(store, "wrong", limits=("apl:acme", "api"))
    assert slots(store) == {"api": 5}  # nothing has run

    assert take(store, limit=2) == ["right", "wrong"]

    assert slots(store) == {"api": 5, "apl": 0}
    assert [row.held for row in store.run(commands.limits()).limits if row.name == "apl"] == [1]


def test_defining_the_limit_removes_the_note_and_so_does_unlimit(store: Store) -> None:
    put(store, "a", "b", limits=("apl", "gpx"))
    take(store)
    assert slots(store) == {"apl": 0, "gpx": 0}

    assert store.run(commands.set_limit("apl", 1))
    assert slots(store) == {"apl": 1, "gpx": 0}
    assert store.run(commands.remove_limit("gpx"))
    assert slots(store) == {"apl": 1}
    assert not store.run(commands.remove_limit("gpx"))
    end(store, "a", Succeed(b"1"))
    assert take(store) == ["b"]  # and it is noted again
    assert slots(store) == {"apl": 1, "gpx": 0}


def test_a_renewal_reports_new_undefined_names(store: Store, clock: TestClock) -> None:
    put(store, "one", "again", limits=("apl",))
    put(store, "two", limits=("gpx",))
    numbers = [keep(store).undefined]
    for _ in range(3):  # in one millisecond
        take(store)
        numbers.append(keep(store).undefined)
    store.run(commands.set_limit("apl", 9))
    store.run(commands.set_limit("gpx", 9))
    numbers.append(keep(store).undefined)

    none, first, same, second, defined = numbers
    assert none == defined == 0
    assert clock.now <= first == same < second


def test_only_the_first_job_of_a_name_costs_more_than_one_command(store: Store, client: redis.Redis) -> None:
    put(store, "one", "two", limits=("apl",))
    put(store, "three", limits=("api",))
    store.run(commands.set_limit("api", 5))
    take(store)
    before = calls(client, "sadd", "scard", "srem", "pexpire", "zlexcount")
    take(store)
    undefined = calls(client, "sadd", "scard", "srem", "pexpire", "zlexcount")
    take(store)
    defined = calls(client, "sadd", "scard", "srem", "pexpire", "zlexcount")

    assert [now - then for now, then in zip(undefined, before, strict=True)] == [1, 0, 0, 0, 0]  # its name
    assert [now - then for now, then in zip(defined, undefined, strict=True)] == [0, 0, 0, 0, 1]  # how many hold it


def test_no_more_than_a_thousand_names_are_noted_and_not_for_ever(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    for first in range(0, 1010, 5):
        put(store, f"job-{first}", limits=tuple(f"limit-{first + n}" for n in range(5)))
    for _ in range(3):
        store.run(commands.claim(ONE, ask(limit=1000)))

    assert len(slots(store)) == 1000
    assert client.scard(f"hf:{{{namespace}}}:undefined") == 1000
    assert 0 < client.pttl(f"hf:{{{namespace}}}:undefined") <= 7 * 86_400_000


# Who says so


def test_a_worker_warns_once_of_each_name(crew: Crew) -> None:
    crew.app.set_limit("api", 5)
    worker = crew.start("--lease", "1s")
    for number in range(3):
        crew.ended(crew.put(app.hold.options(limits="apl", runner="thread"), _open(crew, f"a{number}")))
    until(lambda: "limit apl is not defined, so it has no effect" in worker.log)
    crew.ended(crew.put(app.hold.options(limits="gpx:acme", runner="thread"), _open(crew, "b")))
    log = until(lambda: worker.log if "limit gpx is not defined" in worker.log else None)

    assert log.count("limit apl is not defined") == 1
    assert "`holdfast limits set apl SLOTS`; did you mean api?" in log
    assert "limit api is not" not in log


def test_a_worker_inside_a_program_warns_too(server_url: str, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    jobs = Holdfast(server_url, namespace=namespace)

    @jobs.task(name="double", limits="apl", runner="thread")
    def double(number: int) -> int:
        return 2 * number

    with caplog.at_level(logging.WARNING, "holdfast.worker"), jobs.worker(lease="1s"):
        assert double.enqueue(2).result(timeout="30s") == 4
        until(lambda: "limit apl is not defined" in caplog.text)
    jobs.close()


def test_the_doctor_warns(store: Store) -> None:
    def finding() -> report.Finding:
        return {each.code: each for each in report.run_checks(probe.probe_server(store))}["limits"]

    assert finding().level == "ok"
    put(store, "job", limits=tuple(f"limit-{number}" for number in range(8)))
    put(store, "more", limits=tuple(f"more-{number}" for number in range(8)))
    take(store, limit=2)

    assert finding().level == "warning"
    assert "limit-0, limit-1" in finding().means
    assert finding().means.endswith("and 6 more.")


def test_the_command_line_shows_them(shell: Shell) -> None:
    jobs = shell.client
    jobs.set_limit("api", 5)
    put(jobs.store, "job", limits=("apl",))
    take(jobs.store)

    listed = shell("limits")
    assert listed.rows == [
        ["api", "5", "", "set", "", "", "0", "0", "0"],
        ["apl", "not defined", "", "", "", "", "1", "0", "0"],
    ]
    assert listed.err == "holdfast: limit apl is not defined, so it has no effect; did you mean api?\n"
    assert [(row["limit"], row["slots"]) for row in shell("limits", "--json").json] == [("api", 5), ("apl", None)]
    assert [(limit.name, limit.is_defined) for limit in sorted(jobs.limits())] == [("api", True), ("apl", False)]
    assert shell("limits", "set", "apl", "3").code == 0
    assert shell("limits").err == ""


def test_enqueueing_on_a_terminal_warns_for_one_job_and_for_many(shell: Shell) -> None:
    shell.client.set_limit("api", 5)
    (shell.folder / "lines").write_text('{"x": 1}\n{"x": 2}\n')
    words = "limit apl is not defined, so it has no effect; did you mean api?"

    assert words in shell.on_a_terminal("enqueue", "tasks.add", "x=1", "--limit", "apl")
    assert words in shell.on_a_terminal("enqueue", "tasks.add", "--from", "lines", "--limit", "apl")
    assert words not in shell.on_a_terminal("enqueue", "tasks.add", "x=1", "--limit", "api")


def _open(crew: Crew, gate: str) -> str:
    crew.open(gate)
    return gate
