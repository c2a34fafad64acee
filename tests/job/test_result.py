"""What a task returned: stored as it is typed, as JSON if only the annotation is wrong, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from holdfast import Fail, Holdfast, Invalid, ResultTypeWarning, WorkDone, current_job
from holdfast.codec import TypeCodec
from holdfast.constants import MAX_NOTE
from holdfast.job import failure
from holdfast.job.outcome import WORK_DONE, Error, Succeed
from holdfast.job.result import decode_result, outcome_of_value
from holdfast.store import commands
from holdfast.store.store import Store
from holdfast.testing import Workbench, use
from holdfast.worker.runners.endings import refused_outcome
from tests.store.lua.test_state_machine import end, fields, put, take
from tests.support.shells import Hand, Shell
from tests.support.shells import failure as described

jobs = Holdfast("redis://127.0.0.1:1", namespace="production")
ran: list[str] = []


class Unmeasurable(list[int]):
    """Whoever compares it with a list gets an error that no codec expects."""

    def __len__(self) -> int:
        raise ArithmeticError("no length")


@dataclass
class Point:
    x: int


VALUES: dict[str, Any] = {
    "object": object(),
    "generator": (number for number in range(3)),
    "nan": float("nan"),
    "text": "seven",
    "dict": {"a": [1, None, 2.5]},
    "unmeasurable": Unmeasurable([1]),
}


@jobs.task(retries=3, backoff="1ms")
def give(what: str) -> int:
    ran.append(what)
    return VALUES[what]  # type: ignore[no-any-return]


@jobs.task(retries=3, backoff="1ms")
async def agive(what: str) -> int:
    ran.append(what)
    return VALUES[what]  # type: ignore[no-any-return]


@jobs.task
def nothing(what: str) -> None:
    return VALUES[what]  # type: ignore[no-any-return]


@jobs.task
def collect() -> list[Any]:
    return current_job().results(int)


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    ran.clear()
    with use(jobs, server_url) as made:
        yield made


@pytest.mark.parametrize("annotation", [int, None, date, list[int]])
@pytest.mark.parametrize("what", ["object", "generator", "nan", "unmeasurable"])
def test_a_result_that_cannot_be_stored_is_a_final_error(annotation: Any, what: str) -> None:
    outcome = outcome_of_value("pay", TypeCodec.of(annotation), VALUES[what])

    assert isinstance(outcome, Error)
    assert (outcome.group, outcome.final, outcome.work_is_done) == ("result-not-stored", "refused", True)
    assert failure.decode(outcome.error).message.startswith("the result of task pay: ")


@pytest.mark.parametrize("annotation", [int, None, date, list[int]])
@pytest.mark.parametrize("value", ["seven", {"a": [1, None, 2.5]}, True])
def test_json_that_does_not_fit_its_annotation_is_a_success_with_a_note(annotation: Any, value: Any) -> None:
    outcome = outcome_of_value("pay", TypeCodec.of(annotation), value)

    assert isinstance(outcome, Succeed)
    assert decode_result(TypeCodec.of(Any), outcome.result, "it") == value
    assert outcome.note.startswith("the result of task pay: ")


def test_a_value_that_fits_has_no_note() -> None:
    assert outcome_of_value("pay", TypeCodec.of(int), 7) == Succeed(b"7")
    assert outcome_of_value("pay", TypeCodec.of(date), date(2026, 1, 1)) == Succeed(b'"2026-01-01"')


def test_a_note_is_one_line_that_fits_into_the_history() -> None:
    outcome = outcome_of_value("pay", TypeCodec.of(list[tuple[str]]), [["\x1b[31m\n\u202e" * 3, "é" * 2000]])

    assert isinstance(outcome, Succeed)
    assert outcome.note.isprintable()
    assert 0 < len(outcome.note.encode()) <= MAX_NOTE


def test_a_result_that_is_too_big_is_no_less_done_if_it_does_not_fit_its_annotation_either() -> None:
    outcome = outcome_of_value("pay", TypeCodec.of(int), "x" * 2**20)

    assert isinstance(outcome, Error)
    assert (outcome.group, outcome.work_is_done) == ("result-too-big", True)


@pytest.mark.parametrize(("answer", "group"), [("TOOBIG", "result-too-big"), ("INVALID", "result-not-stored")])
def test_a_result_that_the_store_refuses_is_of_a_job_that_has_done_its_work(answer: str, group: str) -> None:
    outcome = refused_outcome(Succeed(b"1"), answer)

    assert isinstance(outcome, Error)
    assert (outcome.group, outcome.work_is_done) == (group, True)


def test_the_warning_names_the_line_of_the_program_that_reads_the_result() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert decode_result(TypeCodec.of(int), b'"seven"', "the result of job 1") == "seven"

    assert [(each.category, each.filename) for each in caught] == [(ResultTypeWarning, __file__)]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(bytes, "abcd"), (date, "2026-01-01"), (set[int], [1, 1]), (Point, {"x": 1, "z": 3}), (tuple[int, int], [1, 2])],
)
def test_a_json_value_that_its_annotation_would_change_is_returned_unchanged(annotation: Any, value: Any) -> None:
    outcome = outcome_of_value("pay", TypeCodec.of(annotation), value)

    assert isinstance(outcome, Succeed)
    with pytest.warns(ResultTypeWarning, match="the result of job 1 does not fit its type: the task returned a "):
        assert decode_result(TypeCodec.of(annotation), outcome.result, "the result of job 1") == value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for corrected in (type(value), Any):
            assert decode_result(TypeCodec.of(corrected), outcome.result, "the result of job 1") == value


def test_results_that_are_not_json_are_still_refused() -> None:
    with pytest.raises(Invalid, match="the result of job 1 does not fit its type"):
        decode_result(TypeCodec.of(int), b"{", "the result of job 1")


# Retries


@pytest.mark.parametrize("group", sorted(WORK_DONE))
def test_a_job_that_has_done_its_work_is_retried_only_by_force(store: Store, group: str) -> None:
    put(store, "done", "other")
    for id in take(store, limit=2):
        end(store, id, Error(b"{}", group if id == "done" else "ValueError", final="refused"))

    assert store.run(commands.retry(["done", "other"])) == ["DONE", "waiting"]
    assert fields(store, "done", "state", "group", "final_reason") == ("failed", group, "refused")
    store.run(commands.start_operation("o", "retry", states=["failed"]))
    assert store.run(commands.continue_operation("o", 0)).answers == {"DONE": 1}
    assert store.run(commands.retry(["done"], force=True)) == ["waiting"]
    assert fields(store, "done", "state", "group", "final_reason") == ("waiting", "", "")


def test_force_is_true_or_false(store: Store) -> None:
    put(store, "done")
    with pytest.raises(Invalid, match="`force` must be true or false"):
        store.run(commands.retry(["done"], force="yes"))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="`force` must be true or false"):
        store.run(commands.start_operation("o", "retry", states=["failed"], arguments={"force": 1}))


@pytest.mark.parametrize("what", ["object", "generator"])
@pytest.mark.parametrize("task", [give, agive], ids=["sync", "async"])
def test_the_testing_kit_does_as_workers_do(bench: Workbench, task: Any, what: str) -> None:
    job = task.enqueue(what)
    (ended,) = bench.run_until_empty()

    assert (ended.state, ended.group, ran) == ("failed", "result-not-stored", [what])
    with pytest.raises(WorkDone, match=f"job {job.id} has done its work"):
        ended.retry()
    assert [type(each) for each in jobs.retry_many([job.id])] == [WorkDone]
    assert jobs.retry_all(task=task).counts == {"its work was done": 1}
    assert jobs.retry_all(task=task, force=True).counts == {"waiting": 1}
    bench.run_until_empty()
    assert ran == [what, what]
    assert jobs.retry_many([job.id], force=True) == ["waiting"]


def test_a_wrong_annotation_is_noted_and_warned_of_where_results_are_read(bench: Workbench) -> None:
    first, second = give.enqueue("dict"), nothing.enqueue("text")
    total = collect.options(after=[first]).enqueue()
    with pytest.warns(ResultTypeWarning, match=rf"the result of job {first.id} does not fit its type: Expected `int`"):
        bench.run_until_empty(raise_errors=True)

    with pytest.warns(ResultTypeWarning):
        assert first.result() == VALUES["dict"]
    with pytest.warns(ResultTypeWarning):
        assert second.result() == "seven"
    assert total.result() == [VALUES["dict"]]
    assert [entry.what for entry in first.refresh().history] == [
        "created",
        "claimed",
        "started",
        "reported",
        "succeeded",
    ]


def test_a_job_that_is_not_kept_leaves_no_note(bench: Workbench) -> None:
    give.options(keep=False).enqueue("text")
    (ended,) = bench.run_until_empty()

    assert ended.state == "succeeded"
    assert not jobs.store.execute("KEYS", f"hf:{{{jobs.address.namespace}}}:n:*")


def test_a_call_that_runs_inline_does_so_too() -> None:
    app = Holdfast("redis://127.0.0.1:1", when_unreachable="inline", timeout="100ms")

    @app.task(name="pay")
    def pay(what: str) -> int:
        return VALUES[what]  # type: ignore[no-any-return]

    @app.task(name="refuse")
    def refuse() -> None:
        raise Fail("no", group="no-money")

    lost, misfit, declared = pay.enqueue("nan"), pay.enqueue("text"), refuse.enqueue()

    assert (lost.state, lost.group, lost.final_reason) == ("failed", "result-not-stored", "refused")
    assert (declared.group, declared.final_reason) == ("no-money", "declared")
    assert misfit.state == "succeeded"
    with pytest.warns(ResultTypeWarning):
        assert misfit.result() == "seven"  # type: ignore[comparison-overlap]
    assert [note.what for note in misfit.notes] == ["reported"]
    app.close()


# On the command line


def test_the_command_line_retries_such_a_job_only_by_force(shell: Shell) -> None:
    shell.put("done")
    Hand(shell.client).end(Error(described(), "result-too-big", final="refused"))

    refused = shell("retry", "done")
    assert (refused.code, refused.out) == (1, "")
    assert "job done has done its work" in refused.err
    assert "--force" in refused.err
    all = shell("retry", "--all", "--group", "result-too-big", "--yes")
    assert (all.code, all.rows) == (1, [["its work was done", "1"]])
    assert "--force" in all.err
    assert shell("retry", "--all", "--group", "result-too-big", "--yes", "--force").rows == [["waiting", "1"]]


def test_the_command_line_prints_a_result_that_does_not_fit_with_a_note(shell: Shell) -> None:
    shell.put("mine", task="tasks.add")
    Hand(shell.client).end(Succeed(b'"seven"', "it does not fit"))

    waited = shell("enqueue", "tasks.add", "1", "--id", "mine", "--app", "tasks", "--wait")
    assert (waited.code, waited.out) == (0, '"seven"\n')
    assert "does not fit its type: Expected `int`, got `str`" in waited.err
    assert "Warning" not in waited.err
    assert "reported     attempt 1: it does not fit" in shell("show", "mine").out
