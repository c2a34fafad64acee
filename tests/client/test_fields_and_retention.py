"""The options `fields` and `keep` as users write them: in an app, a task, a call, a schedule, an item."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Invalid, TooBig
from holdfast.task.task import Task
from tests.support.sync_and_async import FACES, Ask


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace, defaults={"fields": {"team": "shop", "by": "app"}})
    yield made
    made.close()


def _ship(order: int) -> int:
    return order


@pytest.fixture
def ship(app: Holdfast) -> Task[[int], int]:
    return app.task(name="ship", fields={"kind": "order", "by": "task"})(_ship)


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, app: Holdfast) -> Ask:
    return FACES[request.param](app)


def test_fields_of_the_app_the_task_and_the_call_add_up(app: Holdfast, ship: Task[[int], int], ask: Ask) -> None:
    usual = {"team": "shop", "kind": "order", "by": "task"}
    job = ask("enqueue", ship.bind(1))
    assert job.fields == app.get(job.id).fields == usual
    job = ask("enqueue", ship.options(fields={"by": "call"}).bind(1).options(fields={"ticket": "17"}))
    assert job.fields == app.get(job.id).fields == {**usual, "by": "call", "ticket": "17"}
    job = ask("enqueue", ship.options(fields=None).bind(1))
    assert job.fields == app.get(job.id).fields == {}


def test_each_call_of_many_has_its_own_fields(app: Holdfast, ship: Task[[int], int], ask: Ask) -> None:
    calls = [ship.options(fields={"n": str(n)}).bind(n) for n in range(20)]
    stored = ask("enqueue_many", calls)
    assert [job.fields["n"] for job in stored] == [str(n) for n in range(20)]
    assert [job and job.fields for job in app.get_many([job.id for job in stored])] == [job.fields for job in stored]
    stored[0].fields["n"] = "changed"
    assert calls[0].effective_options.fields == {"team": "shop", "kind": "order", "by": "task", "n": "0"}


def test_a_job_with_dependencies_has_its_fields(app: Holdfast, ship: Task[[int], int]) -> None:
    first = ship.enqueue(1)
    second = ship.options(after=first, fields={"n": "2"}).enqueue(2)
    assert second.fields == app.get(second.id).fields == {"team": "shop", "kind": "order", "by": "task", "n": "2"}


def test_the_call_that_replaces_another_has_its_fields(app: Holdfast, ship: Task[[int], int]) -> None:
    for n in ("1", "2"):
        job = ship.options(debounce="1h", fields={"n": n}).enqueue(1)
    assert app.get(job.id).fields["n"] == "2"


def test_items_and_schedules_have_fields_and_times(app: Holdfast, ship: Task[[int], int]) -> None:
    item = app.items("mail").put(b"", fields={"ticket": "17"}, keep="1h")
    assert (item.fields, item.keep) == ({"ticket": "17"}, timedelta(hours=1))
    app.schedule("nightly", ship.options(keep="1h").bind(1), every="1d")
    job = app.get(app.trigger("nightly"))
    assert (job.fields["kind"], job.keep) == ("order", timedelta(hours=1))


@pytest.mark.parametrize("keep", ["1h", 3600, timedelta(hours=1)])
def test_a_job_shows_how_long_it_is_kept_and_when_it_expires(app: Holdfast, keep: Any) -> None:
    @app.task(name="work")
    def work() -> None: ...

    job = work.options(keep=keep).enqueue()
    assert (job.keep, job.expires_at, app.get(job.id).expires_at) == (timedelta(hours=1), None, None)
    job.cancel()
    ended = app.get(job.id)
    assert (ended.keep, ended.expires_at) == (timedelta(hours=1), ended.since + timedelta(hours=1))
    usual = work.enqueue()
    usual.cancel()
    ended = app.get(usual.id)
    assert (ended.keep, ended.expires_at) == (True, ended.since + timedelta(days=7))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"keep": "999ms"}, "keep is '999ms'; it must be from 1s"),
        ({"keep": "11y"}, "keep is '11y'"),
        ({"keep": -1}, "keep is -1"),
        ({"fields": {"a b": ""}}, "field is 'a b'"),
        ({"fields": {"a": 1}}, "field a is 1"),
        ({"fields": ["a"]}, "fields is"),
        ({"fields": {"a": "\ud800"}}, "cannot be encoded"),
    ],
)
def test_values_that_cannot_be_stored_are_refused_where_they_are_written(
    app: Holdfast, options: Any, error: str
) -> None:
    with pytest.raises(Invalid, match=error):
        app.task(name="work", **options)
    with pytest.raises(Invalid, match=f"defaults: .*{error}"):
        Holdfast("redis://nowhere", defaults=options)


def test_too_many_fields_are_refused_where_they_add_up(ship: Task[[int], int]) -> None:
    many = {f"f{n}": "" for n in range(62)}
    with pytest.raises(TooBig, match="fields has 65 fields"):
        ship.options(fields=many)
    with pytest.raises(TooBig, match="field a is 4097 bytes"):
        ship.options(fields={"a": "x" * 4097})
