"""Every function, argument and refusal of docs/protocol.md has a case, or a reason why it has none."""

from __future__ import annotations

import re

import pytest

from holdfast.conformance import Case, find_cases
from tests.conformance.coverage import covered, required, sections

WITHOUT_CASE = {
    "call(adder)": "as `enqueue(adder)`",
    "call(calls)": "needs an app with Lua of its own, which is part of its library",
    "call: REFUSED": "needs an app with Lua of its own",
    "call: TOOBIG": "needs an app with Lua of its own",
    "query(call)": "the word refers to another function",
    "cancel: TOOBIG": "needs 1,001 dependents",
    "check_enqueue(enqueue)": "the word refers to another function",
    "check_enqueue(fresh)": "an argument that it does not take",
    "check_enqueue(token)": "an argument that it does not take",
    "check_enqueue: MULTI": "a command, not a refusal",
    "count(list)": "the word refers to another function",
    "declare_schedule(schedule)": "the word refers to another function",
    "deliver: STATE": "needs a damaged subscription",
    "fork(adder)": "as `enqueue(adder)`",
    "get: TOOBIG": "needs 64 MiB of payloads",
    "last_used: SCHEMA": "any function: see `enqueue/schema`",
    "request: BLPOP": "a command, not a refusal",
    "resume_operation: STATE": "needs 100 running operations",
    "start_operation: STATE": "needs 100 running operations",
    "track: TOOBIG": "needs 10,000 tracked jobs",
    "work_queue_look(processing)": "a value, not an argument",
    "work_queue_settle(0)": "a value, not an argument",
}
FIX = "add a case to src/holdfast/conformance/cases (see docs/conformance.md), or a reason to WITHOUT_CASE"


def test_every_function_is_covered() -> None:
    assert sorted(name for name in sections() if name not in covered() | WITHOUT_CASE.keys()) == [], FIX


def test_every_argument_and_refusal_is_covered() -> None:
    assert sorted(required() - covered() - WITHOUT_CASE.keys()) == [], FIX


def test_no_reason_is_left_over() -> None:
    assert sorted(WITHOUT_CASE.keys() - required() | WITHOUT_CASE.keys() & covered()) == []


@pytest.mark.parametrize("case", find_cases(), ids=lambda case: str(case.path))
def test_a_case_can_be_read(case: Case) -> None:
    """Its name is a name, its text a sentence, and it shows something in its steps."""
    assert re.fullmatch(r"[a-z0-9-]+", case.name)
    assert re.fullmatch(r"[A-Z`].*\.", case.shows)
    assert case.steps
    assert all(
        ("call" in step) != ("command" in step) and ("reply" in step) != ("error" in step) for step in case.steps
    )
    assert case.path in {each.path for each in find_cases([case.area])}


def test_names_are_unique() -> None:
    paths = [case.path for case in find_cases()]
    assert len(paths) == len(set(paths))
