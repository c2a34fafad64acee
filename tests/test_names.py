"""Ids and names."""

from __future__ import annotations

import re
import string
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import Invalid
from holdfast.names import check_id, check_namespace, check_new_id, check_queue, check_schedule, check_task, new_id

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def test_a_new_id_has_16_base62_characters() -> None:
    assert all(re.fullmatch("[0-9A-Za-z]{16}", new_id()) for _ in range(1000))


def test_a_new_id_holds_the_time_above_50_random_bits() -> None:
    before = time.time_ns() // 1_000_000
    number = 0
    for character in new_id():
        number = number * 62 + BASE62.index(character)
    assert before <= number >> 50 <= time.time_ns() // 1_000_000


def test_a_later_id_sorts_after_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for ms in (0, 1, 61, 62, 10**12, 10**12 + 1, 2**44, 2**45 - 1):
        monkeypatch.setattr(time, "time_ns", lambda ms=ms: ms * 1_000_000)
        ids.append(new_id())
    assert ids == sorted(ids)


def test_ids_do_not_repeat() -> None:
    assert len({new_id() for _ in range(100_000)}) == 100_000


FORK = """
import os, time
from holdfast.names import new_id
time.time_ns = lambda: 10**18  # so that they differ only by random bits
new_id()
os.fork()
os.write(1, "".join(new_id() + " " for _ in range(200)).encode())
"""


def test_processes_that_forked_make_different_ids() -> None:
    written = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True).stdout.split()
    assert len(written) == len(set(written)) == 400


@pytest.mark.parametrize(
    "id", ["0123456789ABCDEz", "a", "order:7/line.2@shop-1_x", "x" * 128, "job~0", "x" * 128 + "~12"]
)
def test_an_id_may_be_the_users_own_and_name_a_partition(id: str) -> None:
    assert check_id(id) == id


@pytest.mark.parametrize(
    "id",
    ["", "a b", "a\n", "ü", "x" * 129, "~1", "a~", "a~b", "a~1~2", "a~1\n", "a~\u0661", "{a}", "a*", None, 7, b"a"],
)
def test_other_ids_are_refused(id: Any) -> None:
    with pytest.raises(Invalid, match="id is"):
        check_id(id)


CHECKS = [
    (check_queue, "queue"),
    (check_task, "task"),
    (check_schedule, "schedule"),
    (check_namespace, "namespace"),
]


@pytest.mark.parametrize(("check", "what"), CHECKS)
@pytest.mark.parametrize("name", ["a", "video.HD_2-x", "x" * 100])
def test_names_are_letters_digits_and_a_few_marks(check: Callable[[Any], str], what: str, name: str) -> None:
    assert check(name) == name, what


@pytest.mark.parametrize(("check", "what"), CHECKS)
@pytest.mark.parametrize("name", ["", "a b", "a\n", "a~1", "ü", "x" * 101, "{a}", "a/b", "a\u0661", None, 7, b"a"])
def test_other_names_are_refused(check: Callable[[Any], str], what: str, name: Any) -> None:
    with pytest.raises(Invalid, match=f"{what} is"):
        check(name)


@pytest.mark.parametrize(("check", "what"), CHECKS)
def test_a_task_may_have_the_name_of_a_class_in_other_languages(check: Callable[[Any], str], what: str) -> None:
    if what in ("task", "schedule"):
        assert check("My::Job::Class") == "My::Job::Class"
    else:
        with pytest.raises(Invalid, match=f"{what} is"):
            check("My::Job::Class")


def test_a_refused_name_is_shown_in_part_when_it_is_long() -> None:
    with pytest.raises(Invalid) as refusal:
        check_queue("x" * 1_000_000)
    assert len(str(refusal.value)) < 400


def test_ids_of_handlers_jobs_are_refused_for_others() -> None:
    assert check_id("on:alert@1-0") == "on:alert@1-0"
    assert check_new_id("one:1") == "one:1"
    with pytest.raises(Invalid, match="begin with on:"):
        check_new_id("on:mine")
    work = Holdfast().task(name="work")(lambda: None)
    with pytest.raises(Invalid, match="begin with on:"):
        work.options(id="on:mine")
