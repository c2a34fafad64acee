"""The time line of a job: every transition with its time, its reason and who caused it. Under the test's clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import Holdfast
from holdfast.job.job import Job
from holdfast.job.outcome import Advanced, Blocked, Error, Release, Snoozed, Succeed
from holdfast.store import commands
from holdfast.store.caller import caller_name
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, end, put, take
from tests.support.consistency import check_all_keys, client

__all__ = ["check_all_keys", "client"]  # fixtures

ME = caller_name()


@pytest.fixture
def app(server_url: str, namespace: str, store: Store) -> Iterator[Holdfast]:
    """An app under the test's clock."""
    made = Holdfast(server_url, namespace=namespace)
    made.store = store
    yield made
    made.close()


class Story:
    """Reads the time line of a job, in seconds after its creation."""

    def __init__(self, app: Holdfast, id: str = "job") -> None:
        self.app, self.id = app, id

    @property
    def job(self) -> Job[Any]:
        return self.app.get(self.id)

    def lines(self, *kinds: str) -> list[tuple[float, str, str]]:
        job = self.job
        return [
            ((entry.at - job.created_at).total_seconds(), entry.what, entry.text)
            for entry in job.history
            if not kinds or entry.what in kinds
        ]


@pytest.fixture
def story(app: Holdfast) -> Story:
    return Story(app)


def test_a_delayed_job_becomes_due(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job", delay=5000)
    clock.advance(5)
    store.run(commands.upkeep())
    clock.advance(1)
    take(store)

    assert story.lines() == [(0, "created", "task task in queue q"), (5, "due", ""), (6, "claimed", "")]


def test_a_retry_becomes_due(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job", retries=1)
    take(store)
    end(store, "job", Error(b"", "E", delay=3000))
    clock.advance(3)
    store.run(commands.upkeep())
    assert story.lines()[-1] == (3, "due", "")  # it waits
    take(store)

    assert [what for _, what, _ in story.lines()] == ["created", "claimed", "error", "due", "claimed"]


@pytest.mark.parametrize("what", ["move", "priority", "cancel", "fail", "depend", "deadline"])
def test_what_ends_a_wait_does_not_hide_when_the_job_became_due(
    story: Story, store: Store, clock: TestClock, what: str
) -> None:
    put(store, "other", queue="else")
    put(store, "job", delay=2000, deadline=3000 if what == "deadline" else None)
    clock.advance(2)
    store.run(commands.upkeep())
    clock.advance(1)
    change = {
        "move": commands.move(["job"], queue="new"),
        "priority": commands.move(["job"], priority=-7),
        "cancel": commands.cancel(["job"], reason="no"),
        "fail": commands.fail(["job"], reason="no"),
        "depend": commands.depend("job", add=["other"]),
        "deadline": commands.upkeep(),
    }
    store.run(change[what])

    line = {
        "move": ("moved", "from q to new"),
        "priority": ("priority", "from 0 to -7"),
        "cancel": ("cancelled", "no"),
        "fail": ("failed", "no"),
        "depend": ("dependencies", "on other"),
        "deadline": ("failed", "its deadline has passed"),
    }[what]
    assert story.lines()[1:] == [(2, "due", ""), (3, *line)]
    assert story.job.history[-1].who == ("" if what == "deadline" else ME)


def test_each_end_of_a_dependency_is_an_entry_and_the_last_unblocks(
    story: Story, store: Store, clock: TestClock
) -> None:
    put(store, "a", "b")
    put(store, "job", after=("a", "b"), queue="next")
    take(store, limit=2)
    for id in ("b", "a"):
        clock.advance(1)
        end(store, id, Succeed(b"1"))

    assert story.lines()[1:] == [(1, "dependency", "job b succeeded"), (2, "unblocked", "job a succeeded")]
    assert [each.ended_at is not None for each in story.job.after] == [True, True]


def test_a_job_that_is_unblocked_before_it_is_due_has_both_entries(
    story: Story, store: Store, clock: TestClock
) -> None:
    put(store, "a")
    put(store, "job", after=("a",), delay=5000, queue="next")
    take(store)
    clock.advance(1)
    end(store, "a", Succeed(b"1"))
    clock.advance(4)
    store.run(commands.upkeep())

    assert story.lines()[1:] == [(1, "unblocked", "job a succeeded"), (5, "due", "")]


def test_a_failed_dependency_does_not_unblock(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "a")
    put(store, "job", after=("a",), queue="next")
    take(store)
    clock.advance(1)
    end(store, "a", Error(b"", "E", final=True))
    assert story.lines()[1:] == [(1, "dependency", "job a failed")]

    clock.advance(1)
    store.run(commands.depend("job", remove=["a"]))
    assert story.lines()[1:] == [(2, "dependencies", "not on a")]


def test_a_job_is_cancelled_with_its_dependency_by_nobody(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "a")
    put(store, "job", after=("a",), on_failed="cancel", queue="next")
    take(store)
    clock.advance(1)
    end(store, "a", Error(b"", "E", final=True))

    assert story.lines()[1:] == [(1, "dependency", "job a failed"), (1, "cancelled", "job a failed")]
    assert story.job.history[-1].who == ""


def test_jobs_that_an_attempt_waited_for_unblock_it(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "child", queue="next")
    put(store, "job")
    take(store)
    end(store, "job", Blocked(("child",)))
    clock.advance(1)
    take(store, TWO, "next")
    end(store, "child", Error(b"", "E", final=True), executor=TWO)
    take(store)

    assert story.lines()[2:] == [
        (0, "snoozed", "waits for other jobs"),
        (1, "unblocked", "job child failed"),
        (1, "claimed", ""),
    ]


def test_an_end_does_not_unblock_a_job_that_waits_for_others_too(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "child", "other", queue="next")
    put(store, "job")
    take(store)
    end(store, "job", Blocked(("child",)))
    clock.advance(1)
    store.run(commands.depend("job", add=["other"]))
    store.run(commands.move(["job"], queue="new"))
    take(store, TWO, "next", limit=2)
    clock.advance(1)
    end(store, "child", Succeed(b"1"), executor=TWO)
    assert story.lines()[-1] == (2, "dependency", "job child succeeded")
    clock.advance(1)
    end(store, "other", Succeed(b"1"), executor=TWO)

    assert story.lines()[-1] == (3, "unblocked", "job other succeeded")


def test_an_end_that_unblocked_a_job_still_says_so_when_the_job_is_blocked_again(
    story: Story, store: Store, clock: TestClock
) -> None:
    put(store, "a", "b", queue="next")
    put(store, "job", after=("a",), on_failed="run")
    for id in ("a", "b"):
        take(store, ONE, "next")
        clock.advance(1)
        end(store, id, Error(b"", "E", final=True))
        clock.advance(1)
        if id == "a":
            store.run(commands.depend("job", add=["b"]))
            clock.advance(1)

    assert story.lines()[1:] == [
        (1, "unblocked", "job a failed"),
        (2, "dependencies", "on b"),
        (4, "unblocked", "job b failed"),
    ]


def test_parking_is_one_entry_however_often(story: Story, store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1))
    put(store, "first", limits=("api",))
    put(store, "job", limits=("api",), delay=1000)
    take(store)
    clock.advance(1)
    assert take(store, TWO) == []
    for _ in range(3):  # it finds the slot taken again
        clock.advance(1)
        store.run(commands.move(["job"], priority=0))
        assert take(store, TWO) == []
    clock.advance(1)
    end(store, "first", Succeed(b"1"))
    clock.advance(1)
    assert take(store, TWO) == ["job"]

    assert story.lines()[1:] == [
        (1, "due", ""),
        (1, "throttled", "limit api was full, 4 times"),
        (5, "unthrottled", "limit api"),
        (6, "claimed", ""),
    ]


def test_parking_before_earlier_attempts_is_kept(story: Story, store: Store, clock: TestClock) -> None:
    store.run(commands.set_limit("api", 1))
    put(store, "job", limits=("api",), retries=5)
    for number in range(3):
        put(store, f"other{number}", limits=("api",), priority=-1)
        assert take(store, TWO) == [f"other{number}"]
        assert take(store) == []
        clock.advance(1)
        end(store, f"other{number}", Succeed(b"1"), executor=TWO)
        assert take(store) == ["job"]
        clock.advance(1)
        end(store, "job", Error(b"", "E", delay=1000))
        clock.advance(1)
        store.run(commands.upkeep())

    assert story.lines("due", "throttled", "unthrottled", "claimed") == [
        line
        for first in (0, 3, 6)
        for line in (
            (first, "throttled", "limit api was full"),
            (first + 1, "unthrottled", "limit api"),
            (first + 1, "claimed", ""),
            (first + 3, "due", ""),
        )
    ]
    assert [each.times for each in story.job.parked] == [1, 1, 1]
    assert story.job.notes == ()


def test_each_attempt_has_the_queue_and_the_task_that_it_ran(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job", retries=9)
    take(store)
    end(store, "job", Release(""))
    clock.advance(1)
    store.run(commands.move(["job"], queue="b"))
    take(store, ONE, "b")
    end(store, "job", Advanced("second", {"queue": "c"}, b"{}"))
    clock.advance(1)
    store.run(commands.move(["job"], queue="d", priority=4))
    clock.advance(1)
    take(store, ONE, "d")
    end(store, "job", Succeed(b"1"))
    clock.advance(1)
    store.run(commands.retry(["job"], queue="e"))
    take(store, ONE, "e")

    job = story.job
    assert [(each.task, each.queue) for each in job.attempts] == [
        ("task", "q"), ("task", "b"), ("second", "d"), ("second", "e"),
    ]  # fmt: skip
    assert (job.enqueued_as, job.queue) == (("q", 0, "task"), "e")
    assert story.lines()[0] == (0, "created", "task task in queue q")
    assert [entry.queue for entry in job.history if entry.what == "claimed"] == ["q", "b", "d", "e"]
    assert ("advanced", "task task in queue b") in [line[1:] for line in story.lines()]


def test_when_the_history_is_full_the_first_entry_stays_and_what_is_forgotten_is_unknown(
    story: Story, store: Store, clock: TestClock
) -> None:
    store.run(commands.configure(set={"history": 3}))
    put(store, "job", priority=9)
    clock.advance(1)
    take(store)
    clock.advance(1)
    end(store, "job", Release(""))
    for number in range(5):
        clock.advance(1)
        store.run(commands.move(["job"], queue=f"q{number}", priority=number))

    lines = story.lines()
    times = [time for time, *_ in lines]
    assert (times, lines[0][1:]) == (sorted(times), ("created", "task task in queue q, priority 9"))
    assert [each.queue for each in story.job.attempts] == [""]


def test_operators_are_named(app: Holdfast, story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    clock.advance(1)
    app.release("job", reason="drain the node")
    clock.advance(1)
    take(store, TWO)
    clock.advance(1)
    app.fail("job", reason="wrong input")
    clock.advance(1)
    app.retry("job")
    clock.advance(1)
    app.note("job", "fixed the input")

    assert [(entry.what, entry.text, entry.attempt, entry.who) for entry in story.job.history[1:]] == [
        ("claimed", "", 1, ONE),
        ("released", "drain the node", 1, ME),
        ("claimed", "", 2, TWO),
        ("error", "wrong input", 2, ME),
        ("failed", "wrong input", 0, ME),
        ("retried", "", 0, ME),
        ("noted", "fixed the input", 0, ME),
    ]


def test_a_failure_is_an_entry_of_its_own_also_after_a_retry(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job", retries=0)
    for _ in range(2):
        take(store)
        end(store, "job", Error(b"", "Oops"))
        clock.advance(1)
        assert story.lines()[-1][1:] == ("failed", "group Oops, exhausted")
        store.run(commands.retry(["job"]))
        clock.advance(1)

    assert [what for _, what, _ in story.lines()] == ["created", *("claimed", "error", "failed", "retried") * 2]


def test_a_job_that_advances_while_it_is_cancelled_has_ended_also_after_a_retry(
    story: Story, store: Store, clock: TestClock
) -> None:
    put(store, "job")
    take(store)
    store.run(commands.cancel(["job"]))
    clock.advance(1)
    end(store, "job", Advanced("next", {"queue": "q"}, b"[]"))
    ended = [(1, "advanced", "task task in queue q"), (1, "cancelled", "")]
    assert story.lines()[-2:] == ended
    clock.advance(1)
    store.run(commands.retry(["job"]))

    assert story.lines()[-3:] == [*ended, (2, "retried", "")]


def test_the_first_entry_is_the_creation_even_if_the_clock_went_back(
    story: Story, store: Store, clock: TestClock
) -> None:
    put(store, "job")
    clock.advance(-60)
    store.run(commands.move(["job"], priority=1))
    take(store)

    assert [what for _, what, _ in story.lines()][:2] == ["created", "priority"]


def test_a_lost_lease_is_nobodys_doing(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    for _ in range(8):
        clock.advance(5)
        store.run(commands.upkeep())
    lost = next(entry for entry in story.job.history if entry.what == "lost")
    assert (lost.text, lost.who, lost.attempt) == ("lease ended", "", 1)


def test_snoozed_jobs_become_due_again(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    end(store, "job", Snoozed(2000))
    clock.advance(2)
    store.run(commands.upkeep())
    assert story.lines()[2:] == [(0, "snoozed", ""), (2, "due", "")]


def test_updated_at_is_when_the_job_or_its_history_changed_last(
    story: Story, app: Holdfast, store: Store, clock: TestClock
) -> None:
    put(store, "job", delay=9000)
    assert story.job.updated_at == story.job.created_at
    clock.advance(1)
    app.move("job", priority=3)
    clock.advance(1)
    (listed,) = app.list()
    assert (story.job.updated_at - story.job.created_at).total_seconds() == 1
    assert listed.updated_at == story.job.updated_at > listed.since == listed.created_at


def test_a_move_that_changes_nothing_leaves_no_entry(story: Story, store: Store, clock: TestClock) -> None:
    put(store, "job")
    clock.advance(1)
    store.run(commands.move(["job"], queue="q", priority=0))
    take(store)
    assert story.lines()[1:] == [(1, "claimed", "")]
    assert story.job.attempts[0].queued_at == story.job.created_at


@pytest.mark.parametrize(
    ("id", "who"),
    [
        ("nightly@1700000000000", "schedule nightly"),
        ("nightly@1700000000000-now", "schedule nightly"),
        ("on:alerts@1700000000000-0.1", "subscription alerts"),
        ("job", ""),
    ],
)
def test_what_enqueued_the_job_is_in_its_first_entry(app: Holdfast, store: Store, id: str, who: str) -> None:
    put(store, id)
    assert app.get(id).history[0].who == who


def test_an_edge_that_another_release_wrote_badly_does_not_hide_the_job(
    app: Holdfast, store: Store, client: redis.Redis, namespace: str
) -> None:
    put(store, "a")
    put(store, "job", after=("a",), queue="next")
    client.hset(f"hf:{{{namespace}}}:j:job", "m", "nonsense")
    client.hset(f"hf:{{{namespace}}}:j:job", "e", "nonsense")
    try:
        assert (app.get("job").parked, app.get("job").enqueued_as) == ((), None)
    finally:
        client.hdel(f"hf:{{{namespace}}}:j:job", "m", "e")


def test_the_queue_of_an_attempt_is_unknown_once_a_later_move_is_forgotten(
    story: Story, store: Store, clock: TestClock
) -> None:
    store.run(commands.configure(set={"history": 5}))
    put(store, "job")
    for there in ("b", "q"):
        clock.advance(1)
        store.run(commands.move(["job"], queue=there))
        clock.advance(1)
        take(store, ONE, there)
        clock.advance(1)
        end(store, "job", Release(""))
    assert [each.queue for each in story.job.attempts] == ["b", "q"]

    for number in range(5):
        store.run(commands.note("job", f"note {number}"))

    assert [each.queue for each in story.job.attempts] == ["", "q"]


def test_the_queue_of_an_attempt_is_unknown_if_limits_fill_the_history(
    story: Story, app: Holdfast, store: Store, clock: TestClock
) -> None:
    store.run(commands.configure(set={"history": 1}))
    app.set_limit("api", 1)
    put(store, "other", queue="others", limits=("api",))
    put(store, "job", limits=("api",))
    take(store, TWO, "others")
    clock.advance(1)
    assert take(store) == []  # a limit parks it
    end(store, "other", Release(""), TWO)
    clock.advance(1)
    assert take(store) == ["job"]
    end(store, "job", Release(""))
    take(store, TWO, "others")
    clock.advance(1)
    store.run(commands.move(["job"], queue="b"))
    clock.advance(1)
    assert take(store, ONE, "b") == []  # the note of the first time replaces that of the move

    assert (len(story.job.parked), story.job.notes) == (2, ())
    assert [each.queue for each in story.job.attempts] == [""]


def test_the_queue_that_an_attempt_advanced_from_is_known_even_if_a_later_move_is_forgotten(
    story: Story, store: Store, clock: TestClock
) -> None:
    store.run(commands.configure(set={"history": 1}))
    put(store, "job")
    take(store)
    end(store, "job", Advanced("second", {"queue": "b"}, b"{}"))
    clock.advance(1)
    store.run(commands.move(["job"], queue="c"))
    store.run(commands.note("job", "one more"))

    assert [(each.task, each.queue) for each in story.job.attempts] == [("task", "q")]


def test_a_call_that_changes_no_dependency_is_no_entry(story: Story, app: Holdfast, store: Store) -> None:
    put(store, "job")
    assert app.depend("job") == app.depend("job", add=[], remove=[]) == "waiting"
    assert story.job.notes == ()


def test_a_note_of_an_older_release_is_only_a_text(
    story: Story, store: Store, client: redis.Redis, namespace: str
) -> None:
    put(store, "job")
    store.run(commands.note("job", "a zero \0 byte"))
    [entry] = client.lrange(f"hf:{{{namespace}}}:n:job", 0, -1)
    for text in ("a zero \0 byte", "no zero byte"):
        client.rpush(f"hf:{{{namespace}}}:n:job", entry[:7] + text.encode())

    assert [(note.text, note.who) for note in story.job.notes] == [
        ("a zero \0 byte", ME), ("a zero \0 byte", ""), ("no zero byte", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("end_it", ["fail", "cancel"])
def test_how_a_job_ended_is_an_entry_even_if_later_notes_fill_the_history(
    story: Story, app: Holdfast, store: Store, clock: TestClock, end_it: str
) -> None:
    last = "group operator, operator" if end_it == "fail" else ""
    store.run(commands.configure(set={"history": 2}))
    put(store, "job")
    clock.advance(1)
    getattr(app, end_it)("job", reason="no longer needed")
    for number in range(2):
        clock.advance(1)
        app.note("job", f"note {number}")

    assert story.lines()[1:] == [(1, story.job.state, last), (2, "noted", "note 0"), (3, "noted", "note 1")]


def test_a_stage_with_a_long_name_is_known_or_unknown_and_never_another(
    story: Story, store: Store, clock: TestClock
) -> None:
    long_queue, long_task = "q" * 80, "tasks." + "t" * 80
    put(store, "job", task=long_task)
    here = "q"
    for task, there in (("short", long_queue), (long_task, "c"), ("last", "d")):
        take(store, ONE, here)
        end(store, "job", Advanced(task, {"queue": there}, b"{}"))
        here = there
        clock.advance(1)

    ran = [(each.task, each.queue) for each in story.job.attempts]
    assert ran == [(long_task, "q"), ("", ""), ("", "c")]
