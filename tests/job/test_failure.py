"""Failures: descriptions of exceptions, and the outcomes that they become."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.constants import MAX_ERROR, MAX_TRACEBACK
from holdfast.errors import Invalid
from holdfast.job import failure
from holdfast.job.failure import MAX_MESSAGE, Failure, describe
from holdfast.job.outcome import Error, Fail, Retry, Snooze, Snoozed, outcome_of
from holdfast.units import Duration


class OutOfPaper(Exception):
    pass


def caught(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def raises(error: BaseException) -> None:
    raise error


def recurse(depth: int) -> None:
    if depth:
        recurse(depth - 1)
    raise OutOfPaper


def load(text: str) -> None:
    json.loads(text)


def run_by_holdfast(function: Callable[..., Any]) -> BaseException:
    """Return an exception whose traceback begins in a module of Holdfast, as in a worker."""
    runner: dict[str, Any] = {"__name__": "holdfast.worker.runner"}
    exec("def run(function):\n    function()", runner)  # noqa: S102
    error = caught(runner["run"], function)
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_an_exception_is_described_with_its_type_message_and_traceback() -> None:
    described = describe(caught(load, "{"))
    assert described.type == "json.decoder.JSONDecodeError"
    assert described.group == "json.decoder.JSONDecodeError"
    assert described.message.startswith("Expecting property name")
    assert "in load" in described.traceback
    assert described.traceback.endswith(f"{described.message}\n")


def test_a_builtin_exception_is_named_without_its_module() -> None:
    assert describe(caught(raises, ValueError("no"))).type == "ValueError"


def test_the_group_of_a_local_class_is_a_name() -> None:
    class Local(Exception):
        pass

    assert describe(Local()).group == "tests.job.test_failure.test_the_group_of_a_local_class_is_a_name.Local"[:100]


def test_notes_are_kept() -> None:
    error = ValueError("no")
    error.add_note("page 7")
    assert describe(error).notes == ("page 7",)
    error.__notes__ = "not a list"  # type: ignore[assignment]
    assert describe(error).notes == ()
    error.__notes__ = [object(), *["again"] * 1000]  # type: ignore[list-item]
    assert len(describe(error).notes) == failure.MAX_NOTES


def test_the_frames_that_called_the_task_are_left_out() -> None:
    def task() -> None:
        raise OutOfPaper

    described = describe(run_by_holdfast(task))
    assert described.traceback.splitlines()[1].endswith("in task")
    assert described.traceback.count("File") == 1


def test_frames_of_holdfast_below_the_task_are_kept() -> None:
    def task() -> None:
        Fail("x", group="not a name")

    frames = describe(run_by_holdfast(task)).traceback
    assert frames.splitlines()[1].endswith("in task")
    assert "in check_name" in frames


def test_an_exception_of_holdfast_alone_keeps_its_frames() -> None:
    assert "in run" in describe(run_by_holdfast(None)).traceback  # type: ignore[arg-type]


def test_the_fingerprint_does_not_depend_on_lines_messages_or_depth() -> None:
    prints = {describe(caught(recurse, depth)).fingerprint for depth in (1, 2, 50)}
    assert len(prints) == 1
    one, other = describe(caught(raises, ValueError("1"))), describe(caught(raises, ValueError("2")))
    assert one.fingerprint == other.fingerprint


def test_the_fingerprint_depends_on_type_and_place() -> None:
    errors = [caught(raises, ValueError()), caught(raises, KeyError()), caught(recurse, 1), ValueError()]
    assert len({describe(error).fingerprint for error in errors}) == 4
    assert all(len(describe(error).fingerprint) == 16 for error in errors)


def test_the_fingerprint_leaves_out_frames_of_libraries() -> None:
    assert describe(caught(load, "{")).fingerprint == describe(caught(load, "[")).fingerprint


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_without_a_text_is_described_all_the_same() -> None:
    described = describe(caught(raises, Mute()))
    assert described.message == "<no text: __str__ raised RuntimeError>"
    assert "in raises" in described.traceback


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def test_an_exception_whose_text_leaves_the_process_is_described_all_the_same() -> None:
    described = describe(caught(raises, Leaving()))
    assert described.message == "<no text: __str__ raised SystemExit>"
    assert "in raises" in described.traceback


class Secretive(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")


def test_an_exception_that_hides_its_notes_is_described_all_the_same() -> None:
    described = describe(caught(raises, Secretive("why")))
    assert described.message == "why"
    assert described.notes == ("<no notes: reading them raised an exception>",)


def test_an_exception_whose_class_hides_its_module_is_described_all_the_same() -> None:
    class Hiding(type):
        def __getattribute__(cls, name: str) -> object:
            raise RuntimeError("hidden")

    class Hidden(Exception, metaclass=Hiding):
        pass

    class Surrogate(Exception):
        __module__ = "caf\udce9"

    assert describe(Hidden()).type == "<unknown>.Hidden"
    assert describe(Surrogate()).type == describe(ExceptionGroup("", [Surrogate()]).exceptions[0]).type
    assert describe(Surrogate()).type.startswith("caf\\udce9.")


def test_huge_texts_keep_their_head_and_their_tail() -> None:
    text = "head" + "x" * 10_000_000 + "tail"
    described = describe(caught(raises, ValueError(text)))
    assert len(described.message.encode()) <= MAX_MESSAGE
    assert described.message.startswith("head")
    assert described.message.endswith("tail")
    assert len(described.traceback.encode()) <= MAX_TRACEBACK
    assert described.traceback.startswith("Traceback")
    assert described.traceback.endswith("tail\n")


def test_a_cut_falls_between_characters() -> None:
    for shift in range(4):
        message = describe(ValueError("x" * shift + "😀" * 10_000)).message
        assert len(message.encode()) <= MAX_MESSAGE
        assert "�" not in message


def test_what_utf_8_cannot_hold_is_escaped() -> None:
    error = ValueError("bad \udc80")
    error.add_note("\ud800")
    described = describe(caught(raises, error))
    assert described.message == "bad \\udc80"
    assert failure.decode(failure.encode(described)) == described


def test_a_group_of_exceptions_is_described_with_its_members() -> None:
    group = ExceptionGroup("two", [ValueError("one"), ExceptionGroup("inner", [KeyError("two")])])
    described = describe(caught(raises, group))
    assert described.type == "ExceptionGroup"
    assert "ValueError: one" in described.traceback
    assert "KeyError: 'two'" in described.traceback
    other = ExceptionGroup("two", [ValueError("one"), TypeError("two")])
    assert described.fingerprint != describe(caught(raises, other)).fingerprint


def test_exceptions_that_are_no_errors_can_be_described() -> None:
    assert describe(caught(raises, SystemExit(3))).message == "3"
    assert describe(KeyboardInterrupt()).traceback == "KeyboardInterrupt\n"


def test_a_cause_that_is_its_own_cause_does_no_harm() -> None:
    error = ValueError("round")
    other = KeyError("and round")
    error.__cause__, other.__cause__ = other, error
    assert "and round" in describe(error).traceback


def test_a_failure_comes_back_from_its_bytes() -> None:
    described = describe(caught(load, "{"))
    assert failure.decode(failure.encode(described)) == described


def test_invalid_bytes_are_read_as_a_failure_that_explains_it() -> None:
    for data in (b"", b"{}", b"[]", b"\xff", b'{"type": 1}'):
        assert "cannot be read" in failure.decode(data).message


def test_a_failure_always_fits_into_the_store() -> None:
    error = ValueError("\x01" * 100_000)
    for _ in range(20):
        error.add_note("\x01" * 100_000)
    data = failure.encode(describe(error))
    assert len(data) <= MAX_ERROR
    assert failure.decode(data).type == "ValueError"


def test_a_crash_describes_what_is_known() -> None:
    crash = Failure.of_crash("the job's process died", signal=9, memory=512 * 2**20)
    assert crash.message == "the job's process died; signal SIGKILL; memory last seen 512 MiB"
    assert crash.group == "crashed"
    assert (crash.fingerprint, crash.place) == ("", "signal SIGKILL")
    assert Failure.of_crash("the job's process died", exit_code=1).place == "exit code 1"
    assert Failure.of_crash("gone", exit_code=3).message == "gone; exit code 3"
    assert Failure.of_crash("gone", signal=250).message == "gone; signal 250"


def test_an_exception_becomes_an_error_that_may_be_retried() -> None:
    outcome = outcome_of(caught(raises, OutOfPaper("tray 2")))
    assert isinstance(outcome, Error)
    assert (outcome.final, outcome.delay, outcome.group) == (False, None, "tests.job.test_failure.OutOfPaper")
    assert failure.decode(outcome.error).message == "tray 2"


@pytest.mark.parametrize(("delay", "expected"), [(None, None), ("90s", 90_000), (0, 0)])
def test_retry_chooses_the_wait(delay: Duration | None, expected: int | None) -> None:
    outcome = outcome_of(Retry(delay, "busy"))
    assert isinstance(outcome, Error)
    assert (outcome.final, outcome.delay) == (False, expected)
    assert failure.decode(outcome.error).message == "busy"


def test_fail_is_final_and_may_name_a_group() -> None:
    outcome = outcome_of(Fail("no such user", group="bad-input"))
    assert isinstance(outcome, Error)
    assert (outcome.final, outcome.group) == (True, "bad-input")


@pytest.mark.parametrize("kind", [Retry, Fail])
def test_retry_and_fail_count_with_the_error_they_came_from(kind: type[Exception]) -> None:
    error = kind()
    error.__cause__ = OutOfPaper()
    outcome = outcome_of(error)
    assert isinstance(outcome, Error)
    assert outcome.group == "tests.job.test_failure.OutOfPaper"


def test_snooze_is_not_an_error() -> None:
    assert outcome_of(Snooze("1m")) == Snoozed(60_000)


def test_what_a_task_raises_is_checked_when_it_is_made() -> None:
    with pytest.raises(Invalid, match="the delay of Retry is 'soon'"):
        Retry("soon")
    with pytest.raises(Invalid, match="the delay of Snooze is -1"):
        Snooze(-1)
    with pytest.raises(Invalid, match="the group of Fail is 'a b'"):
        Fail("x", group="a b")
