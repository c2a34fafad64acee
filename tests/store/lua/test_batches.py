"""Batches in the store: a batch is done once, when it is closed and its last member has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.constants import DEFAULT_BATCH_KEEP, MAX_BATCH_MEMBERS, MAX_BATCHES
from holdfast.job.outcome import Advanced, Blocked, Crash, Error, Release, Succeed
from holdfast.store import commands
from holdfast.store.commands import Callback, Finish
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, end, job, keep, new, put, standing, take

FAIL = Error(b"", "ValueError", final=True)
ALL = ("done", "succeeded", "failed")


def callback(on: str, **options: Any) -> Callback:
    return Callback(on, f"call-{on}", {"queue": "calls", "task": "report", **options}, b"[1]")


def open_batch(store: Store, name: str = "b", on: Sequence[str] = (), **options: Any) -> bool:
    return store.run(commands.open_batch(name, callbacks=[callback(each) for each in on], **options))


def close(store: Store, name: str = "b") -> bool:
    return store.run(commands.close_batch(name))


def add(store: Store, *ids: str, batch: str = "b", adder: str | None = None, **options: Any) -> None:
    jobs = [new(id, in_batch=batch, **options) for id in ids]
    on_exists = options.pop("on_exists", "return")
    store.run(commands.enqueue(jobs, adder=adder, on_exists=on_exists))


def replace(store: Store, *ids: str, **options: Any) -> None:
    store.run(commands.enqueue([new(id, **options) for id in ids], on_exists="replace"))


def run(store: Store, *ids: str, outcome: Any = None) -> None:
    """Run the jobs that wait in queue q."""
    taken = take(store, limit=100)
    assert set(ids) <= set(taken), f"{taken} wait"
    for id in taken:
        end(store, id, outcome or Succeed(b"1"))


def status(store: Store, name: str = "b") -> dict[str, Any]:
    [found] = store.run(commands.get_batches([name]))
    assert found is not None
    return found


def counts(store: Store, name: str = "b") -> tuple[str, int, int, int, int]:
    found = status(store, name)
    return found["state"], found["open"], found["succeeded"], found["failed"], found["cancelled"]


def called(store: Store) -> list[str]:
    """The callbacks that exist."""
    return [each["id"] for each in store.run(commands.list_jobs(queues=["calls"])).jobs]


def members(store: Store, name: str = "b", **how: Any) -> list[str]:
    found, cursor = [], None
    while True:
        page = store.run(commands.list_jobs(batch=name, cursor=cursor, **how))
        found += [each["id"] for each in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return found


# The end of a batch


def test_a_batch_is_done_when_it_is_closed_and_its_last_member_has_ended(store: Store, clock: TestClock) -> None:
    assert open_batch(store, on=ALL)
    add(store, "a", "b", "c")
    assert counts(store) == ("open", 3, 0, 0, 0)
    run(store, "a", "b", "c")
    assert counts(store) == ("open", 0, 3, 0, 0)
    assert called(store) == []  # the producer may still add

    clock.advance(1)
    add(store, "d")
    assert close(store)
    assert counts(store) == ("closed", 1, 3, 0, 0)
    assert called(store) == []
    clock.advance(1)
    run(store, "d")
    assert counts(store) == ("done", 0, 4, 0, 0)
    assert called(store) == ["call-done", "call-succeeded"]
    found = status(store)
    assert (found["created"], found["closed"], found["done"]) == (clock.now - 2000, clock.now - 1000, clock.now)
    assert found["expires"] == clock.now + DEFAULT_BATCH_KEEP
    assert job(store, "a")["batch"] == "b"


def test_closing_is_what_ends_a_batch_whose_members_have_ended(store: Store) -> None:
    open_batch(store, on=ALL)
    add(store, "a")
    run(store, "a")
    assert close(store)
    assert counts(store) == ("done", 0, 1, 0, 0)
    assert called(store) == ["call-done", "call-succeeded"]
    assert not close(store)
    assert take(store, ONE, "calls", limit=5) == ["call-done", "call-succeeded"]


def test_an_empty_batch_is_done_when_it_is_closed(store: Store) -> None:
    open_batch(store, on=ALL)
    close(store)
    assert counts(store) == ("done", 0, 0, 0, 0)
    assert called(store) == ["call-done", "call-succeeded"]


def test_the_callback_is_claimed_by_the_call_that_ends_the_last_member(store: Store) -> None:
    open_batch(store, on=["done"])
    add(store, "a")
    close(store)
    [taken] = store.run(commands.claim(ONE, commands.claim_args(["q", "calls"], counter=10**6, limit=1))).jobs
    request = commands.claim_args(["q", "calls"], counter=10**6 + 1, limit=1)
    reply = store.run(commands.finish(ONE, [Finish("a", taken.attempt, Succeed(b""))], request=request))
    assert [each.id for each in reply.claim.jobs] == ["call-done"]
    assert reply.claim.jobs[0].payload == b"[1]"
    assert reply.claim.jobs[0].marks == "$b"


@pytest.mark.parametrize("how", ["failed", "cancelled", "crashed", "lost"])
def test_a_member_that_does_not_succeed_is_a_failure_of_the_batch(store: Store, clock: TestClock, how: str) -> None:
    open_batch(store, on=ALL)
    add(store, "a", "b", crashes=0, lost=0)
    close(store)
    if how == "cancelled":
        store.run(commands.cancel(["a"]))
        run(store, "b")
    else:
        assert take(store, limit=2) == ["a", "b"]
        end(store, "b", Succeed(b""))
        if how == "failed":
            end(store, "a", FAIL)
        elif how == "crashed":
            end(store, "a", Crash(b""))
        else:
            for _ in range(4):
                clock.advance(10)
                keep(store, executor=TWO)
    wanted = ("done", 0, 1, 0, 1) if how == "cancelled" else ("done", 0, 1, 1, 0)
    assert counts(store) == wanted
    assert called(store) == ["call-done", "call-failed"]


def test_a_retry_is_not_an_end(store: Store) -> None:
    open_batch(store, on=ALL)
    add(store, "a", retries=1, backoff=0)
    close(store)
    for outcome in (Error(b"", "ValueError"), Release("later", 0)):
        assert take(store) == ["a"]
        end(store, "a", outcome)
        assert counts(store) == ("closed", 1, 0, 0, 0)
    run(store, "a")
    assert counts(store) == ("done", 0, 1, 0, 0)


def test_a_repeated_finish_counts_once(store: Store) -> None:
    open_batch(store, on=["done"])
    add(store, "a", "b")
    close(store)
    assert take(store, limit=2) == ["a", "b"]
    for _ in range(2):
        assert end(store, "a", Succeed(b"1"), attempt=1) == "OK"
    assert counts(store) == ("closed", 1, 1, 0, 0)
    store.run(commands.finish(ONE, [Finish("b", 1, Succeed(b"")), Finish("b", 1, Succeed(b""))]))
    assert counts(store) == ("done", 0, 2, 0, 0)
    assert called(store) == ["call-done"]


def test_many_members_end_in_one_call(store: Store) -> None:
    open_batch(store, on=["done"])
    ids = [f"m{number}" for number in range(300)]
    add(store, *ids)
    close(store)
    taken = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=10**7, limit=300))).jobs
    ends = [Finish(each.id, each.attempt, FAIL if place % 3 == 0 else Succeed(b"")) for place, each in enumerate(taken)]
    store.run(commands.finish(ONE, ends))
    assert counts(store) == ("done", 0, 200, 100, 0)
    assert called(store) == ["call-done"]


# What becomes of members


def test_a_member_that_is_retried_later_changes_counts_and_runs_no_callback(store: Store) -> None:
    open_batch(store, on=ALL)
    add(store, "a", "b")
    close(store)
    run(store, "a", "b", outcome=FAIL)
    assert called(store) == ["call-done", "call-failed"]
    store.run(commands.delete(called(store)))  # they have not ended: nothing happens
    assert take(store, ONE, "calls", limit=2) == ["call-done", "call-failed"]
    for id in ("call-done", "call-failed"):
        end(store, id, Succeed(b""))
    store.run(commands.delete(called(store)))

    store.run(commands.retry(["a"]))
    assert counts(store) == ("done", 1, 0, 1, 0)
    run(store, "a")
    assert counts(store) == ("done", 0, 1, 1, 0)
    assert called(store) == []


def test_a_member_that_is_retried_in_time_keeps_the_batch_from_ending(store: Store) -> None:
    open_batch(store, on=ALL)
    add(store, "a", "b")
    close(store)
    assert take(store, limit=2) == ["a", "b"]
    end(store, "a", FAIL)
    store.run(commands.retry(["a"]))
    assert counts(store) == ("closed", 2, 0, 0, 0)
    end(store, "b", Succeed(b""))
    assert counts(store) == ("closed", 1, 1, 0, 0)
    run(store, "a")
    assert called(store) == ["call-done", "call-succeeded"]


def test_a_deleted_member_still_counts(store: Store) -> None:
    open_batch(store)
    add(store, "a", "b", "c")
    assert take(store, limit=2) == ["a", "b"]
    end(store, "a", Succeed(b""))
    end(store, "b", FAIL)
    assert store.run(commands.delete(["a", "b", "c"])) == ["OK", "OK", "STATE"]
    assert counts(store) == ("open", 1, 1, 1, 0)
    assert members(store) == ["c"]
    assert status(store)["records"] == 1


def test_a_pruned_member_still_counts(store: Store, clock: TestClock) -> None:
    open_batch(store)
    add(store, "a", "b", keep=1000)
    run(store, "a", "b")
    clock.advance(5)
    store.run(commands.upkeep())
    assert standing(store) == {}
    assert counts(store) == ("open", 0, 2, 0, 0)
    assert members(store) == []


def test_members_that_are_not_kept_count(store: Store) -> None:
    open_batch(store, on=["done", "succeeded"])
    add(store, "a", "b", keep=False)
    close(store)
    run(store, "a", "b")
    assert counts(store) == ("done", 0, 2, 0, 0)
    assert standing(store) == {"waiting": ["call-done", "call-succeeded"]}


def test_a_member_that_is_replaced_counts_once(store: Store) -> None:
    open_batch(store)
    add(store, "a", "b")
    replace(store, "a", in_batch="b")
    assert counts(store) == ("open", 2, 0, 0, 0)
    run(store, "a", "b", outcome=FAIL)
    replace(store, "a", in_batch="b")
    assert counts(store) == ("open", 1, 0, 1, 0)
    run(store, "a")
    assert counts(store) == ("open", 0, 1, 1, 0)


def test_a_job_that_is_replaced_by_one_outside_of_the_batch_leaves_it(store: Store) -> None:
    open_batch(store, on=["done", "succeeded"])
    open_batch(store, "other")
    add(store, "a", "b", "c")
    close(store)
    replace(store, "a")
    replace(store, "b", in_batch="other")
    assert counts(store) == ("closed", 1, 0, 0, 0)
    assert counts(store, "other") == ("open", 1, 0, 0, 0)
    replace(store, "c")
    assert counts(store) == ("done", 0, 0, 0, 0)
    assert called(store) == ["call-done", "call-succeeded"]


def test_one_call_replaces_a_member_behind_a_new_one(store: Store) -> None:
    open_batch(store, on=["done"])
    add(store, "a")
    replace(store, "new", "a", in_batch="b")
    assert counts(store) == ("open", 2, 0, 0, 0)
    close(store)
    run(store, "new", "a")
    assert counts(store) == ("done", 0, 2, 0, 0)


def test_an_existing_job_does_not_join_a_batch(store: Store) -> None:
    open_batch(store)
    put(store, "a")
    add(store, "a", "b")
    assert counts(store) == ("open", 1, 0, 0, 0)
    assert members(store) == ["b"]


def test_a_member_that_moves_or_advances_stays_a_member(store: Store) -> None:
    open_batch(store, on=["done"])
    add(store, "a")
    close(store)
    store.run(commands.move(["a"], queue="other"))
    assert take(store, ONE, "other") == ["a"]
    end(store, "a", Advanced("next", {"queue": "q"}, b""))
    assert counts(store) == ("closed", 1, 0, 0, 0)
    run(store, "a")
    assert counts(store) == ("done", 0, 1, 0, 0)


def test_a_member_that_advances_behind_a_failed_job_ends_as_cancelled(store: Store) -> None:
    open_batch(store, on=["done"])
    put(store, "before")
    run(store, "before", outcome=FAIL)
    add(store, "a")
    close(store)
    take(store)
    end(store, "a", Advanced("next", {"after": ["before"], "on_failed": "cancel"}, b""))
    assert counts(store) == ("done", 0, 0, 0, 1)
    assert called(store) == ["call-done"]


def test_members_of_a_doomed_chain_end_together(store: Store) -> None:
    open_batch(store, on=["done", "failed"])
    add(store, "a")
    add(store, "b", after=("a",), on_failed="cancel")
    add(store, "c", after=("b",), on_failed="cancel")
    close(store)
    run(store, "a", outcome=FAIL)
    assert counts(store) == ("done", 0, 0, 1, 2)
    assert called(store) == ["call-done", "call-failed"]


def test_a_member_that_is_doomed_from_the_start_counts(store: Store) -> None:
    open_batch(store, on=["done"])
    put(store, "before")
    run(store, "before", outcome=FAIL)
    add(store, "a", after=("before",), on_failed="cancel")
    assert counts(store) == ("open", 0, 0, 0, 1)
    close(store)
    assert called(store) == ["call-done"]


def test_a_member_that_waits_for_others_is_open(store: Store) -> None:
    open_batch(store)
    add(store, "a")
    take(store)
    put(store, "child")
    end(store, "a", Blocked(("child",)))
    close(store)
    assert counts(store) == ("closed", 1, 0, 0, 0)
    run(store, "child")
    run(store, "a")
    assert counts(store) == ("done", 0, 1, 0, 0)


# Adding


def test_a_batch_must_exist(store: Store) -> None:
    for call in (
        lambda: add(store, "a"),
        lambda: close(store),
        lambda: store.run(commands.cancel_batch("b")),
        lambda: store.run(commands.delete_batch("b")),
        lambda: store.run(commands.wait_for_batch("b", "me")),
    ):
        with pytest.raises(errors.BatchNotFound, match="batch b does not exist"):
            call()
    assert store.run(commands.get_batches(["b"])) == [None]
    assert standing(store) == {}


def test_only_an_open_member_can_add_to_a_closed_batch(store: Store) -> None:
    open_batch(store, on=["done"])
    add(store, "a")
    put(store, "stranger")
    close(store)
    for adder in (None, "stranger", "nobody"):
        with pytest.raises(errors.WrongState, match="closed"):
            add(store, "b", adder=adder)
    take(store)
    add(store, "b", adder="a")
    end(store, "a", Succeed(b""))
    assert counts(store) == ("closed", 1, 1, 0, 0)
    with pytest.raises(errors.WrongState, match="closed"):
        add(store, "c", adder="a")
    run(store, "b")
    assert counts(store) == ("done", 0, 2, 0, 0)
    with pytest.raises(errors.WrongState, match="done"):
        add(store, "c", adder="b")
    assert called(store) == ["call-done"]


def test_a_repeated_enqueue_is_answered_although_the_batch_was_closed(store: Store) -> None:
    open_batch(store)
    for command in (
        commands.enqueue([new("a", in_batch="b")]),
        commands.enqueue([new("x", in_batch="b"), new("y", in_batch="b")], fresh=True),
    ):
        store.run(commands.open_batch("b"))
        store.run(command)
    close(store)
    store.run(commands.enqueue([new("a", in_batch="b")]))
    store.run(command)
    assert counts(store) == ("closed", 3, 0, 0, 0)


def test_all_jobs_of_a_call_are_refused_or_none(store: Store) -> None:
    open_batch(store)
    close(store)
    open_batch(store, "open")
    with pytest.raises(errors.WrongState):
        store.run(commands.enqueue([new("a", in_batch="open"), new("c", in_batch="b")]))
    assert standing(store) == {}
    assert counts(store, "open") == ("open", 0, 0, 0, 0)


def test_a_batch_has_room_for_a_million_members(store: Store, server_url: str, namespace: str) -> None:
    open_batch(store)
    add(store, "a")
    with redis.Redis.from_url(server_url) as client:
        client.hset(f"hf:{{{namespace}}}:b:b", "succeeded", MAX_BATCH_MEMBERS - 2)
    with pytest.raises(errors.TooBig, match="1000001 jobs"):
        add(store, "b", "c")
    add(store, "b")


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 101, "a\nb"])
def test_names_are_checked(store: Store, name: str) -> None:
    for call in (lambda: open_batch(store, name), lambda: add(store, "a", batch=name), lambda: close(store, name)):
        with pytest.raises(errors.Invalid, match="a batch must be"):
            call()
    assert open_batch(store, "x" * 100)
    assert open_batch(store, "A:b_c.d-1")


# Opening


def test_a_batch_is_opened_again_while_it_is_open(store: Store) -> None:
    assert open_batch(store, on=["done"])
    assert not open_batch(store)
    changed = Callback("done", "another", {"queue": "calls", "task": "other"}, b"[2]")
    assert not store.run(commands.open_batch("b", keep=5000, callbacks=[changed, callback("failed")]))
    assert status(store)["callbacks"] == [("done", "another", "other"), ("failed", "call-failed", "report")]
    close(store)
    assert called(store) == ["another"]
    assert status(store)["expires"] - status(store)["done"] == 5000
    for state in ("closed", "done"):
        name = f"in {state}".replace(" ", "-")
        open_batch(store, name)
        if state == "closed":
            add(store, "m", batch=name)
        close(store, name)
        with pytest.raises(errors.WrongState, match=state):
            open_batch(store, name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": {"queue": "q", "task": "t", "after": ["x"]}},
        {"job": {"queue": "q", "task": "t", "unique": "x"}},
        {"job": {"queue": "q", "task": "t", "batch": "b"}},
        {"job": {"queue": "bad queue", "task": "t"}},
        {"on": "always"},
        {"id": "no id"},
    ],
)
def test_callbacks_are_checked_when_the_batch_is_opened(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.Invalid):
        store.run(commands.open_batch("b", callbacks=[callback("done")._replace(**wrong)]))
    with pytest.raises(errors.TooBig):
        store.run(commands.open_batch("b", callbacks=[callback("done")._replace(payload=b"x" * (2**20 + 1))]))
    assert store.run(commands.get_batches(["b"])) == [None]


def test_a_callback_has_options(store: Store, clock: TestClock) -> None:
    options = {"priority": -5, "delay": 1000, "tags": ["end"], "run": "{}", "keep": 60_000}
    store.run(commands.open_batch("b", callbacks=[callback("done", **options)]))
    close(store)
    found = job(store, "call-done")
    assert (found["state"], found["priority"], found["tags"], found["keep"]) == ("scheduled", -5, ["end"], 60_000)
    assert found["timer"] == clock.now + 1000


def test_a_callback_whose_id_is_taken_changes_nothing(store: Store) -> None:
    put(store, "call-done", task="another")
    open_batch(store, on=["done"])
    close(store)
    assert job(store, "call-done")["task"] == "another"
    assert counts(store) == ("done", 0, 0, 0, 0)


@pytest.mark.parametrize("name", [{}, True, 5, "", "a b", "a\n#tag"])
def test_only_the_name_of_a_batch_is_stored_as_that_which_a_job_ends(store: Store, name: object) -> None:
    command = commands.enqueue([new("a")])
    command.args["batches"][0]["ends"] = name
    with pytest.raises(errors.Invalid, match="a batch must be"):
        store.run(command)
    assert take(store) == []


def test_a_callback_is_not_a_member(store: Store) -> None:
    open_batch(store, on=["done"])
    close(store)
    take(store, ONE, "calls")
    end(store, "call-done", FAIL)
    store.run(commands.retry(["call-done"]))
    assert counts(store) == ("done", 0, 0, 0, 0)
    assert members(store) == []


# Cancelling


def test_cancel_closes_a_batch_and_cancels_its_open_members(store: Store) -> None:
    open_batch(store, on=["done", "failed"])
    add(store, "a", "b")
    add(store, "c", delay=60_000)
    add(store, "d", after=("c",))
    assert take(store) == ["a"]
    reply = store.run(commands.cancel_batch("b", reason="wrong file"))
    assert reply.answers == {"cancelled": 3, "cancelling": 1}
    assert reply.cursor is None
    assert counts(store) == ("closed", 1, 0, 0, 3)
    assert job(store, "b")["notes"][0][2] == b"wrong file"
    with pytest.raises(errors.WrongState, match="cancelled"):
        add(store, "e", adder="a")
    end(store, "a", Release("stopped", 0))
    assert counts(store) == ("done", 0, 0, 0, 4)
    assert called(store) == ["call-done", "call-failed"]
    assert store.run(commands.cancel_batch("b")).answers == {}


def test_cancel_goes_in_steps_and_reaches_all(store: Store) -> None:
    open_batch(store, on=["done"])
    ids = [f"m{number}" for number in range(1000)]
    add(store, *ids)
    seen, cursor, calls = 0, None, 0
    while calls == 0 or cursor is not None:
        reply = store.run(commands.cancel_batch("b", cursor=cursor, limit=100))
        step = sum(reply.answers.values())
        assert step < 300, "a call does too much"
        seen, cursor, calls = seen + step, reply.cursor, calls + 1
    assert (seen, calls > 3) == (1000, True)
    assert counts(store) == ("done", 0, 0, 0, 1000)
    assert called(store) == ["call-done"]


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "9" * 20}])
def test_a_wrong_page_cancels_nothing(store: Store, wrong: dict[str, Any]) -> None:
    open_batch(store)
    add(store, "a")
    with pytest.raises(errors.Invalid):
        store.run(commands.cancel_batch("b", **wrong))
    assert counts(store) == ("open", 1, 0, 0, 0)
    assert status(store)["cancelling"] == 0


def test_an_empty_batch_can_be_cancelled(store: Store) -> None:
    open_batch(store, on=["succeeded"])
    store.run(commands.cancel_batch("b"))
    assert counts(store) == ("done", 0, 0, 0, 0)
    assert status(store)["cancelling"] > 0


# Waiting, reading


def test_waiters_are_told_once(store: Store, server_url: str) -> None:
    open_batch(store)
    add(store, "a")
    first, other = (store.run(commands.wait_for_batch("b", name)) for name in ("me", "you"))
    assert first.state == other.state == "open"
    store.run(commands.wait_for_batch("b", "me"))
    close(store)
    run(store, "a")
    with redis.Redis.from_url(server_url) as client:
        assert [client.lrange(key, 0, -1) for key in (first.inbox_key, other.inbox_key)] == [[b"=b"], [b"=b"]]
    assert store.run(commands.wait_for_batch("b", "me")).state == "done"


def test_more_waiters_than_a_batch_remembers(store: Store) -> None:
    open_batch(store)
    for number in range(40):
        store.run(commands.wait_for_batch("b", f"inbox{number}"))
    close(store)


def test_members_are_listed_in_pages(store: Store, clock: TestClock) -> None:
    open_batch(store)
    for number in range(5):
        add(store, f"a{number}", f"b{number}")
        clock.advance(1)
    wanted = [f"{letter}{number}" for number in range(5) for letter in "ab"]
    for limit in (1, 3, 10, 100):
        assert members(store, limit=limit) == wanted
    assert take(store, limit=3) == wanted[:3]
    assert sorted(members(store, limit=2, states=["running"])) == sorted(wanted[:3])
    assert members(store, limit=4, states=["running", "waiting"]) == wanted
    with pytest.raises(errors.Invalid):
        members(store, states=["nonsense"])


def test_batches_are_listed_newest_first(store: Store, clock: TestClock) -> None:
    for number in range(5):
        open_batch(store, f"b{number}")
        open_batch(store, f"c{number}")
        if number % 2:
            close(store, f"b{number}")
        clock.advance(1)
    wanted = [f"{letter}{number}" for number in reversed(range(5)) for letter in "cb"]

    def listed(**how: Any) -> list[str]:
        found, cursor = [], None
        while True:
            page = store.run(commands.list_batches(cursor=cursor, **how))
            found += [each["name"] for each in page.batches]
            cursor = page.cursor
            if cursor is None:
                return found

    for limit in (1, 3, 10, 100):
        assert listed(limit=limit) == wanted
    assert listed(limit=3, states=["done"]) == ["b3", "b1"]
    assert listed(limit=3, states=["closed"]) == []
    with pytest.raises(errors.Invalid):
        listed(states=["running"])
    with pytest.raises(errors.Invalid):
        store.run(commands.list_batches(cursor=["x", "y"]))


def test_reading_does_not_change_anything(store: Store) -> None:
    """They can be called on a replica."""
    open_batch(store)
    before = status(store)
    members(store)
    store.run(commands.list_batches())
    assert status(store) == before


# How batches go


def test_a_batch_goes_some_time_after_it_is_done(store: Store, clock: TestClock) -> None:
    open_batch(store, keep=60_000)
    open_batch(store, "open")
    add(store, "a")
    close(store)
    run(store, "a")
    clock.advance(59)
    store.run(commands.upkeep())
    assert counts(store)[0] == "done"
    clock.advance(2)
    store.run(commands.upkeep())
    assert store.run(commands.get_batches(["b"])) == [None]
    assert job(store, "a")["batch"] == "b"
    assert counts(store, "open")[0] == "open"  # however long it takes


def test_the_name_of_a_batch_whose_time_is_over_is_free(store: Store, clock: TestClock) -> None:
    """Also if nobody has called who removes it."""
    open_batch(store, on=["done"], keep=1000)
    add(store, "a")
    run(store, "a")
    close(store)
    clock.now += 999
    with pytest.raises(errors.WrongState, match="is done"):
        open_batch(store)
    clock.now += 1
    assert open_batch(store)
    assert counts(store) == ("open", 0, 0, 0, 0)
    assert members(store) == status(store)["callbacks"] == []


def test_a_batch_that_is_done_can_be_deleted_and_its_name_used_again(store: Store) -> None:
    open_batch(store)
    add(store, "a", "b")
    with pytest.raises(errors.WrongState, match="open"):
        store.run(commands.delete_batch("b"))
    close(store)
    with pytest.raises(errors.WrongState, match="closed"):
        store.run(commands.delete_batch("b"))
    run(store, "a", "b", outcome=FAIL)
    store.run(commands.delete_batch("b"))
    open_batch(store, on=["done"])
    store.run(commands.retry(["a"]))  # of the batch before
    store.run(commands.delete(["b"]))
    replace(store, "a", in_batch="b")
    assert counts(store) == ("open", 1, 0, 0, 0)
    run(store, "a")
    close(store)
    assert counts(store) == ("done", 0, 1, 0, 0)


def test_the_end_of_a_job_whose_batch_was_deleted_changes_nothing(store: Store) -> None:
    open_batch(store)
    add(store, "a")
    close(store)
    run(store, "a", outcome=FAIL)
    store.run(commands.retry(["a"]))
    store.run(commands.delete_batch("b"))
    run(store, "a")
    assert store.run(commands.get_batches(["b"])) == [None]


def test_the_number_of_batches_is_limited(store: Store, server_url: str, namespace: str) -> None:
    open_batch(store)
    with redis.Redis.from_url(server_url) as client:
        key = f"hf:{{{namespace}}}:batches"
        for first in range(0, MAX_BATCHES - 1, 10_000):
            count = min(10_000, MAX_BATCHES - 1 - first)
            client.zadd(key, {f"x{first + number}": first + number for number in range(count)})
        with pytest.raises(errors.Invalid, match="100000 batches that are not done"):
            open_batch(store, "one-more")
        close(store)
        assert open_batch(store, "one-more")
        assert store.run(commands.get_batches(["b"])) == [None]
        client.zremrangebyscore(key, 0, MAX_BATCHES)


# Repair


def damage(server_url: str, act: Callable[[redis.Redis], object]) -> None:
    with redis.Redis.from_url(server_url) as client:
        act(client)


def test_a_lost_record_does_not_keep_a_batch_open(
    store: Store, clock: TestClock, server_url: str, namespace: str
) -> None:
    open_batch(store, on=["done", "failed"])
    add(store, "a", "b")
    close(store)
    damage(server_url, lambda client: client.delete(f"hf:{{{namespace}}}:j:a"))
    for _ in range(4):
        clock.advance(2)
        take(store, TWO, "other")
    run(store, "b")
    for _ in range(4):
        clock.advance(2)
        take(store, TWO, "other")
    assert counts(store) == ("done", 0, 1, 0, 1)
    assert called(store) == ["call-done", "call-failed"]


def leave_damage(store: Store) -> None:
    """Have upkeep repair nothing."""
    store.run(commands.configure(None, set={"check_rate": 0}, reset=[]))


def test_an_end_that_was_not_counted_is_counted_later(
    store: Store, clock: TestClock, server_url: str, namespace: str
) -> None:
    leave_damage(store)
    open_batch(store, on=["done"])
    add(store, "a")
    close(store)
    damage(server_url, lambda client: client.rename(f"hf:{{{namespace}}}:bo:b", "aside"))
    assert take(store) == ["a"]
    end(store, "a", Succeed(b""))
    damage(server_url, lambda client: client.rename("aside", f"hf:{{{namespace}}}:bo:b"))
    clock.advance(2)
    take(store, TWO)
    assert counts(store) == ("done", 0, 1, 0, 0)
    assert called(store) == ["call-done"]


def test_an_error_of_the_server_delays_the_callback_and_does_not_lose_it(
    store: Store, server_url: str, namespace: str
) -> None:
    leave_damage(store)
    open_batch(store, on=["done"])
    open_batch(store, "other")
    add(store, "a")
    add(store, "b", batch="other")
    close(store)
    close(store, "other")
    meta = f"hf:{{{namespace}}}:meta"
    with redis.Redis.from_url(server_url) as client:
        arrivals = client.hget(meta, "arrivals")
        client.hset(meta, "arrivals", "damaged")  # so nothing can be enqueued
        run(store, "a", "b")
        assert counts(store) == ("closed", 0, 1, 0, 0)
        assert counts(store, "other") == ("done", 0, 1, 0, 0)
        client.hset(meta, "arrivals", arrivals or b"")
        assert client.smembers(f"hf:{{{namespace}}}:batches_ending") == {b"b"}
        take(store, TWO, "idle")
        assert not client.exists(f"hf:{{{namespace}}}:batches_ending")
    assert counts(store) == ("done", 0, 1, 0, 0)
    assert called(store) == ["call-done"]


def test_a_batch_that_cannot_end_is_tried_once_more_and_then_left_to_repair(
    store: Store, clock: TestClock, server_url: str, namespace: str
) -> None:
    leave_damage(store)
    open_batch(store, on=["done"])
    add(store, "a")
    close(store)
    meta = f"hf:{{{namespace}}}:meta"
    with redis.Redis.from_url(server_url) as client:
        arrivals = client.hget(meta, "arrivals")
        client.hset(meta, "arrivals", "damaged")
        run(store, "a")
        take(store, TWO, "idle")
        assert not client.exists(f"hf:{{{namespace}}}:batches_ending")
        assert counts(store) == ("closed", 0, 1, 0, 0)
        client.hset(meta, "arrivals", arrivals or b"")
    clock.advance(2)
    store.run(commands.upkeep())
    assert counts(store) == ("done", 0, 1, 0, 0)
    assert called(store) == ["call-done"]


def test_many_batches_that_end_at_once_are_ended_by_several_calls(
    store: Store, server_url: str, namespace: str
) -> None:
    names = [f"b{number:02}" for number in range(50)]
    put(store, "root")
    for name in names:
        open_batch(store, name)
        store.run(
            commands.open_batch(
                name, callbacks=[Callback("done", f"call-{name}", {"queue": "calls", "task": "t"}, b"")]
            )
        )
        add(store, f"member-{name}", batch=name, after=("root",), on_failed="cancel")
        close(store, name)
    store.run(commands.cancel(["root"]))

    def states() -> list[str]:
        return [each["state"] for each in store.run(commands.get_batches(names)) if each]

    assert sorted(states()) == ["closed"] * 30 + ["done"] * 20
    with redis.Redis.from_url(server_url) as client:
        assert client.scard(f"hf:{{{namespace}}}:batches_ending") == 30
        take(store, TWO, "idle")
        assert 40 <= states().count("done") < 50  # upkeep may end one more
        take(store, TWO, "idle")
        assert states() == ["done"] * 50
        assert not client.exists(f"hf:{{{namespace}}}:batches_ending")
    assert len(take(store, TWO, "calls", limit=100)) == 50


def test_a_damaged_batch_does_not_keep_others_from_ending(store: Store, server_url: str, namespace: str) -> None:
    for name in ("broken", "other"):
        open_batch(store, name)
        add(store, f"in-{name}", batch=name)
        close(store, name)
    open_key, aside = f"hf:{{{namespace}}}:bo:broken", f"{namespace}:aside"
    with redis.Redis.from_url(server_url) as client:
        client.rename(open_key, aside)
        client.set(open_key, "damaged")
        taken = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=10**6, limit=2))).jobs
        reply = store.run(commands.finish(ONE, [Finish(each.id, each.attempt, Succeed(b"")) for each in taken]))
        assert reply.answers == ["OK", "OK"]
        assert counts(store, "other") == ("done", 0, 1, 0, 0)
        client.delete(open_key)
        client.rename(aside, open_key)
    store.run(commands.cancel_batch("broken"))  # which finds that its member has ended
    assert counts(store, "broken") == ("done", 0, 1, 0, 0)


def test_a_full_server_enqueues_the_callback(store: Store, server_url: str) -> None:
    open_batch(store, on=["done"])
    add(store, "a")
    close(store)
    assert take(store) == ["a"]
    with redis.Redis.from_url(server_url) as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(errors.StoreFull):
                open_batch(store, "more")
            end(store, "a", Succeed(b"1"))
        finally:
            client.config_set("maxmemory", 0)
    assert counts(store) == ("done", 0, 1, 0, 0)
    assert called(store) == ["call-done"]
