"""The demonstration, shortened: it ends by itself, reports what became of its jobs, and leaves nothing behind."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from holdfast.app import Holdfast
from holdfast.demo import demo
from holdfast.demo.ledger import Account, Entry, Ledger, compare
from holdfast.job.job import Job
from holdfast.job.parts import Attempt
from holdfast.running.current import current_job
from holdfast.server import server
from tests.support.processes import send
from tests.support.workers import until

LAST_LINE = (
    r"demo: (\d+) enqueued, (\d+) succeeded, (\d+) lost, (\d+) completed twice, (\d+) attempts killed and recovered"
)
ERA = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a short name, whose server is stopped afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    yield folder
    server.stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


def play(home: Path, words: str, **streams: Any) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-c", f"import sys; from holdfast.demo.demo import run; sys.exit(run({words}))"]
    here = {
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_QUEUES": "other",
        "TMPDIR": str(home),
        "COLUMNS": "100",
        "LINES": "40",
    }
    return subprocess.Popen(line, env=os.environ | here, start_new_session=True, **streams)


@contextmanager
def ended_by_all_means(process: subprocess.Popen[bytes], home: Path) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        left = workers_on(home)
        send(signal.SIGKILL, *left)
        assert left == []


def workers_on(home: Path) -> list[int]:
    """The processes of workers on the server of this home."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and f"HOLDFAST_HOME={home}".encode() in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_bytes()
                found += [int(entry.name)] * (
                    b"\0holdfast\0work\0" in words or b"holdfast.entrypoints.executor" in words
                )
    return found


def servers_in(home: Path) -> list[str]:
    """The servers and keepers that run on data below this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode() if entry.name.isdecimal() else ""
            found += [words] * (str(home) in words or str(home) in os.readlink(entry / "cwd"))
    return found


def namespaces(home: Path) -> set[str]:
    """The namespaces on the server of this home."""
    with redis.Redis(unix_socket_path=server.ensure(home)) as client:
        names = [re.match(r"hf:\{(.*?)\}:", key.decode()) for key in client.scan_iter(count=1000)]
    return {name[1] for name in names if name}


def test_demonstration_ends_by_itself_and_leaves_nothing_behind(home: Path) -> None:
    process = play(home, "jobs=60, seconds=9", stdout=subprocess.PIPE)
    with ended_by_all_means(process, home):
        output, _ = process.communicate(timeout=120)

    *lines, last = output.decode().splitlines()
    numbers = re.fullmatch(LAST_LINE, last)
    assert numbers, last
    assert numbers.groups()[:4] == ("60", "60", "0", "0")
    assert int(numbers[5]) > 0
    assert process.returncode == 0
    assert any("killed" in line for line in lines)
    assert any("taken over after" in line for line in lines)
    counts = "60 of 60 enqueued, 0 waiting, 0 running, 60 succeeded"
    assert re.fullmatch(rf" *[0-9.]+ s  {counts}; \d+ kills?, {numbers[5]} attempts? recovered", lines[-1])
    assert list(home.iterdir()) == []
    assert servers_in(home) == []


def test_the_dashboard_shows_the_jobs_and_stays_if_they_are_kept(home: Path) -> None:
    serve = "__import__('holdfast.cli.demo', fromlist=['']).dashboard"
    process = play(home, f"jobs=12, seconds=2, keep=True, dashboard={serve}", stdout=subprocess.PIPE)
    with ended_by_all_means(process, home):
        assert process.stdout
        where = process.stdout.readline().decode().removeprefix("dashboard: ").strip()
        for line in process.stdout:
            if b"continues until Ctrl-C" in line:
                break
        [queue] = httpx.get(f"{where}api/v1/queues", trust_env=False).json()["items"]
        assert queue["succeeded"] == 12
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_ctrl_c_ends_the_demonstration_and_all_that_it_started(home: Path) -> None:
    process = play(home, "jobs=60, seconds=60", stdout=subprocess.PIPE)
    with ended_by_all_means(process, home):
        assert process.stdout
        for line in process.stdout:
            if b"running, " in line and b" 0 running" not in line:
                break
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)

    assert output.decode().splitlines()[-1] == "demo: interrupted"
    assert process.returncode == 130
    assert list(home.iterdir()) == []
    assert servers_in(home) == []


def test_demonstration_that_is_kept_goes_on_until_ctrl_c_and_its_jobs_stay(home: Path) -> None:
    ours, its = pty.openpty()
    process = play(home, "jobs=10, seconds=2, keep=True", stdin=its, stdout=its)
    os.close(its)
    seen = bytearray()
    with ended_by_all_means(process, home), os.fdopen(ours, "rb", buffering=0) as screen:
        until(lambda: b"until Ctrl-C" in see(screen.fileno(), seen))
        assert workers_on(home)
        process.send_signal(signal.SIGINT)
        until(lambda: see(screen.fileno(), seen) and process.poll() is not None)

    picture = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    last = re.fullmatch(LAST_LINE, picture.splitlines()[-1])
    assert last
    frame = picture[picture.rindex(" of 10 enqueued") - 20 :]
    counts = "10 of 10 enqueued, 0 waiting, 0 running, 10 succeeded"
    assert re.search(rf"{counts}; \d+ kills?, {last[5]} attempts? recovered", frame)
    assert "good worker stopped" in frame
    assert "good worker" in picture
    assert process.returncode == 0
    (namespace,) = namespaces(home)
    app = Holdfast(f"unix://{server.ensure(home)}", namespace=namespace)
    assert app.count(state="succeeded") == 10
    app.close()


def see(terminal: int, seen: bytearray) -> bytearray:
    """Add what is on a terminal to what was seen; at its end nothing more comes."""
    with suppress(OSError):
        seen += os.read(terminal, 65536)
    return seen


# The account


def record(id: str, *outcomes: str, state: str = "succeeded") -> Job[Any]:
    attempts = tuple(
        Attempt(number, ERA, ERA, None, None, outcome, 1, "n/w.1", "", None)
        for number, outcome in enumerate(outcomes, start=1)
    )
    app: Any = None
    return Job(
        id=id, state=state, queue="q", task="t", created_at=ERA, since=ERA, updated_at=ERA, attempts=attempts, app=app
    )  # fmt: skip


def lines(*words: str) -> list[Entry]:
    rows = (word.split() for word in words)
    return [Entry(word, job, int(attempt), 1) for word, job, attempt in rows]


def test_job_that_succeeded_and_ended_is_accounted_for() -> None:
    account = compare(["a"], [record("a", "succeeded")], lines("start a 1", "end a 1"))
    assert account == Account(1, 1, [], [], [], [])


@pytest.mark.parametrize(
    ("job", "entries"),
    [
        pytest.param(None, ["start a 1", "end a 1"], id="it is gone"),
        pytest.param(record("a", "error", state="failed"), ["start a 1", "end a 1"], id="it failed"),
        pytest.param(record("a", "succeeded"), ["start a 1"], id="nobody did the work"),
    ],
)
def test_job_is_lost(job: Job[Any] | None, entries: list[str]) -> None:
    assert compare(["a"], [job], lines(*entries)).lost == ["a"]


@pytest.mark.parametrize(
    ("job", "entries"),
    [
        pytest.param(record("a", "succeeded", "succeeded"), ["end a 1", "end a 2"], id="two were accepted"),
        pytest.param(record("a", "succeeded"), ["end a 1", "end a 2"], id="one is not known"),
        pytest.param(record("a", "succeeded", "running"), ["end a 1", "end a 2"], id="one still runs"),
    ],
)
def test_job_is_completed_twice(job: Job[Any], entries: list[str]) -> None:
    assert compare(["a"], [job], lines(*entries)).completed_twice == ["a"]


def test_attempt_that_was_killed_is_recovered_and_is_repeated_if_it_had_done_its_work() -> None:
    job = record("a", "crash", "lost", "succeeded")
    account = compare(["a"], [job], lines("start a 1", "start a 2", "end a 2", "start a 3", "end a 3"))

    assert account.recovered == [("a", 1), ("a", 2)]
    assert account.repeated == [("a", 2)]
    assert account.lost == account.completed_twice == []


def test_ledger_reads_what_jobs_wrote(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger")
    assert book.read() == []
    book.start(current_job())
    book.end(current_job())
    assert book.read() == [Entry(word, "detached", 1, os.getpid()) for word in ("start", "end")]


def test_demonstration_that_loses_a_job_reports_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    @contextmanager
    def server(*_: object) -> Iterator[tuple[None, dict[str, str]]]:
        yield None, {}

    monkeypatch.setattr(demo, "_server", server)
    monkeypatch.setattr(demo._Demonstration, "run", lambda *_: Account(2, 1, ["a"], [], [("b", 1)], []))
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path))

    assert demo.run() == 1
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == "demo: 2 enqueued, 1 succeeded, 1 lost, 0 completed twice, 1 attempts killed and recovered"
    assert str(tmp_path) in output[-2]
