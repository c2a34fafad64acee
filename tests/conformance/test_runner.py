"""The runner finds every difference, names the first, and ignores what later releases may add."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.conformance import Case, Refusal, Run, open_connection
from holdfast.conformance.values import find_difference
from holdfast.store import Address
from holdfast.store.library import library

NOW = 1_700_000_000_000
ENQUEUE = {"call": "enqueue", "now": NOW, "args": {"batches": [{"queue": "mail", "task": "send"}]}, "blobs": ["a", "x"]}


@pytest.fixture
def run(address: Address) -> Iterator[Run]:
    with open_connection(address) as connection:
        made = Run(connection.send, library())
        yield made
        made.clean_up(connection.send)


def _case(*steps: dict[str, Any], **after: Any) -> Case:
    return Case("area", "case", "", steps, after)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("text", b"text"),
        (7, 7),
        (None, None),
        ([1, "two", None], [1, b"two", None]),
        ([1, "..."], [1]),
        ([1, "..."], [1, 2, [3]]),
        ({"state": "waiting"}, [b"id", b"a", b"state", b"waiting", b"of a later release", 7]),
        ({"$hex": "00ff"}, b"\x00\xff"),
        ({"$repeat": ["ab", 2]}, b"abab"),
        ({"$json": {"a": [1]}}, b'{"b": 2, "a": [1]}'),
        ({"$set": ["a", "b"]}, [b"b", b"a"]),
        ([{"$any": True}, 1], [[b"a"], 1]),
        ("${prefix}wake", b"hf:{n}:wake"),
        (["${new}", "${new}"], [b"x", b"x"]),
        (["ready", {"$rest": {"ahead": 0}}], [b"ready", b"new", b"x", b"ahead", 0]),
        ({"fields": {"a": "1"}}, [b"fields", [b"a", b"1", b"b", b"2"]]),
    ],
)
def test_a_reply_that_is_as_written_passes(expected: Any, actual: Any) -> None:
    assert find_difference(expected, actual, {"prefix": "hf:{n}:"}) is None


@pytest.mark.parametrize(
    ("expected", "actual", "place"),
    [
        ("text", b"other", "reply"),
        ("7", 7, "reply"),
        (7, b"7", "reply"),
        (1, True, "reply"),
        (None, b"", "reply"),
        ("", None, "reply"),
        ([1], [1, 2], "reply[1]"),
        ([1, 2], [1], "reply[1]"),
        ([1, 2, "..."], [1], "reply[1]"),
        ([], None, "reply"),
        ([[b"a"]], [[b"b"]], "reply[0][0]"),
        ({"state": "waiting"}, [b"state", b"running"], "reply.state"),
        ({"state": "waiting"}, [b"id", b"a"], "reply.state"),
        ({"state": "waiting"}, [b"state"], "reply"),
        ({"state": "waiting"}, None, "reply"),
        (["ready", {"$rest": {"ahead": 0}}], [b"ready", b"ahead", 1], "reply.ahead"),
        (["ready", {"$rest": {"ahead": 0}}], [b"ready"], "reply.ahead"),
        ({"$hex": "00ff"}, b"\x00", "reply"),
        ({"$hex": "00ff"}, 255, "reply"),
        ({"$repeat": ["ab", 2]}, b"ababab", "reply"),
        ({"$json": {"a": 1}}, b'{"a": 2}', "reply.a"),
        ({"$json": {"a": 1}}, b"no JSON", "reply"),
        ({"$set": ["a", "b"]}, [b"b", b"b"], "reply"),
        ({"$set": ["a"]}, [b"a", b"b"], "reply"),
        ({"$any": True}, Refusal("INVALID", "why"), "reply"),
        (["${new}", "${new}"], [b"x", b"y"], "reply[1]"),
        ("${prefix}wake", b"hf:{m}:wake", "reply"),
        ("text", Refusal("INVALID", "why"), "reply"),
        ("${new}", Refusal("INVALID", "why"), "reply"),
    ],
)
def test_the_first_difference_is_found(expected: Any, actual: Any, place: str) -> None:
    found = find_difference(expected, actual, {"prefix": "hf:{n}:"})
    assert found
    assert found.place == place


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (_case({**ENQUEUE, "reply": [NOW, 0]}), "step 1, enqueue: reply[1]: expected 0, got 1"),
        (_case({**ENQUEUE, "error": "INVALID"}), "step 1, enqueue: reply: expected the error INVALID, got [17"),
        (_case({**ENQUEUE, "args": {}, "reply": []}), "step 1, enqueue: reply: expected [], got the error INVALID "),
        (_case({**ENQUEUE, "args": {}, "error": "TOOBIG"}), "expected the error TOOBIG, got the error INVALID"),
        (_case({"command": ["GET", "${prefix}x"], "reply": "x"}), 'step 1, GET: reply: expected "x", got null'),
    ],
)
def test_a_case_fails_at_its_first_wrong_step(run: Run, case: Case, why: str) -> None:
    result = run.run(case)
    assert result.status == "failed"
    assert why in result.why


def test_a_case_that_fails_in_a_transaction_does_not_affect_the_next(run: Run) -> None:
    failing = _case({"command": ["MULTI"], "reply": "OK"}, {"command": ["GET", "x"], "reply": "x"})
    assert run.run(failing).status == "failed"
    assert run.run(_case({**ENQUEUE, "reply": [NOW, 1]})).passed


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ({"jobs": {"a": {"state": "running"}}}, 'afterwards, jobs.a.state: expected "running", got "waiting"'),
        ({"jobs": {"a": None}}, "afterwards, jobs.a: expected null, got "),
        ({"jobs": {"b": {"state": "waiting"}}}, "afterwards, jobs.b: expected"),
        ({"counts": {}}, "afterwards, counts: expected {}"),
        ({"counts": {"mail": {"waiting": 1}, "sms": {"waiting": 1}}}, "afterwards, counts: expected"),
        ({"counts": {"mail": {"waiting": 2}}}, "afterwards, counts.mail.waiting: expected 2, got 1"),
        ({"keys": {"q:mail:waiting": None}}, "afterwards, keys.q:mail:waiting: expected null"),
        (
            {"keys": {"q:mail:waiting": {"zset": ["a", 2]}}},
            "afterwards, keys.q:mail:waiting.zset[1]: expected 2, got 1",
        ),
        ({"keys": {"q:mail:waiting": {"set": ["a"]}}}, "afterwards, keys.q:mail:waiting.set: expected"),
    ],
)
def test_a_case_fails_if_something_else_is_stored(run: Run, after: dict[str, Any], why: str) -> None:
    passing = _case({**ENQUEUE, "reply": [NOW, 1]}, jobs={"a": {"payload": "x"}}, counts={"mail": {"waiting": 1}})
    assert run.run(passing).passed
    result = run.run(_case({**ENQUEUE, "reply": [NOW, 1]}, **after))
    assert result.status == "failed"
    assert why in result.why
