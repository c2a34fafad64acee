"""Text made safe to print, and what was meant by a name that does not exist."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Holdfast, Invalid, JobFailed
from holdfast.job.errors import RemoteTraceback
from holdfast.text import indented, pluralize, printable
from tests.apps.log_lines_app import shout
from tests.support.workers import Crew

APP = "tests.apps.log_lines_app"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r2030-01-01 INFO forged\n\x9b31m\u202eevil\u2066\u2028end"


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    with_app = Holdfast(server_url, namespace=namespace)
    yield with_app
    with_app.close()


def test_text_is_escaped_so_that_a_terminal_obeys_nothing() -> None:
    escaped = printable(HOSTILE)
    assert escaped.isprintable()
    assert escaped == "\\x1b]0;owned\\x07\\x1b[2J\\r2030-01-01 INFO forged\\n\\x9b31m\\u202eevil\\u2066\\u2028end"
    assert printable("a\tb\nc", lines=True, tabs=True) == "a\tb\nc"
    assert printable("naïve 日本語 🎉") == "naïve 日本語 🎉"


def test_no_line_of_an_indented_text_begins_at_the_margin() -> None:
    assert all(line.startswith("    ") for line in indented(HOSTILE).split("\n"))


def test_a_count_agrees_with_its_noun() -> None:
    counts = [pluralize(count, "job") for count in (0, 1, 2, 1000)]
    assert counts == ["0 jobs", "1 job", "2 jobs", "1,000 jobs"]
    assert [pluralize(count, "process") for count in (1, 2)] == ["1 process", "2 processes"]


def _misspelt(app: Holdfast) -> Iterator[tuple[Callable[[], Any], str]]:
    anything: Any = app
    task: Any = app.task(name="named")(print)
    yield lambda: task.options(prioritty=1), "unknown option 'prioritty'; did you mean priority?"
    yield lambda: task.bind().options(quue="a"), "unknown option 'quue'; did you mean queue?"
    yield lambda: anything.task(retires=3), "unknown option 'retires'; did you mean retries?"
    yield lambda: anything.task(shedule=None), "unknown option 'shedule'; did you mean schedule?"
    yield lambda: Holdfast(namespce="a"), "Holdfast() has no option 'namespce'; did you mean namespace?"  # type: ignore[arg-type]
    yield lambda: Holdfast(xyz="a"), "Holdfast() has no option 'xyz'; expected one of url, namespace, timeout"  # type: ignore[arg-type]
    yield lambda: anything.worker(queus="a"), "has no setting 'queus'; did you mean queues?"
    yield lambda: app.configure({"keep_sucseeded": 1}), "unknown setting 'keep_sucseeded'; did you mean keep_succ"


def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(app: Holdfast) -> None:
    for call, words in _misspelt(app):
        with pytest.raises(Invalid) as caught:
            call()
        assert words in str(caught.value)


def test_job_failed_carries_the_traceback_of_the_attempt(crew: Crew) -> None:
    """Also when nobody catches it: Python prints both, and nothing in them is obeyed by a terminal."""
    crew.start(app=APP)
    job = crew.app.enqueue(shout.bind(HOSTILE).options(retries=0))
    with pytest.raises(JobFailed) as caught:
        job.result(timeout="30s")
    assert str(caught.value).isprintable()
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "in shout" in cause.traceback
    assert printable(str(cause), lines=True) == str(cause)
    shown = subprocess.run(
        [sys.executable, "-c", f"from holdfast import Holdfast; Holdfast().get({job.id!r}).result()"],
        env={"HOLDFAST_URL": crew.url, "HOLDFAST_NAMESPACE": crew.namespace},
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    assert "raise ValueError(words)" in shown
    assert "The above exception was the direct cause of the following exception" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
