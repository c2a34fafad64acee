"""Settings that are changed while everything runs: of all queues and of one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid, constants
from holdfast.job.outcome import Error, Outcome, Succeed
from holdfast.store import commands, library
from holdfast.store.commands import Command, Lease, Setting
from holdfast.store.store import Address, Store
from holdfast.units import milliseconds
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import (
    ONE,
    TWO,
    dump,
    end,
    job,
    keep,
    put,
    standing,
    take,
)
from tests.support.consistency import check_all_keys, client
from tests.support.servers import running_server
from tests.support.workers import ROOT, Crew, until

__all__ = ["check_all_keys", "client"]  # fixtures

DAY = 86_400.0
FINAL: dict[str, Outcome] = {"succeeded": Succeed(b""), "failed": Error(b"", "e", final=True)}


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


def configure(store: Store, queue: str | None = None, /, *reset: str, **set: int) -> list[commands.Setting]:
    return store.run(commands.configure(queue, set=set, reset=reset))


def value(store: Store, name: str, queue: str | None = None) -> tuple[int, str]:
    """What a setting is, and where that comes from."""
    row = next(row for row in store.run(commands.config(queue)) if row.name == name)
    return row.value, row.source


ROWS = [
    ("lease", 30_000, 1_000, 3_600_000),
    ("grace", 0, 0, 3_600_000),
    ("retries", 3, 0, 1000),
    ("backoff", 20_000, 0, constants.MAX_BACKOFF),
    ("crashes", 3, 0, 1000),
    ("lost", 10, 0, 1000),
    ("timeout", 0, 0, constants.MAX_DURATION),
    ("keep_succeeded", 7 * 86_400_000, 0, 3650 * 86_400_000),
    ("keep_succeeded_count", 50_000, 0, 10**9),
    ("keep_failed", 30 * 86_400_000, 0, 3650 * 86_400_000),
    ("keep_failed_count", 100_000, 0, 10**9),
    ("keep_cancelled", 7 * 86_400_000, 0, 3650 * 86_400_000),
    ("keep_cancelled_count", 50_000, 0, 10**9),
    ("concurrency", 0, 0, 1_000_000),
    ("history", 100, 1, 1000),
    ("stats_age", 30 * 86_400_000, 86_400_000, 365 * 86_400_000),
    ("histogram_age", 7 * 86_400_000, 0, 365 * 86_400_000),
    ("worker_age", 86_400_000, 60_000, 365 * 86_400_000),
    ("check_rate", 20, 0, 1000),
    ("events", 100_000, 100, 10**7),
]
NAMES = [row[0] for row in ROWS]
OF_ALL = ("worker_age", "check_rate", "events")


# What can be set


def test_all_settings_are_listed_with_their_defaults_and_bounds(store: Store) -> None:
    rows = store.run(commands.config())
    assert [(row.name, row.default, row.min, row.max) for row in rows] == ROWS
    assert [row.name for row in rows if not row.per_queue] == list(OF_ALL)
    assert all(row.value == row.default and row.source == "default" and row.explanation for row in rows)
    assert {row.unit for row in rows} == {"ms", ""}


@pytest.mark.parametrize(("name", "default", "least", "most"), ROWS)
def test_a_setting_holds_for_all_or_for_one_queue_until_it_is_reset(
    store: Store, name: str, default: int, least: int, most: int
) -> None:
    for wanted in (least, most):
        assert any(row.name == name and row.value == wanted for row in configure(store, None, **{name: wanted}))
        assert value(store, name) == value(store, name, "q") == (wanted, "global")
    if name not in OF_ALL:
        configure(store, "q", **{name: least})
        assert value(store, name, "q") == (least, "queue")
        assert value(store, name, "other") == value(store, name) == (most, "global")
        configure(store, "q", name)
        assert value(store, name, "q") == (most, "global")
    configure(store, None, name)
    assert value(store, name) == value(store, name, "q") == (default, "default")
    assert store.execute("EXISTS", f"hf:{{{store.address.namespace}}}:config") == 0


def refused() -> Iterator[tuple[dict[str, Any], str]]:
    for name, _, least, most in ROWS:
        yield {"set": {name: least - 1}}, name
        yield {"set": {name: most + 1}}, name
    wrong: Any
    for wrong in (1.5, "1m", True, [], {}, -1, 1e400):
        yield {"set": {"lease": wrong}}, "lease"
    yield {"set": {"leese": 1}}, "unknown setting leese; expected one of lease, grace"
    yield {"set": {"retries": 5, "history": 0}}, "history"
    yield {"set": {"retries": 5}, "reset": ["colour"]}, "unknown setting colour"
    yield {"set": {"retries": 5}, "reset": "colour"}, "reset"
    yield {"set": {"retries": 5}, "reset": ["lease"] * 1001}, "reset"
    yield {"set": 5}, "set"
    yield {"set": {"retries": 5}, "queue": "a/b"}, "queue"
    yield {"set": {"retries": 5}, "queue": ""}, "queue"
    for name in OF_ALL:
        yield {"set": {name: 100_000}, "queue": "q"}, "applies to all queues"
        yield {"reset": [name], "queue": "q"}, "applies to all queues"


@pytest.mark.parametrize(("args", "words"), list(refused()))
def test_an_invalid_setting_is_refused_and_changes_nothing(
    store: Store, client: redis.Redis, namespace: str, args: dict[str, Any], words: str
) -> None:
    configure(store, lost=7)
    before = dump(client, namespace)
    with pytest.raises(Invalid, match=re.escape(words)):
        store.run(Command("configure", args, lambda reply: reply))
    assert dump(client, namespace) == before


def test_a_thousand_settings_may_differ_and_can_still_be_changed(store: Store) -> None:
    for number in range(1000):
        configure(store, f"q{number}", lease=5000)
    with pytest.raises(Invalid, match="1000 settings already differ"):
        configure(store, lease=5000)
    with pytest.raises(Invalid, match="1000 settings already differ"):
        configure(store, "q1", grace=1)
    configure(store, "q999", lease=6000)
    assert value(store, "lease", "q999") == (6000, "queue")
    configure(store, "q0", "lease")
    configure(store, "q1", grace=1)
    assert value(store, "grace", "q1") == (1, "queue")


def test_settings_are_an_event(store: Store) -> None:
    configure(store, "q", lease=5000)
    configure(store, lease=5000)
    found = store.run(commands.events()).events
    assert [(event.type, event.jobs, event.queue, event.detail) for event in found] == [
        ("configured", ("q",), "q", {"what": "setting", "option": "lease", "value": "5000"}),
        ("configured", ("*",), "", {"what": "setting", "option": "lease", "value": "5000"}),
    ]


# The client


def test_the_client_takes_durations_and_numbers(app: Holdfast) -> None:
    changed = {setting.name: setting for setting in app.configure({"lease": "1m", "retries": 7}, queue="video")}
    assert (changed["lease"].value, changed["lease"].source, changed["lease"].unit) == (60_000, "queue", "ms")
    assert isinstance(changed["retries"], Setting)
    assert app.config("video")[0].value == 60_000
    assert app.config()[0].value == 30_000
    app.configure({"lease": None, "retries": 5}, queue="video")
    found = {setting.name: (setting.value, setting.source) for setting in app.config("video")}
    assert (found["lease"], found["retries"]) == ((30_000, "default"), (5, "queue"))


def test_the_async_client_does_the_same(app: Holdfast) -> None:
    async def use() -> None:
        await app.aconfigure({"keep_failed": "90d"})
        found = {setting.name: setting.value for setting in await app.aconfig()}
        assert found["keep_failed"] == 90 * 86_400_000
        with pytest.raises(Invalid, match="from 1s to 1h"):
            await app.aconfigure({"lease": "2h"})
        await app.aclose()

    asyncio.run(use())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lease": "1ms"}, "lease is '1ms'; it must be from 1s to 1h"),
        ({"lease": "soon"}, "lease is 'soon'; it must be a timedelta"),
        ({"lease": True}, "lease is True"),
        ({"retries": "3"}, "retries is '3'; it must be a whole number from 0 to 1000"),
        ({"retries": 1001}, "retries is 1001; it must be a whole number from 0 to 1000"),
        ({"leese": "1m"}, "unknown setting 'leese'; did you mean lease?"),
        ({"leese": None}, "unknown setting 'leese'"),
        ({"lost": 5, "lease": "1ms"}, "lease"),
        ([("lease", "1m")], "expected settings as a dict"),
    ],
)
def test_the_client_explains_invalid_settings_and_changes_nothing(app: Holdfast, changes: Any, words: str) -> None:
    with pytest.raises(Invalid, match=re.escape(words)):
        app.configure(changes)
    assert {setting.source for setting in app.config()} == {"default"}


# From the next call on


def test_budgets_and_backoff_of_a_queue_apply_to_jobs_without_their_own(store: Store, clock: TestClock) -> None:
    put(store, "plain", "other", queue="q")
    put(store, "own", queue="q", retries=5, backoff=1000, timeout=7)
    configure(store, "q", retries=1, backoff=60_000, timeout=90_000, crashes=0, lost=2)

    claim = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=1, limit=3)))
    assert [(found.id, found.timeout) for found in claim.jobs] == [("plain", 90_000), ("other", 90_000), ("own", 7)]
    found = job(store, "plain")
    assert (found["retries"], found["crashes"], found["lost"]) == (1, 0, 2)
    for id in ("plain", "own"):
        end(store, id, Error(b"", "e"))
    assert job(store, "plain")["timer"] == clock() + 60_000
    assert job(store, "own")["timer"] == clock() + 1000


def test_the_lease_of_a_queue_and_its_grace_decide_when_a_silent_job_comes_back(store: Store, clock: TestClock) -> None:
    configure(store, "slow", lease=60_000, grace=30_000)
    put(store, "slow", queue="slow")
    put(store, "usual", queue="usual")
    claim = store.run(commands.claim(ONE, commands.claim_args(["slow", "usual"], counter=1, limit=2)))
    assert [(found.id, found.lease) for found in claim.jobs] == [("slow", 60_000), ("usual", 30_000)]

    back: dict[str, int] = {}
    for second in range(1, 95):
        clock.advance(1)
        for id in take(store, TWO, "slow", "usual"):
            back.setdefault(id, second)
    assert back == {"usual": 30, "slow": 90}


def test_a_renewal_prolongs_by_the_lease_and_grace_with_which_it_was_claimed(store: Store, clock: TestClock) -> None:
    configure(store, "q", lease=5000, grace=2000)
    put(store, "a")
    put(store, "b")
    take(store)
    configure(store, "q", lease=60_000)
    assert take(store, TWO) == ["b"]
    clock.advance(1)
    keep(store, Lease(ONE, "a", 1))
    keep(store, Lease(TWO, "b", 1), executor=TWO)
    assert job(store, "a")["timer"] == clock() + 7000
    assert job(store, "b")["timer"] == clock() + 62_000
    store.run(commands.save(Lease(ONE, "a", 1), b"half", renew=True))
    assert job(store, "a")["timer"] == clock() + 7000


def test_a_lease_that_an_executor_asks_for_counts_more_than_that_of_the_queue(store: Store, clock: TestClock) -> None:
    configure(store, lease=5000, grace=1000)
    put(store, "a")
    take(store, lease=40_000)
    assert job(store, "a")["timer"] == clock() + 41_000


def test_the_history_of_a_job_becomes_shorter_and_longer(store: Store) -> None:
    put(store, "a", retries=1000)

    def run(times: int) -> None:
        for _ in range(times):
            take(store)
            store.run(commands.note("a", "words"))
            end(store, "a", Error(b"error %d" % job(store, "a")["attempt"], "e", delay=0))

    def kept() -> tuple[list[int], int]:
        found = job(store, "a")
        return [attempt[0] for attempt in found["attempts"]], len(found["notes"])

    run(12)
    assert kept() == (list(range(1, 13)), 12)
    configure(store, "q", history=3)
    run(1)
    assert kept() == ([11, 12, 13], 3)
    errors = f"hf:{{{store.address.namespace}}}:e:a"
    kept_errors = [entry.rpartition(b"\0")[2] for entry in store.execute("LRANGE", errors, 0, -1)]
    assert kept_errors == [b"error 11", b"error 12", b"error 13"]
    configure(store, "q", history=5)
    run(4)
    assert kept() == ([13, 14, 15, 16, 17], 5)
    configure(store, "q", "history")
    run(1)
    assert len(kept()[0]) == 6


def finish_as(store: Store, state: str, *ids: str, queue: str = "q") -> None:
    put(store, *ids, queue=queue)
    if state == "cancelled":
        store.run(commands.cancel(ids))
        return
    take(store, ONE, queue, limit=len(ids))
    for id in ids:
        end(store, id, FINAL[state])


STATES = ["succeeded", "failed", "cancelled"]


@pytest.mark.parametrize("state", STATES)
def test_ended_jobs_are_kept_by_age_each_state_and_queue_by_its_own(store: Store, clock: TestClock, state: str) -> None:
    configure(store, "short", **{f"keep_{state}": 60_000})
    for queue in ("short", "usual"):
        for other in STATES:
            finish_as(store, other, f"{queue}-{other}", queue=queue)
    clock.advance(59)
    take(store)
    assert len(store.run(commands.list_jobs()).jobs) == 6
    clock.advance(1)
    take(store)
    left = {found["id"] for found in store.run(commands.list_jobs()).jobs}
    assert left == {f"{queue}-{other}" for queue in ("short", "usual") for other in STATES} - {f"short-{state}"}


@pytest.mark.parametrize("state", STATES)
def test_ended_jobs_are_kept_by_number_each_state_and_queue_by_its_own(
    store: Store, clock: TestClock, state: str
) -> None:
    for queue in ("few", "many"):
        for number in range(6):
            for other in STATES:
                clock.advance(0.001)
                finish_as(store, other, f"{queue}-{other}-{number}", queue=queue)
    configure(store, "few", **{f"keep_{state}_count": 2})
    clock.advance(1)
    take(store)
    counts = {
        (queue, other): store.run(commands.count(queues=[queue], states=[other]))
        for queue in ("few", "many")
        for other in STATES
    }
    assert counts == {(queue, other): 6 for queue in ("few", "many") for other in STATES} | {("few", state): 2}
    assert standing(store)[state][:2] == [f"few-{state}-4", f"few-{state}-5"]  # the last


@pytest.mark.parametrize("setting", ["keep_succeeded", "keep_succeeded_count"])
def test_nothing_is_kept_if_nothing_is_to_be_kept(
    store: Store, client: redis.Redis, namespace: str, setting: str
) -> None:
    configure(store, None, **{setting: 0})
    put(store, "warm-up")
    take(store)
    end(store, "warm-up", Succeed(b""))
    before = set(dump(client, namespace))
    finish_as(store, "succeeded", *(str(number) for number in range(50)))
    assert set(dump(client, namespace)) - before == set()
    assert standing(store) == {}


def test_workers_are_forgotten_after_the_age_that_is_set(store: Store, clock: TestClock) -> None:
    configure(store, worker_age=60_000)
    store.run(commands.renew("node/one", [], about="", queues=["q"]))
    life = store.execute("PTTL", f"hf:{{{store.address.namespace}}}:w:node/one")
    assert 0 < life <= 60_000
    clock.advance(59)
    keep(store, executor=TWO)
    assert [row.name for row in store.run(commands.workers()).workers] == ["node/one", "node/two"]
    clock.advance(2)
    keep(store, executor=TWO)
    assert [row.name for row in store.run(commands.workers()).workers] == ["node/two"]


def test_fewer_events_are_kept_when_that_is_set(store: Store) -> None:
    configure(store, events=100)
    for number in range(400):
        put(store, str(number))
    assert store.execute("XLEN", f"hf:{{{store.address.namespace}}}:events") < 300


# Whose settings they are


def test_two_namespaces_of_a_server_share_no_settings(store: Store, server_url: str, clock: TestClock) -> None:
    other = Store(Address.find(server_url, namespace=store.address.namespace + "b"), clock=clock)
    configure(store, lease=5000)
    assert value(other, "lease") == (30_000, "default")
    configure(other, lease=5000)
    configure(other, lease=7000)
    assert value(store, "lease") == (5000, "global")
    configure(other, None, "lease")
    assert value(store, "lease") == (5000, "global")
    other.execute("DEL", f"hf:{{{other.address.namespace}}}:meta")
    other.close()


def test_settings_that_were_removed_with_all_data_are_forgotten() -> None:
    with running_server() as url:
        store, twin = (Store(Address.find(url, namespace=name)) for name in ("one", "two"))
        for each in (store, twin):
            configure(each, lease=5000)
            assert value(each, "lease") == (5000, "global")
        store.execute("DEL", "hf:{one}:config")
        assert value(store, "lease") == (30_000, "default")
        assert value(twin, "lease") == (5000, "global")  # of the same digest
        configure(store, grace=1)
        assert (value(store, "lease"), value(store, "grace")) == ((30_000, "default"), (1, "global"))
        store.execute("FLUSHALL")
        assert value(store, "lease") == value(twin, "lease") == (30_000, "default")
        configure(store, lease=5000)
        assert value(store, "lease") == (5000, "global")
        store.execute("FUNCTION", "FLUSH")  # the library is loaded anew, and remembers nothing
        store.execute("DEL", "hf:{one}:config")
        assert value(store, "lease") == (30_000, "default")
        configure(twin, lease=5000)
        assert value(twin, "lease") == (5000, "global")
        for each in (store, twin):
            each.close()


def test_releases_side_by_side_see_each_others_settings(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(store, lease=5000)
    source = library._source() + "\n-- another release"
    for cached in (library.digest, library.library, library.function):
        cached.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(library, "_source", lambda: source)
        other = library.function("config")
        assert value(store, "lease") == (5000, "global")
        configure(store, lease=6000)
    for cached in (library.digest, library.library, library.function):
        cached.cache_clear()
    assert library.function("config") != other
    assert value(store, "lease") == (6000, "global")
    configure(store, "q", lease=7000)
    assert value(store, "lease", "q") == (7000, "queue")


def test_settings_of_many_namespaces_do_not_mix(server_url: str, namespace: str) -> None:
    stores = [Store(Address.find(server_url, namespace=f"{namespace}{number}")) for number in range(40)]
    for number, store in enumerate(stores):
        configure(store, lease=1000 + number)
    for _ in range(2):
        assert [value(store, "lease")[0] for store in stores] == [1000 + number for number in range(40)]
    for store in stores:
        store.execute("DEL", *(f"hf:{{{store.address.namespace}}}:{name}" for name in ("meta", "config", "events")))
        store.close()


# Workers


def test_a_worker_that_runs_sees_a_change_with_its_next_claim(crew: Crew) -> None:
    from tests.apps import worker_app

    crew.start()
    first = crew.put(worker_app.add, 1, 2)
    assert crew.ended(first).state == "succeeded"
    crew.app.configure({"lease": "77s", "grace": "3s"}, queue="default")
    job = crew.put(worker_app.hold, "gate")
    running = until(lambda: now if (now := crew.get(job)).state == "running" else None, what="its start")
    assert running.lease_ends_at is not None
    assert running.claimed_at is not None
    assert (running.lease_ends_at - running.claimed_at).total_seconds() >= 80
    crew.open("gate")
    assert crew.ended(job).state == "succeeded"


# The document


def test_the_table_of_the_document_matches_the_store(store: Store) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]

    def number(cell: str, unit: str) -> int:
        return milliseconds(cell, what="a cell") if unit == "ms" else int(cell.replace(",", ""))

    rows = store.run(commands.config())
    assert [cells[0] for cells in table] == [f"`{row.name}`" for row in rows]
    for cells, row in zip(table, rows, strict=True):
        assert [number(cell, row.unit) for cell in cells[1:4]] == [row.default, row.min, row.max], row.name
        assert cells[4] == ("yes" if row.per_queue else "no"), row.name
        assert cells[5] == row.explanation
