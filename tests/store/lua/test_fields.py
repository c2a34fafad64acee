"""Fields of a job: at its enqueue, and from inside of it. `tests/client/test_jobs.py` has those of other programs."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.constants import MAX_FIELD, MAX_FIELDS, MAX_FIELDS_OF_CALL
from holdfast.job.outcome import Advanced, Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, end, job, new, put, take

TICKET = {"ticket": "17"}


def fields_of(store: Store, id: str = "job") -> dict[str, str]:
    return commands.read_pairs(job(store, id)["fields"])


def attach(store: Store, fields: dict[str, str], remove: tuple[str, ...] = (), executor: str = ONE) -> Any:
    return store.run(commands.attach_held(Lease(executor, "job", 1), fields, remove=remove))


def test_a_job_is_stored_with_its_fields(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "job", fields={"ticket": "17", "owner": "é" * (MAX_FIELD // 2)})
    put(store, "plain", fields={})
    assert fields_of(store) == {"ticket": "17", "owner": "é" * (MAX_FIELD // 2)}
    assert fields_of(store, "plain") == {}
    take(store)
    end(store, "job", Succeed(b""))
    store.run(commands.delete(["job"]))
    assert not client.exists(f"hf:{{{namespace}}}:u:job")


def test_each_job_of_a_batch_has_fields_of_its_own(store: Store) -> None:
    put(store, "a", "b", fields=TICKET)
    store.run(commands.attach("a", {"ticket": "18"}))
    assert (fields_of(store, "a"), fields_of(store, "b")) == ({"ticket": "18"}, TICKET)


def test_a_job_that_exists_keeps_its_fields_and_one_that_is_replaced_gets_the_new_ones(store: Store) -> None:
    put(store, "job", fields=TICKET)
    put(store, "job", fields={"owner": "ann"})
    assert fields_of(store) == TICKET
    store.run(commands.enqueue([new("job", fields={"owner": "ann"})], on_exists="replace"))
    assert fields_of(store) == {"owner": "ann"}
    store.run(commands.enqueue([new("job")], on_exists="replace"))
    assert fields_of(store) == {}


def test_the_next_call_of_a_job_adds_its_fields(store: Store) -> None:
    put(store, "job", fields={"ticket": "17", "owner": "ann"})
    take(store)
    assert end(store, "job", Advanced("next", {"fields": {"owner": "ben", "stage": "2"}}, b"[]")) == "OK"
    assert fields_of(store) == {"ticket": "17", "owner": "ben", "stage": "2"}
    take(store)
    assert end(store, "job", Advanced("next", {}, b"[]")) == "OK"
    assert fields_of(store) == {"ticket": "17", "owner": "ben", "stage": "2"}


def test_a_next_call_with_too_many_fields_is_refused_and_changes_nothing(store: Store) -> None:
    put(store, "job", fields={f"f{n}": "" for n in range(MAX_FIELDS)})
    take(store)
    assert end(store, "job", Advanced("next", {"fields": TICKET}, b"[]")) == "TOOBIG"
    assert len(fields_of(store)) == MAX_FIELDS
    assert job(store, "job")["state"] == "running"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"a b": ""}, errors.Invalid),
        ({"": ""}, errors.Invalid),
        ({"x" * 101: ""}, errors.Invalid),
        ({"a": 1}, errors.Invalid),
        (["a"], errors.Invalid),
        ("a", errors.Invalid),
        ({"a": "x" * (MAX_FIELD + 1)}, errors.TooBig),
        ({f"f{n}": "" for n in range(MAX_FIELDS + 1)}, errors.TooBig),
    ],
)
def test_fields_have_bounds(store: Store, fields: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        put(store, "job", fields=fields)
    put(store, "job")
    take(store)
    with pytest.raises(error):
        attach(store, fields)
    assert end(store, "job", Advanced("next", {"fields": fields}, b"[]")) in ("INVALID", "TOOBIG")
    assert fields_of(store) == {}


def test_the_fields_of_all_jobs_of_a_call_have_a_bound(store: Store) -> None:
    full = {f"f{n:02}": "x" * MAX_FIELD for n in range(MAX_FIELDS)}
    count = MAX_FIELDS_OF_CALL // (MAX_FIELDS * (MAX_FIELD + 3))
    put(store, *(f"a{n}" for n in range(count)), fields=full)
    with pytest.raises(errors.TooBig, match="enqueue fewer jobs at once"):
        put(store, *(f"b{n}" for n in range(count + 1)), fields=full)
    assert store.run(commands.count()) == count


def test_only_the_holder_of_the_lease_changes_fields_from_inside(store: Store) -> None:
    put(store, "job", fields=TICKET)
    take(store)
    assert attach(store, {"owner": "ann"}) == (False, {"ticket": "17", "owner": "ann"})
    assert attach(store, {}, remove=("ticket", "none")) == (False, {"owner": "ann"})
    with pytest.raises(errors.LeaseLost):
        attach(store, {"owner": "ben"}, executor=TWO)
    end(store, "job", Error(b"", "E", final=True))
    with pytest.raises(errors.LeaseLost):
        attach(store, {"owner": "ben"})
    assert fields_of(store) == {"owner": "ann"}


def test_the_reply_tells_that_the_job_was_cancelled(store: Store) -> None:
    put(store, "job")
    take(store)
    store.run(commands.cancel(["job"]))
    assert attach(store, TICKET) == (True, TICKET)


def test_jobs_of_a_schedule_have_its_fields(store: Store, clock: TestClock) -> None:
    batch = {"queue": "q", "task": "task", "fields": TICKET, "keep": 60_000}
    store.run(commands.schedule("nightly", batch, b"[]", every=60_000))
    clock.advance(60)
    [id] = take(store)
    assert (fields_of(store, id), job(store, id)["keep"]) == (TICKET, 60_000)
    with pytest.raises(errors.Invalid):
        store.run(commands.schedule("bad", {**batch, "fields": {"a b": ""}}, b"[]", every=60_000))
