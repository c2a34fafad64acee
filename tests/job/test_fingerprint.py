"""Fingerprints: the same cause has the same one, on every node, in every run and every runner."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Fail
from holdfast.job.fingerprint import Origin, origin_of
from tests.job.test_failure import caught, raises, run_by_holdfast

TASKS = """
class Late(Exception):
    pass

def helper(depth):
    if depth:
        return helper(depth - 1)
    raise Late(object())

def task(depth):
    helper(depth)
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from billing.invoices import task
from holdfast.job.fingerprint import origin_of
try:
    task(int(sys.argv[2]))
except Exception as error:
    print(*origin_of(error.with_traceback(error.__traceback__.tb_next)))  # as if Holdfast had called it
"""


def origin_in(folder: Path, *, depth: int = 2, blank_lines: int = 0, seed: str = "0") -> Origin:
    """Where an error comes from, in a process that has the app in this folder."""
    package = folder / "billing"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "invoices.py").write_text("\n" * blank_lines + TASKS)
    line = [sys.executable, "-c", PROGRAM, str(folder), str(depth)]
    done = subprocess.run(line, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
    return Origin(*done.stdout.split())


def test_it_is_the_same_on_nodes_with_other_paths_other_lines_and_in_other_runs(tmp_path: Path) -> None:
    first = origin_in(tmp_path / "here")
    assert first == origin_in(tmp_path / "srv" / "app" / "v2", blank_lines=7, depth=5, seed="4711")
    assert first.place == "billing.invoices:helper"
    assert len(first.fingerprint) == 16


def test_it_is_the_same_if_the_app_is_installed_as_a_package(tmp_path: Path) -> None:
    assert origin_in(tmp_path / "lib" / "site-packages") == origin_in(tmp_path / "here")


def test_a_cause_counts_and_a_context_does_not() -> None:
    def wrap(cause: BaseException | None) -> BaseException:
        error = ValueError("wrapped")
        error.__cause__ = cause
        return error

    plain, keyed, typed = (origin_of(wrap(cause)).fingerprint for cause in (None, KeyError(), TypeError()))
    assert len({plain, keyed, typed}) == 3
    assert origin_of(wrap(KeyError("another message"))).fingerprint == keyed
    accidental = wrap(None)
    accidental.__context__ = KeyError()
    assert origin_of(accidental).fingerprint == plain


def test_causes_in_a_circle_end() -> None:
    one, other = ValueError(), KeyError()
    one.__cause__, other.__cause__ = other, one
    assert len(origin_of(one).fingerprint) == 16


def test_frames_of_libraries_and_of_holdfast_do_not_count() -> None:
    def refuse(group: str) -> None:
        Fail("x", group=group)

    def load(text: str) -> None:
        json.loads(text)

    refused = origin_of(run_by_holdfast(lambda: refuse("not a name")))
    assert refused.place.endswith("refuse")  # check_name of Holdfast raised
    assert origin_of(caught(load, "{")) == origin_of(caught(load, "nonsense"))
    assert origin_of(caught(load, "{")).place.endswith("load")


def test_without_user_code_the_innermost_frame_counts() -> None:
    def of(function: Callable[..., Any], *args: Any) -> Origin:
        error = caught(function, *args)
        assert error.__traceback__ is not None
        return origin_of(error.with_traceback(error.__traceback__.tb_next))

    found = of(json.loads, "{")
    assert found.place.startswith("json.decoder:")
    assert of(json.loads, 5).place == "json:loads"


def test_an_exception_that_was_never_raised_has_one_too() -> None:
    assert origin_of(ValueError()).place == ""
    assert origin_of(ValueError()).fingerprint != origin_of(KeyError()).fingerprint


@pytest.mark.parametrize("message", ["", "at 0x7f2200", "job 4711"])
def test_messages_do_not_count(message: str) -> None:
    assert origin_of(caught(raises, ValueError(message))) == origin_of(caught(raises, ValueError("x")))
