"""Events in the store: one entry per type and call, with queue and details of each job; what is missing is said."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.events.event import Event
from holdfast.events.types import BY_NAME
from holdfast.job.outcome import Advanced, Cancelled, Error, Succeed
from holdfast.store import commands, library
from holdfast.store.caller import NAMES_CALLER, caller_name
from holdfast.store.commands import Command, Finish
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, end, new, put, take

TIMEOUT = Error(b"", "timeout")


def read(store: Store, after: str = "0-0", **options: Any) -> list[Event]:
    return store.run(commands.events(after, limit=1000, **options)).events


def last(store: Store, kind: str) -> Event:
    return [event for event in read(store) if event.type == kind][-1]


def fill(store: Store) -> None:
    """Have more events than are kept."""
    store.run(commands.configure(set={"events": 100}))
    for _ in range(400):
        store.run(commands.pause("q"))
        store.run(commands.resume("q"))


# What an entry says


def test_an_event_names_the_queue_of_each_job_in_their_order(store: Store) -> None:
    queues = ["mail", "mail", "web", "mail", "7"]
    store.run(commands.enqueue([new(f"j{number}", queue=queue) for number, queue in enumerate(queues)]))
    event = last(store, "enqueued")
    assert event.jobs == ("j0", "j1", "j2", "j3", "j4")
    assert event.queues == (*queues,)


def test_jobs_of_one_queue_cost_its_name_once(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, *(f"j{number}" for number in range(50)), queue="mail")
    [(_, entry)] = client.xrange(f"hf:{{{namespace}}}:events")
    assert entry[b"queues"] == b"mail"
    assert entry[b"more"] == b""
    assert list(entry) == [b"type", b"jobs", b"who", b"queues", b"more"]


def test_marks_that_all_jobs_have_cost_their_text_once(store: Store, client: redis.Redis, namespace: str) -> None:
    tags = [f"{number}{'x' * 60}" for number in range(8)]
    put(store, *(f"j{number}" for number in range(1000)), tags=tags)
    [(_, entry)] = client.xrange(f"hf:{{{namespace}}}:events")
    assert len(entry[b"more"]) < 700
    assert [marks.tags for marks in last(store, "enqueued").marks] == [(*tags,)] * 1000

    store.run(commands.enqueue([new("a", tags=["x"]), new("b"), new("c", tags=["x"])]))
    assert [marks.tags for marks in last(store, "enqueued").marks] == [("x",), (), ("x",)]


def test_every_entry_has_the_same_fields_so_that_the_server_stores_their_names_once(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    put(store, "a", "b")
    take(store, limit=2)
    end(store, "a", Error(b"", "ValueError", final=True))
    end(store, "b", Succeed(b""))
    store.run(commands.pause("q"))
    entries = client.xrange(f"hf:{{{namespace}}}:events")
    assert len(entries) >= 5
    assert {tuple(fields) for _, fields in entries} == {(b"type", b"jobs", b"who", b"queues", b"more")}


def test_a_failure_says_its_group_and_why_it_is_final(store: Store) -> None:
    put(store, "a", "b", retries=0)
    take(store, limit=2)
    items = [Finish("a", 1, Error(b"", "ValueError")), Finish("b", 1, Error(b"", "KeyError", final=True))]
    store.run(commands.finish(ONE, items))
    event = last(store, "failed")
    assert event.who == ONE
    assert event.details == ({"group": "ValueError", "why": "exhausted"}, {"group": "KeyError", "why": "declared"})


def test_details_that_all_jobs_share_are_stored_once(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, *"abc", retries=0)
    take(store, limit=3)
    store.run(commands.finish(ONE, [Finish(id, 1, Error(b"", "ValueError")) for id in "abc"]))
    event = last(store, "failed")
    assert event.details == ({"group": "ValueError", "why": "exhausted"},) * 3
    entries = [fields for _, fields in client.xrange(f"hf:{{{namespace}}}:events") if fields[b"type"] == b"failed"]
    assert entries[0][b"more"] == b'["ValueError","exhausted"]'


@pytest.mark.parametrize("group", ["timeout", "stalled"])
def test_an_attempt_that_a_worker_stopped_is_an_event_besides_what_follows(store: Store, group: str) -> None:
    put(store, "a", "b", retries=1)
    take(store, limit=2)
    end(store, "a", Error(b"", group))
    end(store, "b", Error(b"", "ValueError"))
    assert last(store, group).jobs == ("a",)
    assert [event.jobs for event in read(store) if event.type == "retried"] == [("a",), ("b",)]


def test_a_move_says_from_where_to_where(store: Store) -> None:
    put(store, "a", "b", queue="mail")
    put(store, "c", queue="web")
    store.run(commands.move(["a", "c"], queue="slow", priority=3))
    event = last(store, "moved")
    assert event.who == caller_name()
    assert event.queues == ("slow", "slow")
    assert event.details == (
        {"from": "mail", "to": "slow", "priority": "3"},
        {"from": "web", "to": "slow", "priority": "3"},
    )
    store.run(commands.move(["b"], queue="mail"))
    assert last(store, "moved").detail == {"from": "mail", "to": "mail"}


def test_a_stage_says_which_task_and_queue_it_left(store: Store) -> None:
    put(store, "a", queue="q", task="resize")
    take(store)
    end(store, "a", Advanced("upload", {"queue": "net"}, b"[]"))
    event = last(store, "advanced")
    assert event.queue == "net"
    assert event.detail == {"from": "q", "to": "net", "from_task": "resize", "to_task": "upload"}
    assert "moved" not in [event.type for event in read(store)]


def test_a_cancelled_job_says_who_asked_and_why(store: Store) -> None:
    put(store, "waiting", "running", priority=1)
    store.run(commands.claim(ONE, commands.claim_args(("q",), counter=1, limit=1)))
    store.run(commands.cancel(["waiting", "running"], reason="too late"))
    assert last(store, "cancelling").jobs == ("waiting",)
    assert last(store, "cancelling").detail == {"reason": "too late"}
    assert last(store, "cancelled").jobs == ("running",)
    assert last(store, "cancelled").detail == {"reason": "too late"}
    assert last(store, "cancelled").who == last(store, "cancelling").who == caller_name()

    end(store, "waiting", Cancelled())
    event = last(store, "cancelled")
    assert (event.jobs, event.who) == (("waiting",), ONE)
    assert event.detail == {"by": caller_name(), "reason": "too late"}


def test_a_job_that_is_asked_twice_to_stop_is_announced_once(store: Store) -> None:
    put(store, "a")
    take(store)
    for _ in range(2):
        store.run(commands.cancel(["a"]))
    assert [event.type for event in read(store)].count("cancelling") == 1


def test_a_dependent_is_cancelled_by_its_dependency(store: Store) -> None:
    put(store, "first")
    store.run(commands.enqueue([new("second", after=("first",), on_failed="cancel")]))
    store.run(commands.fail(["first"]))
    assert last(store, "cancelled").detail == {"by": "first", "reason": "dependency failed"}


def test_a_job_that_is_not_kept_still_announces_its_end(store: Store) -> None:
    put(store, "a", keep=False, queue="mail")
    take(store, ONE, "mail")
    end(store, "a", Succeed(b""))
    assert (last(store, "succeeded").jobs, last(store, "succeeded").queues) == (("a",), ("mail",))


def test_changes_of_settings_limits_schedules_and_queues_say_what_changed(store: Store) -> None:
    store.run(commands.configure("q", set={"lease": 5000}, reset=["retries"]))
    store.run(commands.set_limit("api", 5, per=1000))
    store.run(commands.set_share_weight("q", "acme", 3))
    store.run(commands.schedule("nightly", {"queue": "q", "task": "t"}, b"[]", every=1000))
    store.run(commands.pause("q"))
    store.run(commands.pause_schedule("nightly"))
    said = [(*event.jobs, event.queue, *event.detail.values()) for event in read(store)]
    assert ("api", "", "limit", "slots", "5/1000") in said
    assert ("q", "q", "share", "acme", "3") in said
    assert ("nightly", "", "schedule") in said
    assert ("q", "q", "queue") in said
    [configured] = [event for event in read(store) if len(event.jobs) == 2]
    assert configured.details == (
        {"what": "setting", "option": "lease", "value": "5000"},
        {"what": "setting", "option": "retries"},
    )


def test_the_text_of_a_reason_cannot_pretend_to_be_more_details(store: Store) -> None:
    evil = '"],["x"\n["#tag"]'
    put(store, "a")
    store.run(commands.cancel(["a"], reason=evil))
    event = last(store, "cancelled")
    assert event.detail == {"reason": evil}
    assert event.marks == ()


def test_a_long_reason_is_cut_between_two_characters(store: Store) -> None:
    put(store, "a")
    store.run(commands.cancel(["a"], reason="x" + "é" * 100))
    assert last(store, "cancelled").detail == {"reason": "x" + "é" * 31}


@pytest.mark.parametrize("who", ["", "two words", "line\nbreak", "x" * 65, 7])
def test_a_caller_must_have_a_short_name_without_spaces(store: Store, who: Any) -> None:
    with pytest.raises(errors.Invalid, match="who"):
        store.run(Command("count", {"who": who}, int))


def test_who_tracks_a_job_is_named(store: Store) -> None:
    put(store, "a")
    store.run(commands.track(["a"]))
    assert last(store, "tracked").who == caller_name()
    store.run(commands.untrack(["a"]))
    assert last(store, "untracked").who == caller_name()


def test_functions_that_name_their_caller_exist() -> None:
    registered = {name for name in NAMES_CALLER if f"register('{name}'" in library.library()}
    registered |= {name for name in NAMES_CALLER if f"register_action('{name}'" in library.library()}
    assert registered == NAMES_CALLER


# Reading


def test_events_are_read_on_from_each_of_them(store: Store) -> None:
    for id in "abcd":
        put(store, id)
    everything = read(store)
    assert [event.job for event in everything] == [*"abcd"]
    for place, event in enumerate(everything):
        assert read(store, event.id) == everything[place + 1 :]
        assert read(store, f"={event.id}") == everything[place:]
    assert read(store, "start") == everything


def test_pages_join_without_a_seam_and_say_whether_there_is_more(store: Store) -> None:
    for number in range(130):
        put(store, f"j{number}")
    found: list[Event] = []
    position, has_more = "start", True
    while has_more:
        page = store.run(commands.events(position, limit=7))
        assert len(page.events) <= 7
        found, position, has_more = [*found, *page.events], page.position or position, page.has_more
    assert found == read(store)


def test_events_of_other_types_are_looked_at_and_passed_over(store: Store) -> None:
    put(store, "a")
    take(store)
    end(store, "a", Succeed(b""))
    page = store.run(commands.events("start", types=["claimed"]))
    assert [event.type for event in page.events] == ["claimed"]
    assert page.position == read(store)[-1].id


def test_a_page_of_long_events_is_cut_short(store: Store) -> None:
    for batch in range(60):
        store.run(commands.enqueue([new(f"{batch}-{number}-{'x' * 100}") for number in range(100)]))
    page = store.run(commands.events("start", limit=1000))
    assert len(page.events) == 50  # a chunk, which is more than 256 KiB
    assert page.has_more
    rest = store.run(commands.events(page.position, limit=1000))
    assert len(page.events) + len(rest.events) == 60


def test_a_reader_that_lags_behind_is_told_of_the_gap_once(store: Store) -> None:
    put(store, "a")
    [known] = read(store)
    fill(store)

    first, *rest = read(store, known.id)
    assert first.is_gap
    assert first.detail == {"after": known.id}
    assert rest[0].id == first.id.lstrip("=")
    assert read(store, first.id) == rest
    assert not any(event.is_gap for event in rest)


def test_a_reader_that_stood_before_the_first_event_is_told_only_if_some_are_gone(store: Store) -> None:
    put(store, "a")
    assert [event.type for event in read(store, "0-0")] == ["enqueued"]
    fill(store)
    assert read(store, "0-0")[0].is_gap
    assert not read(store, "start")[0].is_gap


def test_a_gap_that_grows_before_it_is_read_is_a_gap_again(store: Store) -> None:
    put(store, "a")
    [known] = read(store)
    fill(store)
    gap = read(store, known.id)[0]
    fill(store)
    assert read(store, gap.id)[0].is_gap


def test_a_stream_that_the_server_lost_is_a_gap(
    store: Store, client: redis.Redis, namespace: str, clock: TestClock
) -> None:
    put(store, "a")
    [known] = read(store)
    client.delete(f"hf:{{{namespace}}}:events")
    assert read(store, known.id) == []
    clock.advance(1)
    put(store, "b")
    assert [event.type for event in read(store, known.id)] == ["gap", "enqueued"]


def test_the_time_of_an_event_is_that_of_the_call(store: Store, clock: TestClock) -> None:
    put(store, "a")
    clock.advance(60)
    put(store, "b")
    clock.advance(-30)  # no entry of a stream can be before another one
    put(store, "c")
    first, second, third = read(store)
    assert second.at - first.at == timedelta(minutes=1)
    assert third.at >= second.at


@pytest.mark.parametrize("after", ["yesterday", "1", "1-", "=", "=start", "-", "1-0 ", "9" * 40 + "-1"])
def test_a_position_that_is_none_is_refused(store: Store, after: str) -> None:
    with pytest.raises(errors.Invalid, match="after"):
        read(store, after)


def test_an_event_that_nobody_declared_cannot_be_emitted() -> None:
    assert "event_types[kind] or error" in library.library()
    assert all(f"{name} = {len(each.details)}" in library.library() for name, each in BY_NAME.items())
