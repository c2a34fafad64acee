"""Workers that exit by themselves, and executors that are replaced: no job is lost, charged or run twice."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from typing import Any

import pytest
import redis

from holdfast import Job, Task
from holdfast.worker.processes import usage_of, usage_of_tree
from tests.apps import kill_app, other_app
from tests.apps import worker_app as app
from tests.support.processes import new_site, send
from tests.support.workers import Crew, Worker, children, is_alive, until


def attempts(crew: Crew, jobs: list[Job[Any]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(crew.outcomes(job)) for job in jobs)


def executors(crew: Crew, jobs: list[Job[Any]]) -> set[str]:
    return {attempt.executor for job in jobs for attempt in crew.get(job).attempts}


def left_behind(crew: Crew) -> list[bytes]:
    """The keys of workers that are in the store, but for hints to wake them, which go after some seconds."""
    with redis.Redis.from_url(crew.url) as client:
        keys = [key.split(b":", 2)[2] for key in client.scan_iter(f"hf:{{{crew.namespace}}}:*")]
    return [key for key in keys if key[:2] in (b"w:", b"x:") or key.startswith((b"workers", b"inbox"))]


def fields_of_executors(crew: Crew) -> list[bytes]:
    """The executors that the store knows of."""
    with redis.Redis.from_url(crew.url) as client:
        return [
            field
            for key in client.scan_iter(f"hf:{{{crew.namespace}}}:w:*")
            for field in client.hkeys(key)
            if field.isdigit()
        ]


# Burst


def test_a_burst_runs_all_that_waits_and_ends(crew: Crew) -> None:
    jobs = crew.put_all([app.add.bind(number, 1) for number in range(20)])
    jobs += crew.put_all([app.add_async.bind(number, 1) for number in range(50)])

    worker = crew.start("--burst", "--executors", "2")

    assert worker.wait() == 0
    assert {crew.get(job).state for job in jobs} == {"succeeded"}
    assert crew.app.workers() == []
    assert left_behind(crew) == []


def test_a_burst_without_work_ends(crew: Crew) -> None:
    assert crew.start("--burst").wait() == 0


def test_a_burst_runs_what_its_jobs_enqueue_and_leaves_what_is_due_later(crew: Crew) -> None:
    first = crew.put(app.enqueue_more, 3)
    later = crew.put(app.add.options(delay="1h"), 1, 2)
    failing = crew.put(app.end_by.options(retries=1, backoff="1h"), "raise")

    assert crew.start("--burst", "--executors", "2", "--processes", "1").wait() == 0

    assert crew.get(first).state == "succeeded"
    assert crew.said("more") == [["3"], ["2"], ["1"], ["0"]]
    assert crew.get(later).state == crew.get(failing).state == "scheduled"


def test_a_burst_runs_due_jobs_behind_many_timers_of_other_queues(crew: Crew) -> None:
    crew.put_all([app.say.options(queue="others", delay="1ms").bind("others") for _ in range(800)])
    job = crew.put(app.say.options(delay="2ms"), "ours")
    until(lambda: time.time() > crew.get(job).created_at.timestamp() + 1)

    assert crew.start("--burst").wait() == 0

    assert crew.said() == [["ours"]]


def test_a_burst_waits_for_its_running_jobs(crew: Crew) -> None:
    worker = crew.start("--burst", "--executors", "2")
    job = crew.put(app.hold, "held")
    crew.pids("held", "runs")

    crew.open("held")

    assert worker.wait() == 0
    assert crew.get(job).state == "succeeded"


def test_a_burst_starts_an_executor_again_that_dies(crew: Crew) -> None:
    crew.put(app.kill_executor.options(crashes=1), "killer")
    crew.open("killer")
    jobs = crew.put_all([app.add.bind(number, 1) for number in range(5)])

    assert crew.start("--burst").wait() == 0

    assert {crew.get(job).state for job in jobs} == {"succeeded"}


def test_a_burst_can_be_stopped(crew: Crew) -> None:
    worker = crew.start("--burst", "--stop-within", "100ms")
    job = crew.put(app.hold, "held")
    crew.pids("held", "runs")

    assert worker.stop() == 0

    assert crew.outcomes(job) == ["released"]


# A number of jobs


@pytest.mark.parametrize(
    "options",
    [(), ("--executors", "3"), ("--max-jobs-per-executor", "2"), ("--runner", "thread", "--concurrency", "8")],
)
def test_a_worker_exits_after_max_jobs(crew: Crew, options: tuple[str, ...]) -> None:
    jobs = crew.put_all([app.say.bind(str(number)) for number in range(15)])

    assert crew.start("--max-jobs", "7", "--processes", "4", *options).wait() == 0

    assert len(crew.said()) == 7
    states = Counter(crew.get(job).state for job in jobs)
    assert states == {"succeeded": 7, "waiting": 8}
    assert left_behind(crew) == []


def test_max_jobs_counts_failed_jobs_but_not_unknown_tasks(crew: Crew) -> None:
    unknown = crew.put(other_app.greet, "you")
    failing, after, last = (
        crew.put(app.end_by.options(retries=0), "raise"),
        crew.put(app.say, "a"),
        crew.put(app.say, "b"),
    )

    assert crew.start("--max-jobs", "2", "--processes", "1").wait() == 0

    assert [crew.get(job).state for job in (unknown, failing, after, last)] == [
        "scheduled",
        "failed",
        "succeeded",
        "waiting",
    ]


def test_a_worker_whose_executor_dies_counts_what_it_ran(crew: Crew) -> None:
    crew.put(app.kill_executor.options(crashes=0), "killer")
    crew.open("killer")
    worker = crew.start("--max-jobs", "3")
    crew.pids("killer", "runs")
    jobs = crew.put_all([app.say.bind(str(number)) for number in range(5)])

    assert worker.wait() == 0

    assert Counter(crew.get(job).state for job in jobs) == {"succeeded": 2, "waiting": 3}


# Replacing executors


def test_two_hundred_jobs_run_once_each_while_executors_are_replaced_after_a_few(crew: Crew) -> None:
    jobs = crew.put_all([app.say.bind(str(number)) for number in range(200)])

    worker = crew.start("--max-jobs-per-executor", "25", "--processes", "4", "--executors", "2", "--burst")

    assert worker.wait() == 0
    assert sorted(int(word) for (word,) in crew.said()) == list(range(200))
    assert attempts(crew, jobs) == {("succeeded",): 200}
    assert {(job.retries_used, job.crashes_used, job.lost_used) for job in map(crew.get, jobs)} == {(0, 0, 0)}
    assert len(executors(crew, jobs)) >= 8
    assert "died" not in worker.log
    assert left_behind(crew) == []


def test_executors_that_are_killed_while_they_are_replaced_lose_and_repeat_nothing() -> None:
    with new_site() as site:
        calls = [(kill_app.awork if number % 4 == 0 else kill_app.work).bind(number % 30) for number in range(200)]
        ids = [job.id for job in site.app.enqueue_many(calls)]
        worker = site.start("--max-jobs-per-executor", "10", "--processes", "4", "--executors", "2")
        for count in (30, 70, 110):
            site.wait_for_ends(count)
            send(signal.SIGKILL, *children(worker.pid)[:2])

        account = site.settle(ids)

        assert (account.lost, account.completed_twice, account.succeeded) == ([], [], 200)
        assert site.entries("overlap") == []
        assert {run.outcome for job in site.records(ids) for run in job.attempts[:-1]} <= {"crash", "released"}


@pytest.mark.parametrize("limit", [("--max-age", "1s"), ("--max-memory", "2M")], ids=["age", "memory"])
def test_jobs_run_once_each_while_executors_are_replaced_by_age_and_by_memory(
    crew: Crew, limit: tuple[str, str]
) -> None:
    worker = crew.start(*limit, "--lease", "1s", "--processes", "2", "--concurrency", "20")
    jobs: list[Job[Any]] = []
    while len(executors(crew, jobs[::20])) < 3:
        jobs += (batch := crew.put_all([app.add_async.bind(number, 0) for number in range(20)]))
        jobs.append(crew.put(app.add, 1, 2))
        assert [job.result(timeout="30s") for job in batch] == list(range(20))

    assert {job.state for job in map(crew.ended, jobs)} == {"succeeded"}
    assert {(job.attempt, job.retries_used, job.crashes_used, job.lost_used) for job in map(crew.get, jobs)} == {
        (1, 0, 0, 0)
    }
    assert "replacing executor " in worker.log
    assert worker.stop() == 0
    assert left_behind(crew) == []


@pytest.mark.parametrize("task", [app.hold, app.hold_async], ids=["sync", "async"])
def test_a_running_job_continues_in_the_old_executor_while_its_replacement_starts(
    crew: Crew, task: Task[[str], str]
) -> None:
    """Also when that takes longer than a stop may."""
    worker = crew.start("--max-age", "1s", "--lease", "1s", "--stop-within", "1ms", "--processes", "2")
    job = crew.put(task, "long")
    (pid,) = crew.pids("long", "runs")
    old = worker.executor
    until(lambda: len(children(worker.pid)) > 1)

    others = [crew.put(app.add, number, 1) for number in range(5)]

    assert [other.result(timeout="30s") for other in others] == [1, 2, 3, 4, 5]
    assert is_alive(pid)
    assert is_alive(old)
    crew.open("long")
    assert job.result(timeout="30s") == "long"
    assert crew.outcomes(job) == ["succeeded"]
    assert until(lambda: not is_alive(old))
    assert worker.stop() == 0


def test_jobs_of_replaced_executors_occupy_slots_of_the_new_ones(crew: Crew) -> None:
    worker = crew.start("--max-jobs-per-executor", "1", "--processes", "2")
    jobs = [crew.put(app.hold, name) for name in ("first", "second", "third")]
    crew.pids("first", "runs")
    crew.pids("second", "runs")
    until(lambda: worker.log.count(" replaces ") >= 2)
    assert crew.said("third", "runs") == []

    crew.open("first")

    crew.pids("third", "runs")
    assert crew.get(jobs[1]).state == "running"
    for name in ("second", "third"):
        crew.open(name)
    assert {crew.ended(job).state for job in jobs} == {"succeeded"}
    assert attempts(crew, jobs) == {("succeeded",): 3}


def test_an_old_executor_that_dies_is_charged_as_any_other(crew: Crew) -> None:
    worker = crew.start("--max-age", "1s", "--lease", "1s")
    job = crew.put(app.hold_async, "long")
    (old,) = crew.pids("long", "runs")
    until(lambda: len(children(worker.pid)) > 1)

    crew.kill(old)

    crew.pids("long", "runs", 2)
    crew.open("long")
    assert crew.ended(job).state == "succeeded"
    assert crew.outcomes(job) == ["crash", "succeeded"]


def test_an_old_executor_stops_with_its_worker(crew: Crew) -> None:
    worker = crew.start("--max-age", "1s", "--lease", "1s", "--stop-within", "100ms")
    job = crew.put(app.hold_async, "long")
    crew.pids("long", "runs")
    until(lambda: len(children(worker.pid)) > 1)

    assert worker.stop() == 0

    assert crew.outcomes(job) == ["released"]
    assert left_behind(crew) == []


def test_a_cancellation_reaches_a_job_of_an_old_executor(crew: Crew) -> None:
    worker = crew.start("--max-age", "1s", "--lease", "1s")
    job = crew.put(app.hold, "long")
    crew.pids("long", "runs")
    until(lambda: len(children(worker.pid)) > 1)

    job.cancel()

    assert crew.ended(job).state == "cancelled"


def test_an_executor_that_was_replaced_leaves_nothing_in_the_store(crew: Crew) -> None:
    crew.start("--max-jobs-per-executor", "1", "--processes", "1")
    jobs = [crew.put(app.add, number, 1) for number in range(4)]

    assert [job.result(timeout="30s") for job in jobs] == [1, 2, 3, 4]
    assert len(executors(crew, jobs)) == 4
    until(lambda: len(fields_of_executors(crew)) == 1)


# Orders


def test_a_real_worker_takes_jobs_by_the_weights_of_their_queues(crew: Crew) -> None:
    for queue, count in (("video", 60), ("mail", 60), ("idle", 0)):
        crew.put_all([app.say.options(queue=queue).bind(queue) for _ in range(count)])

    crew.start(
        "--order", "weighted", "--queues", "video=5,mail=1,idle=3", "--processes", "1", "--max-jobs", "24"
    ).wait()

    said = Counter(word for (word,) in crew.said())
    assert said.total() == 24
    assert abs(said["mail"] - 4) <= 1


def test_a_real_worker_goes_round_its_queues(crew: Crew) -> None:
    for queue in ("a", "b", "c"):
        crew.put_all([app.say.options(queue=queue).bind(queue) for _ in range(10)])

    crew.start("--order", "round-robin", "--queues", "a,b,c", "--processes", "1", "--max-jobs", "12").wait()

    assert Counter(word for (word,) in crew.said()) == {"a": 4, "b": 4, "c": 4}


def test_a_worker_with_an_order_is_woken_for_all_its_queues(crew: Crew) -> None:
    crew.start("--order", "round-robin", "--queues", "a,b")

    for queue in ("b", "a", "b"):
        assert crew.put(app.add.options(queue=queue), 1, 2).result(timeout="30s") == 3


# Leases


def test_jobs_have_the_lease_of_their_queue_and_keep_it(crew: Crew) -> None:
    crew.app.configure({"lease": "1s"}, queue="short")
    crew.start("--queues", "short,default")
    jobs = [crew.put(app.hold.options(queue=queue), queue) for queue in ("default", "short")]
    crew.pids("default", "runs")
    crew.pids("short", "runs")

    ends = crew.get(jobs[1]).lease_ends_at
    for _ in range(6):
        until(lambda ends=ends: crew.get(jobs[1]).lease_ends_at != ends)  # type: ignore[misc]
        ends = crew.get(jobs[1]).lease_ends_at

    for job, name in zip(jobs, ("default", "short"), strict=True):
        crew.open(name)
        assert job.result(timeout="30s") == name
    assert attempts(crew, jobs) == {("succeeded",): 2}


# What a worker says


def about(crew: Crew) -> dict[str, Any]:
    (worker,) = crew.app.workers()
    return worker.about


def test_a_worker_publishes_its_description_and_resource_usage(crew: Crew) -> None:
    worker = crew.start("--lease", "1s", "--queues", "a,default", "--executors", "2")
    crew.put(app.hold, "held")
    crew.pids("held", "runs")
    until(lambda: crew.app.workers() and sum(row["jobs"] for row in about(crew)["executors"]) == 1)

    said = about(crew)

    assert (said["pid"], said["app"], said["queues"]) == (worker.pid, "tests.apps.worker_app", ["a", "default"])
    assert {row["pid"] for row in said["executors"]} == set(children(worker.pid))
    assert [row["name"].rpartition("/")[0] for row in said["executors"]] == ["node", "node"]
    assert said["memory"] > sum(row["memory"] for row in said["executors"]) > 10_000_000
    assert said["cpu_seconds"] >= sum(row["cpu_seconds"] for row in said["executors"]) > 0
    assert {"host", "version", "started"} <= said.keys()


def test_memory_that_processes_share_is_counted_once(crew: Crew) -> None:
    worker = crew.start("--processes", "4")
    for number in range(4):
        crew.put(app.hold, f"held-{number}")
        crew.pids(f"held-{number}", "runs")

    executor = worker.executor
    alone, together = usage_of(executor), usage_of_tree(executor)

    assert alone.memory < together.memory < 6 * alone.memory
    assert usage_of(2**22 + 1) == (0, 0.0)


def lines(worker: Worker, level: str) -> list[str]:
    return re.findall(rf" (?:{level}) (.*)", worker.log)


def test_ends_of_jobs_are_logged_at_info_or_above(crew: Crew) -> None:
    worker = crew.start("--burst")
    quick, failing = crew.put(app.add, 1, 2), crew.put(app.end_by.options(retries=0), "raise")
    slow = crew.put(app.hold, "slow")
    crew.pids("slow", "runs")
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1)

    crew.open("slow")

    assert worker.wait() == 0
    ends = [line for line in lines(worker, "INFO|WARNING") if " attempt 1 of " in line]
    assert any(line.startswith(f"{quick.id}: attempt 1 of tests.apps.worker_app.add succeeded") for line in ends)
    assert any(line.startswith(f"{failing.id}: attempt 1 of tests.apps.worker_app.end_by failed") for line in ends)
    assert any(
        line.startswith(f"{slow.id}: attempt 1 of tests.apps.worker_app.hold succeeded after 1.") for line in ends
    )


def test_all_starts_and_ends_of_jobs_are_logged_at_debug(crew: Crew) -> None:
    job = crew.put(app.add, 1, 2)
    worker = crew.start("--burst", "--log-level", "DEBUG")

    assert worker.wait() == 0
    said = [line for line in lines(worker, "DEBUG|INFO") if line.startswith(job.id)]
    assert said[0] == f"{job.id}: attempt 1 of tests.apps.worker_app.add starts"
    assert re.fullmatch(rf"{job.id}: attempt 1 of tests\.apps\.worker_app\.add succeeded after \d\.\d\d s", said[1])
