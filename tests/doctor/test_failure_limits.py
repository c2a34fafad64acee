"""The doctor names queues with too many failed jobs, and kinds of failures with too many names."""

from __future__ import annotations

from dataclasses import replace

from holdfast.doctor import checks
from holdfast.doctor.probe import FailureLimits, FullQueue, probe_server
from holdfast.store import commands
from holdfast.store.store import Store
from tests.doctor.test_doctor import HEALTHY
from tests.store.lua.test_failures import error, fail, small_library
from tests.store.lua.test_state_machine import new


def test_a_queue_near_its_maximum_is_a_note_and_one_at_it_a_warning(store: Store) -> None:
    store.run(commands.configure("q", set={"keep_failed_count": 5}))
    for number in range(3):
        fail(store, f"job-{number}")
    assert checks.failures(probe_server(store)).level == "ok"

    fail(store, "one-more")
    near = probe_server(store)
    assert checks.failures(near).level == "note"
    assert near.failure_limits is not None
    (queue,) = near.failure_limits.queues
    assert (queue.name, queue.failed, queue.most) == ("q", 4, 5)
    assert queue.bytes > 400

    for number in range(3):
        fail(store, f"more-{number}")
    result = checks.failures(probe_server(store))
    assert result.level == "warning"
    assert "queue q has 5 of 5, about 0 MiB" in result.means
    assert "keep_failed_count" in result.advice
    assert store.run(commands.count(states=["failed"])) == 5


def test_kinds_with_too_many_names_are_noted(store: Store) -> None:
    with small_library():
        for number in range(3):
            fail(store, f"job-{number}", error(group=f"group-{number}", fingerprint=f"print-{number}"))
        found = checks.failures(probe_server(store))
    assert found.level == "note"
    assert "1,000 failure groups" in found.means
    assert "10,000 fingerprints" in found.means
    assert "tasks" not in found.means


def test_many_queues_are_read_in_pages(store: Store) -> None:
    store.run(commands.configure(None, set={"keep_failed_count": 1}))
    store.run(commands.enqueue([new(f"job-{number}", queue=f"queue-{number:04}") for number in range(1000)]))
    store.run(commands.enqueue([new("last", queue="queue-9")]))
    store.run(commands.fail(["job-5", "last"]))
    found = probe_server(store).failure_limits
    assert found is not None
    assert [queue.name for queue in found.queues] == ["queue-0005", "queue-9"]


def test_bytes_are_left_out_if_they_are_not_known() -> None:
    facts = replace(HEALTHY, failure_limits=FailureLimits((FullQueue("mail", 95_000, 100_000, 0),)))
    assert "queue mail has 95,000 of 100,000." in checks.failures(facts).means
    facts = replace(HEALTHY, failure_limits=FailureLimits((FullQueue("mail", 95_000, 100_000, 1200),)))
    assert "queue mail has 95,000 of 100,000, about 109 MiB." in checks.failures(facts).means
