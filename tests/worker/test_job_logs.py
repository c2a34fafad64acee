"""The output of jobs is stored, under every runner, whatever dies."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Invalid, Job, JobNotFound
from holdfast.client.logs import MAX_EMPTY_POLLS, LogReader, follow
from holdfast.constants import LOG_BLOCK, LOG_HEAD, LOG_TAIL
from holdfast.job.logs import LogPart
from holdfast.store.driver import drive
from holdfast.worker.output.capture import LogFile
from holdfast.worker.output.console import ConsoleStream
from tests.apps import log_app
from tests.support.relay import Relay
from tests.support.workers import Crew, new_crew, until

APP = "tests.apps.log_app"
ALL = ("fork", "spawn", "process", "thread", "async")
APART = ("fork", "spawn", "process")
SYNC = (*APART, "thread")
KEPT = (LOG_HEAD + LOG_TAIL) * LOG_BLOCK


@pytest.fixture(scope="module")
def desk(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """A worker for all tests that do not harm it."""
    with new_crew(server_url, tmp_path_factory.mktemp("desk")) as crew:
        crew.start("--processes", "2", app=APP)
        yield crew


def run(crew: Crew, name: str, *args: Any) -> Job[Any]:
    """Run a job to its end."""
    job = crew.put(log_app.jobs.tasks[name], *args)
    job.result(timeout=60)
    return job


def text_of(crew: Crew, job: Job[Any]) -> str:
    """All that a job printed, as soon as its worker has nothing left to send."""
    until(lambda: job.refresh().is_final and not files_of(crew, job))
    return job.logs().text


def lines_of(crew: Crew, job: Job[Any]) -> list[str]:
    return text_of(crew, job).splitlines()


def files_of(crew: Crew, job: Job[Any]) -> list[Path]:
    """Its logs on disk."""
    return list(crew.folder.glob(f"tmp/holdfast-*/logs/{job.id}.*"))


# Every runner


@pytest.mark.parametrize("runner", ALL)
def test_the_output_of_a_job_is_stored(desk: Crew, runner: str) -> None:
    lines = lines_of(desk, run(desk, f"talk-{runner}", 50))

    assert [line for line in lines if line.startswith("out")] == [f"out {number}" for number in range(50)]
    assert [line for line in lines if line.startswith("err")] == [f"err {number}" for number in range(50)]
    assert lines[-1] == "no end of line"


@pytest.mark.parametrize("runner", SYNC)
def test_bytes_that_are_no_text_are_kept_as_they_are(desk: Crew, runner: str) -> None:
    job = run(desk, f"raw-{runner}")
    assert text_of(desk, job) == "\ufffd\ufffd raw €\n"
    assert (job.logs().data, job.logs().text) == (b"\xff\xfe raw \xe2\x82\xac\n", "\ufffd\ufffd raw €\n")


@pytest.mark.parametrize("runner", ALL)
def test_output_of_handlers_made_at_import_and_of_job_log_is_in_the_log(desk: Crew, runner: str) -> None:
    assert lines_of(desk, run(desk, f"logged-{runner}")) == ["WARNING logged", "by hand"]


@pytest.mark.parametrize("runner", SYNC)
def test_lines_logged_through_the_workers_handler_are_in_the_log_of_the_job(desk: Crew, runner: str) -> None:
    (line,) = lines_of(desk, run(desk, f"logged_by_the_root-{runner}"))
    assert line.endswith("INFO logged")


@pytest.mark.parametrize("runner", SYNC)
def test_output_of_the_threads_of_a_job_is_in_its_log(desk: Crew, runner: str) -> None:
    job = run(desk, f"in_threads-{runner}")
    said = [line.split(",")[0] for line in lines_of(desk, job)]
    assert sorted(said) == [f"from thread {number}" for number in range(3)]


def test_threads_that_print_at_once_do_not_mix_their_lines(tmp_path: Path) -> None:
    file, (begun, go_on) = LogFile(str(tmp_path / "log")), (threading.Event(), threading.Event())

    def say() -> None:
        file.write(b"one ")
        begun.set()
        go_on.wait(60)
        file.write(b"two\n")

    thread = threading.Thread(target=say)
    thread.start()
    begun.wait(60)
    file.write(b"between\nthe end")
    go_on.set()
    thread.join()
    file.close()

    assert (tmp_path / "log").read_text() == "between\none two\nthe end"


def test_threads_of_a_thread_job_see_it_as_the_current_job(desk: Crew) -> None:
    job = run(desk, "in_threads-thread")
    assert {line.split(", ")[1] for line in lines_of(desk, job)} == {job.id}


def test_output_of_pool_threads_belongs_to_the_job_that_submitted_the_work(desk: Crew) -> None:
    for word in ("one", "two"):
        assert lines_of(desk, run(desk, "in_a_pool-thread", word)) == [f"pooled {word}"]


@pytest.mark.parametrize("runner", APART)
def test_output_of_subprocesses_is_in_the_log_too(desk: Crew, runner: str) -> None:
    assert lines_of(desk, run(desk, f"children-{runner}")) == ["from a subprocess", "and its errors"]


def test_coroutines_that_print_alternately_have_their_own_logs(desk: Crew) -> None:
    some = [desk.put(log_app.in_turns, name, 100) for name in ("one", "two")]
    for job, name in zip(some, ("one", "two"), strict=True):
        desk.ended(job)
        lines = lines_of(desk, job)
        assert lines[::2] == [f"{name} {number}" for number in range(100)]
        assert lines[1::2] == [f"{name} {number} from a thread" for number in range(100)]


@pytest.mark.parametrize("runner", ALL)
def test_a_job_that_prints_nothing_leaves_nothing(desk: Crew, runner: str) -> None:
    job = run(desk, f"silent-{runner}")
    until(lambda: not files_of(desk, job))
    assert job.logs() == (0, [], b"", 0, b"")


def test_output_of_a_thread_left_behind_is_not_in_the_log_of_the_next_job(crew: Crew, tmp_path: Path) -> None:
    worker = crew.start("--processes", "1", app=APP)
    gate, done = str(tmp_path / "gate"), str(tmp_path / "done")
    process = crew.put(log_app.leave_a_thread, gate, done).result(timeout=60)
    job = crew.put(log_app.hear_a_thread, gate, done)

    assert job.result(timeout=60) == process
    assert lines_of(crew, job) == ["first", "last"]
    until(lambda: worker.log.count("late") == 3)


# Whatever dies


@pytest.mark.parametrize(
    ("victim", "runner"),
    [*(("job", runner) for runner in APART), *((victim, "fork") for victim in ("executor", "supervisor")),
     ("executor", "thread"), ("supervisor", "thread")],
)  # fmt: skip
def test_every_printed_line_is_in_the_log_after_a_kill(crew: Crew, tmp_path: Path, runner: str, victim: str) -> None:
    worker = crew.start("--lease", "1s", app=APP)
    told = tmp_path / "told"
    job = crew.put(log_app.jobs.tasks[f"chatter-{runner}"], str(told))
    until(lambda: told.exists() and int(told.read_text() or 0) > 3000)

    crew.kill({"job": crew.get(job).pid, "executor": worker.executor, "supervisor": worker.pid}[victim])
    if victim == "supervisor":
        worker.wait()
        crew.start("--lease", "1s", app=APP)
    crew.ended(job)

    lines = lines_of(crew, job)
    printed = int(told.read_text())
    log = job.logs()
    if log.left_out:
        assert log.tail.splitlines()[-1] in (f"line {printed}".encode(), f"line {printed + 1}".encode())
    else:
        assert len(lines) - printed in (1, 2)
        *whole, last = lines
        assert whole == [f"line {number}" for number in range(len(whole))]
        assert f"line {len(whole)}".startswith(last)  # it may have been killed while it printed


@pytest.mark.parametrize("runner", ["fork", "process", "thread"])
def test_all_is_there_when_the_worker_ends_with_its_job(crew: Crew, runner: str) -> None:
    worker = crew.start("--max-jobs", "1", app=APP)
    job = crew.put(log_app.jobs.tasks[f"talk-{runner}"], 20_000)

    assert worker.wait() == 0

    assert job.logs().text.endswith("no end of line")
    assert crew.directories() == []


def test_logs_that_a_worker_could_not_send_are_sent_by_the_next_one_on_the_node(crew: Crew, tmp_path: Path) -> None:
    relay = Relay(tmp_path, crew.url)
    worker = crew.start("--stop-within", "1s", app=APP, HOLDFAST_URL=relay.url)
    gate, done = tmp_path / "gate", tmp_path / "done"
    job = crew.put(log_app.hear_a_thread, str(gate), str(done))
    until(gate.exists)

    relay.close()
    done.touch()
    until(lambda: any(file.read_text() == "first\nlast\n" for file in files_of(crew, job)))
    worker.stop()
    (tmp_path / "r").unlink()
    relay = Relay(tmp_path, crew.url)
    crew.start(app=APP, HOLDFAST_URL=relay.url)

    until(lambda: job.logs(attempt=1).lines == ["first", "last"])
    assert crew.ended(job).state == "succeeded"
    relay.close()


# Floods and broken disks


def test_a_flood_is_cut_in_the_middle_and_its_disk_space_is_freed(crew: Crew, tmp_path: Path) -> None:
    """Also while nothing can be sent, because the store is away."""
    relay = Relay(tmp_path, crew.url)
    crew.start("--hide-output", app=APP, HOLDFAST_URL=relay.url)
    start, done, gate = tmp_path / "start", tmp_path / "done", tmp_path / "gate"
    lines = (64 << 20) // 63 // 1000 * 1000
    job = crew.put(log_app.flood, lines, str(start), str(done), str(gate))
    (file,) = until(lambda: files_of(crew, job))

    relay.cut()
    start.touch()
    until(done.exists)
    until(lambda: os.stat(file).st_blocks * 512 <= 2 * KEPT)
    assert os.stat(file).st_size == 63 * lines
    relay.mend()
    gate.touch()
    crew.ended(job)
    until(lambda: not files_of(crew, job))

    log = job.logs()
    assert log.head == "".join(f"{number:062}\n" for number in range(2000)).encode()[: LOG_HEAD * LOG_BLOCK]
    assert log.tail.endswith("".join(f"{number:062}\n" for number in range(lines - 2000, lines)).encode())
    assert len(log.head) + log.left_out + len(log.tail) == 63 * lines
    assert f"[holdfast: {log.left_out:,} bytes are left out here]" in log.lines
    relay.close()


def test_a_job_may_close_its_descriptors(desk: Crew) -> None:
    job = desk.put(log_app.close_descriptors)
    assert job.result(timeout=60) == "closed"
    assert lines_of(desk, job) == ["before"]


def test_a_full_disk_does_not_fail_a_job(desk: Crew) -> None:
    job = desk.put(log_app.fill_the_disk, 1000)
    assert job.result(timeout=60) == "done"
    assert len(text_of(desk, job)) == 1000


def test_logs_that_a_full_store_refuses_are_sent_later(crew: Crew) -> None:
    job = crew.put(log_app.jobs.tasks["talk-fork"], 50)
    store = crew.app.store
    store.execute("CONFIG", "SET", "maxmemory", "1")
    try:
        worker = crew.start(app=APP)
        until(lambda: job.refresh().is_final and "until the store accepts them" in worker.log)
        assert job.logs().lines == []
    finally:
        store.execute("CONFIG", "SET", "maxmemory", "0")

    assert len(lines_of(crew, job)) == 101


def test_jobs_run_even_if_logs_cannot_be_written(crew: Crew) -> None:
    crew.start(app=APP)
    run(crew, "silent-fork")
    shutil.rmtree(crew.directories()[0] / "logs")

    for runner in ALL:
        assert run(crew, f"logged-{runner}").logs().attempts == []
        assert run(crew, f"talk-{runner}", 3).refresh().state == "succeeded"


def test_a_worker_shows_what_jobs_print_or_hides_it(crew: Crew) -> None:
    shows = crew.start("--max-jobs", "1", app=APP)
    job = crew.put(log_app.jobs.tasks["talk-fork"], 2)
    shows.wait()
    hides = crew.start("--max-jobs", "1", "--hide-output", app=APP)
    other = crew.put(log_app.jobs.tasks["talk-fork"], 2)
    hides.wait()

    assert all(f"{job.id} | {line}\n" in shows.log for line in ("out 0", "err 1", "no end of line"))
    assert "out 0" not in hides.log
    assert "out 0" in other.logs().lines


# Inside a program


@pytest.mark.parametrize("is_there", [True, False])
def test_a_blocked_or_closed_reader_of_the_workers_output_stops_nothing(
    crew: Crew, tmp_path: Path, is_there: bool
) -> None:
    reads, writes = os.pipe()
    worker = crew.start("--log-level", "DEBUG", app=APP, output=f"/dev/fd/{writes}")
    os.close(writes)
    if not is_there:
        os.close(reads)
    start, done, gate = tmp_path / "start", tmp_path / "done", tmp_path / "gate"
    for path in (start, gate):
        path.touch()

    flood = crew.put(log_app.flood, 5000, str(start), str(done), str(gate))  # more than a pipe holds
    assert text_of(crew, flood).endswith(f"{4999:062}\n")
    assert lines_of(crew, run(crew, "talk-fork", 1)) == ["out 0", "err 0", "no end of line"]
    assert worker.stop() == 0
    assert crew.directories() == []
    if is_there:
        os.close(reads)


def test_unread_output_lines_are_counted_and_the_count_is_shown_to_the_next_reader() -> None:
    reads, writes = os.pipe()
    console, line = ConsoleStream(writes), "x" * 1023 + "\n"
    for _ in range(100):
        console.write(line)

    heard = os.read(reads, 1 << 20)
    console.write("the next\n")

    missing = 100 - len(heard) // len(line)
    words = f"[holdfast: this output was not read for a while; {missing} lines are missing]\nthe next\n"
    assert os.read(reads, 1 << 20).decode() == words
    os.close(reads)
    console.write("to nobody\n")
    os.close(writes)


def test_in_an_embedded_worker_job_log_is_stored_and_prints_are_not_captured(crew: Crew) -> None:
    app, printed = Holdfast(crew.url, namespace=crew.namespace), io.StringIO()
    app.tasks.update(log_app.jobs.tasks)
    job = app.enqueue(log_app.jobs.tasks["logged-async"].bind())
    threaded = app.enqueue(log_app.jobs.tasks["logged-thread"].bind())
    spoken = app.enqueue(log_app.jobs.tasks["talk-thread"].bind(1))
    with redirect_stdout(printed), app.worker():
        for each in (job, threaded, spoken):
            crew.ended(each)

    assert (job.logs().text, threaded.logs().text, spoken.logs().text) == ("by hand\n", "by hand\n", "")
    assert "out 0" in printed.getvalue()
    app.close()


# Reading


def test_following_tells_attempts_apart_and_ends_with_the_job(desk: Crew) -> None:
    job = desk.put(log_app.twice)
    parts = list(desk.app.follow_logs(job.id))
    assert [(part.attempt, part.text) for part in parts if part.attempt > 1][-1] == (3, "this is attempt 3\n")
    assert job.refresh().state == "succeeded"
    assert (job.logs().attempts, job.logs(attempt=1).text) == ([1, 2, 3], "this is attempt 1\n")


def test_following_goes_on_while_a_job_waits_and_while_it_is_silent(desk: Crew, tmp_path: Path) -> None:
    gate, done = tmp_path / "gate", tmp_path / "done"
    desk.app.pause("default")
    job = desk.put(log_app.hear_a_thread, str(gate), str(done))
    reader = LogReader(job.id, None, None)
    look_often(desk, reader)
    desk.app.resume("default")
    until(lambda: job.logs().lines == ["first"])

    assert look_often(desk, reader) == ["first\n"]
    done.touch()
    until(lambda: job.logs().lines == ["first", "last"])
    assert [part.text for part in follow(desk.app.store, reader, lambda _: None)] == ["last\n"]
    assert job.refresh().state == "succeeded"


def look_often(crew: Crew, reader: LogReader) -> list[str]:
    """Look more often than one does who waits for the last words of a job that has ended."""
    parts = [part for _ in range(3 * MAX_EMPTY_POLLS) for part in drive(reader.poll(), crew.app.store.run)]
    assert not reader.is_complete
    return [part.text for part in parts]


def test_following_one_attempt_ends_with_it_though_the_job_is_to_run_again(desk: Crew) -> None:
    job = desk.put(log_app.twice.options(backoff="1h"))

    assert [part.text for part in desk.app.follow_logs(job.id, attempt=1)] == ["this is attempt 1\n"]
    assert job.refresh().state == "scheduled"


def test_following_asynchronously_is_the_same(desk: Crew) -> None:
    job = run(desk, "talk-fork", 3)

    async def follow() -> list[LogPart]:
        try:
            return [part async for part in desk.app.afollow_logs(job.id, tail=1)]
        finally:
            await desk.app.aclose()

    text_of(desk, job)
    assert [part.text for part in asyncio.run(follow())] == ["no end of line"]


@pytest.mark.parametrize(("tail", "text"), [(0, ""), (2, "err 2\nno end of line")])
def test_following_may_begin_with_the_last_lines(desk: Crew, tail: int, text: str) -> None:
    job = run(desk, "talk-fork", 3)
    text_of(desk, job)
    assert "".join(part.text for part in desk.app.follow_logs(job.id, tail=tail)) == text


def test_a_job_that_is_not_there_has_no_log(desk: Crew) -> None:
    with pytest.raises(JobNotFound):
        desk.app.logs("nobody")
    with pytest.raises(JobNotFound):
        list(desk.app.follow_logs("nobody"))


@pytest.mark.parametrize("wrong", [{"attempt": 0}, {"attempt": True}, {"tail": -1}, {"tail": 1.5}])
def test_what_cannot_be_meant_is_refused(desk: Crew, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        desk.app.follow_logs("any", **wrong)
