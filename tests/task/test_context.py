"""Context variables that jobs carry: from the caller of `enqueue` to the task, and on to the jobs that it enqueues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Invalid, Retries, TooBig, cron, current_job
from holdfast.constants import MAX_RUN_OPTIONS
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.testing import use
from tests.apps import middleware_app as app
from tests.support.new_job import NewJob
from tests.support.servers import running_server
from tests.support.workers import Crew, new_crew, until

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """A worker for all tests here, none of which harms it. The client carries what the app of the worker does."""
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        crew.app.tasks.update(app.jobs.tasks)
        crew.app.carried = app.jobs.carried
        crew.start("--processes", "4", app="tests.apps.middleware_app")
        yield crew


def _as(tenant: str, *languages: str) -> Context:
    context = copy_context()
    context.run(app.tenant.set, tenant)
    if languages:
        context.run(app.language.set, list(languages))
    return context


@pytest.mark.parametrize("kind", app.KINDS)
def test_variables_set_at_enqueue_are_set_in_the_task_and_its_middleware(staff: Crew, kind: str) -> None:
    carrying = _as("ann", "de", "fr").run(staff.put, app.find(kind), "fine")
    plain = staff.put(app.find(kind), "fine")

    assert staff.ended(carrying).result() == "fine:ann:de,fr"
    assert staff.ended(plain).result() == "fine:nobody:", "what one job carries is not the next one's"
    seen = [line[3] for line in staff.said(carrying.id) if len(line) == 4]
    assert seen == ["ann"] * 3, "outer, inner and the task"


@pytest.mark.parametrize("kind", ["fork", "async"])
def test_a_filter_of_a_logger_sees_it(staff: Crew, kind: str) -> None:
    assert staff.ended(_as("ann").run(staff.put, app.find(kind), "filtered")).result() == "ann"


@pytest.mark.parametrize("parent", [app.spread, app.aspread])
def test_it_is_passed_on_to_what_a_job_enqueues(staff: Crew, parent: Any) -> None:
    first = staff.ended(_as("ann").run(staff.put, parent, "fine", "thread"))

    child = staff.app.get(str(first.result()))

    assert staff.ended(child).result() == "fine:ann:"


def test_a_later_attempt_has_it_too(staff: Crew) -> None:
    job = staff.ended(_as("ann").run(staff.put, app.find("fork"), "retried"))

    assert job.attempt == 2
    assert job.result() == "retried:ann:"


def test_a_job_that_goes_on_as_another_call_carries_what_it_has_set(staff: Crew) -> None:
    job = staff.ended(_as("ann", "de").run(staff.put, app.go_on, "fine", "fork"))

    assert job.result() == "fine:bob:de"


def test_it_is_carried_beside_the_limits_of_a_run(staff: Crew) -> None:
    task = app.find("fork").options(memory="1GiB", soft_timeout="1h", stalled="1h", exclusive=True)

    assert staff.ended(_as("ann").run(staff.put, task, "fine")).result() == "fine:ann:"


@pytest.mark.parametrize("run", ["nope", "[]", '{"carry": 1}', '{"memory": "much"}', '{"soft_timeout": 1e400}'])
def test_what_cannot_be_read_is_left_to_another_worker_and_harms_no_neighbour(staff: Crew, run: str) -> None:
    new = NewJob(id=f"bad-{new_id()}", payload=b'{"how": "fine"}', queue="default", task="do.fork", run=run)
    staff.app.store.run(commands.enqueue([new]))

    assert staff.ended(staff.put(app.find("fork"), "fine")).state == "succeeded"
    until(lambda: staff.app.get(new.id).state == "scheduled")
    assert [attempt.outcome for attempt in staff.app.get(new.id).attempts] == ["unknown"]


# Without a worker


def _app(url: str = NOWHERE, **more: Any) -> tuple[Holdfast, ContextVar[Any]]:
    jobs = Holdfast(url, **more)
    variable: ContextVar[Any] = ContextVar("variable")
    jobs.carry("variable", variable)
    return jobs, variable


@pytest.mark.parametrize("value", ["", 'é\n\0"', 0, None, True, 1.5, ["a", {"b": [1]}], "x" * 494])
def test_any_short_json_is_carried(server_url: str, value: Any) -> None:
    jobs, variable = _app()
    seen = []

    @jobs.task(name="look")
    def look() -> None:
        seen.append(variable.get("unset"))

    with use(jobs, server_url) as bench:
        look.enqueue()
        context = copy_context()
        context.run(variable.set, value)
        context.run(look.enqueue)
        context.run(lambda: asyncio.run(_later(look)))
        bench.run_until_empty()
        asyncio.run(bench.arun_until_empty())

    assert seen == ["unset", value, value]


async def _later(task: Any) -> None:
    await task.aenqueue()


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        ("x" * 512, TooBig, r"carried context \(variable\) is 522 bytes \(limit 512\); carry an id instead"),
        (object(), Invalid, "carried variable variable: "),
        ((1, 2), Invalid, "carried variable variable: "),
        (float("nan"), Invalid, "carried variable variable: "),
        (b"bytes", Invalid, "carried variable variable: "),
    ],
)
def test_values_that_cannot_be_carried_are_refused_at_enqueue(
    server_url: str, value: Any, error: type[Exception], reason: str
) -> None:
    jobs, variable = _app()

    @jobs.task(name="look")
    def look() -> None: ...

    with use(jobs, server_url) as bench:
        context = copy_context()
        context.run(variable.set, value)
        with pytest.raises(error, match=reason):
            context.run(look.enqueue)
        assert bench.jobs() == []


def test_values_that_a_job_cannot_carry_to_the_next_stage_are_its_error(server_url: str) -> None:
    from holdfast import Advance

    jobs, variable = _app()

    @jobs.task(name="look", retries=0)
    def look() -> None:
        variable.set("x" * 1000)
        raise Advance(look.bind())

    with use(jobs, server_url) as bench:
        look.enqueue()
        failed = bench.run_one()

    assert failed
    assert failed.failure
    assert "(limit 512)" in failed.failure.message


def test_all_that_is_allowed_fits_beside_all_limits(server_url: str) -> None:
    """The largest carried context and retry policy fit the options that the store keeps for workers."""
    jobs = Holdfast(NOWHERE)
    variables: list[ContextVar[str]] = []
    for number in range(16):
        variables.append(ContextVar(f"v{number}"))
        jobs.carry(f"{number:02}", variables[-1])
    with pytest.raises(Invalid, match=r"17 variables are carried \(limit 16\)"):
        jobs.carry("another", ContextVar("another"))

    policy = Retries(waits=["87000h"] * 20, not_on=["x" * 700 + ".Error"])
    with pytest.raises(Invalid, match="limit 1024"):
        Retries(waits=["87000h"] * 20, not_on=["x" * 750 + ".Error"])

    @jobs.task(name="look", soft_timeout="87000h", stalled="87000h", memory="900T", exclusive=True, retries=policy)
    def look() -> None: ...

    with use(jobs, server_url) as bench:
        context = copy_context()
        for variable in variables:
            context.run(variable.set, "\x01" * 4 + "x" * 4)  # thirty bytes of JSON
        context.run(look.enqueue)
        assert len(bench.jobs()) == 1
        [job] = bench.jobs()
        assert job.retry_policy
        assert job.retry_policy.policy == policy.policy
        assert len(msgspec.json.encode(policy.policy)) > MAX_RUN_OPTIONS // 3 - 64


def test_a_schedule_carries_nothing(server_url: str) -> None:
    jobs, variable = _app()
    seen = []

    @jobs.task(name="look", schedule=cron("* * * * *"))
    def look() -> None:
        seen.append(variable.get("unset"))

    with use(jobs, server_url) as bench:
        variable.set("somebody's")
        bench.declare_schedules()
        bench.advance("2m")
        Context().run(bench.run_until_empty)

    assert seen == ["unset"]


def test_a_name_that_the_app_of_a_worker_does_not_know_is_left_alone(server_url: str) -> None:
    jobs, variable = _app()

    @jobs.task(name="look")
    def look() -> str:
        return current_job().task

    other = Holdfast(NOWHERE)
    other.task(name="look")(look.function)
    with use(jobs, server_url, namespace="carry-names"), use(other, server_url, namespace="carry-names") as bench:
        variable.set("somebody's")
        look.enqueue()
        ended = bench.run_one()

    assert ended
    assert ended.state == "succeeded"


def test_an_invalid_declaration_of_carry_is_explained() -> None:
    jobs, variable = _app()

    jobs.carry("variable", variable)
    with pytest.raises(Invalid, match="another variable is already carried as variable"):
        jobs.carry("variable", ContextVar("other"))
    with pytest.raises(Invalid, match=r"expected a ContextVar to carry as text, got .text."):
        jobs.carry("text", "text")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="the name of a carried variable"):
        jobs.carry("a b", ContextVar("a"))


def test_inline_it_is_there_anyway() -> None:
    jobs, variable = _app(when_unreachable="inline")

    @jobs.task(name="look")
    def look() -> str:
        return str(variable.get("unset"))

    variable.set("here")
    assert look.enqueue().result() == "here"


# Defaults of an app


def test_defaults_are_the_options_of_all_tasks_and_their_own_count_more() -> None:
    jobs = Holdfast(NOWHERE, defaults={"queue": "video", "retries": 7, "timeout": "6h", "memory": "2GiB"})

    @jobs.task(name="plain")
    def plain() -> None: ...

    @jobs.task(name="own", queue="mail", retries=0, timeout=None)
    def own() -> None: ...

    options = plain.effective_options
    assert (options.queue, options.retries, options.timeout) == ("video", 7, 6 * 3_600_000)
    assert plain.bind().options(queue="other").effective_options.queue == "other"
    options = own.effective_options
    assert (options.queue, options.retries, options.timeout, options.memory) == ("mail", 0, None, 2 << 30)
    assert jobs.program(["true"]).effective_options.queue == "video"


@pytest.mark.parametrize(
    ("defaults", "reason"),
    [
        ({"retires": 3}, "defaults: unknown option 'retires'; did you mean retries?"),
        ({"retries": -1}, "defaults: retries is -1"),
        ({"timeout": "1h", "soft_timeout": "2h"}, "defaults: soft_timeout is 2h; it must be shorter than timeout"),
        ({"id": "same"}, "defaults: id applies to a single job"),
        ({"after": "job"}, "defaults: after applies to a single job"),
        ([("queue", "video")], "defaults is .*; it must be a dict of options"),
    ],
)
def test_defaults_are_checked_at_once(defaults: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        Holdfast(NOWHERE, defaults=defaults)


def test_a_default_that_a_task_cannot_have_is_refused_where_the_task_is_declared() -> None:
    jobs = Holdfast(NOWHERE, defaults={"memory": "1GiB"})

    async def task() -> None: ...

    with pytest.raises(
        Invalid, match=r"memory cannot be enforced for .*task, which runs in the executor's own process"
    ):
        jobs.task(name="task")(task)
    assert jobs.task(name="task", memory=None)(task).effective_options.memory is None


def test_a_worker_applies_the_defaults_of_the_app(staff: Crew) -> None:
    job = staff.put(app.find("fork"), "broken")

    until(lambda: staff.get(job).is_final)
    assert staff.get(job).retries == 1
