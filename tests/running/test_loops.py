"""Loops of `each` resume wherever the previous attempt was interrupted."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Invalid, Task
from holdfast.running.running_job import RunningJob, YieldNow
from tests.apps import long_app
from tests.support.listener import Listener, running
from tests.support.workers import Crew

Work = Callable[[RunningJob, Any], None]

LETTERS = "abcdefghij"


class Cut(BaseException):
    """The process was killed here."""


class Done(list[Any]):
    """The items that a job has done; it is killed at a given number of them."""

    def __init__(self, most: int = 1000) -> None:
        super().__init__()
        self._most = most

    def take(self, item: Any) -> None:
        if len(self) == self._most:
            raise Cut
        self.append(item)


@pytest.fixture
def all_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save after each item."""
    monkeypatch.setattr("holdfast.running.loops.SAVE_INTERVAL", 0.0)


def over_a_list(job: RunningJob, done: Done) -> None:
    for letter in job.each(LETTERS):
        done.take(letter)


def over_an_iterator(job: RunningJob, done: Done) -> None:
    for letter in job.each(each for each in LETTERS):
        done.take(letter)


def over_a_text_file(job: RunningJob, done: Done) -> None:
    text = "".join(f"{letter}ä€\r\n" for letter in LETTERS)
    with io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8") as file:
        for line in job.each(file):
            done.take(line[0])


def over_a_binary_file(job: RunningJob, done: Done) -> None:
    with io.BytesIO("".join(f"{letter}\n" for letter in LETTERS).encode()) as file:
        for line in job.each(file):
            done.take(line[:1].decode())


def over_a_cursor(job: RunningJob, done: Done) -> None:
    def rows(after: str | None) -> Iterator[str]:
        return (letter for letter in LETTERS if after is None or letter > after)

    for letter in job.each(rows, key=lambda letter: letter):
        done.take(letter)


def over_days(job: RunningJob, done: Done) -> None:
    """A key is read as the type in the annotation of its function."""
    first = date(2024, 2, 25)

    def days(after: date | None) -> Iterator[date]:
        begin = first if after is None else after + timedelta(days=1)
        return (begin + timedelta(days=number) for number in range((first - begin).days + len(LETTERS)))

    for day in job.each(days, key=lambda day: day):
        done.take(LETTERS[(day - first).days])


def over_paths(job: RunningJob, done: Done) -> None:
    def paths(after: Path | None) -> Iterator[Path]:
        return (path for path in map(Path, LETTERS) if after is None or path > after)

    for path in job.each(paths, key=lambda path: path):
        done.take(str(path))


def over_an_async_iterator(job: RunningJob, done: Done) -> None:
    async def letters() -> AsyncIterator[str]:
        for letter in LETTERS:
            await asyncio.sleep(0)
            yield letter

    async def work() -> None:
        async for letter in job.aeach(letters()):
            done.take(letter)

    asyncio.run(work())


def over_an_async_cursor(job: RunningJob, done: Done) -> None:
    async def rows(after: str | None) -> AsyncIterator[str]:
        for letter in LETTERS:
            if after is None or letter > after:
                yield letter

    async def work() -> None:
        async for letter in job.aeach(rows, key=lambda letter: letter, total=10):
            done.take(letter)

    asyncio.run(work())


def over_two_loops(job: RunningJob, done: Done) -> None:
    for letter in job.each(LETTERS[:4]):
        done.take(letter)
    for letter in job.each(LETTERS[4:]):
        done.take(letter)


WORKS: list[Work] = [
    over_a_list, over_an_iterator, over_a_text_file, over_a_binary_file, over_a_cursor, over_days, over_paths,
    over_an_async_iterator, over_an_async_cursor, over_two_loops,
]  # fmt: skip


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("cut", range(11))
@pytest.mark.usefixtures("all_saved")
def test_an_interrupted_loop_resumes_after_its_last_save(work: Work, cut: int) -> None:
    link, done, again = Listener(), Done(cut), Done()
    with suppress(Cut):
        work(running(link), done)
    work(running(link, link.checkpoints[-1] if link.checkpoints else b""), again)

    assert "".join([*done, *again]) == LETTERS


@pytest.mark.parametrize("work", WORKS)
def test_unsaved_items_are_repeated_and_none_is_skipped(work: Work) -> None:
    """Any of the reports may be the last one that was sent."""
    link, done = Listener(), Done(7)
    with pytest.raises(Cut):
        work(running(link), done)
    for checkpoint in [b"", *link.checkpoints]:
        again = Done()
        work(running(Listener(), checkpoint), again)
        assert LETTERS.endswith("".join(again))
        assert len(again) >= len(LETTERS) - 7


@pytest.mark.parametrize("work", WORKS)
def test_a_loop_that_is_done_is_not_begun_again(work: Work) -> None:
    link, again = Listener(), Done()
    work(running(link), Done())
    work(running(link, link.checkpoints[-1]), again)
    assert again == []


def test_each_reports_its_progress() -> None:
    link = Listener()
    list(running(link).each(range(5)))
    assert link.checkpoints[-1] == b"5"
    assert {name: link.progress[-1][name] for name in ("progress", "done", "total")} == {
        "progress": 1.0, "done": 5, "total": 5,
    }  # fmt: skip


def test_each_reports_its_progress_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("four\n" * 10)
    link = Listener()
    with path.open() as file:
        rows = running(link).each(file)
        assert [next(rows) for _ in range(5)]
        link.stopping = True
        with pytest.raises(YieldNow):
            next(rows)
    assert (link.checkpoints, link.progress[-1]["progress"]) == ([b'{"key":25,"done":5}'], 0.5)


def test_each_takes_what_has_no_length() -> None:
    def letters() -> Iterator[str]:
        yield from "abc"

    link = Listener()
    link.stopping = True
    with pytest.raises(YieldNow):
        list(running(link).each(letters()))
    assert link.checkpoints == [b"1"]
    assert "progress" not in link.progress[-1]


def test_each_yields_at_a_deploy_after_the_item_in_hand() -> None:
    link, done = Listener(), []

    def work() -> None:
        for item in running(link).each(range(10)):
            done.append(item)
            link.stopping = item == 3

    with pytest.raises(YieldNow):
        work()
    assert done == [0, 1, 2, 3]
    assert link.checkpoints[-1] == b"4"


def test_each_does_not_yield_when_the_last_item_is_done() -> None:
    link = Listener()
    link.stopping = True
    assert list(running(link).each([1])) == [1]


def test_a_file_goes_on_where_it_was_when_the_loop_began() -> None:
    file = io.StringIO("header\na\nb\n")
    header = file.readline()
    assert (header, list(running(Listener()).each(file))) == ("header\n", ["a\n", "b\n"])


def test_a_loop_may_be_left_and_another_begun() -> None:
    link = Listener()
    job = running(link)
    for item in job.each(range(10)):
        if item == 3:
            break
    assert list(job.each(range(3))) == [0, 1, 2]
    assert list(job.each("ab")) == ["a", "b"]


@pytest.mark.usefixtures("all_saved")
def test_a_loop_that_saved_nothing_does_not_take_the_place_of_another() -> None:
    link, done = Listener(), Done(3)
    with pytest.raises(Cut):
        three_loops(running(link), done, second=[])
    assert link.checkpoints[-1] == b"[null,null,3]"

    saved = link.checkpoints[-1]
    again, otherwise = Done(), Done()
    three_loops(running(link, saved), again, second=[])
    three_loops(running(link, saved), otherwise, second=["x", "y"])
    assert again == [*range(3, 10)]
    assert otherwise == ["x", "y", *range(10)]  # a loop after one that resumes starts over


def three_loops(job: RunningJob, done: Done, second: list[str]) -> None:
    for items in ([], second, range(10)):
        for item in job.each(items):
            done.take(item)


def test_a_loop_inside_of_another_is_refused() -> None:
    job = running(Listener())

    def work() -> None:
        for _ in job.each(range(2)):
            list(job.each(range(2)))

    with pytest.raises(Invalid, match="cannot be nested"):
        work()


@pytest.mark.parametrize(
    ("items", "key", "why"),
    [
        ({"a", "b"}, None, "a different order"),
        ([1], lambda item: item, "pass a function as items"),
        (lambda key: [key], None, "key="),
        (17, None, "17 is not iterable"),
    ],
)
def test_each_refuses_items_that_cannot_be_resumed(items: Any, key: Any, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        running(Listener()).each(items, key=key)


def test_items_that_come_asynchronously_need_an_async_loop() -> None:
    async def letters() -> AsyncIterator[str]:
        yield "a"

    with pytest.raises(Invalid, match="aeach"):
        running(Listener()).each(letters())  # type: ignore[arg-type] # that is what is refused


@pytest.mark.parametrize("saved", [b'"words"', b'{"page":7}', b"-1.5"])
def test_a_checkpoint_of_something_else_is_refused(saved: bytes) -> None:
    with pytest.raises(Invalid, match="either `each` or `save`"):
        running(Listener(), saved).each(range(3))


def test_a_save_beside_a_loop_is_refused_for_it_would_overwrite_where_the_loop_is() -> None:
    job = running(Listener())
    for _ in job.each([1, 2]):
        with pytest.raises(Invalid, match=r"either `each` or `save`.*leave out `each`"):
            job.save("mine")
    job.report(0.5)


@pytest.mark.parametrize("task", [long_app.copy_lines, long_app.acopy_rows], ids=["lines", "rows"])
def test_a_job_that_is_killed_repeatedly_repeats_only_items_after_the_last_sent_save(
    crew: Crew, tmp_path: Path, task: Task[[str, str], Any]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("".join(f"{number:09}\n" for number in range(20_000)))
    crew.start(app="tests.apps.long_app")
    job = crew.put(task, str(source), str(target))

    assert crew.ended(job).state == "succeeded"

    rows = target.read_text().splitlines()
    assert sorted(set(rows)) == source.read_text().splitlines()
    kept = [tuple(map(int, line.split())) for line in (tmp_path / "target.kept").read_text().splitlines()]
    assert [first for first, _ in kept] == sorted(first for first, _ in kept)
    assert len(kept) == 3
    repeated = len(rows) - len(set(rows))
    assert all(begun >= saved for (begun, _), (_, saved) in zip(kept[1:], kept, strict=False))
    assert 0 < repeated < 20_000
