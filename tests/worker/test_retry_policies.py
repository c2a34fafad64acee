"""Retry policies with real workers: which exceptions are retried, and when, under every runner."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from holdfast import Holdfast, Job, JobFailed, Retries
from holdfast.job.option_table import Runner
from holdfast.job.outcome import Error
from holdfast.task.call import Call
from holdfast.worker.runners.child import _attempt
from tests.apps import retry_app as app
from tests.apps.retry_app import RUNNERS, Own
from tests.support.servers import running_server
from tests.support.workers import Crew, Worker, new_crew, until

HOUR = timedelta(hours=1)
RETRIED = ""
ONLY = Retries(5, waits="1h", on=(ConnectionError, "tests.apps.retry_app.Own"))
BUT = Retries(5, waits="1h", not_on=(ValueError, "builtins.LookupError"))
BOTH = Retries(5, waits="1h", on=ValueError, not_on=Own)

EXPECTED: list[tuple[Retries, str, str]] = [
    (ONLY, "reset", RETRIED),
    (ONLY, "own", RETRIED),
    (ONLY, "value", "not retried: ValueError is not in on"),
    (ONLY, "misnamed", "not retried: caf\\udce9.Misnamed is not in on"),
    (ONLY, "resets", RETRIED),
    (ONLY, "group", RETRIED),
    (ONLY, "retry", RETRIED),
    (ONLY, "middleware", RETRIED),
    (BUT, "reset", RETRIED),
    (BUT, "value", "not retried: ValueError is in not_on"),
    (BUT, "own", "not retried: ValueError is in not_on"),
    (BUT, "key", "not retried: LookupError is in not_on"),
    (BUT, "group", "not retried: ValueError is in not_on"),
    (BUT, "retry", RETRIED),
    (BUT, "middleware", "not retried: ValueError is in not_on"),
    (BOTH, "value", RETRIED),
    (BOTH, "own", "not retried: tests.apps.retry_app.Own is in not_on"),
    (BOTH, "key", "not retried: KeyError is not in on"),
]


class Staff:
    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        crew.app.tasks.update(app.jobs.tasks)
        self.worker: Worker = crew.start("--processes", "4", "--allow-exec", app="tests.apps.retry_app")

    def put(self, runner: Runner, way: str, **options: Any) -> Job[Any]:
        return self.crew.put(app.find(runner).options(**options), way)

    def after_attempt(self, job: Job[Any], number: int = 1) -> Job[Any]:
        """The record after an attempt that failed: what follows is due in an hour, or there is nothing."""
        return until(
            lambda: (
                now if (now := self.crew.get(job)).state in ("scheduled", "failed") and now.attempt == number else None
            ),
            what=f"the end of attempt {number} of {job}",
        )


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staff]:
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        yield Staff(crew)


def wait_of(job: Job[Any]) -> timedelta:
    """The time from the end of the last attempt to the retry."""
    assert job.due_at
    assert job.attempts[-1].ended_at
    return job.due_at - job.attempts[-1].ended_at


@pytest.mark.parametrize("runner", RUNNERS)
def test_on_and_not_on_decide_under_every_runner_whether_an_exception_is_retried(staff: Staff, runner: Runner) -> None:
    put = [(staff.put(runner, way, retries=policy), reason) for policy, way, reason in EXPECTED]
    for number, (job, reason) in enumerate(put):
        found = staff.after_attempt(job)
        policy, way, _ = EXPECTED[number]
        assert (found.state, found.final_reason) == (("failed", "not_retryable") if reason else ("scheduled", "")), way
        assert found.attempts[0].reason == reason
        if not reason:
            assert HOUR <= wait_of(found) <= HOUR * 1.1, way
        assert found.retry_policy == policy


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_policy_concerns_neither_fail_nor_crashes_nor_timeouts(staff: Staff, runner: Runner) -> None:
    fail = staff.after_attempt(staff.put(runner, "fail", retries=ONLY))
    assert (fail.final_reason, fail.attempts[0].reason) == ("declared", "")
    if runner not in ("thread", "async"):
        crashed = staff.crew.ended(staff.put(runner, "exit", retries=ONLY, crashes=1))
        assert (crashed.group, crashed.final_reason, crashed.crashes_used) == ("crashed", "exhausted", 2)
        late = staff.after_attempt(staff.put(runner, "hang", retries=ONLY, timeout="50ms"))
        assert (late.state, late.attempts[0].failure and late.attempts[0].failure.type) == ("scheduled", "Timeout")
        assert HOUR <= wait_of(late) <= HOUR * 1.1


@pytest.mark.parametrize("runner", RUNNERS)
def test_arguments_that_do_not_fit_are_retried_whatever_the_policy(staff: Staff, runner: Runner) -> None:
    """In the middle of a deployment, a worker of the other release may run the job."""

    def newer(number: int) -> None: ...

    async def anewer(number: int) -> None: ...

    other = Holdfast(staff.crew.url, namespace=staff.crew.namespace)
    task = other.task(name=f"give-up-{runner}", runner=runner)(anewer if runner == "async" else newer)
    policy = Retries(5, waits="1h", on=KeyError, not_on=ValueError)
    found = staff.after_attempt(task.options(retries=policy).enqueue(1))
    other.close()
    assert (found.state, found.attempts[0].reason) == ("scheduled", "")
    assert found.attempts[0].failure
    assert found.attempts[0].failure.type == "holdfast.WrongArguments"


def test_an_app_that_cannot_be_imported_is_not_an_exception_of_the_task() -> None:
    """An interpreter may import it in the middle of a deployment."""

    def load() -> NoReturn:
        raise ImportError("half of it is there")

    call = Call("a", 1, "default", "shop.sell", b"{}", b"", "", run=b'{"retry_policy":{"on":["KeyError"]}}')
    no_link: Any = None
    outcome = _attempt(call, no_link, load)
    assert isinstance(outcome, Error)
    assert (outcome.group, outcome.final) == ("ImportError", False)


def test_an_exception_that_interrupts_need_not_be_in_on(staff: Staff) -> None:
    assert staff.after_attempt(staff.put("fork", "cancelled", retries=ONLY)).state == "scheduled"
    policy = Retries(5, not_on="asyncio.CancelledError")
    found = staff.after_attempt(staff.put("fork", "cancelled", retries=policy))
    assert found.attempts[0].reason == "not retried: asyncio.exceptions.CancelledError is in not_on"


def test_waits_are_used_in_order_capped_and_spread(staff: Staff) -> None:
    """The second wait is an hour, cut to the cap; each job gets a random part of its own."""
    cap = timedelta(minutes=30)
    jobs = staff.crew.put_all([app.fail_twice.bind() for _ in range(20)])
    waits = [wait_of(staff.after_attempt(job, 2)) for job in jobs]
    assert all(cap <= wait <= cap * 1.1 for wait in waits)
    assert len({*waits}) > 1, "they are not retried together"


def test_a_plain_number_has_the_jitter_of_ten_percent_and_a_policy_may_turn_it_off(staff: Staff) -> None:
    plain = [staff.put("thread", "value", retries=3, backoff="1h") for _ in range(20)]
    exact = [staff.put("thread", "value", retries=Retries(3, jitter=0), backoff="1h") for _ in range(3)]
    wide = [staff.put("thread", "value", retries=Retries(3, jitter=1), backoff="1h") for _ in range(20)]
    waits = [wait_of(staff.after_attempt(job)) for job in plain]
    assert all(HOUR <= wait <= HOUR * 1.1 for wait in waits)
    assert len({*waits}) > 1
    assert [wait_of(staff.after_attempt(job)) for job in exact] == [HOUR] * 3
    waits = [wait_of(staff.after_attempt(job)) for job in wide]
    assert all(HOUR <= wait <= HOUR * 2 for wait in waits)
    assert max(waits) > HOUR * 1.1


def test_the_call_overrides_the_task_and_the_task_the_app(staff: Staff) -> None:
    """An option `retries` replaces all of an inherited one, number and policy."""
    jobs = Holdfast(
        staff.crew.url,
        namespace=staff.crew.namespace,
        defaults={"retries": Retries(5, cap="1h", not_on=ValueError), "backoff": "2h"},
    )
    inherited = jobs.task(name="give-up-fork")(app.give_up)
    replaced = jobs.task(name="give-up-thread", retries=Retries(4, on=Own))(app.give_up)
    found = [
        staff.after_attempt(task.enqueue("own"))
        for task in (inherited, inherited.options(retries=7), replaced, replaced.options(retries=Retries(on=KeyError)))
    ]
    assert [job.retries for job in found] == [5, 7, 4, 3]
    assert [job.final_reason for job in found] == ["not_retryable", "", "", "not_retryable"]
    assert [job.retry_policy for job in found][:3] == [
        Retries(5, cap="1h", not_on=ValueError),
        None,
        Retries(4, on=Own),
    ]
    assert all(2 * HOUR <= wait_of(job) <= 2.2 * HOUR for job in found[1:3])
    jobs.close()


def test_a_stage_and_a_schedule_have_the_policy_of_their_call(staff: Staff) -> None:
    stage = staff.after_attempt(staff.crew.put(app.begin, "own"), 2)
    assert (stage.final_reason, stage.task) == ("not_retryable", "give-up-fork")
    staff.crew.app.schedule("daily", app.find("fork").options(retries=BUT).bind("own"), every="1d")
    fired = staff.after_attempt(staff.crew.app.get(staff.crew.app.trigger("daily")))
    assert (fired.final_reason, fired.retry_policy) == ("not_retryable", BUT)


def test_an_exit_code_of_a_program_is_not_an_exception(staff: Staff) -> None:
    call = staff.crew.app.program(["sh", "-c", "exit 7"]).options(retries=Retries(2, waits="1h", on=KeyError))
    job = staff.after_attempt(staff.crew.app.enqueue(call))
    assert job.attempts[0].failure
    assert job.attempts[0].failure.group == "exit-7"
    assert HOUR <= wait_of(job) <= HOUR * 1.1


def test_the_record_the_error_and_the_log_say_why_there_was_no_retry(crew: Crew) -> None:
    staff = Staff(crew)
    job = staff.put("fork", "own", retries=BUT)
    with pytest.raises(JobFailed) as failed:
        job.result(timeout="30s")
    why = "tests.apps.retry_app.Own: bad (not retried: ValueError is in not_on)"
    assert f"(not_retryable): {why}" in str(failed.value)
    record = staff.crew.get(job)
    assert record.why == why
    assert [(entry.what, entry.text) for entry in record.history][-2:] == [
        ("error", why),
        ("failed", "group tests.apps.retry_app.Own, not_retryable"),
    ]
    line = f"{job.id}: failed for good (not_retryable), in group tests.apps.retry_app.Own; attempts: 1"
    until(lambda: line in staff.worker.log)
    assert f"s: {why}\n" in staff.worker.log
