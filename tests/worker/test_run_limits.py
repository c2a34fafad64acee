"""Limits of a run, in each runner: time, silence, memory, and a lease that must not expire."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast, Invalid, Job, Retries
from holdfast.job.option_table import Runner
from holdfast.job.options import NO_RUN_OPTIONS, RunOptions
from holdfast.worker.lease_clock import LeaseClock
from holdfast.worker.linux import boot_time
from tests.apps import limits_app as app
from tests.apps.runner_app import RUNNERS
from tests.support.relay import Relay
from tests.support.servers import running_server
from tests.support.workers import Crew, Worker, is_alive, new_crew, until

APART: tuple[Runner, ...] = ("fork", "spawn", "process")
INSIDE: tuple[Runner, ...] = ("thread", "async")


class Staff(NamedTuple):
    crew: Crew
    worker: Worker

    def put(self, program: str, runner: Runner, *args: Any, **options: Any) -> Job[Any]:
        return self.crew.put(app.find(program, runner).options(**options), *args)


def start(crew: Crew, *options: str, **more: str) -> Staff:
    crew.app.tasks.update(app.jobs.tasks)
    return Staff(crew, crew.start("--processes", "6", *options, app="tests.apps.limits_app", **more))


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staff]:
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        yield start(crew, "--lease", "4s")


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> Runner:
    chosen: Runner = request.param
    return chosen


@pytest.fixture(params=APART)
def apart(request: pytest.FixtureRequest) -> Runner:
    chosen: Runner = request.param
    return chosen


# Time


def test_a_job_sees_its_soft_timeout_with_the_reason_yields_and_goes_on_uncharged(staff: Staff, runner: Runner) -> None:
    job = staff.put("yield_when_told", runner, f"soft-{runner}", soft_timeout="200ms")

    assert job.result(timeout="30s") == (2, "soft_timeout")

    ended = staff.crew.get(job)
    assert staff.crew.outcomes(job) == ["released", "succeeded"]
    assert (ended.retries_used, ended.crashes_used, ended.lost_used) == (0, 0, 0)


def test_a_job_that_ignores_its_soft_timeout_is_stopped_by_its_timeout(staff: Staff, runner: Runner) -> None:
    name = f"both-{runner}"
    job = staff.put("hold", runner, name, True, soft_timeout="100ms", timeout="400ms", retries=0)

    ended = staff.crew.ended(job)

    assert (ended.state, ended.group) == ("failed", "timeout")
    assert ended.failure
    assert ended.failure.message == "the job ran for longer than its timeout of 0.4 s and was stopped"


@pytest.mark.parametrize("runner", ["fork", "thread"])
def test_a_job_of_a_stopping_worker_sees_that_as_the_stop_reason(crew: Crew, runner: Runner) -> None:
    first = start(crew)
    job = first.put("yield_when_told", runner, "told")
    crew.pids("told", "runs")

    assert first.worker.stop() == 0
    start(crew)

    assert job.result(timeout="30s") == (2, "worker")


# Silence


def test_a_silent_job_is_stopped_and_its_failure_has_the_stack(staff: Staff, runner: Runner) -> None:
    seconds = 4 if runner == "spawn" else 0.3  # it has to import the app
    job = staff.put("be_silent", runner, f"silent-{runner}", stalled=seconds, retries=0)

    ended = staff.crew.ended(job)

    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "stalled", 0)
    assert ended.failure
    assert ended.failure.message.startswith(f"the job was silent for {seconds} s")
    assert f"in {'say_nothing' if runner == 'async' else '_drive'}\n" in ended.failure.traceback
    staff.crew.open(f"silent-{runner}")  # a thread is abandoned


def test_the_stack_is_there_though_the_job_holds_its_interpreter(staff: Staff, apart: Runner) -> None:
    job = staff.put("add_up", apart, f"gil-{apart}", stalled="4s" if apart == "spawn" else "300ms", retries=0)

    ended = staff.crew.ended(job)

    assert ended.group == "stalled"
    assert ended.failure
    assert "in add_up\n" in ended.failure.traceback


def test_every_kind_of_report_counts_as_a_sign_of_life(staff: Staff) -> None:
    said = ("save", "report", "note", "print")
    jobs = [staff.put("talk", "fork", how, 3.5, stalled="2s", retries=0) for how in said]
    jobs += [staff.put("talk", runner, how, 3.5, stalled="2s", retries=0) for runner in INSIDE for how in said]

    assert [job.result(timeout="40s") for job in jobs] == [None] * len(jobs)


# Memory


def test_a_job_that_takes_too_much_memory_is_killed_with_the_last_figure(staff: Staff, apart: Runner) -> None:
    job = staff.put("grow", apart, f"grow-{apart}", "here", memory="160MiB", retries=0)

    ended = staff.crew.ended(job)

    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "memory", 0)
    assert ended.failure
    used, most = map(float, re.findall(r"([\d.]+) MiB", ended.failure.message))
    assert used > most == 160


def test_memory_of_a_process_that_has_left_the_job_counts_and_it_is_killed(staff: Staff, apart: Runner) -> None:
    name = f"away-{apart}"
    job = staff.put("grow", apart, name, "away", memory="160MiB", retries=0)
    (escaped,) = staff.crew.pids(name, "started")

    ended = staff.crew.ended(job)

    assert ended.group == "memory"
    assert not is_alive(escaped)


def test_a_job_within_its_memory_is_left_alone(staff: Staff, apart: Runner) -> None:
    name = f"modest-{apart}"
    job = staff.put("hold", apart, name, True, memory="1GiB")
    staff.crew.pids(name, "runs")
    staff.crew.open(name)

    assert job.result(timeout="30s") == name


# Budgets of their own


def test_a_job_may_time_out_twice_and_succeed_without_any_retry(staff: Staff, runner: Runner) -> None:
    name = f"twice-{runner}"
    job = staff.put("hold_at_first", runner, name, 2, timeout="1s", retries=0, timeouts=Retries(2, waits="10ms"))

    assert job.result(timeout="60s") == 3

    ended = staff.crew.get(job)
    assert [run.failure and run.failure.group for run in ended.attempts] == ["timeout", "timeout", None]
    assert (ended.timeouts, ended.timeouts_used, ended.retries_used) == (2, 2, 0)
    assert ended.timeouts_policy == Retries(2, waits="10ms")


LIMITS = [
    ("hold_at_first", "timeout", "timeouts", {"timeout": "400ms"}),
    ("be_silent", "stalled", "stalls", {"stalled": "400ms"}),
    ("grow", "memory", "out_of_memory", {"memory": "160MiB"}),
]


@pytest.mark.parametrize(("program", "group", "budget", "limit"), LIMITS)
def test_a_job_that_exceeds_a_limit_again_and_again_uses_up_the_budget_of_this_limit(
    staff: Staff, program: str, group: str, budget: str, limit: dict[str, str]
) -> None:
    arguments = {"hold_at_first": (9,), "grow": ("here",)}.get(program, ())
    more: dict[str, Any] = {budget: 1, **limit}
    job = staff.put(program, "fork", f"again-{group}", *arguments, retries=9, backoff="1s", **more)

    ended = staff.crew.ended(job)

    assert (ended.state, ended.group, ended.final_reason) == ("failed", group, "exhausted")
    assert [run.failure and run.failure.group for run in ended.attempts] == [group, group]
    assert (ended.retries_used, ended.crashes_used, getattr(ended, f"{budget}_used")) == (0, 0, 2)
    assert f"({budget}: 2, allowed: 1)" in ended.why
    until(lambda: f"failed for good (exhausted: {budget}: 2, allowed: 1), in group {group}" in staff.worker.log)
    until(lambda: f"{job.id}: retry after" in staff.worker.log)


# Crashes


def test_a_job_that_keeps_killing_its_process_is_quarantined_with_each_death(crew: Crew, runner: Runner) -> None:
    staff = start(crew)
    crew.open("killer")
    killer = staff.put("die", runner, "killer", "kill", crashes=1)

    ended = crew.ended(killer)

    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "crashed", 2)
    deaths = [run for run in ended.attempts if run.outcome == "crash"]
    assert len(deaths) == 2
    for death in deaths:
        assert "SIGKILL" in f"{death.reason} {death.failure and death.failure.message}"
    assert staff.put("nothing", runner).result(timeout="30s") is None


def test_a_process_that_stays_is_replaced_when_jobs_have_left_very_many_dead_children_in_it(crew: Crew) -> None:
    staff = start(crew, "--processes", "1")

    first, second, third = (staff.put("leave_dead", "process", count).result(timeout="30s") for count in (5, 200, 0))

    assert first == second != third


# Leases of exclusive jobs


def cut_off(crew: Crew, relay: Relay, runner: Runner) -> tuple[Staff, Job[Any]]:
    """An exclusive job on a worker that can be cut off, and another worker that will have it then."""
    first = start(crew, "--lease", "4s", node="first", HOLDFAST_URL=relay.url)
    job = first.put("be_alone", runner, "alone", exclusive=True)
    crew.pids("alone", "runs")
    start(crew, "--lease", "4s", node="second")
    until(lambda: len(crew.app.workers()) == 2)
    return first, job


def test_an_exclusive_job_is_dead_before_another_worker_can_claim_it(crew: Crew, relay: Relay, apart: Runner) -> None:
    first, job = cut_off(crew, relay, apart)

    relay.cut()

    crew.pids("alone", "runs", 2)
    assert crew.said("alone", "found") == [["dead"]]
    assert "could not be renewed in time; stopping it" in first.worker.log
    relay.mend()
    crew.open("alone")
    assert crew.ended(job).state == "succeeded"
    assert len(crew.said("alone", "runs")) == 2


def test_an_exclusive_job_is_killed_although_its_executor_is_frozen(crew: Crew, relay: Relay) -> None:
    first, job = cut_off(crew, relay, "fork")
    executor = first.worker.executor
    crew.kill(executor, signal.SIGSTOP)

    relay.cut()

    crew.pids("alone", "runs", 2)
    assert crew.said("alone", "found") == [["dead"]]
    crew.kill(executor, signal.SIGCONT)
    relay.mend()
    crew.open("alone")
    assert crew.ended(job).crashes_used == 0


def test_an_exclusive_job_is_stopped_although_its_supervisor_is_frozen(crew: Crew, relay: Relay) -> None:
    first, job = cut_off(crew, relay, "fork")

    first.worker.send(signal.SIGSTOP)

    crew.pids("alone", "runs", 2)
    assert crew.said("alone", "found") == [["dead"]]
    first.worker.send(signal.SIGCONT)
    crew.open("alone")
    assert crew.ended(job).state == "succeeded"


def test_an_exclusive_job_does_not_take_a_renewal_of_others_for_its_own(crew: Crew) -> None:
    """Its supervisor stands still before it has heard of the claim, but for a moment in which it renews the others."""
    first = start(crew, "--lease", "4s", node="first")
    first.put("nothing", "fork").result(timeout="30s")
    first.worker.send(signal.SIGSTOP)
    job = first.put("be_alone", "fork", "alone", exclusive=True)
    crew.pids("alone", "runs")
    start(crew, "--lease", "4s", node="second")
    claimed = crew.get(job).claimed_at
    assert claimed
    until(lambda: datetime.now(UTC) - claimed > timedelta(seconds=1.5), what="more than a quarter of a lease to pass")

    clock, *_ = [file for file in Path(f"/proc/{first.worker.pid}/fd").iterdir() if "lease-clock" in os.readlink(file)]
    seen = LeaseClock(os.open(clock, os.O_RDWR))
    seen.renewed(1.0, boot_time())
    seen.close()

    crew.pids("alone", "runs", 2)
    assert crew.said("alone", "found") == [["dead"]]
    first.worker.send(signal.SIGCONT)
    crew.open("alone")
    assert crew.ended(job).state == "succeeded"


def test_an_exclusive_job_does_not_start_when_its_lease_has_lapsed_meanwhile(crew: Crew, apart: Runner) -> None:
    first = start(crew, "--lease", "4s", node="first")
    first.put("nothing", "thread").result(timeout="30s")  # so no process waits for the next job
    idle = [first.worker.pid, first.worker.zygote]
    for pid in idle:
        crew.kill(pid, signal.SIGSTOP)
    job = first.put("be_alone", apart, "alone", exclusive=True)
    until(lambda: crew.get(job).attempt == 1)
    start(crew, "--lease", "4s", node="second")
    crew.pids("alone", "runs")

    for pid in reversed(idle):
        crew.kill(pid, signal.SIGCONT)

    until(lambda: f"{job.id}: attempt 1 has lost its lease" in first.worker.log)
    crew.open("alone")
    assert crew.ended(job).state == "succeeded"
    assert len(crew.said("alone", "runs")) == 1


def test_an_exclusive_job_does_not_start_in_a_process_that_waits_when_its_claim_took_too_long(
    crew: Crew, relay: Relay
) -> None:
    first = start(crew, "--lease", "2s", HOLDFAST_URL=relay.url)
    first.put("nothing", "process").result(timeout="30s")
    due = datetime.now(UTC) + timedelta(seconds=1)
    job = first.put("nothing", "process", exclusive=True, at=due)
    first.put("nothing", "process").result(timeout="30s")  # and the worker knows what is due next

    relay.cut()
    until(lambda: datetime.now(UTC) - due > timedelta(seconds=2.5), what="more than a lease to pass with the claim")
    relay.mend()

    assert crew.ended(job).state == "succeeded"  # by a later attempt, unless the machine was too slow for this story


def test_an_exclusive_job_runs_as_any_other_while_its_lease_is_renewed(staff: Staff, apart: Runner) -> None:
    job = staff.put("talk", apart, "save", 5.0, exclusive=True)

    assert job.result(timeout="40s") is None
    assert staff.crew.outcomes(job) == ["succeeded"]


# Refusals, and how it travels

jobs = Holdfast()


def idle() -> None: ...


async def wait() -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (
            idle,
            {"runner": "thread", "memory": "1GiB"},
            "memory cannot be enforced for idle, which runs in the executor's own process",
        ),
        (idle, {"runner": "thread", "exclusive": True}, "exclusive cannot be enforced"),
        (wait, {"memory": "1GiB"}, r"\(runner 'async'\)"),
        (wait, {"exclusive": True}, "choose the runner fork, spawn or process"),
        (idle, {"memory": "1KiB"}, "memory is '1KiB'; it must be at least 1 MiB"),
        (idle, {"memory": "much"}, "it must be a size in bytes"),
        (idle, {"soft_timeout": "1h", "timeout": "1h"}, "soft_timeout is 1h; it must be shorter than timeout"),
        (idle, {"exclusive": "yes"}, "it must be True or False"),
        (idle, {"stalled": 0}, "stalled"),
    ],
)
def test_limits_that_a_runner_cannot_enforce_are_refused_at_the_declaration(
    function: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        jobs.task(name="refused", **options)(function)


def test_a_worker_whose_runner_cannot_keep_a_limit_refuses_to_start(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "limited.py").write_text(
        "from holdfast import Holdfast\njobs = Holdfast()\n@jobs.task(memory='1GiB', exclusive=True)\ndef task(): ...\n"
    )
    path = os.environ.get("PYTHONPATH", "")
    worker = crew.start("--runner", "thread", app="limited", PYTHONPATH=f"{tmp_path}:{path}")

    assert worker.wait() == 1
    assert "task limited.task is declared with memory and exclusive, which the runner thread" in worker.log


def test_a_call_whose_limits_a_worker_cannot_keep_is_left_to_others(crew: Crew) -> None:
    first = start(crew, "--runner", "thread", "--queues", "default")
    job = crew.put(app.jobs.tasks["tests.apps.runner_app.sync_task"].options(memory="1GiB"))
    reason = "its limits need a runner with a process per job"
    until(lambda: reason in str([run.reason for run in crew.get(job).attempts]))
    first.worker.stop()

    start(crew)

    assert job.result(timeout="30s")[1] == "MainThread"


def test_limits_travel_with_the_next_stage_and_with_schedules(staff: Staff) -> None:
    stage = staff.put("go_on_silently", "fork", "stage")
    call = app.find("be_silent", "fork").options(stalled="300ms", retries=0).bind("scheduled")
    staff.crew.app.schedule("silently", call, every="1d")
    scheduled = staff.crew.app.get(staff.crew.app.trigger("silently"))

    assert [staff.crew.ended(job).group for job in (stage, scheduled)] == ["stalled", "stalled"]


def test_limits_travel_as_a_text_that_other_releases_can_read() -> None:
    task = jobs.task(name="limited", soft_timeout="1m", memory="2GiB", stalled="10m", exclusive=True)(idle)

    text = task.effective_options.arguments()["run"]

    assert RunOptions.decode(text.encode()) == RunOptions(
        soft_timeout=60_000, memory=2 << 30, stalled=600_000, exclusive=True
    )
    assert jobs.task(name="plain")(idle).effective_options.arguments().get("run") is None
    assert RunOptions.decode(b"") is NO_RUN_OPTIONS
    assert RunOptions.decode(b'{"memory":5,"of a newer release":1}') == RunOptions(memory=5)
