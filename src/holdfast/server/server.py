"""The embedded server: one Valkey per directory, started by whoever needs it first.

    home/  mode 0700
    ├── data/         the append-only file
    ├── server.sock   where it listens; a link, if the path would be too long for a socket
    ├── server.log    what the server and its keeper wrote
    ├── server        kind and version of the server that wrote the data
    ├── start.lock    held while someone starts or stops the server
    ├── life.lock     held by the keeper and the server, for as long as either lives
    └── keeper.lock   held by the keeper

There are no pid files: a lock ends with its process, a number does not. Two servers on one directory would ruin its
data, so a server that holds the directory and does not answer is an error, never a reason to start another.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ServerStartFailed, StoreUnavailable
from holdfast.server import keeper
from holdfast.server.binary import find_binary, read_build, remember_build
from holdfast.server.home import check_trust, make_directory, trusted_users, user, write_once

if TYPE_CHECKING:  # not needed to join a server, only to start one
    from subprocess import Popen

START, LOG = "start.lock", "server.log"
MARK = "HOLDFAST_KEEPER"  # in the environment of keeper and server: a worker that adopts them leaves them alone
LOG_SIZE = 1 << 20
PAUSE = 0.02  # seconds between two looks at something that another process must do
NETWORK_FILE_SYSTEM = re.compile(
    "9p|afs|beegfs|ceph|cifs|davfs|gpfs|lustre|ncpfs|nfs4?|orangefs|smb3|smbfs"
    "|(fuse[.])?(ceph|davfs2|glusterfs|juicefs|mfs|rclone|s3fs|sshfs)"
)
WHY_NOT = {  # what keeps a server from a directory, and what can be done about it there
    errno.EEXIST: ("a file is where its directory should be", "remove that, or "),
    errno.ENOTDIR: ("a file is where its directory should be", "remove that, or "),
    errno.EROFS: ("the file system is read-only", ""),
    errno.EACCES: ("you may not write there", ""),
    errno.EPERM: ("you may not write there", ""),
    errno.ENOSPC: ("the disk is full", "make room, or "),
    errno.EDQUOT: ("your quota of the disk is used up", "make room, or "),
    errno.ENAMETOOLONG: ("the path is too long", ""),
}
ELSEWHERE = "set HOLDFAST_HOME to a local directory that can be written, or HOLDFAST_URL to the address of a server"


class NotAllowed(StoreUnavailable):
    """This user may not use the socket of a server."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of an embedded server; `uptime` is in seconds, `clients` does not count who asked."""

    home: Path
    socket: str
    running: bool
    data_bytes: int
    pid: int | None = None
    version: str | None = None
    uptime: int | None = None
    clients: int | None = None
    memory_bytes: int | None = None


def ensure(home: Path, *, timeout: float = 10.0) -> str:
    """Join the server of this directory, or start it, and return the path of its socket.

    Of any number of processes that call this at once, one starts the server.
    It blocks for as long as that takes, so call it from a thread in async code.

    Raises:
        ServerStartFailed: it cannot be started here; the message says why, and what to do.
        StoreUnavailable: there is one, but it does not answer in time.
    """
    deadline = time.monotonic() + timeout
    home = _trusted(home)
    if _is_up(_greet(home, timeout)):
        _replace_keeper(home, deadline)
        return _locate(home)
    _prepare(home)
    check_trust(home)  # perhaps somebody else has just made it
    with _start_lock(home) as start:
        return _join_or_start(home, start, deadline)


def status(home: Path) -> ServerStatus:
    """Describe the server of this directory, without starting it.

    Raises:
        StoreUnavailable: this user may not ask it.
    """
    home = _trusted(home)
    address = _locate(home)
    data_bytes = sum(_size(Path(folder, name)) for folder, _, names in os.walk(home / keeper.DATA) for name in names)
    known = keeper.read_info(_ask(home, "INFO server clients memory"))
    if "process_id" not in known:
        return ServerStatus(home, address, running=False, data_bytes=data_bytes)
    return ServerStatus(
        home,
        address,
        running=True,
        data_bytes=data_bytes,
        pid=int(known["process_id"]),
        version=known.get("valkey_version") or known["redis_version"],
        uptime=int(known["uptime_in_seconds"]),
        clients=int(known["connected_clients"]) - 1,
        memory_bytes=int(known["used_memory"]),
    )


def stop(home: Path, timeout: float = 10.0) -> bool:
    """Stop the server of this directory and wait until it is gone; false if none was running. The data stays.

    Raises:
        StoreUnavailable: it did not stop in time, or refused to.
    """
    deadline = time.monotonic() + timeout
    home = _trusted(home)
    told = False
    try:
        if not (home / keeper.DATA).is_dir():
            return False
        with _start_lock(home) as start:
            while time.monotonic() < deadline:
                if keeper.try_lock(start):  # so that nobody starts a new one meanwhile
                    if keeper.is_free(str(home)):
                        return told
                    told = told or _shut_down(home)
                time.sleep(PAUSE)
    except PermissionError as error:
        raise StoreUnavailable(f"{home}: you may not look there, so ask whose server it is to stop it") from error
    raise StoreUnavailable(f"{home}: the server did not stop within {timeout:g} s; look at {home / LOG}")


def _trusted(home: Path) -> Path:
    """Return where a home is, links resolved, if it is trusted."""
    check_trust(home)
    return Path(os.path.realpath(home))


def _locate(home: Path) -> str:
    return keeper.locate(str(home), trusted_users(home))


def _ask(home: Path, command: str, timeout: float = keeper.PATIENCE) -> str:
    """Return the reply of the server of a home; nothing if there is none, or it hung up.

    Raises:
        StoreUnavailable: somebody else listens there, or this user may not ask.
    """
    address, users = _locate(home), trusted_users(home)
    try:
        return keeper.ask(address, command, timeout, users)
    except keeper.Stranger as error:
        raise StoreUnavailable(
            f"{address}: a process of {user(error.user)} listens there, not of the owner of {home}, so nothing was sent"
            " to it; stop that process and remove the socket"
        ) from None
    except PermissionError:
        raise NotAllowed(_why_not_allowed(home, address)) from None
    except OSError:
        return ""


def _greet(home: Path, timeout: float) -> str:
    """Return the reply to a PING. From a socket that we may not use there is none: perhaps its server is gone."""
    try:
        return _ask(home, "PING", min(timeout, keeper.PATIENCE))
    except NotAllowed:
        return ""


def _why_not_allowed(home: Path, address: str) -> str:
    try:
        found = os.stat(address)
    except OSError:
        return f"{home}: you may not look there, so ask whose server it is"
    owner = user(found.st_uid)
    return (
        f"{address}: you may not use this socket: it belongs to {owner}, with mode {stat.S_IMODE(found.st_mode):04o};"
        f" run this as {owner}, or stop that server and start it as {user(os.geteuid())}"
    )


def network_file_system(path: str, mounts: str) -> str | None:
    """Return the type of the network file system that a real path is on, if it is on one; `mounts` is a mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), left.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two mounts on one point, the later hides the earlier
            best, kind = point, right.split(" ")[0]
    return kind if NETWORK_FILE_SYSTEM.fullmatch(kind) else None


def _prepare(home: Path) -> None:
    """Make the directory ready for a server, or refuse it."""
    try:
        make_directory(home)
        (home / keeper.DATA).mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(home / keeper.DATA, os.O_RDONLY | os.O_DIRECTORY))
        write_once(home / ".gitignore", "*\n")
        for name in (START, keeper.LIFE, LOG):
            os.close(_open(home / name))
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError as error:
        _ask(home, "PING")  # which says so if there is a server that we may not use
        why, remedy = WHY_NOT.get(error.errno or 0, (error.strerror, ""))
        raise ServerStartFailed(f"{home}: no server can live here, {why}; {remedy}{ELSEWHERE}") from error
    kind = network_file_system(str(home), mounts)
    if kind:
        raise ServerStartFailed(f"{home} is on a network file system ({kind}), where locks are not safe; {ELSEWHERE}")


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


@contextmanager
def _start_lock(home: Path) -> Iterator[int]:
    """Open the lock of those who start and stop; it is taken by `try_lock`, once or again."""
    start = _open(home / START)
    try:
        yield start
    finally:
        keeper.unlock(start)


def _join_or_start(home: Path, start: int, deadline: float) -> str:
    """Return the server's address when it answers; start it when it is our turn and there is none."""
    while (left := deadline - time.monotonic()) > 0:
        if _is_up(_greet(home, left)):
            return _locate(home)
        if not keeper.try_lock(start):
            time.sleep(PAUSE)
        elif keeper.is_free(str(home)):
            _launch(home, deadline)
        else:
            _ask(home, "PING")  # if we may not, that will not change
            time.sleep(PAUSE)
    raise StoreUnavailable(f"{home}: {_why_not_ready(home)}. Look at {home / LOG}")


def _is_up(reply: str) -> bool:
    """Whether a server is there to be used. One whose disk is full refuses a PING, but can be read."""
    return reply == keeper.PONG or reply.startswith("-MISCONF")


def _why_not_ready(home: Path) -> str:
    reply = _ask(home, "PING")
    if reply:
        return f"the server was not ready in time, it says {reply[1:]!r}; try again later"
    if keeper.is_free(str(home)):
        return "no server could be started in time; try again"
    if not os.path.exists(_locate(home)):
        return f"a program holds this directory but does not listen; {_advice('')}"
    return "a server holds this directory but does not answer (stopped? overloaded?), and no second one was started"


def _replace_keeper(home: Path, deadline: float) -> None:
    """Start a keeper for a server whose own was killed. If that fails, the server goes on, and the doctor says so."""
    if keeper.is_kept(str(home)) is not False:
        return
    with suppress(OSError), _start_lock(home) as start:  # which a StoreUnavailable is, too
        if keeper.try_lock(start) and keeper.is_kept(str(home)) is False:
            _run_keeper(home, keeper.ADOPT, deadline)


def _launch(home: Path, deadline: float) -> None:
    """Start a keeper with a server, and wait until it has something to say; the caller pings then, and knows."""
    binary = find_binary(data=read_build(home))
    said = _run_keeper(home, str(binary), deadline)
    if said.startswith("failed"):
        raise ServerStartFailed(f"{home}: {binary} did not start: {said[7:]}; {_advice(said)}. Its log: {home / LOG}")
    if said.startswith("ready"):
        remember_build(home, _locate(home))


def _run_keeper(home: Path, binary: str, deadline: float) -> str:
    """Start a keeper, and return what it says."""
    import subprocess

    arguments = [_interpreter(), "-I", "-S", keeper.__file__, str(home), binary, _idle_seconds(os.environ)]
    log = _open(home / LOG)
    try:
        if os.fstat(log).st_size > LOG_SIZE:
            os.ftruncate(log, 0)
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=home,
            env={**os.environ, MARK: str(home)},
            start_new_session=True,
        )
    except OSError as error:
        raise ServerStartFailed(f"{home}: cannot run {arguments[0]} ({error.strerror}); {ELSEWHERE}") from error
    finally:
        os.close(log)
    with process:
        return _hear(process, deadline)


def _advice(said: str, environ: Mapping[str, str] = os.environ) -> str:
    """Say what to do about a server that did not start."""
    if "No space left" in said:
        return "make room on the disk"
    if environ.get("HOLDFAST_SERVER_BIN"):
        return "set HOLDFAST_SERVER_BIN to a Valkey or Redis server, or unset it"
    return "correct that, or set HOLDFAST_URL to the address of a server"


def _hear(process: Popen[bytes], deadline: float) -> str:
    """Return what the keeper says in time; nothing if it is killed first."""
    assert process.stdout  # noqa: S101 - for the type checker
    pipe = process.stdout.fileno()
    poll = select.poll()  # `select` knows no descriptor over 1,023
    poll.register(pipe, select.POLLIN)
    heard = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    process.kill()  # the launcher, should it be stuck; the keeper has left it and goes on
    return os.read(pipe, select.PIPE_BUF).decode(errors="replace") if heard else ""


def _interpreter() -> str:
    """Return a Python: where it is embedded, as in uWSGI, sys.executable is another program."""
    name = os.path.basename(sys.executable or "")
    return sys.executable if "python" in name else os.path.join(sys.prefix, "bin", "python3")


def _idle_seconds(environ: Mapping[str, str]) -> str:
    """Return how long a server may be without clients before it stops; zero means for ever."""
    seconds = environ.get("HOLDFAST_SERVER_IDLE") or "300"
    try:
        if 0 <= float(seconds) < float("inf"):
            return seconds
    except ValueError:
        pass
    raise ServerStartFailed(f"HOLDFAST_SERVER_IDLE={seconds}: set it to a number of seconds, or to 0 for never")


def _shut_down(home: Path) -> bool:
    """Tell a server to save and end; false if it does not listen."""
    if not _ask(home, "PING"):
        return False
    if refusal := _ask(home, "SHUTDOWN"):
        raise StoreUnavailable(f"the server in {home} does not stop: {refusal[1:]}")
    return True


def _size(file: Path) -> int:
    """Return the size of a file, zero if it is gone: the server rewrites its own."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
