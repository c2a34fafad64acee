"""Client methods for dependencies, moves, operators, limits, shares and children, in sync and async form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import (
    Advance,
    DependencyCycle,
    Fail,
    Holdfast,
    Job,
    JobBlocked,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    Snooze,
    WrongState,
    current_job,
)
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish
from holdfast.testing import Workbench, use
from tests.apps.worker_app import hold
from tests.support.sync_and_async import FACES, Ask
from tests.support.workers import Crew, until

jobs = Holdfast("redis://127.0.0.1:1")
ran: list[object] = []


@jobs.task
def say(word: str = "") -> str:
    ran.append(word)
    return word


@jobs.task
def fail(word: str = "") -> str:
    raise Fail(f"no {word}")


@jobs.task(retries=0)
def collect() -> list[str]:
    return current_job().results(str)


@jobs.task
async def acollect() -> list[str]:
    return await current_job().aresults(str)


@jobs.task
def look() -> list[str]:
    return [
        f"{job.id} {job.state} {job.decoded_result() if job.state == 'succeeded' else job.group}" for job in ended()
    ]


def ended() -> list[Job[object]]:
    return current_job().dependencies()


@jobs.task
async def alook() -> list[str]:
    return [f"{job.id} {job.state}" for job in await current_job().adependencies()]


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    ran.clear()
    with use(jobs, server_url) as made:
        yield made


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, bench: Workbench) -> Ask:
    return FACES[request.param](bench.app)


def put(*ids: str, **options: object) -> list[Job[str]]:
    """Jobs of these ids, which say them."""
    return [say.options(id=id, **options).enqueue(id) for id in ids]  # type: ignore[arg-type]


def states(*ids: str) -> list[str]:
    return [job.state if job else "gone" for job in jobs.get_many(ids)]


# Dependencies


@pytest.mark.parametrize("how", ["job", "id", "bound call"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_job_comes_after_a_job_an_id_or_a_bound_call_one_or_several(bench: Workbench, how: str, alone: bool) -> None:
    call = say.options(id="first").bind("first")
    stored = jobs.enqueue(call)
    first: Any = {"job": stored, "id": "first", "bound call": call}[how]

    last = say.options(after=first if alone else [first, first]).enqueue("last")

    assert (last.state, last.waits_for, last.after) == ("blocked", 1, ())
    assert [(each.id, each.state) for each in last.refresh().after] == [("first", "pending")]
    bench.run_until_empty()
    assert ran == ["first", "last"]
    assert [(each.id, each.state) for each in last.refresh().after] == [("first", "succeeded")]


def test_a_whole_graph_is_stored_in_one_call_and_its_calls_may_be_in_any_order(bench: Workbench) -> None:
    one, two = say.options(id="one").bind("1"), say.options(id="two").bind("2")
    both = say.options(id="both").bind("3").options(after=[one, two])

    stored = jobs.enqueue_many([both, one, two])

    assert [job.state for job in stored] == ["blocked", "waiting", "waiting"]
    assert [job.created for job in stored] == [True] * 3
    bench.run_until_empty()
    assert ran == ["1", "2", "3"]


def test_jobs_that_have_ended_are_not_waited_for(bench: Workbench) -> None:
    put("first")
    bench.run_until_empty()
    assert say.options(after="first").enqueue().state == "waiting"


@pytest.mark.parametrize(
    ("policy", "state"), [({}, "blocked"), ({"on_failed": "cancel"}, "cancelled"), ({"on_failed": "run"}, "succeeded")]
)
@pytest.mark.parametrize("ends", ["failed", "cancelled"])
def test_on_failed_chooses_what_happens_if_one_fails_or_is_cancelled(
    bench: Workbench, policy: dict[str, str], state: str, ends: str
) -> None:
    first = fail.enqueue()
    last = say.options(after=[first], **policy).enqueue("last")  # type: ignore[arg-type]
    if ends == "cancelled":
        first.cancel()

    bench.run_until_empty()

    now = last.refresh()
    assert now.state == state
    assert [(each.id, each.state) for each in now.after] == [(first.id, ends)]
    if state == "cancelled":
        assert [note.text for note in now.notes] == [f"job {first.id} {ends}"]


def test_retrying_a_failed_dependency_releases_its_dependents(bench: Workbench, ask: Ask) -> None:
    first = fail.enqueue()
    last = say.options(after=[first]).enqueue("last")
    bench.run_until_empty()
    with pytest.raises(ResultTimeout, match=rf"still blocked: it waits for {first.id} \(failed\)"):
        ask("result", last, timeout=0.01)

    assert ask("retry_many", [first.id]) == ["waiting"]
    assert [(each.id, each.state) for each in last.refresh().after] == [(first.id, "pending")]
    jobs.depend(last.id, on_failed="run")
    bench.run_until_empty()

    assert last.refresh().state == "succeeded"


def test_dependencies_are_added_and_removed_later(ask: Ask, bench: Workbench) -> None:
    one, two, last = put("one", "two", "last")

    assert ask("depend", "last", add=[one, "two"]) == "blocked"
    assert [each.id for each in last.refresh().after] == ["one", "two"]
    assert ask("depend", "last", remove=one) == "blocked"
    assert ask("depend", "last", remove="two") == "waiting"
    assert last.refresh().after == ()

    assert ask("depend", "last", add=two, on_failed="cancel") == "blocked"
    two.cancel()
    assert states("one", "two", "last") == ["waiting", "cancelled", "cancelled"]
    bench.run_until_empty()
    assert ran == ["one"]


def test_what_depend_refuses(ask: Ask, bench: Workbench) -> None:
    put("first", "ended")
    put("last", after=["first"])
    bench.run_one()
    put("late", after=["last"])

    with pytest.raises(DependencyCycle, match="last would wait for itself"):
        ask("depend", "last", add="late")
    with pytest.raises(WrongState, match="first is succeeded"):
        ask("depend", "first", add="last")
    with pytest.raises(JobNotFound, match="nobody"):
        ask("depend", "last", add="nobody")
    with pytest.raises(JobNotFound, match="nobody"):
        ask("depend", "nobody", add="last")


def test_a_job_that_others_wait_for_is_not_deleted(ask: Ask, bench: Workbench) -> None:
    first = fail.options(id="first").enqueue()
    put("last", after=[first])
    bench.run_until_empty()

    with pytest.raises(JobBlocked, match=r"has dependents .* retry it, or remove the dependency"):
        ask("delete", "first")
    jobs.cancel("last")
    ask("delete", "first")
    assert states("first", "last") == ["gone", "cancelled"]


# Results of dependencies


@pytest.mark.parametrize("task", [collect, acollect])
def test_results_come_in_the_order_of_after_whatever_the_order_of_their_ends(bench: Workbench, task: object) -> None:
    put("a", "b", "c")
    jobs.move("a", priority=9)
    last = task.options(after=["b", "c", "a"]).enqueue()  # type: ignore[attr-defined]
    bench.run_until_empty()

    assert ran == ["b", "c", "a"]
    assert last.result() == ["b", "c", "a"]


def test_a_job_that_waited_for_nothing_has_no_results(bench: Workbench) -> None:
    jobs_ = [task.enqueue() for task in (collect, acollect, look, alook)]
    bench.run_until_empty()
    assert [job.result() for job in jobs_] == [[], [], [], []]


def test_results_raise_if_a_member_has_none_with_a_hint_at_dependencies(bench: Workbench) -> None:
    members = [*put("a"), fail.options(id="b").enqueue("b"), *put("c")]
    members[2].cancel()
    strict = collect.options(after=members, on_failed="run").enqueue()
    lenient = look.options(after=members, on_failed="run").enqueue()
    alenient = alook.options(after=members, on_failed="run").enqueue()

    bench.run_until_empty()

    assert strict.refresh().failure is not None
    with pytest.raises(JobFailed, match=r"JobFailed: job b is failed and has no result; check .*dependencies\(\)"):
        strict.result()
    assert lenient.result() == ["a succeeded a", "b failed holdfast.Fail", "c cancelled "]
    assert alenient.result() == ["a succeeded", "b failed", "c cancelled"]


def test_results_raise_if_a_member_was_cancelled(bench: Workbench) -> None:
    (member,) = put("a")
    member.cancel()
    last = collect.options(after=member, on_failed="run").enqueue()
    bench.run_until_empty()
    with pytest.raises(JobFailed, match="JobCancelled: job a was cancelled and has no result"):
        last.result()


def test_a_member_that_is_not_kept_has_no_result_any_more(bench: Workbench) -> None:
    put("a", keep=False)
    last = collect.options(after="a", id="last").enqueue()
    bench.run_until_empty()
    with pytest.raises(JobFailed, match="JobNotFound: job a, which this job waited for, no longer exists; enqueue it "):
        last.result()


# Cancelling a job with all that depends on it


def test_a_job_is_cancelled_with_all_that_waits_for_it_in_one_answer(ask: Ask) -> None:
    put("root", "other")
    put("left", "right", after=["root"])
    put("leaf", after=["left", "right", "other"])
    put("bystander", after=["other"])

    answers = ask("cancel_with_dependents", "root", reason="not wanted")

    assert answers == dict.fromkeys(("root", "left", "right", "leaf"), "cancelled")
    assert states("other", "bystander") == ["waiting", "blocked"]
    assert [note.text for note in jobs.get("leaf").notes] == ["not wanted"]


def test_cancel_with_dependents_reports_an_ended_job_and_cancels_its_dependents(ask: Ask, bench: Workbench) -> None:
    first = fail.options(id="first").enqueue()
    put("last", after=[first])
    bench.run_until_empty()

    answers = ask("cancel_with_dependents", "first", "nobody")

    assert answers["last"] == "cancelled"
    assert [type(answers[id]) for id in ("first", "nobody")] == [WrongState, JobNotFound]


def test_a_job_with_dependents_is_cancelled_except_with_unless_awaited(ask: Ask) -> None:
    put("root")
    put("left", "right", after=["root"])

    with pytest.raises(JobBlocked, match="job root has dependents and was not cancelled; cancel them too"):
        ask("cancel", "root", unless_awaited=True)
    answers = ask("cancel_many", ["root", "left"], unless_awaited=True)
    assert isinstance(answers[0], JobBlocked)
    assert answers[1] == "cancelled"
    assert ask("cancel_many", ["root", "right"], unless_awaited=True) == ["cancelled", "cancelled"]


def test_unless_awaited_works_as_a_method_of_a_job(ask: Ask) -> None:
    (root,) = put("root")
    put("last", after=["root"])

    with pytest.raises(JobBlocked):
        root.cancel(unless_awaited=True)
    assert ask("cancel", "last", unless_awaited=True) == "cancelled"
    assert root.cancel(unless_awaited=True) == "cancelled"


def test_cancel_many_finds_dependents_anywhere_among_thousands_of_ids(ask: Ask) -> None:
    """A chain over three parts of a thousand, with its end in the last: each part waits for the next."""
    ids = [f"job{number:04}" for number in range(2001)]
    jobs.enqueue_many(say.options(id=id).bind(id) for id in ids)
    jobs.depend("job1000", add=["job0000"])
    jobs.depend("job2000", add=["job1000"])
    jobs.depend("job1001", add=["job0001"])
    put("outside", after=["job1001"])

    answers = dict(zip(ids, ask("cancel_many", ids, unless_awaited=True), strict=True))

    assert [id for id in ids if answers[id] != "cancelled"] == ["job0001", "job1001"]


def test_without_its_dependents_a_cancelled_job_leaves_them_blocked(ask: Ask, bench: Workbench) -> None:
    put("first")
    (last,) = put("last", after=["first"])
    assert ask("cancel", "first") == "cancelled"
    assert bench.run_until_empty() == []
    with pytest.raises(ResultTimeout, match=r"first \(cancelled\)"):
        ask("result", last, timeout=0.01)
    ask("cancel", "last")
    with pytest.raises(JobCancelled):
        ask("result", last)


# Operators


def test_a_job_moves_to_another_queue_or_priority(ask: Ask, bench: Workbench) -> None:
    put("a", "b", "c")

    assert ask("move", "a", queue="other") == "waiting"
    assert ask("move", "c", priority=-5) == "waiting"

    assert [job.id for job in jobs.list(queue="other")] == ["a"]
    assert jobs.get("c").priority == -5
    bench.run_until_empty(queues=["default"])
    assert ran == ["c", "b"]
    with pytest.raises(WrongState, match="b has ended and cannot be moved, or is running and cannot change its queue"):
        ask("move", "b", queue="other")


def test_blocked_and_scheduled_jobs_move_as_they_are(ask: Ask, bench: Workbench) -> None:
    put("first")
    put("late", after=["first"])
    put("tomorrow", delay="1d")

    assert ask("move", "late", queue="other") == "blocked"
    assert ask("move", "tomorrow", queue="other") == "scheduled"

    bench.run_until_empty()
    bench.advance("1d")
    bench.run_until_empty()
    assert ran == ["first", "late", "tomorrow"]
    assert {job.queue for job in bench.jobs()} == {"default", "other"}


def test_a_job_that_has_not_started_is_failed_by_an_operator(ask: Ask) -> None:
    put("bad")
    put("late", after=["bad"], on_failed="cancel")

    assert ask("fail", "bad", group="spam", reason="an operator said so") == "failed"

    job = jobs.get("bad")
    assert (job.state, job.group, job.attempts) == ("failed", "spam", ())
    assert [note.text for note in job.notes] == ["an operator said so"]
    assert states("late") == ["cancelled"]
    with pytest.raises(JobFailed, match=r"in group spam \(operator\): an operator said so"):
        ask("result", job)
    with pytest.raises(WrongState, match="bad has already ended and cannot be failed"):
        ask("fail", "bad")
    with pytest.raises(WrongState, match="bad is not running, so it cannot be released"):
        ask("release", "bad")


@pytest.mark.parametrize("face", FACES)
def test_a_running_job_is_released_by_an_operator_and_runs_on_another_worker(crew: Crew, face: str) -> None:
    ask = FACES[face](crew.app)
    crew.start("--processes", "1")
    job = crew.put(hold, "one")
    (first,) = crew.pids("one", "runs")
    crew.start("--processes", "1")

    assert ask("release", job.id, reason="try elsewhere") == "waiting"

    until(lambda: len(crew.said("one", "runs")) == 2)
    crew.open("one")
    assert crew.ended(job).state == "succeeded"
    released, done = crew.get(job).attempts
    assert (released.outcome, released.reason, done.outcome) == ("released", "try elsewhere", "succeeded")
    assert crew.get(job).retries_used == 0
    until(lambda: str(first) not in {str(job.pid) for job in crew.app.list(state="running")})
    assert crew.held() == []


def test_a_running_job_is_failed_by_an_operator_and_stopped(crew: Crew) -> None:
    crew.start("--processes", "1")
    job, after = crew.put(hold, "one"), None
    crew.pids("one", "runs")
    after = crew.put(hold, "two")

    assert crew.app.fail(job.id, reason="it hangs") == "failed"

    assert crew.get(job).group == "operator"
    crew.pids("two", "runs")  # the only process has time for it
    crew.open("two")
    assert crew.ended(after).state == "succeeded"
    assert crew.get(job).state == "failed"
    assert crew.held() == []


def test_the_same_is_done_to_all_jobs_of_a_kind(ask: Ask, bench: Workbench) -> None:
    put("a", "b", queue="one")
    put("c", queue="two")
    late = fail.options(queue="two", delay="1h", retries=0).enqueue()

    assert ask("move_all", task=say, to="three").counts == {"waiting": 3}
    assert ask("move_all", queue=["one", "two"], priority=5).counts == {"scheduled": 1}
    assert ask("cancel_all", queue="three", state="waiting", reason="enough").counts == {"cancelled": 3}
    assert ask("retry_all", state="cancelled", task=say.name).counts == {"waiting": 3}
    assert ask("fail_all", state="pending", with_group="spam").counts == {"failed": 4}
    assert ask("retry_all", group="spam", task=fail).counts == {"waiting": 1}
    bench.run_until_empty()
    assert late.refresh().group == "holdfast.Fail"
    assert ask("release_all", queue="three").counts == {}
    seen: list[int] = []
    assert ask("delete_all", state=["failed", "succeeded"], progress=seen.append).counts == {"deleted": 4}
    assert sum(seen) == 4
    assert jobs.count() == 0


def test_the_load_of_queues_is_returned(ask: Ask, bench: Workbench) -> None:
    put("a", "b", queue="one")
    put("c", after=["a"], queue="two")
    bench.advance("10s")

    one, two, unknown = ask("load", "one", "two", "three", target="1m")

    assert (one.queue, one.waiting, one.running, one.blocked, one.workers) == ("one", 2, 0, 0, 0)
    assert one.oldest is not None
    assert 10 <= one.oldest < 60
    assert (two.waiting, two.blocked, two.oldest, two.needed) == (0, 1, None, 0)
    assert (unknown.waiting, unknown.needed) == (0, 0)
    assert one.needed >= 1
    assert [each.queue for each in ask("load")] == ["one", "two"]


# Limits and shares


def test_limits_are_defined_changed_listed_and_removed(ask: Ask, bench: Workbench) -> None:
    assert ask("set_limit", "gpu", 2) is True
    assert ask("set_limit", "gpu", 2) is False
    assert ask("set_limit", "api", 5, per="1s") is True
    put("a", limits="gpu")

    assert [limit[:6] for limit in ask("limits")] == [("api", 5, 1000, 0, 0, 0), ("gpu", 2, 0, 0, 0, 0)]
    assert jobs.get("a").limits == ("gpu",)
    assert ask("set_limit", "gpu", 1) is True
    assert ask("remove_limit", "gpu") is True
    assert ask("remove_limit", "gpu") is False
    assert [limit.name for limit in ask("limits")] == ["api"]
    bench.run_until_empty()


def test_jobs_over_a_limit_per_period_are_parked_and_start_when_it_allows(bench: Workbench, ask: Ask) -> None:
    jobs.set_limit("api", 2, per="10s")
    put("a", "b", "c", "d", limits="api")

    bench.run_until_empty()
    assert ran == ["a", "b"]
    parked = jobs.get("c")
    assert (parked.state, parked.throttled_by) == ("throttled", "api")
    with pytest.raises(ResultTimeout, match="still throttled: limit api has no free slot: it lets 2 jobs start in 10s"):
        ask("result", parked, timeout=0.01)

    bench.advance("10s")
    bench.run_until_empty()
    assert ran == ["a", "b", "c", "d"]
    put("e", limits="api")
    assert bench.run_until_empty() == []
    ask("remove_limit", "api")
    bench.run_until_empty()
    assert ran == ["a", "b", "c", "d", "e"]


def test_a_limit_counts_each_key_by_itself(bench: Workbench) -> None:
    jobs.set_limit("api", 1, per="1m")
    for tenant in ("acme", "bolt"):
        for number in (1, 2):
            say.options(limits=f"api:{tenant}").enqueue(f"{tenant}{number}")

    bench.run_until_empty()
    assert ran == ["acme1", "bolt1"]
    bench.advance("1m")
    bench.run_until_empty()
    assert ran == ["acme1", "bolt1", "acme2", "bolt2"]


def test_an_undefined_limit_is_not_enforced(bench: Workbench) -> None:
    put("a", "b", limits=["api", "gpu"])
    bench.run_until_empty()
    assert ran == ["a", "b"]


def test_shares_take_turns_and_a_weight_gives_more_of_them(ask: Ask, bench: Workbench) -> None:
    for owner in ("big", "small"):
        for number in range(9 if owner == "big" else 2):
            say.options(share=owner).enqueue(f"{owner}{number}")
    bench.run_until_empty()
    assert ran[:4] == ["big0", "small0", "big1", "small1"]

    ran.clear()
    ask("set_share_weight", "default", "small", 3)
    for owner in ("big", "small"):
        for number in range(4):
            say.options(share=owner).enqueue(f"{owner}{number}")
    bench.run_until_empty()
    assert len([word for word in ran[:4] if str(word).startswith("small")]) >= 2
    assert sorted(map(str, ran)) == sorted(f"{owner}{number}" for owner in ("big", "small") for number in range(4))


# Pipelines and waiting


@jobs.task(queue="first", limits="one", retries=5)
def begin(word: str) -> str:
    raise Advance(finish.bind(f"{word}!").options(priority=-3, delay="1m", share="acme"))


@jobs.task(queue="second", retries=1)
def finish(word: str) -> str:
    return word


def test_a_job_advances_to_a_call_with_all_its_options(bench: Workbench) -> None:
    job = begin.enqueue("hello")

    now = bench.run_one()
    assert now is not None
    assert (now.id, now.state, now.queue, now.task) == (job.id, "scheduled", "second", finish.name)
    assert (now.priority, now.share, now.retries, now.limits) == (-3, "acme", 1, ())

    bench.advance("1m")
    bench.run_until_empty()
    assert job.result() == "hello!"
    assert [attempt.outcome for attempt in job.refresh().attempts] == ["advanced", "succeeded"]


@jobs.task
def stage(after: str) -> list[str]:
    raise Advance(collect.bind().options(after=[after]))


def test_a_stage_may_wait_for_other_jobs_and_see_their_results(bench: Workbench) -> None:
    put("side", delay="1h")
    job = stage.enqueue("side")

    bench.run_until_empty()
    assert job.refresh().state == "blocked"
    assert job.refresh().task == collect.name
    bench.advance("1h")
    bench.run_until_empty()
    assert job.refresh().decoded_result() == ["side"]


@jobs.task
def parent(words: list[str], lists: bool) -> list[str]:
    job = current_job()
    children = [fail if word.startswith("!") else say for word in words]
    calls = [task.options(id=f"{job.id}.{n}").bind(words[n]) for n, task in enumerate(children)]
    jobs.enqueue_many(calls)
    done = job.wait_for(calls) if lists else job.wait_for(*calls, calls[0])
    return [child.state for child in done]


@jobs.task
async def aparent(words: list[str]) -> list[str]:
    job = current_job()
    calls = [say.options(id=f"{job.id}.{n}").bind(word) for n, word in enumerate(words)]
    await jobs.aenqueue_many(calls)
    return [child.decoded_result() for child in await job.await_for(*calls)]


@pytest.mark.parametrize("lists", [True, False])
def test_a_job_waits_for_its_children_and_sees_how_each_ended(bench: Workbench, lists: bool) -> None:
    job = parent.enqueue(["a", "!b", "c"], lists)

    first = bench.run_one()
    assert first is not None
    assert (first.state, first.waits_for) == ("blocked", 3)
    assert [each.id for each in first.waits] == [f"{job.id}.{n}" for n in range(3)]
    assert first.after == ()
    bench.run_until_empty()

    assert job.result() == ["succeeded", "failed", "succeeded"]
    assert [attempt.outcome for attempt in job.refresh().attempts] == ["snoozed", "succeeded"]


def test_a_coroutine_waits_too(bench: Workbench) -> None:
    job = aparent.enqueue(["a", "b"])
    bench.run_until_empty()
    assert job.result() == ["a", "b"]


@jobs.task(retries=1, backoff="1s")
def fan_out(words: list[str]) -> list[str]:
    first = current_job().gather(*[say.bind(word) for word in words])
    last = current_job().gather(say.bind("last"), say.options(id="own").bind("own"))
    if current_job().checkpoint(int, 0) == 0:
        current_job().save(1)
        raise ValueError("after all of them")
    return [job.decoded_result() for job in (*first, *last)]


@jobs.task
async def afan_out(words: list[str]) -> list[str]:
    return [job.decoded_result() for job in await current_job().agather(*[say.bind(word) for word in words])]


def test_gather_enqueues_children_once_however_often_the_parent_restarts(bench: Workbench) -> None:
    job = fan_out.options(id="parent").enqueue(["a", "b"])
    bench.run_until_empty()
    bench.advance("1s")
    bench.run_until_empty()

    assert job.result() == ["a", "b", "last", "own"]
    assert ran == ["a", "b", "last", "own"]
    assert [each.id for each in bench.jobs(say)] == ["parent.1", "parent.2", "parent.3", "own"]
    assert [attempt.outcome for attempt in job.refresh().attempts] == ["snoozed", "snoozed", "error", "succeeded"]


def test_a_coroutine_gathers_too_and_gathers_nothing(bench: Workbench) -> None:
    some, none = afan_out.options(id="parent~7").enqueue(["a", "b"]), afan_out.enqueue([])
    bench.run_until_empty()
    assert (some.result(), none.result()) == (["a", "b"], [])
    assert {each.id for each in bench.jobs(say)} == {"parent.1~7", "parent.2~7"}


def test_more_children_than_fit_into_a_call_are_gathered(bench: Workbench) -> None:
    job = fan_out_wide.enqueue(1500)
    bench.run_one()
    assert job.refresh().waits_for == 1000
    succeed_all("work", 1000)
    bench.run_one(queues=["default"])
    assert job.refresh().waits_for == 500
    succeed_all("work", 500, 5)
    bench.run_until_empty()
    assert job.result() == 1500


def succeed_all(queue: str, number: int, first: int = 1) -> None:
    """Have jobs of a queue succeed, many in a call."""
    for counter in range(first, first + number // 500):
        request = commands.claim_args([queue], counter=counter, limit=500)
        claimed = jobs.store.run(commands.claim("node/many.0", request)).jobs
        ends = [Finish(job.id, job.attempt, Succeed(b'""')) for job in claimed]
        assert len(ends) == 500
        jobs.store.run(commands.finish("node/many.0", ends))


@jobs.task
def fan_out_wide(number: int) -> int:
    return len(current_job().gather(*[say.options(queue="work").bind() for _ in range(number)]))


@jobs.task(retries=0)
def wait_for_nobody(how: str) -> int:
    job = current_job()
    match how:
        case "nothing":
            return len(job.wait_for())
        case "an unknown id":
            job.wait_for("nobody")
        case "a call that is not stored":
            job.wait_for(say.bind())
        case "a task":
            job.wait_for(say)  # type: ignore[arg-type]
        case "children that are no calls":
            job.gather(say)  # type: ignore[arg-type]
        case "children that are not kept":
            job.gather(say.options(keep=False).bind())
        case "a stage that is no call":
            raise Advance(say)  # type: ignore[arg-type]
    return 0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("an unknown id", "JobNotFound: job nobody, which this job waits for, does not exist: enqueue it first"),
        ("a call that is not stored", "enqueue it first"),
        ("a task", r"a job cannot wait for <Task .*>, which is a task; pass a job, from enqueue\(...\), or a call"),
        ("children that are no calls", r"expected a bound call, as task.bind\(...\), got <Task"),
        (
            "children that are not kept",
            ".*say has keep=False, but `gather` reads the records of its children: remove",
        ),
        ("a stage that is no call", r"expected a bound call, as task.bind\(...\), got <Task"),
    ],
)
def test_waiting_for_a_missing_job_is_an_error_of_the_task(bench: Workbench, how: str, words: str) -> None:
    job = wait_for_nobody.enqueue(how)
    bench.run_until_empty()
    with pytest.raises(JobFailed, match=words):
        job.result()


def test_waiting_for_nothing_does_not_wait(bench: Workbench) -> None:
    job = wait_for_nobody.enqueue("nothing")
    bench.run_until_empty()
    assert job.result() == 0


@jobs.task
def poll() -> int:
    seen = current_job().checkpoint(int, 0) + 1
    current_job().save(seen)
    if seen < 3:
        raise Snooze("10m")
    return seen


def test_a_job_snoozes_and_goes_on_from_its_checkpoint(bench: Workbench) -> None:
    job = poll.enqueue()
    for _ in range(3):
        bench.run_until_empty()
        bench.advance("10m")
    assert job.result() == 3
    assert [attempt.outcome for attempt in job.refresh().attempts] == ["snoozed", "snoozed", "succeeded"]
    assert job.refresh().retries_used == 0


# Deadlines


def test_a_job_that_has_not_started_by_its_deadline_fails(bench: Workbench, ask: Ask) -> None:
    job = say.options(deadline="1m").enqueue("late")
    at = say.options(deadline=bench.now.replace(year=bench.now.year + 1)).enqueue("in time")
    assert job.deadline is not None
    assert 59 < (job.deadline - job.created_at).total_seconds() <= 60
    assert at.deadline is not None
    jobs.pause("default")
    bench.advance("2m")
    bench.run_until_empty()
    jobs.resume("default")
    bench.run_until_empty()

    assert ran == ["in time"]
    assert (job.refresh().state, job.refresh().group) == ("failed", "deadline")
    with pytest.raises(JobFailed, match="in group deadline: its deadline has passed"):
        ask("result", job)


def test_a_retry_after_the_deadline_does_not_start(bench: Workbench) -> None:
    job = begin_again.options(deadline="5m").enqueue()
    bench.run_until_empty()
    assert job.refresh().state == "scheduled"
    bench.advance("1h")
    bench.run_until_empty()
    assert (job.refresh().state, job.refresh().group, len(job.refresh().attempts)) == ("failed", "deadline", 1)


@jobs.task(retries=3, backoff="1h")
def begin_again() -> None:
    raise ValueError("once more")
