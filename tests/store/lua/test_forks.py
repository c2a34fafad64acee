"""Forks: a new job with the call of another, which starts from what that one has saved; retries from the start."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Advanced, Error, Succeed
from holdfast.store import commands
from holdfast.store.caller import caller_name
from holdfast.store.commands import ClaimedJob, Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, ask, end, fields, happened, job, put, standing, take

LONG = b"x" * 5000


def start(store: Store, id: str = "job", **options: Any) -> Lease:
    put(store, id, **options)
    take(store)
    return Lease(ONE, id, 1)


def save(store: Store, held: Lease, checkpoint: bytes = b'{"page":7}', steps: int = 1) -> None:
    store.run(commands.save(held, checkpoint, progress="7 of 10"))
    for number in range(steps):
        store.run(commands.once(held, f"step-{number}", b"%d" % number))


def fork(store: Store, id: str = "job", new: str = "new", **options: Any) -> bool:
    return store.run(commands.fork(id, new, **options)).created


def claimed(store: Store, executor: str = TWO, *queues: str) -> ClaimedJob:
    [found] = store.run(commands.claim(executor, ask(*queues))).jobs
    return found


def steps_of(client: redis.Redis, store: Store, id: str) -> dict[bytes, bytes]:
    return dict(client.hgetall(f"hf:{{{store.address.namespace}}}:o:{id}"))


@pytest.mark.parametrize("checkpoint", [b"7", LONG])
def test_a_fork_of_a_running_job_starts_from_its_last_checkpoint_and_kept_steps(
    store: Store, checkpoint: bytes
) -> None:
    held = start(store, payload=LONG)
    save(store, held, checkpoint, steps=2)

    assert fork(store)

    new = claimed(store)
    assert (new.id, new.attempt, new.payload, new.checkpoint) == ("new", 1, LONG, checkpoint)
    assert store.run(commands.once(Lease(TWO, "new", 1), "step-1")) == b"1"
    assert fields(store, "new", "forked_from", "progress") == ("job", "7 of 10")
    assert job(store, "job")["state"] == "running"


def test_what_the_fork_saves_does_not_change_the_other_job(store: Store, client: redis.Redis) -> None:
    save(store, start(store), LONG)
    fork(store)
    claimed(store)

    save(store, Lease(TWO, "new", 1), b"8", steps=3)

    assert job(store, "job")["checkpoint"] == LONG
    assert len(steps_of(client, store, "job")) == 1
    assert len(steps_of(client, store, "new")) == 3


@pytest.mark.parametrize("ending", [Succeed(b"1"), Error(b"", "bad", final=True), Error(b"", "bad", delay=5000)])
def test_a_job_can_be_forked_whatever_became_of_it(store: Store, ending: Any) -> None:
    save(store, start(store))
    end(store, "job", ending)
    before = job(store, "job")

    assert fork(store)

    after = job(store, "job")
    assert {name for name in after if after[name] != before[name]} == {"notes"}
    assert claimed(store).checkpoint == b'{"page":7}'


def test_the_history_of_both_jobs_names_the_other(store: Store, clock: TestClock) -> None:
    save(store, start(store))
    end(store, "job", Error(b"", "bad", delay=0))
    take(store)
    end(store, "job", Error(b"", "bad", final=True))
    clock.advance(60)

    fork(store)

    who = caller_name().encode()
    assert job(store, "job")["notes"] == [[clock.now, b"forked", b"into new", who]]
    assert job(store, "new")["notes"] == [[clock.now, b"forked", b"from job at attempt 2", who]]
    assert [each for each in happened(store) if each[0] == "forked"] == [("forked", ["job"])]


def test_the_same_fork_is_stored_once(store: Store) -> None:
    save(store, start(store))
    command = commands.fork("job", "new")

    assert store.run(command).created
    assert store.run(command).created  # its reply was lost
    assert not fork(store)
    end(store, "job", Succeed(b"1"))
    store.run(commands.delete(["job"]))
    assert not fork(store)
    assert standing(store) == {"waiting": ["new"]}


def test_the_id_of_another_job_is_refused(store: Store) -> None:
    save(store, start(store))
    put(store, "new")

    with pytest.raises(errors.JobExists, match="job new already exists, and is not a fork of job job"):
        fork(store)
    with pytest.raises(errors.JobExists, match="job job already exists"):
        fork(store, "job", "job")


def test_a_job_that_saved_nothing_is_forked_only_from_the_start(store: Store) -> None:
    start(store)
    with pytest.raises(errors.WrongState, match="job job has saved neither a checkpoint nor steps"):
        fork(store)
    assert standing(store) == {"running": ["job"]}

    assert fork(store, from_start=True)
    assert claimed(store).checkpoint == b""


def test_from_the_start_nothing_that_was_saved_is_taken_over(store: Store, client: redis.Redis) -> None:
    save(store, start(store), LONG)
    fork(store, from_start=True)

    assert claimed(store).checkpoint == b""
    assert steps_of(client, store, "new") == {}
    assert job(store, "new")["progress"] == ""
    assert job(store, "new")["notes"][0][2] == b"from job at attempt 1, from the start"


def test_a_fork_has_the_options_of_the_other_and_not_what_stands_for_one_job(store: Store) -> None:
    options: dict[str, Any] = {
        "priority": -3, "retries": 7, "crashes": 2, "lost": 9, "backoff": 1500, "timeout": 60_000, "codec": "raw",
        "run": '{"memory":5}', "keep": 60_000, "limits": ("api", "db:x"), "tags": ("a", "b"), "scope": "/t/7",
        "share": "acme", "fields": {"ticket": "4711"}, "unique": "key", "deadline": 90_000, "at_most_once": True,
    }  # fmt: skip
    save(store, start(store, **options))
    fork(store)

    taken = (
        "queue",
        "task",
        "codec",
        "payload",
        "priority",
        "retries",
        "crashes",
        "lost",
        "backoff",
        "timeout",
        "keep",
    )
    more = ("run", "limits", "tags", "scope", "share", "at_most_once")
    assert fields(store, "new", *taken, *more) == fields(store, "job", *taken, *more)
    assert commands.read_pairs(job(store, "new")["fields"]) == {"ticket": "4711"}
    assert fields(store, "new", "unique", "deadline", "attempt", "tracked") == ("", 0, 0, 0)


def test_given_options_replace_those_of_the_other(store: Store) -> None:
    save(store, start(store, retries=7, keep=False, tags=("a",), limits=("api",), fields={"owner": "ann", "x": "1"}))
    changed = {"queue": "large", "retries": 0, "keep": True, "tags": ["b"], "limits": [], "fields": {"owner": "ben"}}

    fork(store, set={**changed, "delay": 5000})

    wanted = ("large", 0, 1, ["b"], "", "scheduled")
    assert fields(store, "new", "queue", "retries", "keep", "tags", "limits", "state") == wanted
    assert commands.read_pairs(job(store, "new")["fields"]) == {"owner": "ben", "x": "1"}


def test_a_fork_may_wait_for_the_job_that_it_was_forked_from(store: Store) -> None:
    save(store, start(store))
    fork(store, set={"after": ["job"]})
    assert standing(store) == {"running": ["job"], "blocked": ["new"]}

    end(store, "job", Succeed(b"1"))

    assert claimed(store).checkpoint == b'{"page":7}'


def test_a_fork_joins_a_batch_only_if_it_is_named_and_open(store: Store) -> None:
    store.run(commands.open_batch("import"))
    save(store, start(store, in_batch="import"))
    fork(store)
    fork(store, new="member", set={"batch": "import"})
    store.run(commands.close_batch("import"))
    with pytest.raises(errors.WrongState):
        fork(store, new="late", set={"batch": "import"})

    [found] = store.run(commands.get_batches(["import"]))
    assert found is not None
    assert found["open"] == 2


def test_options_of_one_job_and_unknown_ones_are_refused(store: Store) -> None:
    save(store, start(store))
    for name, value in (("unique", "key"), ("task", "other"), ("ids", ["b"]), ("nonsense", 1)):
        with pytest.raises(errors.Invalid, match=f"a fork cannot have the option {name}"):
            fork(store, set={name: value})
    with pytest.raises(errors.Invalid, match="the priority must be a whole number"):
        fork(store, set={"priority": 1000})
    with pytest.raises(errors.JobNotFound, match="job none does not exist"):
        fork(store, "none")
    assert standing(store) == {"running": ["job"]}


def test_run_options_that_changed_meanwhile_are_not_overwritten(store: Store) -> None:
    save(store, start(store, run='{"memory":5}'))
    with pytest.raises(errors.WrongState, match="has advanced to another call meanwhile"):
        fork(store, set={"run": '{"memory":7}'}, run='{"memory":6}')

    assert fork(store, set={"run": '{"memory":7}'}, run='{"memory":5}')
    assert job(store, "new")["run"] == '{"memory":7}'


def test_a_fork_of_a_job_that_advanced_is_in_its_current_stage(store: Store) -> None:
    save(store, start(store))
    end(store, "job", Advanced("next", {}, b'["two"]'))
    with pytest.raises(errors.WrongState, match="has saved neither"):
        fork(store)

    fork(store, from_start=True)

    assert fields(store, "new", "task", "payload") == ("next", b'["two"]')


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("p", "the payload of job job is missing from the store: enqueue its call again"),
        ("c", "the checkpoint of job job is missing from the store: fork the job from the start"),
    ],
)
def test_a_long_value_that_is_lost_is_reported_and_nothing_is_stored(
    store: Store, client: redis.Redis, key: str, message: str
) -> None:
    save(store, start(store, payload=LONG), LONG)
    client.delete(f"hf:{{{store.address.namespace}}}:{key}:job")

    with pytest.raises(errors.JobUnreadable, match=message):
        fork(store)

    assert standing(store) == {"running": ["job"]}
    assert job(store, "job")["notes"] == []
    client.set(f"hf:{{{store.address.namespace}}}:{key}:job", LONG)


def test_a_job_whose_record_has_lost_its_payload_is_not_forked(store: Store, client: redis.Redis) -> None:
    save(store, start(store))
    record = f"hf:{{{store.address.namespace}}}:j:job"
    client.hdel(record, "p")

    for from_start in (False, True):
        with pytest.raises(errors.JobUnreadable, match="the payload of job job is missing from the store"):
            fork(store, from_start=from_start)

    assert standing(store) == {"running": ["job"]}
    client.hset(record, "p", b"[]")


def test_damaged_steps_are_reported_and_do_not_prevent_a_fork_from_the_start(store: Store, client: redis.Redis) -> None:
    save(store, start(store))
    steps = f"hf:{{{store.address.namespace}}}:o:job"
    kept = client.dump(steps)
    client.set(steps, "?")

    with pytest.raises(errors.JobUnreadable, match="the kept steps of job job are damaged"):
        fork(store)
    assert fork(store, from_start=True)

    client.restore(steps, 0, kept, replace=True)


def test_a_retry_continues_from_the_checkpoint_and_from_the_start_begins_anew(
    store: Store, client: redis.Redis
) -> None:
    save(store, start(store), LONG)
    end(store, "job", Error(b"", "bad", final=True))
    store.run(commands.retry(["job"]))
    assert claimed(store, ONE).checkpoint == LONG
    end(store, "job", Error(b"", "bad", final=True))

    assert store.run(commands.retry(["job"], from_start=True)) == ["waiting"]

    assert claimed(store, ONE).checkpoint == b""
    assert steps_of(client, store, "job") == {}
    assert fields(store, "job", "attempt", "progress") == (3, "")
    assert [note[1:3] for note in job(store, "job")["notes"]] == [[b"retried", b""], [b"retried", b"from the start"]]


def test_a_retry_that_is_refused_keeps_what_was_saved(store: Store, client: redis.Redis) -> None:
    save(store, start(store))
    assert store.run(commands.retry(["job"], from_start=True)) == ["STATE"]
    end(store, "job", Error(b"", "step-not-kept", final=True))
    assert store.run(commands.retry(["job"], from_start=True)) == ["DONE"]

    assert job(store, "job")["checkpoint"] == b'{"page":7}'
    assert len(steps_of(client, store, "job")) == 1
