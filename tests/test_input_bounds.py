"""Input that has no end, and a process that may open hardly any file: both are refused in one sentence, at once."""

from __future__ import annotations

import resource
import shlex
import subprocess
from pathlib import Path

import pytest

from holdfast.worker import linux, settings_file
from holdfast.worker.settings_file import read_project_settings
from tests.support.shells import PROGRAM, Shell
from tests.support.workers import Crew

MEMORY = 2_000_000  # KiB of addresses: what reads without end fails, and does not use up the machine


def limited(shell: Shell, limit: str, words: str) -> tuple[int, str]:
    """Run the program under a limit of the shell. Returns its exit code and its errors."""
    line = f"ulimit {limit}; exec {shlex.join(PROGRAM)} {words}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=shell.folder,
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("work tasks --config /dev/zero", "/dev/zero has more than 1 MiB; expected a TOML file with settings"),
        (
            "enqueue tasks.add --from /dev/zero",
            "line 1: the line is longer than 8 MiB; store the data elsewhere and pass its path or id; "
            "stored before it: 0 jobs",
        ),
        ("enqueue --exec --stdin /dev/zero -- cat", "expected at most 1 MiB; let the program read a file"),
        ("cancel < /dev/zero", "expected ids, one per line; standard input has more than 256 MiB."),
    ],
)
def test_a_file_without_end_is_refused(shell: Shell, words: str, message: str) -> None:
    code, err = limited(shell, f"-v {MEMORY}", words)

    assert message in err
    assert code != 0
    assert "Traceback" not in err


def test_a_project_file_without_end_is_refused(shell: Shell) -> None:
    (shell.folder / "pyproject.toml").symlink_to("/dev/zero")

    code, err = limited(shell, f"-v {MEMORY}", "work tasks")

    assert "has more than 1 MiB" in err
    assert code != 0


def test_a_file_of_settings_may_be_a_pipe(shell: Shell) -> None:
    code, err = limited(shell, f"-v {MEMORY}", "work tasks --config <(echo 'queue = 1')")

    assert "unknown setting 'queue'; did you mean" in err
    assert code != 0


def test_a_file_of_settings_is_read_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[tool.holdfast.worker]\nqueues = ['mail']\n"
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.setattr(settings_file, "MAX_BYTES", len(text))

    assert read_project_settings(tmp_path).every_pool["queues"] == {"mail": 1}


@pytest.mark.parametrize("files", [6, 8, 12, 16, 63])
def test_a_worker_that_may_open_hardly_any_file_is_refused(shell: Shell, files: int) -> None:
    code, err = limited(shell, f"-n {files}", "work tasks")

    assert f"a worker needs at least 64 open files, and this process may open {files}: raise the limit" in err
    assert err.count("\n") == 1
    assert code == 1


def test_a_worker_raises_a_limit_that_it_may_raise(crew: Crew) -> None:
    worker = crew.start(before=["bash", "-c", 'ulimit -S -n 12; exec "$@"', "bash"])

    limits = resource.prlimit(worker.executor, resource.RLIMIT_NOFILE)
    assert limits[0] == linux.MIN_FILES
    assert worker.stop() == 0
