"""Homes, sockets and folders that another user prepared: nothing in them is run, read or sent, unless it was chosen.

Most of these tests need root, who can be two users.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import ServerStartFailed
from holdfast.outbox.outbox import Outbox
from holdfast.server import keeper, server
from holdfast.server.home import check_trust, has_data, trusted_users
from holdfast.store.address import Address, Target
from holdfast.store.deadline import Deadline
from holdfast.store.pool import AsyncPool, Pool
from tests.apps import worker_app as app
from tests.server.test_start_errors import NOBODY, as_nobody
from tests.support.shells import PROGRAM
from tests.support.workers import Crew

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away, and be two users")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that every user can look into; no home and no directory is chosen or trusted."""
    for name in ("HOLDFAST_HOME", "HOLDFAST_TRUST", "HOLDFAST_OUTBOX", "HOLDFAST_URL"):
        monkeypatch.delenv(name, raising=False)
    path = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    for home in {*path.glob("**/.holdfast"), path / "home"}:
        if home.is_dir():
            monkeypatch.setenv("HOLDFAST_HOME", str(home))
            server.stop(home)
    shutil.rmtree(path)


@pytest.fixture
def foreign(folder: Path) -> Path:
    """A project of another user, with a program in its home that leaves a trace when it runs."""
    project = folder / "project"
    home = project / ".holdfast"
    home.mkdir(parents=True)
    (project / ".git").mkdir()
    script = home / "run"
    script.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    script.chmod(0o755)
    (home / "program").write_text(f"{script}\n")
    (home / "server").write_text(f"{script}\n")
    (home / "data").mkdir()
    for path in (project, home, *home.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    return project


def run(project: Path, *words: str, **environ: str) -> tuple[int, str]:
    """Run the program in a project. Returns its exit code and its output."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [*PROGRAM, *words], cwd=project, env={**ours, **environ}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def listener(path: Path, user: int) -> Iterator[Callable[[], bytes]]:
    """A process of a user that listens at a socket. Yields a function that returns what it has received."""
    received, report = os.pipe()
    ready, is_ready = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException), socket.socket(socket.AF_UNIX) as listening:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            listening.bind(str(path))
            path.chmod(0o777)
            listening.listen()
            os.write(is_ready, b".")
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(5)
                    os.write(report, connection.recv(1000) or b"!")
        os._exit(0)
    os.close(report)
    assert os.read(ready, 1) == b"."
    try:
        yield lambda: os.read(received, 1000)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        for descriptor in (received, ready, is_ready):
            os.close(descriptor)


# Homes that were found


@needs_root
@pytest.mark.parametrize(
    "words",
    [
        "queues",
        "enqueue any.task",
        "server status",
        "server stop",
        "server start",
        "doctor",
        "outbox send",
        "outbox list",
    ],
)
def test_a_home_of_another_user_is_refused_and_nothing_in_it_is_run(folder: Path, foreign: Path, words: str) -> None:
    code, output = run(foreign, *words.split())

    home = foreign / ".holdfast"
    assert code == 4
    assert output.startswith(
        f"holdfast: {home} belongs to nobody (uid {NOBODY}), not to root (uid 0), so it is not used: "
    )
    assert output.endswith(f" To trust it: export HOLDFAST_TRUST={home}\n")
    assert not (folder / "ran").exists()
    assert not (home / "start.lock").exists()


@needs_root
def test_a_worker_below_a_home_of_another_user_exits_with_an_error(folder: Path, foreign: Path) -> None:
    (foreign / "tasks.py").write_text("from holdfast import Holdfast\njobs = Holdfast()\n")

    code, output = run(foreign, "work", "tasks", XDG_RUNTIME_DIR=str(folder), TMPDIR=str(folder))

    assert code == 1
    assert output.count(f"To trust it: export HOLDFAST_TRUST={foreign}/.holdfast") == 1
    assert list(folder.glob("holdfast-*/*")) == []


@needs_root
def test_the_line_that_the_refusal_ends_with_has_the_home_trusted(folder: Path, foreign: Path) -> None:
    _, output = run(foreign, "server", "start")
    line = output.rpartition("To trust it: ")[2].strip()

    done = subprocess.run(
        ["sh", "-c", f"{line}; exec {shlex.join(PROGRAM)} server start"],
        cwd=foreign, env={**os.environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, f"unix://{foreign}/.holdfast/server.sock\n")
    assert not (folder / "ran").exists()


@needs_root
def test_completion_below_a_home_of_another_user_connects_to_nothing(foreign: Path) -> None:
    planted = foreign / ".holdfast" / keeper.SOCKET
    with listener(planted, NOBODY) as received:
        code, _ = run(
            foreign, _HOLDFAST_COMPLETE="bash_complete", HOLDFAST_LINE="holdfast show m", HOLDFAST_WORD="m",
            HOLDFAST_COMPLETION_TIMEOUT="20",
        )  # fmt: skip
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(planted))
            connection.sendall(b"the first")
            assert received() == b"the first"
    assert code == 0


@needs_root
@pytest.mark.parametrize("trust", ["{home}", "{project}", "/", "*", "/nowhere:{home}", "{project}/", ":{home}:"])
def test_a_home_of_another_user_is_trusted_if_it_is_listed(foreign: Path, trust: str) -> None:
    home = foreign / ".holdfast"
    environ = {"HOLDFAST_TRUST": trust.format(home=home, project=foreign)}

    check_trust(home, environ)
    assert trusted_users(home, environ) == {0, NOBODY}


@needs_root
@pytest.mark.parametrize("trust", ["", ":", ".", "project", "{home}/data", "{project}x", "{project}/.hold", "**"])
def test_a_home_of_another_user_is_not_trusted_if_another_is_listed(
    foreign: Path, trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(foreign.parent)
    home = foreign / ".holdfast"
    environ = {"HOLDFAST_TRUST": trust.format(home=home, project=foreign), "HOLDFAST_HOME": "/nowhere"}

    with pytest.raises(ServerStartFailed, match="belongs to nobody"):
        check_trust(home, environ)
    assert trusted_users(home, environ) == {0}


@needs_root
def test_a_home_of_another_user_is_trusted_if_it_is_chosen(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = foreign / ".holdfast"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))

    assert keeper.ping(server.ensure(home)) == keeper.PONG
    assert server.status(home).running
    assert server.stop(home)


def test_a_home_that_was_chosen_is_used_though_the_directory_of_this_process_is_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = folder / "home", folder / "here"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()

    assert Address.find().home == home
    assert keeper.ping(server.ensure(home)) == keeper.PONG
    assert trusted_users(home, {"HOLDFAST_HOME": "home"}) == {0, os.geteuid()}


def test_a_home_that_others_may_write_to_is_refused_until_that_is_mended(folder: Path) -> None:
    home = folder / "project" / ".holdfast"
    home.mkdir(parents=True)
    (home.parent / ".git").mkdir()
    home.chmod(0o775)

    code, output = run(home.parent, "server", "start")
    assert code == 4
    assert output.startswith(f"holdfast: {home} is writable by other users (mode 0775), so it is not used.")
    assert output.endswith(f" To fix this: chmod go-w {home}\n")
    subprocess.run(["sh", "-c", output.rpartition("To fix this: ")[2]], check=True)
    assert run(home.parent, "server", "start") == (0, f"unix://{home}/server.sock\n")


@needs_root
def test_a_link_of_another_user_is_refused_wherever_it_leads(folder: Path) -> None:
    (folder / "own").mkdir(mode=0o700)
    link = folder / ".holdfast"
    link.symlink_to(folder / "own")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)

    with pytest.raises(ServerStartFailed, match=f"{link} belongs to nobody"):
        server.ensure(link)
    assert list((folder / "own").iterdir()) == []


@needs_root
def test_a_link_to_a_home_of_another_user_is_refused(folder: Path, foreign: Path) -> None:
    link = folder / ".holdfast"
    link.symlink_to(foreign / ".holdfast")

    with pytest.raises(ServerStartFailed, match=f"{link} belongs to nobody"):
        has_data(link)


# Sockets


@needs_root
def test_nothing_is_sent_to_a_socket_where_another_user_listens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = folder / "home"
    home.mkdir()
    home.chmod(0o777)
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    address = Address(None, home)
    target = Target("embedded", {"path": f"{home}/{keeper.SOCKET}", "users": trusted_users(home)})
    asks: list[Callable[[], object]] = [
        lambda: server.ensure(home),
        lambda: server.status(home),
        lambda: Pool(target, address).exchange(("PING",), Deadline(5)),
        lambda: asyncio.run(AsyncPool(target, address).exchange(("PING",), Deadline(5))),
        Holdfast().count,
    ]

    with listener(home / keeper.SOCKET, NOBODY) as received:
        for ask in asks:
            with pytest.raises(Exception, match=r"a process of .* listens there"):
                ask()
            assert set(received()) == set(b"!")
    (home / keeper.SOCKET).unlink()


@needs_root
def test_the_server_of_the_owner_is_used_by_root_in_a_home_that_was_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    with listener(home / keeper.SOCKET, NOBODY) as received:
        assert keeper.request(str(home / keeper.SOCKET), "PING", users=trusted_users(home)) == ""
        assert received() == b"PING\r\n"
    (home / keeper.SOCKET).unlink()


@needs_root
def test_a_socket_that_this_user_may_not_use_is_reported(folder: Path) -> None:
    home = folder / "home"
    server.ensure(home)  # by root, as after sudo
    for path in (home, home / keeper.DATA, *home.iterdir()):
        if path.name != keeper.SOCKET:
            os.chown(path, NOBODY, NOBODY)

    for do in (lambda: server.ensure(home), lambda: server.status(home), lambda: server.stop(home)):
        output = as_nobody(do)
        assert (
            f"{home}/server.sock: you have no permission for this socket: it belongs to root (uid 0), with mode"
            in output
        )
        assert " 0700; run this as root (uid 0)" in output
        assert "run this as root (uid 0), or stop that server and start it as nobody" in output
    os.chown(home, 0, 0)


@needs_root
@pytest.mark.parametrize("kind", ["stranger", "open"])
def test_a_runtime_directory_that_is_not_private_is_not_used(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    planted = folder / f"holdfast-{os.geteuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    if kind == "stranger":
        os.chown(planted, NOBODY, NOBODY)
    deep = folder / "home" / ("long" * 30)
    try:
        assert not server.ensure(deep).startswith(str(folder))
        assert list(planted.iterdir()) == []
    finally:
        server.stop(deep)


@needs_root
def test_a_link_to_a_socket_in_a_directory_of_another_user_leads_nowhere(folder: Path) -> None:
    deep = folder / ("long" * 30)
    deep.mkdir(mode=0o700)
    (folder / "planted").mkdir(mode=0o700)
    (deep / keeper.SOCKET).symlink_to(folder / "planted" / "s")
    assert keeper.locate(str(deep)) == str(folder / "planted" / "s")

    os.chown(folder / "planted", NOBODY, NOBODY)
    assert keeper.locate(str(deep)) == str(deep / keeper.SOCKET)
    assert keeper.locate(str(deep), {NOBODY}) == str(folder / "planted" / "s")


# Calls that are kept on disk


@needs_root
@pytest.mark.parametrize("planted", ["home", "folder"])
def test_calls_that_another_user_put_into_an_outbox_are_not_sent(folder: Path, server_url: str, planted: str) -> None:
    address = Address(server_url, None, "t")
    outbox = Outbox(folder / ".holdfast" / "outbox", address)
    outbox.folder.mkdir(parents=True, mode=0o700)
    (outbox.folder / "calls").write_text("P 00001 000000002 00000000 {}\n")
    assert outbox.has_entries
    os.chown(outbox.folder.parents[1] if planted == "home" else outbox.folder, NOBODY, NOBODY)

    assert outbox.size == 0
    for ask in (lambda: outbox.send(lambda _: None), lambda: list(outbox.entries()), lambda: list(outbox.refused())):
        with pytest.raises(OSError, match="nobody"):
            ask()


@needs_root
def test_an_outbox_that_was_chosen_may_belong_to_another_user(
    folder: Path, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_OUTBOX", str(folder / "outbox"))
    outbox = Outbox(folder / "outbox", Address(server_url, None, "t"))
    outbox.folder.mkdir(parents=True, mode=0o700)
    (outbox.folder / "calls").write_text("P 00001 000000002 00000000 {}\n")
    os.chown(outbox.folder, NOBODY, NOBODY)
    assert not outbox.has_entries

    os.chown(folder / "outbox", NOBODY, NOBODY)
    assert outbox.has_entries


# Modes


def open_to_others(*folders: Path) -> list[str]:
    """Files below these folders that other users could read or write if the folder let them in."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return [
        f"{stat.S_IMODE(path.lstat().st_mode):04o} {path}"
        for path in paths
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


def test_all_that_a_server_and_its_users_make_is_private_whatever_the_umask(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    home = folder / "above" / "home" / ("long" * 30)
    line = f"umask 000; exec {shlex.join(PROGRAM)} enqueue any.task"
    environ = {**os.environ, "HOLDFAST_HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}
    subprocess.run(["bash", "-c", line], cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    try:
        assert {"data", "server", "server.log", "start.lock", "life.lock", ".gitignore"} <= {
            path.name for path in home.iterdir()
        }
        assert open_to_others(home, runtime) == []
        assert not any(path.stat().st_mode & 0o022 for path in (folder / "above", folder / "above" / "home"))
    finally:
        server.stop(home)


KEEP = """
import os
os.umask(0)
from holdfast import Holdfast
jobs = Holdfast("unix:///nowhere/s", timeout="200ms", when_unreachable="outbox")
jobs.task(name="t")(lambda: None).enqueue()
"""


def test_all_that_is_kept_on_disk_is_private_whatever_the_umask(folder: Path) -> None:
    environ = {**os.environ, "HOLDFAST_HOME": str(folder / "home")}
    subprocess.run([sys.executable, "-c", KEEP], cwd=folder, env=environ, check=True)

    assert {path.name for path in folder.glob("home/outbox/*/*")} >= {"calls", "about", "write.lock"}
    assert open_to_others(folder / "home") == []


def test_all_that_a_worker_makes_is_private_whatever_the_umask(crew: Crew) -> None:
    worker = crew.start("--processes", "3", before=["bash", "-c", 'umask 000; exec "$@"', "bash"])
    crew.put(app.use_directory, "one")
    crew.pids("one", "runs")
    (folder,) = crew.directories()
    (locks,) = crew.folder.glob("node/holdfast-workers-*")

    assert [path.name for path in folder.rglob("file")] == ["file"]
    assert [line for line in open_to_others(folder, locks) if not line.endswith("/file")] == []
    crew.open("one")
    assert worker.stop() == 0
