"""Tags, scopes and tracked jobs as users write them: in an app, a task, a call, a schedule, and in a running job."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from holdfast import Holdfast, Invalid, JobNotFound, TooBig, current_job
from holdfast.store import commands
from holdfast.task.task import Task
from holdfast.testing import use
from tests.apps import tags_app
from tests.support.servers import running_server
from tests.support.sync_and_async import FACES, Ask
from tests.support.workers import Crew, new_crew

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace, defaults={"tags": ["shop", "all"]})
    yield made
    made.close()


def _ship(order: int) -> int:
    return order


@pytest.fixture
def ship(app: Holdfast) -> Task[[int], int]:
    return app.task(name="ship", tags=["order", "all"])(_ship)


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, app: Holdfast) -> Ask:
    return FACES[request.param](app)


# Tags


def test_tags_of_the_app_the_task_and_the_call_add_up(app: Holdfast, ship: Task[[int], int], ask: Ask) -> None:
    job = ask("enqueue", ship.bind(1))
    assert job.tags == app.get(job.id).tags == ("shop", "all", "order")
    job = ask("enqueue", ship.options(tags="urgent").bind(1).options(tags=["order", "née"]))
    assert job.tags == app.get(job.id).tags == ("shop", "all", "order", "urgent", "née")
    job = ask("enqueue", ship.options(tags=None).bind(1))
    assert job.tags == app.get(job.id).tags == ()


def test_each_call_of_many_has_its_own_tags(app: Holdfast, ship: Task[[int], int], ask: Ask) -> None:
    stored = ask("enqueue_many", [ship.options(tags=f"n{n % 3}").bind(n) for n in range(20)])
    assert [job.tags[-1] for job in stored] == [f"n{n % 3}" for n in range(20)]
    assert [job.tags for job in app.list()] == [job.tags for job in stored]
    assert ask("tags", "n0", "n2", "order", "none") == {"n0": 7, "n2": 6, "order": 20, "none": 0}


def test_jobs_are_tagged_and_untagged_later(ship: Task[[int], int], ask: Ask) -> None:
    job, other = ship.enqueue(1), ship.enqueue(2)
    assert ask("tag", job.id, "late", "later")
    assert not ask("tag", job.id, "late")
    assert job.refresh().tags == ("shop", "all", "order", "late", "later")
    assert ask("untag", job.id, "shop", "late")
    assert not ask("untag", job.id, "shop")
    assert job.refresh().tags == ("all", "order", "later")
    with pytest.raises(JobNotFound, match="job none does not exist"):
        ask("tag", "none", "a")
    with pytest.raises(TooBig, match="would have more than 32 tags"):
        ask("tag", job.id, *map(str, range(30)))
    with pytest.raises(Invalid, match="no tags are given"):
        ask("tag", job.id)
    replies = ask("tag_many", [job.id, "none", other.id], "later")
    assert replies[::2] == ["unchanged", "tagged"]
    assert isinstance(replies[1], JobNotFound)
    assert ask("untag_many", [job.id, other.id], "later") == ["untagged", "untagged"]


def test_the_most_used_tags_come_first(app: Holdfast, ship: Task[[int], int], ask: Ask) -> None:
    ship.enqueue(1)
    app.enqueue_many(ship.options(tags=f"order-{n}").bind(n) for n in range(5))
    assert list(ask("tags", limit=3))[3:] == []
    assert ask("tags", min_count=2) == {"shop": 6, "order": 6, "all": 6}
    assert ask("tags", limit=None) == {"shop": 6, "order": 6, "all": 6, **{f"order-{n}": 1 for n in range(5)}}


def test_more_tags_than_fit_on_a_page_are_read(app: Holdfast) -> None:
    work = app.task(name="work", tags=None)(_ship)
    app.enqueue_many(work.options(tags=f"order-{n:04}").bind(n) for n in range(1005))
    assert ask_all(app) == {f"order-{n:04}" for n in range(1005)}
    assert len(app.tags(limit=1002)) == 1002


def ask_all(app: Holdfast) -> set[str]:
    return set(app.tags(limit=None))


def test_a_moved_job_keeps_its_tags_unless_others_are_given(ship: Task[[int], int], ask: Ask) -> None:
    job = ship.enqueue(1)
    ask("move", job.id, queue="other")
    assert job.refresh().tags == ("shop", "all", "order")
    ask("move", job.id, queue="default", tags=["new"])
    assert job.refresh().tags == ("new",)
    assert ask("move_all", queue="default", to="other", tags=["newer"]).counts == {"waiting": 1}
    assert job.refresh().tags == ("newer",)


def test_items_and_schedules_have_tags_and_scopes(app: Holdfast, ship: Task[[int], int]) -> None:
    item = app.items("mail").put(b"", tags=["ticket"], scope="/t/7")
    assert (app.get(item.id).tags, item.scope) == (("ticket",), "/t/7")
    app.schedule("nightly", ship.options(tags="nightly", scope="/t/8").bind(1), every="1d")
    job = app.get(app.trigger("nightly"))
    assert (job.tags, job.scope) == (("shop", "all", "order", "nightly"), "/t/8")


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"tags": "a\nb"}, Invalid, r"a tag is 'a\\nb'; it must be printable text"),
        ({"tags": ["a", ""]}, Invalid, "a tag is ''"),
        ({"tags": " a"}, Invalid, "a tag is ' a'"),
        ({"tags": "\u200b"}, Invalid, "a tag is"),
        ({"tags": ["é" * 33]}, Invalid, r"is 66 bytes \(limit 64\)"),
        ({"tags": 7}, Invalid, "tags is 7; it must be a tag or a list of tags"),
        ({"tags": [7]}, Invalid, "a tag is 7"),
        ({"tags": [str(n) for n in range(33)]}, TooBig, r"tags has 33 tags \(limit 32\)"),
        ({"scope": "tenant"}, Invalid, "scope is 'tenant'; it must be a path such as /tenant/7"),
        ({"scope": "/a/b/"}, Invalid, "scope is '/a/b/'"),
        ({"scope": "/é"}, Invalid, "scope is '/é'"),
        ({"scope": "/1/2/3/4/5/6/7/8/9"}, Invalid, "1 to 8 parts"),
    ],
)
def test_what_is_no_tag_or_scope_is_refused_where_it_is_written(
    app: Holdfast, options: Any, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        app.task(name="work", **options)


def test_a_call_with_too_many_tags_is_refused_where_they_add_up(ship: Task[[int], int]) -> None:
    with pytest.raises(TooBig, match="tags has 33 tags"):
        ship.options(tags=[str(n) for n in range(30)])


def test_an_enqueue_in_bulk_with_many_tags_is_stored_in_smaller_chunks(app: Holdfast) -> None:
    work = app.task(name="work", tags=[f"t{n}" for n in range(30)], scope="/1/2/3/4/5/6/7/8")(_ship)
    assert len(app.enqueue_many(work.bind(n) for n in range(1000))) == 1000
    assert app.tags("t0", "t29") == {"t0": 1000, "t29": 1000}
    assert app.scopes("/1/2") == {"/1/2/3": 1000}


def test_calls_with_many_tags_are_stored_together_on_request(app: Holdfast) -> None:
    ship = app.task(name="plain")(_ship).options(tags=["a", "b"])
    jobs = app.enqueue_many((ship.bind(n) for n in range(1000)), atomic=True)
    assert [len(event.jobs) for event in app.events("start")] == [len(jobs)] == [1000]
    assert app.enqueue_many([], atomic=True) == []
    with pytest.raises(TooBig, match="1,001 calls cannot be stored together"):
        app.enqueue_many((ship.bind(n) for n in range(1001)), atomic=True)
    many = ship.options(tags=[str(n) for n in range(10)])
    with pytest.raises(TooBig):
        app.enqueue_many((many.bind(n) for n in range(1000)), atomic=True)
    assert app.count() == 1000


def test_calls_with_many_tags_are_short(app: Holdfast) -> None:
    ship = app.task(name="plain")(_ship)
    plain = app.enqueue_many(ship.bind(n) for n in range(1000))
    app.enqueue_many(ship.options(tags=[f"{n}-{each}" for each in range(6)]).bind(n) for n in range(300))
    app.tag_many([job.id for job in plain], "a", "b")
    sizes = [len(event.jobs) for event in app.events("start") if event.type == "enqueued"]
    assert sizes == [333, 333, 333, 1, 111, 111, 78]  # with the two tags of the app
    assert app.tags("a", "b") == {"a": 1000, "b": 1000}


# Scopes


def test_jobs_that_wait_for_others_of_a_tagged_call_are_stored_together(app: Holdfast, ship: Task[[int], int]) -> None:
    parts = [ship.options(tags=["a", "b"]).bind(number) for number in range(400)]
    first = ship.options(tags=["a", "b"], after=parts).bind(0)  # it waits for jobs that come later in the list
    jobs = app.enqueue_many([first, *parts])
    assert jobs[0].state == "blocked"


def test_the_scope_of_a_call_comes_before_that_of_the_task_and_of_the_app(server_url: str, namespace: str) -> None:
    app = Holdfast(server_url, namespace=namespace, scope="/app")
    work = app.task(name="work")(_ship)
    scoped = app.task(name="scoped", scope="/task")(_ship)
    calls = [work.bind(1), scoped.bind(1), scoped.options(scope="/task/call").bind(1), work.options(after=[]).bind(1)]
    stored = app.enqueue_many(calls)
    assert [job.scope for job in stored] == ["/app", "/task", "/task/call", "/app"]
    assert [job and job.scope for job in app.get_many([job.id for job in stored])] == [job.scope for job in stored]
    assert app.scopes() == {"/task": 2, "/app": 2}
    assert app.scopes("/task") == {"/task/call": 1}
    app.schedule("nightly", work.bind(1), every="1d")
    assert app.get(app.trigger("nightly")).scope == "/app"
    app.close()


def test_the_scope_of_an_app_may_be_a_variable_or_a_function(server_url: str, namespace: str) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="/nobody")
    found: list[str | None] = ["/f", None]
    for source, expected in ((tenant, ["/nobody", "/ann"]), (found.pop, ["", "/f"])):
        app = Holdfast(server_url, namespace=namespace, scope=source)
        work = app.task(name="work")(_ship)
        context = copy_context()
        context.run(tenant.set, "/ann")
        assert [work.enqueue(1).scope, context.run(work.enqueue, 1).scope] == expected
        app.close()


@pytest.mark.parametrize("scope", ["tenant", "/", 7, lambda: "tenant"])
def test_what_gives_no_scope_is_refused(scope: Any) -> None:
    with pytest.raises(Invalid, match="scope is"):
        Holdfast(NOWHERE, scope=scope).task(name="work")(_ship).enqueue(1)


def test_scopes_that_begin_alike_are_not_inside_of_each_other(ship: Task[[int], int], ask: Ask) -> None:
    for scope in ("/a", "/a/b", "/ab", "/ab/c"):
        ship.options(scope=scope).enqueue(1)
    assert ask("scopes") == ask("scopes", "/") == {"/ab": 2, "/a": 2}
    assert ask("scopes", "/a") == {"/a/b": 1}
    assert ask("scopes", "/none") == {}
    with pytest.raises(Invalid, match="scope is 'a'"):
        ask("scopes", "a")


# Tracked jobs


def test_tracked_jobs_are_listed_and_announced(app: Holdfast, ship: Task[[int], int], ask: Ask) -> None:
    one, two = ship.enqueue(1), ship.enqueue(2)
    ask("track", one.id)
    ask("track", two.id, one.id)
    assert (one.tracked, one.refresh().tracked) == (False, True)
    assert {job.id for job in ask("tracked").jobs} == {one.id, two.id}
    with pytest.raises(JobNotFound, match="job none does not exist"):
        ask("track", "none")
    one.cancel()
    one.delete()
    found = ask("tracked")
    assert ([job.id for job in found.jobs], found.deleted) == ([two.id], [one.id])
    ask("untrack", one.id, two.id)
    assert ask("tracked") == ([], [])
    assert [event.type for event in app.events() if "tracked" in event.type] == ["tracked", "tracked", "untracked"]


# In running jobs


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """A worker for all tests here, none of which harms it. The client finds scopes as the app of the worker does."""
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        crew.app.tasks.update(tags_app.jobs.tasks)
        crew.app.scope_of_jobs = tags_app.jobs.scope_of_jobs
        crew.start("--processes", "2", app="tests.apps.tags_app")
        yield crew


@pytest.mark.parametrize("runner", tags_app.RUNNERS)
def test_a_running_job_knows_its_scope_tags_itself_and_hands_its_scope_on(staff: Crew, runner: str) -> None:
    context = copy_context()
    context.run(tags_app.tenant.set, "/tenant/7")
    scoped = context.run(staff.put, tags_app.TASKS[runner].options(tags="temporary"))
    more = staff.put(tags_app.TASKS[runner].options(scope="/tenant/8/import"))
    plain = staff.put(tags_app.TASKS[runner])
    for job, scope in ((scoped, "/tenant/7"), (more, "/tenant/8/import"), (plain, "")):
        ended = staff.ended(job)
        *known, child = ended.result()
        assert known == [scope, ["app", "seen"], scope]
        assert (ended.tags, ended.scope) == (("app", "seen"), scope)
        assert staff.ended(staff.app.get(child)).result() == staff.app.get(child).scope == scope
        assert staff.app.get(child).tags == ("app", "leaf")


@pytest.mark.parametrize(("given", "tags"), [(False, ("app", "order", "last")), (True, ("app", "last", "given"))])
def test_a_job_that_goes_on_as_another_call_keeps_its_tags_unless_that_has_some(
    staff: Crew, given: bool, tags: tuple[str, ...]
) -> None:
    job = staff.ended(staff.put(tags_app.first.options(tags="order", scope="/s"), given))
    assert (job.task, job.tags, job.result()) == ("last", tags, "/s")


def test_a_function_that_is_called_directly_tags_nothing(server_url: str) -> None:
    jobs = Holdfast(NOWHERE, scope="/app")

    @jobs.task(name="work")
    def work() -> list[str]:
        return [current_job().scope, *current_job().tag("a", "b"), *current_job().tag(remove=["a"])]

    assert work() == ["", "a", "b", "b"]
    with use(jobs, server_url) as bench:
        job = work.options(tags="a").enqueue()
        bench.run_one()
        assert bench.app.get(job.id).result() == ["/app", "a", "b", "b"]


def test_many_tags_of_many_jobs_are_changed_in_bounded_calls(app: Holdfast, ship: Task[[int], int]) -> None:
    ids = [job.id for job in app.enqueue_many([ship.options(tags=None).bind(number) for number in range(600)])]
    names = [f"t{number}" for number in range(30)]
    with pytest.raises(TooBig, match="fewer jobs at once"):
        app.store.run(commands.tag(ids, names))
    assert app.tags("t0") == {"t0": 0}

    assert app.tag_many(ids, *names) == ["tagged"] * len(ids)
    assert app.tags("t0", "t29") == {"t0": 600, "t29": 600}
    assert app.untag_many(ids, *names) == ["untagged"] * len(ids)
    assert app.tags("t0", "t29") == {"t0": 0, "t29": 0}
