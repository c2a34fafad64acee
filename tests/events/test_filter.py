"""Which jobs of an event a subscription selects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from holdfast import Invalid
from holdfast.events.event import Event, Marks, read_event
from holdfast.events.filter import EventFilter
from holdfast.events.handlers import MAX_JOBS, HandlerSpec

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(kind: str = "failed", **fields: Any) -> Event:
    given = {
        "jobs": ("a", "b", "on:alert@1-0"),
        "queues": ("mail", "web", "mail"),
        "details": ({"group": "A"}, {"group": "B"}, {"group": "A"}),
        "marks": (Marks(("urgent",), "/acme/eu"), Marks(tracked=True), Marks()),
    }
    return Event("5-0", AT, kind, who="node/worker.1", **{**given, **fields})


@pytest.mark.parametrize(
    ("conditions", "jobs"),
    [
        ({}, ["a", "b", "on:alert@1-0"]),
        ({"types": ["failed", "lost"]}, ["a", "b", "on:alert@1-0"]),
        ({"types": "failed"}, ["a", "b", "on:alert@1-0"]),
        ({"types": ["lost"]}, []),
        ({"queue": "mail"}, ["a", "on:alert@1-0"]),
        ({"queue": "web", "types": ["failed"]}, ["b"]),
        ({"job": "b"}, ["b"]),
        ({"job": "none"}, []),
        ({"worker": "node"}, ["a", "b", "on:alert@1-0"]),
        ({"worker": "node/worker"}, ["a", "b", "on:alert@1-0"]),
        ({"worker": "node/worker.1"}, ["a", "b", "on:alert@1-0"]),
        ({"worker": "node/work"}, []),
        ({"worker": "nod"}, []),
        ({"tag": "urgent"}, ["a"]),
        ({"tag": "urge"}, []),
        ({"scope": "/acme"}, ["a"]),
        ({"scope": "/acme/"}, ["a"]),
        ({"scope": "/acme/eu"}, ["a"]),
        ({"scope": "/acme/eu/berlin"}, []),
        ({"scope": "/ac"}, []),
        ({"tracked": True}, ["b"]),
        ({"tracked": True, "queue": "mail"}, []),
    ],
)
def test_a_filter_selects_single_jobs(conditions: dict[str, Any], jobs: list[str]) -> None:
    selected = EventFilter.of(**conditions).select(event())
    assert [*(selected.jobs if selected else ())] == jobs


def test_what_belongs_to_a_job_stays_with_it() -> None:
    selected = EventFilter.of(queue="web").select(event())
    assert selected is not None
    assert (selected.jobs, selected.queues, selected.details) == (("b",), ("web",), ({"group": "B"},))
    assert selected.marks == (Marks(tracked=True),)
    assert selected.id == "5-0"


def test_a_moved_job_matches_the_queue_that_it_left_and_the_one_that_it_joined() -> None:
    moved = event("moved", jobs=("a",), queues=("slow",), details=({"from": "mail", "to": "slow"},), marks=())
    for queue in ("mail", "slow"):
        assert EventFilter.of(queue=queue).select(moved) == moved
    assert EventFilter.of(queue="web").select(moved) is None


def test_an_event_of_a_queue_matches_its_queue_and_no_job() -> None:
    paused = event("paused", jobs=("mail",), queues=("mail",), details=({"what": "queue"},), marks=())
    assert EventFilter.of(queue="mail").select(paused) == paused
    assert EventFilter.of(job="mail").select(paused) is None
    assert EventFilter.of(tag="urgent").select(paused) is None


def test_a_gap_always_matches() -> None:
    gap = Event("=7-0", AT, "gap", details=({"after": "5-0"},))
    assert EventFilter.of(["failed"], queue="mail", job="x", worker="y", tracked=True).select(gap) == gap


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"types": ["faild"]}, "did you mean"),
        ({"types": ["gap"]}, "unknown type"),
        ({"queue": "a b"}, "queue"),
        ({"job": "a b"}, "id"),
        ({"scope": "acme"}, "/acme"),
        ({"tag": ""}, "tag"),
        ({"worker": 7}, "worker"),
    ],
)
def test_a_wrong_condition_is_refused(conditions: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        EventFilter.of(**conditions)


def test_conditions_are_described_as_they_are_given() -> None:
    assert EventFilter.of(["failed", "lost"], queue="mail", tracked=True).describe() == "failed lost queue=mail tracked"


# Handlers


def test_a_handler_gets_no_events_of_handlers() -> None:
    [(id, payload)] = HandlerSpec(EventFilter.of("failed"), "event").jobs("alert", event())
    assert id == "on:alert@5-0"
    assert b'"jobs":["a","b"]' in payload
    only = event(jobs=("on:alert@1-0",), queues=("mail",), details=({},), marks=())
    assert list(HandlerSpec(EventFilter.of("failed"), "event").jobs("alert", only)) == []


def test_an_event_with_many_jobs_is_delivered_in_parts() -> None:
    many = event(jobs=tuple(map(str, range(250))), queues=("q",) * 250, details=(), marks=())
    jobs = list(HandlerSpec(EventFilter.of("failed"), "event").jobs("alert", many))
    assert [id for id, _ in jobs] == ["on:alert@5-0", "on:alert@5-0.1", "on:alert@5-0.2"]
    assert MAX_JOBS == 100


def test_conditions_of_a_newer_release_are_not_ignored() -> None:
    spec = HandlerSpec(EventFilter.of("failed", queue="mail"), "event")
    assert HandlerSpec.decode(spec.encode()) == spec
    with pytest.raises(msgspec.MsgspecError):
        HandlerSpec.decode('{"filter":{"types":["failed"],"moon":"full"},"parameter":"event"}')


# Entries of other releases


def test_fields_that_a_later_release_adds_are_ignored() -> None:
    row = [b"5-0", b"failed", b"a b", b"who", b"mail 1 web", b'["A","exhausted","new","B","declared","new"]', b"later"]
    found = read_event(row)
    assert found.queues == ("mail", "web")
    assert found.details == ({"group": "A", "why": "exhausted"}, {"group": "B", "why": "declared"})


def test_a_type_of_a_later_release_is_an_event_of_jobs() -> None:
    found = read_event([b"5-0", b"levitated", b"a", b"", b"mail", b'["x"]'])
    assert (found.type, found.job, found.queue, found.details) == ("levitated", "a", "mail", ())


def test_marks_are_read_as_records_have_them() -> None:
    found = read_event([b"5-0", b"failed", b"a b", b"", b"mail", b'\n["#x\\n#y z\\n/acme/eu\\n=import-7\\n!",""]'])
    assert found.marks == (Marks(("x", "y z"), "/acme/eu", "import-7", True), Marks())
    assert found.details == ()


def test_an_event_of_an_earlier_release_has_no_queues() -> None:
    """Within a schema, programs of two releases use the same stream."""
    found = read_event([b"1-0", b"failed", b"a b", b""])
    assert (found.jobs, found.who, found.queues, found.details) == (("a", "b"), "", ("", ""), ())
    assert EventFilter.of("failed", queue="mail").select(found) is None
    assert EventFilter.of("failed").select(found) == found


@pytest.mark.parametrize(
    ("queues", "more"),
    [
        (b"mail x mail", b""),
        (b"mail 9", b""),
        (b"mail 99999999999999 other", b""),
        (b"\xff\x00", b"no JSON"),
        (b"mail", b'["only", "three", "texts"]\n'),
        (b"mail", b'["1", "2", "3", "4", "5", "6"]\n["#tag"]'),
        (b"mail", b'{"group": 1}\n{}'),
        (b"mail", b"\n[1, 2]"),
    ],
)
def test_a_damaged_event_is_read_as_far_as_possible(queues: bytes, more: bytes) -> None:
    """Readers and handlers go on after it."""
    found = read_event([b"1-0", b"failed", b"a b", b"who", queues, more])
    assert (found.id, found.jobs, len(found.queues)) == ("1-0", ("a", "b"), 2)
    for selects in (EventFilter.of(queue="mail"), EventFilter.of(tag="tag"), EventFilter.of(tracked=True)):
        selects.select(found)
