"""A job's arguments, its dependents, and the job as a dictionary."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, Invalid
from holdfast.job.as_dict import BRIEF, FIELDS
from holdfast.job.outcome import Error
from holdfast.records.jobs import JOB_DETAILS
from holdfast.store import commands
from holdfast.store.commands import Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, end, put, take

NEEDS_ANOTHER_CALL = {"usage", "explanation"}


@pytest.fixture
def app(server_url: str, namespace: str, store: Store) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    made.store = store
    yield made
    made.close()


def test_show_prints_the_fields_of_a_job_and_those_that_need_another_call() -> None:
    assert set(JOB_DETAILS.help) - set(FIELDS) == NEEDS_ANOTHER_CALL
    assert set(FIELDS) <= set(JOB_DETAILS.help)
    assert JOB_DETAILS.base
    assert set(JOB_DETAILS.base.help) == set(BRIEF)


def test_a_job_as_a_dictionary_is_json(app: Holdfast, store: Store, clock: TestClock) -> None:
    put(store, "a", payload=b'{"order":17}', retries=1)
    put(store, "job", payload=b'{"x":[1,2]}', after=("a",), tags=("vip",), queue="next", keep=60_000)
    take(store)
    end(store, "a", Error(b'{"type":"ValueError","message":"bad"}', "ValueError", delay=5))
    clock.advance(1)
    app.move("a", queue="other")

    for id in ("a", "job"):
        found = app.get(id).to_dict()
        assert json.loads(json.dumps(found)) == found
        assert list(found) == list(FIELDS)
    found = app.get("a").to_dict()
    assert (found["arguments"], found["queue"], found["enqueued_as"]["queue"]) == ({"order": 17}, "other", "q")
    assert found["failure"]["message"] == "bad"
    assert [entry["what"] for entry in found["history"]] == ["created", "claimed", "error", "moved"]
    assert found["attempts"][0]["queue"] == "q"


def test_a_job_that_was_listed_or_cannot_be_read_is_a_dictionary_too(app: Holdfast, store: Store) -> None:
    put(store, "job")
    (listed,) = app.list()
    assert (listed.to_dict()["arguments"], listed.to_dict()["id"]) == (None, "job")
    app.store.execute("HSET", f"hf:{{{store.address.namespace}}}:j:job", "h", b"nonsense")
    assert app.get("job").to_dict()["unreadable"]
    app.store.execute("DEL", f"hf:{{{store.address.namespace}}}:j:job")


@pytest.mark.parametrize(
    "progress",
    [
        '{"progress":0.5,"attempt":1,"after":1e300}',
        '{"progress":1e-300,"attempt":1,"after":1e30}',
        '{"progress":0.0001,"attempt":1,"after":99000000}',
    ],
)
def test_a_job_whose_end_no_calendar_has_is_shown_without_an_estimate(
    app: Holdfast, store: Store, progress: str
) -> None:
    put(store, "job")
    take(store)
    store.run(commands.save(Lease(ONE, "job", 1), None, progress=progress))

    found = app.get("job").to_dict()
    assert (found["progress"]["estimated_end"], found["state"]) == (None, "running")


def test_a_job_that_cannot_be_read_has_no_history(app: Holdfast, store: Store) -> None:
    put(store, "job")
    app.store.execute("HSET", f"hf:{{{store.address.namespace}}}:j:job", "h", b"nonsense")
    assert app.get("job").history == app.get("job").to_dict()["history"] == []
    app.store.execute("DEL", f"hf:{{{store.address.namespace}}}:j:job")


def test_arguments_are_decoded(app: Holdfast, store: Store) -> None:
    put(store, "job", payload=b'{"order":17,"items":["a"]}')
    put(store, "item", payload=b"\xff\x00", codec="raw")
    put(store, "odd", payload=b"{")

    assert app.get("job").arguments == {"order": 17, "items": ["a"]}
    assert app.get("item").arguments == b"\xff\x00"
    with pytest.raises(Invalid, match=r"the arguments of job odd are not JSON: .*; job.payload has the bytes"):
        _ = app.get("odd").arguments
    listed = next(job for job in app.list() if job.id == "job")
    with pytest.raises(Invalid, match=r"the arguments of job job are not loaded, or lost; call job.refresh\(\)"):
        _ = listed.arguments


def test_dependents_are_those_that_are_blocked(app: Holdfast, store: Store) -> None:
    put(store, "a", "b")
    put(store, "both", after=("a", "b"), queue="next")
    put(store, "one", after=("a",), queue="next")

    assert sorted(app.get("a").dependents()) == ["both", "one"]
    assert app.get("b").dependents() == app.dependents("b") == ["both"]
    assert app.get("one").dependents() == app.dependents("nobody") == []
    store.run(commands.cancel(["one"]))
    assert app.get("a").dependents() == ["both"]


def test_all_of_many_dependents_are_found_also_by_the_async_client(app: Holdfast, store: Store) -> None:
    put(store, "a")
    for first in range(0, 2500, 500):
        put(store, *(f"d{number}" for number in range(first, first + 500)), after=("a",), queue="next")
    assert len(app.dependents("a")) == 2500

    async def ask() -> int:
        job = await app.aget("a")
        found = await job.adependents()
        await app.aclose()
        return len(found)

    assert asyncio.run(ask()) == 2500
