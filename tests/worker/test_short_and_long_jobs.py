"""Short and long jobs in one worker: short ones are claimed and finished in batches, and no long one holds them up."""

from __future__ import annotations

from tests.apps import worker_app
from tests.support.workers import Crew, until

SHORT = 300
POOLS = """
[[pools]]
name = "long"
queues = ["default"]
processes = 1

[[pools]]
name = "short"
queues = ["short"]
"""


def test_short_jobs_are_claimed_and_finished_in_batches_beside_long_ones(crew: Crew) -> None:
    (crew.folder / "worker.toml").write_text(POOLS)
    crew.start("--config", str(crew.folder / "worker.toml"))
    long = [crew.put(worker_app.hold, "process"), crew.put(worker_app.hold_async, "coroutine")]
    crew.pids("process", "runs")

    call = worker_app.add_async.options(queue="short").bind
    short = crew.put_all([call(number, 1) for number in range(SHORT)])
    until(lambda: crew.app.count(queue="short", state="succeeded") == SHORT)

    ids = {job.id for job in short}
    for word in ("claimed", "succeeded"):
        calls = [jobs for jobs in crew.events(word) if ids.intersection(jobs)]
        assert sum(map(len, calls)) == SHORT
        assert len(calls) <= SHORT / 5, f"calls in which jobs were {word}"
    assert crew.get(long[0]).state == "running", "in the only process of its pool"
    for gate in ("process", "coroutine"):
        crew.open(gate)
    assert [job.result(timeout="30s") for job in long] == ["process", "coroutine"]
    assert [crew.get(job).attempt for job in long] == [1, 1]


def test_jobs_claimed_with_a_long_job_that_find_no_slot_are_released_and_run_by_others(crew: Crew) -> None:
    first = crew.start("--processes", "1")
    # So many that the worker, which goes by what it ran last, expects more of the kind and claims far ahead.
    crew.put_all([worker_app.add_async.bind(number, 1) for number in range(SHORT)])
    until(lambda: crew.app.count(state="succeeded") == SHORT)
    aside = crew.put(worker_app.hold_async, "aside")  # or only one job is claimed at first
    crew.pids("aside", "runs")
    long, *behind = crew.put_all([worker_app.hold.bind("long"), *(worker_app.say.bind(word) for word in "abc")])
    crew.pids("long", "runs")
    assert {crew.get(job).state for job in behind} == {"running"}, "claimed, and waiting for a process"

    crew.start("--processes", "1")

    ended = [crew.ended(job) for job in behind]
    assert crew.get(long).state == "running"
    assert [crew.outcomes(job) for job in ended] == [["released", "succeeded"]] * 3
    assert {job.attempts[0].reason for job in ended} == {"no slot was free in time"}
    assert {(job.retries_used, job.crashes_used, job.lost_used) for job in ended} == {(0, 0, 0)}
    assert "WARNING" not in first.log.replace("WARNING persistence:", "")  # a server of tests writes nothing to disk
    for gate in ("long", "aside"):
        crew.open(gate)
    assert [job.result(timeout="30s") for job in (long, aside)] == ["long", "aside"]
