"""The embedded server: one Valkey per directory, started by the first program that needs it.

    home/  mode 0700
    ├── data/         the append-only file
    ├── server.sock   its socket; a link, if the path would be too long for a socket
    ├── server.log    output of the server and its keeper
    ├── server        kind and version of the server that wrote the data
    ├── start.lock    held while a process starts or stops the server
    ├── life.lock     held by the keeper and the server while either is alive
    └── keeper.lock   held by the keeper

There are no pid files: a lock ends with its process, a pid may be reused. Two servers in one directory would ruin its
data, so a server that holds the directory and does not answer is an error, never a reason to start another.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ServerStartFailed, StoreUnavailable
from holdfast.server import keeper
from holdfast.server.binary import find_binary, read_build, remember_build
from holdfast.server.home import check_trust, describe_user, make_directory, trusted_users, write_once
from holdfast.server.launch import LOG, USE_ANOTHER_SERVER, open_file, run_keeper

START = "start.lock"
POLL_INTERVAL = 0.02  # seconds between two checks of what another process does
NETWORK_FILE_SYSTEM = re.compile(
    "9p|afs|beegfs|ceph|cifs|davfs|gpfs|lustre|ncpfs|nfs4?|orangefs|smb3|smbfs"
    "|(fuse[.])?(ceph|davfs2|glusterfs|juicefs|mfs|rclone|s3fs|sshfs)"
)
OBSTACLES = {  # error: why a directory is not usable, and how to change that
    errno.EEXIST: ("a file is in the way", "remove it, or "),
    errno.ENOTDIR: ("a file is in the way", "remove it, or "),
    errno.EROFS: ("the file system is read-only", ""),
    errno.EACCES: ("you have no write permission", ""),
    errno.EPERM: ("you have no write permission", ""),
    errno.ENOSPC: ("the disk is full", "free some space, or "),
    errno.EDQUOT: ("your disk quota is exceeded", "free some space, or "),
    errno.ENAMETOOLONG: ("the path is too long", ""),
}


class SocketForbidden(StoreUnavailable):
    """This user has no permission for the socket of a server."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of an embedded server; `uptime` is in seconds, `clients` does not count this request."""

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

    Of all processes that call this at once, one starts the server. It blocks until the server is ready, so async code
    must call it from a thread.

    Raises:
        ServerStartFailed: no server can be started here; the message gives the reason and what to do.
        StoreUnavailable: a server runs but does not answer in time.
    """
    deadline = time.monotonic() + timeout
    home = _resolve(home)
    if _is_up(_ping(home, timeout)):
        _replace_keeper(home, deadline)
        return _locate(home)
    _prepare(home)
    check_trust(home)  # another user may have just created it
    with _start_lock(home) as start:
        return _join_or_start(home, start, deadline)


def status(home: Path) -> ServerStatus:
    """Describe the server of this directory, without starting it.

    Raises:
        StoreUnavailable: this user has no access to it.
    """
    home = _resolve(home)
    address = _locate(home)
    data_bytes = sum(_size(Path(folder, name)) for folder, _, names in os.walk(home / keeper.DATA) for name in names)
    known = keeper.read_info(_request(home, "INFO server clients memory"))
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
    """Stop the server of this directory and wait until it has exited. Return whether one was running. The data stays.

    Raises:
        StoreUnavailable: it did not stop in time, or refused to.
    """
    deadline = time.monotonic() + timeout
    home = _resolve(home)
    stopping = False
    try:
        if not (home / keeper.DATA).is_dir():
            return False
        with _start_lock(home) as start:
            while time.monotonic() < deadline:
                if keeper.try_lock(start):  # so that no process starts a new one meanwhile
                    if keeper.is_free(str(home)):
                        return stopping
                    stopping = stopping or _shut_down(home)
                time.sleep(POLL_INTERVAL)
    except PermissionError as error:
        raise StoreUnavailable(f"{home}: you have no access; ask its owner to stop the server") from error
    raise StoreUnavailable(f"{home}: the server did not stop within {timeout:g} s; see {home / LOG}")


def _resolve(home: Path) -> Path:
    """Return the real path of a home, if it is trusted."""
    check_trust(home)
    return Path(os.path.realpath(home))


def _locate(home: Path) -> str:
    return keeper.locate(str(home), trusted_users(home))


def _request(home: Path, command: str, timeout: float = keeper.TIMEOUT) -> str:
    """Send a command to the server of a home. Return its reply; '' if no server answers.

    Raises:
        StoreUnavailable: a process of another user listens there, or this user has no access.
    """
    address, users = _locate(home), trusted_users(home)
    try:
        return keeper.request(address, command, timeout, users)
    except keeper.UntrustedPeer as error:
        raise StoreUnavailable(
            f"{address}: a process of {describe_user(error.user)} listens there, not of the owner of {home}, so nothing"
            " was sent to it; stop that process and remove the socket"
        ) from None
    except PermissionError:
        raise SocketForbidden(_explain_forbidden(home, address)) from None
    except OSError:
        return ""


def _ping(home: Path, timeout: float) -> str:
    """Return the reply to a PING; '' from a socket without permission, as its server may have exited."""
    try:
        return _request(home, "PING", min(timeout, keeper.TIMEOUT))
    except SocketForbidden:
        return ""


def _explain_forbidden(home: Path, address: str) -> str:
    try:
        found = os.stat(address)
    except OSError:
        return f"{home}: you have no access; ask its owner"
    owner = describe_user(found.st_uid)
    return (
        f"{address}: you have no permission for this socket: it belongs to {owner}, with mode"
        f" {stat.S_IMODE(found.st_mode):04o}; run this as {owner}, or stop that server and start it as"
        f" {describe_user(os.geteuid())}"
    )


def network_file_system(path: str, mounts: str) -> str | None:
    """Return the type of the network file system that a real path is on; None if it is local.

    `mounts` is the text of /proc/self/mountinfo.
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), left.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides the earlier one
            best, kind = point, right.split(" ")[0]
    return kind if NETWORK_FILE_SYSTEM.fullmatch(kind) else None


def _prepare(home: Path) -> None:
    """Prepare the directory for a server, or refuse it."""
    try:
        make_directory(home)
        (home / keeper.DATA).mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(home / keeper.DATA, os.O_RDONLY | os.O_DIRECTORY))
        write_once(home / ".gitignore", "*\n")
        for name in (START, keeper.LIFE, LOG):
            os.close(open_file(home / name))
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError as error:
        _request(home, "PING")  # raises the better message if a server runs to which we have no access
        reason, remedy = OBSTACLES.get(error.errno or 0, (error.strerror, ""))
        raise ServerStartFailed(
            f"{home}: the server cannot start here, {reason}; {remedy}{USE_ANOTHER_SERVER}"
        ) from error
    kind = network_file_system(str(home), mounts)
    if kind:
        raise ServerStartFailed(
            f"{home} is on a network file system ({kind}), where file locks are not reliable; {USE_ANOTHER_SERVER}"
        )


@contextmanager
def _start_lock(home: Path) -> Iterator[int]:
    """Open the lock for starting and stopping; `try_lock` takes it."""
    start = open_file(home / START)
    try:
        yield start
    finally:
        keeper.unlock(start)


def _join_or_start(home: Path, start: int, deadline: float) -> str:
    """Return the server's socket once it answers; start the server if we get the lock and none runs."""
    while (left := deadline - time.monotonic()) > 0:
        if _is_up(_ping(home, left)):
            return _locate(home)
        if not keeper.try_lock(start):
            time.sleep(POLL_INTERVAL)
        elif keeper.is_free(str(home)):
            _launch(home, deadline)
        else:
            _request(home, "PING")  # raises if we have no access: waiting would not change that
            time.sleep(POLL_INTERVAL)
    raise StoreUnavailable(f"{home}: {_explain_not_ready(home)}. See {home / LOG}")


def _is_up(reply: str) -> bool:
    """Return whether a server is usable. A server with a full disk refuses a PING, but can still be read."""
    return reply == keeper.PONG or reply.startswith("-MISCONF")


def _explain_not_ready(home: Path) -> str:
    reply = _request(home, "PING")
    if reply:
        return f"the server was not ready in time, it replied {reply[1:]!r}; try again later"
    if keeper.is_free(str(home)):
        return "no server could be started in time; try again"
    if not os.path.exists(_locate(home)):
        return f"a process locks this directory but does not listen; {_advice('')}"
    return "a server locks this directory but does not answer (suspended? overloaded?); no second one was started"


def _replace_keeper(home: Path, deadline: float) -> None:
    """Start a keeper for a server whose keeper was killed. If that fails, the server runs on; the doctor reports it."""
    if keeper.has_keeper(str(home)) is not False:
        return
    with suppress(OSError), _start_lock(home) as start:  # StoreUnavailable is one, too
        if keeper.try_lock(start) and keeper.has_keeper(str(home)) is False:
            run_keeper(home, keeper.ADOPT, deadline)


def _launch(home: Path, deadline: float) -> None:
    """Start a keeper and its server, and wait for the report; the caller then pings the server."""
    binary = find_binary(data=read_build(home))
    report = run_keeper(home, str(binary), deadline)
    if report.startswith("failed"):
        reason = report.removeprefix("failed ")
        raise ServerStartFailed(f"{home}: {binary} did not start: {reason}; {_advice(reason)}. Its log: {home / LOG}")
    if report.startswith("ready"):
        remember_build(home, _locate(home))


def _advice(reason: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return what to do about a server that did not start."""
    if "No space left" in reason:
        return "free space on the disk"
    if environ.get("HOLDFAST_SERVER_BIN"):
        return "set HOLDFAST_SERVER_BIN to a Valkey or Redis server, or unset it"
    return "fix this, or set HOLDFAST_URL to the address of a server"


def _shut_down(home: Path) -> bool:
    """Shut a server down; false if it does not listen."""
    if not _request(home, "PING"):
        return False
    if refusal := _request(home, "SHUTDOWN"):
        raise StoreUnavailable(f"{home}: the server refused to stop: {refusal[1:]}")
    return True


def _size(file: Path) -> int:
    """Return the size of a file; zero if it does not exist, as the server replaces its files."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
