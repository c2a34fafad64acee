"""Failures: errors that share a fingerprint and one traceback, and failed jobs by group, fingerprint and task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import redis

from holdfast import errors
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.job.failures import FailureDetails, FailuresBy
from holdfast.job.outcome import Crash, Error, Outcome, Succeed
from holdfast.store import commands, library
from holdfast.store.commands import Finish
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model import failure_invariants, invariants
from tests.model.test_model import forget_library
from tests.store.lua.test_state_machine import ONE, end, fields, job, new, put, take

TRACEBACK = "Traceback (most recent call last):\n" * 45
PRINT = "0123456789abcdef"


def error(message: str = "no", *, group: str = "Disk", final: bool = True, **more: Any) -> Error:
    fields = {"type": "Disk", "traceback": TRACEBACK, "fingerprint": PRINT, "place": "tasks:save", **more}
    return Error(failure.encode(Failure(message=message, group=group, **fields)), group, final=final, delay=0)


def fail(store: Store, id: str, outcome: Outcome | None = None, **options: Any) -> None:
    put(store, id, **options)
    assert take(store) == [id]
    assert end(store, id, outcome or error()) == "OK"


def names(store: Store, by: FailuresBy = "group", **options: Any) -> dict[str, int]:
    return {group.name: group.count for group in store.run(commands.failures(by, **options)).groups}


def known(store: Store, fingerprint: str = PRINT) -> FailureDetails:
    found = store.run(commands.failure(fingerprint))
    assert found is not None
    return found


def test_failed_jobs_are_listed_by_group_fingerprint_task_and_queue(store: Store) -> None:
    fail(store, "a")
    fail(store, "b", queue="q", task="other-task")
    fail(store, "c", Error(b"", "Net", final=True))
    assert names(store) == {"Disk": 2, "Net": 1}
    assert names(store, "task") == {"task": 2, "other-task": 1}
    assert names(store, "queue") == {"q": 3}
    counts = names(store, "fingerprint")
    assert counts.pop(PRINT) == 2
    assert [*counts.values()] == [1]
    assert fields(store, "a", "fingerprint") == (PRINT,)


def test_a_job_that_is_retried_or_deleted_leaves_its_names(store: Store) -> None:
    fail(store, "a")
    fail(store, "b", error(group="Net"))
    store.run(commands.retry(["a"]))
    assert names(store) == {"Net": 1}
    assert fields(store, "a", "group", "fingerprint") == ("", "")
    store.run(commands.delete(["b"]))
    assert [names(store, by) for by in ("group", "fingerprint", "task", "queue")] == [{}] * 4


def test_a_job_that_is_replaced_or_pruned_leaves_its_names(store: Store, clock: TestClock) -> None:
    fail(store, "a")
    fail(store, "b", error(group="Net"))
    store.run(commands.enqueue([new("a")], on_exists="replace"))
    assert names(store) == {"Net": 1}
    clock.advance(31 * 86_400)
    store.run(commands.upkeep())
    assert names(store) == {}


def test_first_and_last_seen_are_those_of_the_jobs_and_of_a_fingerprint_those_of_its_errors(
    store: Store, clock: TestClock
) -> None:
    began = clock.now
    fail(store, "a", error(final=False), retries=1)
    clock.advance(10)
    take(store)
    end(store, "a", error(final=False))
    clock.advance(10)
    fail(store, "b")
    [group] = store.run(commands.failures("group")).groups
    [fingerprint] = store.run(commands.failures("fingerprint")).groups
    assert group.first_seen
    assert fingerprint.first_seen
    assert fingerprint.last_seen == group.last_seen
    assert round(group.first_seen.timestamp() * 1000) == began + 10_000
    assert round(fingerprint.first_seen.timestamp() * 1000) == began
    assert (fingerprint.count, fingerprint.errors, fingerprint.example) == (2, 3, "b")
    assert (fingerprint.type, fingerprint.place, fingerprint.task) == ("Disk", "tasks:save", "task")
    assert fingerprint.message == "no"


def test_attempts_share_one_traceback_and_name_its_owner(store: Store) -> None:
    fail(store, "a", error("of a"))
    fail(store, "b", error("of b"))
    [row] = job(store, "b")["attempts"]
    [example] = job(store, "b")["examples"]
    assert (row[-2], row[-1]) == (b'{"type":"Disk","message":"of b"}', PRINT.encode())
    assert example == [PRINT.encode(), b"tasks:save", b"a", 1, TRACEBACK.encode()]
    assert known(store).traceback_of == ("a", 1)
    assert known(store).message == "of a"


def test_another_example_is_taken_after_a_minute(store: Store, clock: TestClock) -> None:
    fail(store, "a")
    clock.advance(59.999)
    fail(store, "b")
    assert known(store).traceback_of == ("a", 1)
    clock.advance(0.001)
    fail(store, "c", error(traceback="new code"))
    assert known(store).traceback_of == ("c", 1)
    assert known(store).traceback == "new code"
    assert known(store).errors == 3


def test_a_fingerprint_expires_when_its_queue_would_no_longer_keep_the_job(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    store.run(commands.configure("q", set={"keep_failed": 7_200_000}))
    fail(store, "a")
    key = f"hf:{{{namespace}}}:fi:{PRINT}"
    assert 7_200_000 < client.pttl(key) <= 7_260_000
    client.delete(key)
    assert job(store, "a")["examples"] == []
    assert names(store, "fingerprint") == {PRINT: 1}
    assert known(store).traceback == ""


def test_the_same_error_again_and_again_is_kept_once(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "a", retries=10)
    for message in ["one", "one", "two", "one", "one", "one"]:
        take(store)
        end(store, "a", error(message, final=False))
    assert client.llen(f"hf:{{{namespace}}}:e:a") == 3
    found = [msgspec.json.decode(row[-2])["message"] for row in job(store, "a")["attempts"]]
    assert found == ["one", "one", "two", "one", "one", "one"]


def test_errors_are_forgotten_with_their_attempts(store: Store, client: redis.Redis, namespace: str) -> None:
    store.run(commands.configure("q", set={"history": 3}))
    put(store, "a", retries=20)
    for message in "aabbbbccddddddd":
        take(store)
        end(store, "a", error(message, final=False))
    assert [msgspec.json.decode(row[-2])["message"] for row in job(store, "a")["attempts"]] == ["d"] * 3
    assert client.llen(f"hf:{{{namespace}}}:e:a") == 1


def test_a_repeated_error_is_recognised_and_another_is_not(store: Store) -> None:
    fail(store, "a", error("no"))
    for outcome, answer in (
        (error("no"), "OK"),
        (error("no", traceback="another"), "OK"),  # the traceback is not the attempt's
        (error("yes"), "LOST"),
        (error("no", fingerprint="fedcba9876543210"), "LOST"),
        (error("no", group="Net"), "LOST"),
    ):
        assert end(store, "a", outcome) == answer
    assert known(store).errors == 1


def test_a_failure_that_is_not_an_exception_has_a_fingerprint_of_group_type_place_and_task(store: Store) -> None:
    def crash(signal: int) -> Crash:
        return Crash(failure.encode(Failure.of_crash("it was killed", signal=signal)))

    for id, outcome, task in (
        ("segv", crash(11), "task"), ("segv-too", crash(11), "task"), ("kill", crash(9), "task"),
        ("elsewhere", crash(11), "another"),
    ):  # fmt: skip
        fail(store, id, outcome, crashes=0, task=task)
    put(store, "stopped", "stopped-too")
    store.run(commands.fail(["stopped", "stopped-too"]))
    prints = {id: fields(store, id, "fingerprint")[0] for id in ("segv", "segv-too", "kill", "elsewhere", "stopped")}
    assert prints["segv"] == prints["segv-too"]
    assert len(set(prints.values())) == 4
    assert all(len(name) == 16 for name in prints.values())
    assert known(store, prints["segv"]).place == "signal SIGSEGV"
    assert known(store, prints["stopped"]).type == "operator"
    assert known(store, prints["stopped"]).count == 2


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("two words", "two words"),
        ("a\nb\x1b[31m\x7f", "a?b?[31m?"),
        ("é" * 40, "é" * 32),
        ("x" * 100, "x" * 64),
        ("", "error"),
        ("}:q:other:failed", "}:q:other:failed"),
    ],
)
def test_a_group_may_be_any_text(store: Store, given: str, stored: str) -> None:
    fail(store, "a", error(group=given))
    assert fields(store, "a", "group") == (stored,)
    assert names(store) == {stored: 1}
    store.run(commands.start_operation("o", "retry", states=["failed"], group=given))
    assert store.run(commands.continue_operation("o", 0)).answers == {"waiting": 1}
    assert names(store) == {}


def test_bytes_that_are_not_utf_8_are_replaced_in_a_group(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "a")
    take(store)
    items = b'{"executor":"%s","items":[{"id":"a","attempt":1,"outcome":"error","group":"a\xff","final":true}]}'
    function = library.function("finish")
    client.fcall(function, 1, f"hf:{{{namespace}}}:meta", items % ONE.encode())
    assert fields(store, "a", "group") == ("a?",)


def test_a_fingerprint_that_is_no_name_is_replaced(store: Store) -> None:
    fail(store, "a", error(fingerprint="not a name"))
    [name] = names(store, "fingerprint")
    assert len(name) == 16
    assert fields(store, "a", "fingerprint") == (name,)
    assert end(store, "a", error(fingerprint="not a name")) == "OK"


@pytest.mark.parametrize(
    "item", [{"fingerprint": 5}, {"type": []}, {"place": 1}, {"revision": -1}, {"traceback": True}]
)
def test_an_item_with_wrong_types_is_refused(
    store: Store, client: redis.Redis, namespace: str, item: dict[str, Any]
) -> None:
    put(store, "a")
    take(store)
    args = {"executor": ONE, "items": [{"id": "a", "attempt": 1, "outcome": "error", **item}]}
    reply: Any = client.fcall(
        library.function("finish"), 1, f"hf:{{{namespace}}}:meta", msgspec.json.encode(args).decode()
    )
    assert reply[0] == [b"INVALID"]
    assert fields(store, "a", "state") == ("running",)


def test_the_revision_that_began_an_error_is_kept(store: Store, clock: TestClock) -> None:
    for id, revision in (("a", 7), ("b", 8)):
        put(store, id)
        take(store)
        store.run(commands.finish(ONE, [Finish(id, 1, error())], revision=revision))
        clock.advance(120)
    assert known(store).revision == 7


def test_pages_go_from_the_newest_to_the_oldest(store: Store, clock: TestClock) -> None:
    for number in range(7):
        fail(store, f"job-{number}", error(group=f"group-{number % 5}"))
        clock.advance(1)
    found: list[str] = []
    cursor: Any = None
    while True:
        page = store.run(commands.failures("group", limit=2, cursor=cursor))
        found += [group.name for group in page.groups]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == ["group-1", "group-0", "group-4", "group-3", "group-2"]


def test_failures_of_one_queue_are_counted_one_by_one(store: Store) -> None:
    for number in range(5):
        put(store, f"job-{number}", queue=("q", "p")[number % 2])
        take(store, ONE, "q", "p")
        end(store, f"job-{number}", error(group=("Disk", "Net")[number % 3 == 0]))
    assert names(store, queue="q") == {"Disk": 2, "Net": 1}
    assert names(store, queue="p") == {"Disk": 1, "Net": 1}
    assert names(store, "fingerprint", queue="q") == {PRINT: 3}
    page = store.run(commands.failures("group", queue="q", limit=2))
    rest = store.run(commands.failures("group", queue="q", limit=2, cursor=page.cursor))
    assert sum(group.count for group in page.groups + rest.groups) == 3


def test_trends_count_failed_jobs_by_the_time_they_failed(store: Store, clock: TestClock) -> None:
    start = clock.now
    for number in range(4):
        fail(store, f"job-{number}", error(group=("Disk", "Net")[number % 2]))
        clock.advance(60)
    store.run(commands.retry(["job-0"]))
    rows = store.run(commands.failure_trends("group", ["Net", "Disk", "nobody"], since=start, step=60_000, count=5))
    assert rows == [[0, 1, 0, 1, 0], [0, 0, 1, 0, 0], [0] * 5]
    [later] = store.run(commands.failure_trends("fingerprint", [PRINT], since=start + 120_000, step=120_000, count=1))
    assert later == [2]


@pytest.mark.parametrize(
    "more", [{"by": "queue"}, {"names": []}, {"count": 101}, {"step": 0}, {"names": ["x"] * 101}, {"names": [[]]}]
)
def test_wrong_trends_are_refused(store: Store, more: dict[str, Any]) -> None:
    command = commands.failure_trends("group", ["Net"], since=0, step=1000, count=10)
    with pytest.raises(errors.Invalid):
        store.run(msgspec.structs.replace(command, args=command.args | more))


@pytest.mark.parametrize(
    "args",
    [
        {"by": "colour"},
        {"by": "queue", "queue": "q"},
        {"by": "group", "limit": 501},
        {"by": "group", "limit": 0},
        {"by": "group", "cursor": ["x", "y"]},
        {"by": "group", "cursor": ["1"]},
        {"by": "task", "queue": "a b"},
    ],
)
def test_wrong_arguments_are_refused(store: Store, args: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid):
        store.run(msgspec.structs.replace(commands.failures("group"), args=args))


def test_an_unknown_fingerprint_is_none(store: Store) -> None:
    assert store.run(commands.failure("nobody")) is None


# Caps


@contextmanager
def small_library() -> Iterator[None]:
    usual = library._source
    text = usual()
    for name, number in {"MAX_GROUPS = 1000": 2, "MAX_FINGERPRINTS = 10000": 2, "MAX_FAILED_TASKS = 10000": 2}.items():
        assert text.count(name) == 1
        text = text.replace(name, f"{name.partition(' ')[0]} = {number}")
    library._source = lambda: text  # type: ignore[assignment]
    forget_library()
    try:
        yield
    finally:
        library._source = usual
        forget_library()


def test_beyond_the_maximum_number_of_names_jobs_are_listed_under_other(
    store: Store, client: redis.Redis, namespace: str, clock: TestClock
) -> None:
    with small_library():
        for number in range(4):
            outcome = error(group=f"group-{number}", fingerprint=f"print-{number}")
            fail(store, f"job-{number}", outcome, task=f"task-{number}")
            clock.advance(1)
        assert names(store) == {"group-0": 1, "group-1": 1, "other": 2}
        assert names(store, "fingerprint") == {"print-0": 1, "print-1": 1, "other": 2}
        assert names(store, "task") == {"task-0": 1, "task-1": 1, "other": 2}
        assert fields(store, "job-3", "group") == ("group-3",)
        assert store.run(commands.failure("print-0")) is not None  # of its job, without a traceback
        assert known(store, "print-0").errors == 0
        assert known(store, "print-3").traceback == TRACEBACK  # the newest are known
        snapshot = invariants.check(client, namespace)
        assert sorted(snapshot.markers["other"]) == ["g", "p", "t"]

        store.run(commands.retry(["job-3"]))
        store.run(commands.delete(["job-0", "job-2"]))
        assert names(store) == {"group-1": 1}
        assert "other" not in invariants.check(client, namespace).markers


# Damage


def keys_of(client: redis.Redis, namespace: str, *families: str) -> list[bytes]:
    return [key for family in families for key in client.scan_iter(f"hf:{{{namespace}}}:{family}:*")]


def test_lists_of_failed_jobs_that_are_lost_are_made_again(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    fail(store, "a")
    for family in ("fg", "fp", "ft", "failed"):
        client.delete(*keys_of(client, namespace, family))
        until_right(store, clock, client, namespace)
        assert [names(store), names(store, "task")] == [{"Disk": 1}, {"task": 1}]


def until_right(store: Store, clock: TestClock, client: redis.Redis, namespace: str) -> None:
    """Let time pass until samples have found the damage."""
    for _ in range(50):
        clock.advance(1.1)
        store.run(commands.upkeep())
        try:
            failure_invariants.check(invariants.read(client, namespace))
        except AssertionError:
            continue
        return
    failure_invariants.check(invariants.read(client, namespace))


def test_an_entry_without_a_record_is_removed(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    fail(store, "a")
    fail(store, "b")
    client.delete(f"hf:{{{namespace}}}:j:a")
    until_right(store, clock, client, namespace)
    assert names(store) == {"Disk": 1}
    client.delete(f"hf:{{{namespace}}}:j:b")
    until_right(store, clock, client, namespace)
    assert names(store) == {}


def test_an_entry_of_a_job_that_has_not_failed_or_of_another_group_is_removed(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    fail(store, "a")
    put(store, "b")
    for name, id in (("Disk", "b"), ("Net", "a"), ("other", "a"), ("Net", "nobody")):
        client.zadd(f"hf:{{{namespace}}}:fg:{name}", {id: 1})
        client.zadd(f"hf:{{{namespace}}}:failed:g", {name: 1})
    until_right(store, clock, client, namespace)
    assert names(store) == {"Disk": 1}


def test_a_name_without_jobs_is_removed(store: Store, clock: TestClock, client: redis.Redis, namespace: str) -> None:
    fail(store, "a")
    client.zadd(f"hf:{{{namespace}}}:failed:t", {"nobody": 1})
    until_right(store, clock, client, namespace)
    assert names(store, "task") == {"task": 1}


def test_a_failed_record_without_group_and_fingerprint_gets_some(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    fail(store, "a")
    client.hdel(f"hf:{{{namespace}}}:j:a", "g", "v")
    until_right(store, clock, client, namespace)
    assert names(store) == {"error": 1}


def test_a_fingerprint_of_another_type_is_replaced(store: Store, client: redis.Redis, namespace: str) -> None:
    client.set(f"hf:{{{namespace}}}:fi:{PRINT}", "x")
    put(store, "a")
    take(store)
    assert end(store, "a", error()) == "OK"
    assert known(store).errors == 1


def test_a_record_that_cannot_be_read_stays_listed(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    fail(store, "a")
    record = f"hf:{{{namespace}}}:j:a"
    head = client.hget(record, "h")
    client.hset(record, "h", b"\xff" + head[1:])
    for _ in range(5):
        clock.advance(1.1)
        store.run(commands.upkeep())
    assert names(store) == {"Disk": 1}
    assert names(store, queue="q") == {"unreadable": 1}
    client.hset(record, "h", head)
    assert names(store) == {"Disk": 1}


def test_a_success_after_errors_counts_no_failure(store: Store) -> None:
    fail(store, "a", error(final=False), retries=1)
    take(store)
    end(store, "a", Succeed(b"1"))
    assert names(store) == {}
    assert known(store).errors == 1
    assert known(store).count == 0
