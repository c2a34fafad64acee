"""The table of options, and what has to repeat it: types for checkers, and lists in Lua and in the protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.job.option_table import OPTIONS, Option, not_for
from holdfast.job.options import CheckedOptions, JobOptions, RunOptions
from holdfast.job.retries import POLICIES
from tests.support.new_job import NewJob

ROOT = Path(__file__).parents[2]
LUA = ROOT / "src" / "holdfast" / "store" / "lua"
NAMES = [option.name for option in OPTIONS]
STORED = {option.name for option in OPTIONS if option.goes_to == "job"}
BESIDE = {"task", "codec", "run"}  # arguments of the store that are not options
WAYS_TO_STORE = {"deadline_at"}  # a deadline that is a time
WAYS_TO_WORKERS = {*POLICIES.values()}  # budgets that are a policy


def test_the_types_have_the_names_of_the_table() -> None:
    assert list(JobOptions.__annotations__) == NAMES
    others = WAYS_TO_STORE | WAYS_TO_WORKERS
    assert [name for name in CheckedOptions.__struct_fields__ if name not in others] == NAMES
    to_workers = {option.name for option in OPTIONS if option.goes_to == "worker"}
    assert {*RunOptions.__struct_fields__} == to_workers | WAYS_TO_WORKERS | {"carry"}


def test_jobs_of_tests_have_the_arguments_of_the_store() -> None:
    fields = {"batch" if name == "in_batch" else name for name in NewJob.__struct_fields__}
    assert fields - {"id", "payload"} == STORED | BESIDE | WAYS_TO_STORE


def test_the_store_documents_each_option_that_it_is_sent() -> None:
    head = (LUA / "enqueue.lua").read_text().partition("\nlocal ")[0]
    assert {*re.findall(r"\w+", head)} >= STORED | BESIDE | WAYS_TO_STORE
    protocol = (ROOT / "docs" / "protocol.md").read_text().partition("### `enqueue`")[2].partition("\n### ")[0]
    rows = {name for line in re.findall(r"^\| · (`.*?`) \|", protocol, re.M) for name in re.findall(r"`(\w+)`", line)}
    assert rows == STORED | BESIDE | WAYS_TO_STORE | {"count"}


def test_the_store_takes_the_same_options_of_a_schedule() -> None:
    table = re.search(r"\{([^}]*at_most_once = true[^}]*)\}", (LUA / "schedules.lua").read_text())
    assert table
    sent_with = {"on_failed"}  # only together with `after`
    assert set(re.findall(r"(\w+) = true", table[1])) == (STORED | BESIDE) - {*not_for("schedule")} - sent_with


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_names_itself_when_it_is_invalid(option: Option) -> None:
    given: Any = {option.name: object()}
    with pytest.raises(Invalid, match=f"{option.name} is|cannot wait for"):
        CheckedOptions().replace(**given)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_has_a_sentence_of_help(option: Option) -> None:
    assert re.fullmatch(r"[-A-Z\d].*\.", option.help)


def test_a_batch_has_only_what_was_given() -> None:
    assert CheckedOptions().arguments() == {"queue": "default"}
    assert CheckedOptions().replace(
        keep=True, at_most_once=False, exclusive=False, limits=[], after=[]
    ).arguments() == {"queue": "default"}


def test_a_stage_has_neither_id_nor_unique_key_nor_retention() -> None:
    options = CheckedOptions().replace(id="a", unique="k", unique_for="kept", on_exists="error", priority=1)
    assert options.replace(unique_for=None, keep=False).stage_arguments() == {"queue": "default", "priority": 1}
