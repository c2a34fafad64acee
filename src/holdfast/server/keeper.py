"""The keeper: a small process that starts one embedded server, syncs its file, and stops it when it is idle.

    ensure() ──▶ launcher ──fork──▶ keeper ──▶ valkey-server
                 exits at once      └── both hold the life locks, which are free once both are dead

A server outlives its keeper, but then nothing syncs its file or stops it. Only the keeper holds the keeper lock; a
program that finds it free starts a keeper that adopts the server.

This file runs as a script, by its path, and imports only the standard library: the keeper outlives the program that
started it, so it must not hold that program's memory, descriptors or terminal. `holdfast.server` imports what both
need.

The keeper reports once to the program that started it, on standard output: `ready`, `held` (another server has this
directory), or `failed` and the reason. End of file means that the keeper was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the fast path of `ensure` imports this module and starts no process
    from subprocess import Popen

PONG = "+PONG"
SOCKET, LIFE, KEEPER, DATA = "server.sock", "life.lock", "keeper.lock", "data"
LOCK_ATTEMPTS = 50  # other processes hold a lock for a moment to test whether it is free
ADOPT = ""  # instead of a program: the server runs already
AOF_FOLDER = "appendonlydir"  # where the server keeps its append-only files
MAX_ADDRESS = 100  # bytes; the kernel's limit for the path of a socket is 107
TIMEOUT = 1.0  # seconds for one request to the server

# The append-only file holds all data: snapshots (`save`) would only write it a second time, and less often.
# A power cut may truncate the file's last command, which was not yet guaranteed to be on disk, so it is skipped.
# The server never syncs the file (`appendfsync no`); the keeper does, every second. A server that syncs by itself
# delays acknowledged writes during a sync, and a kill -9 would lose them.
# Small hashes and sorted sets are stored as lists that are searched linearly: good for a job's record of about ten
# fields, bad for a hundred running jobs. So their limit is lower than the default of 128 entries.
SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "protected-mode": "yes",
    "enable-protected-configs": "no",
    "enable-debug-command": "no",
    "enable-module-command": "no",
    "appendonly": "yes",
    "appendfsync": "no",
    "aof-load-truncated": "yes",
    "save": "",
    "maxmemory-policy": "noeviction",
    "hash-max-listpack-entries": "32",
    "zset-max-listpack-entries": "32",
    "daemonize": "no",
    "supervised": "no",
    "logfile": "",
}
# The server in the wheel uses the allocator of the C library. With a larger cache of freed chunks, and huge pages where
# the system grants them, it takes an eighth less time: decision 19. The user's environment takes precedence.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=2000:glibc.malloc.hugetlb=1"}


class UntrustedPeer(PermissionError):
    """A process of a `user` that is not trusted listens at a socket."""

    def __init__(self, user: int) -> None:
        super().__init__(f"a process of the untrusted user {user} listens there")
        self.user = user


_CREDENTIALS = struct.Struct("iII")


class Peer(NamedTuple):
    """The process that listens at a socket; its pid is zero in another PID namespace."""

    pid: int
    user: int
    group: int


def check_peer(connection: socket.socket, users: Collection[int] | None = None) -> Peer:
    """Return the process at the other end of a connection, before anything is sent to it.

    Raises:
        UntrustedPeer: it belongs to none of `users`; by default, neither to this user nor to root.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    peer = Peer(*_CREDENTIALS.unpack(credentials))
    if peer.user not in ((0, os.geteuid()) if users is None else users):
        raise UntrustedPeer(peer.user)
    return peer


def request(address: str, command: str, timeout: float = TIMEOUT, users: Collection[int] | None = None) -> str:
    """Send one command to the server at a unix socket and return its reply; '' if it closed the connection.

    Raises:
        UntrustedPeer: a process of another user listens there; nothing was sent.
        OSError: no process listens there, or it did not answer in time.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(address)
        check_peer(connection, users)
        connection.sendall(command.encode() + b"\r\n")
        with connection.makefile("rb") as reply:
            head = reply.readline().decode()
            return reply.read(int(head[1:])).decode() if head.startswith("$") else head.rstrip()


def ping(address: str, timeout: float = TIMEOUT) -> str:
    """Return the reply to a PING; '' if there was none."""
    try:
        return request(address, "PING", timeout)
    except OSError:
        return ""


def info(address: str, sections: str, timeout: float = TIMEOUT) -> dict[str, str]:
    """Return sections of the server's INFO; empty if it does not answer."""
    try:
        return read_info(request(address, f"INFO {sections}", timeout))
    except OSError:
        return {}


def read_info(reply: str) -> dict[str, str]:
    """Read the reply to INFO."""
    return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)


def try_lock(descriptor: int) -> bool:
    """Take a lock on an open file, unless another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(*descriptors: int) -> None:
    """Release locks, even if a fork in another thread has copied them meanwhile: closing alone would not."""
    for descriptor in descriptors:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def take_life_locks(home: str) -> list[int]:
    """Take the locks that a server in this directory needs; empty if a server, or its keeper, holds them.

    The data directory is locked too: people delete lock files when something seems stuck, and a second server would
    ruin the data.
    """
    life = [os.open(os.path.join(home, LIFE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)]
    life.append(os.open(os.path.join(home, DATA), os.O_RDONLY | os.O_DIRECTORY))
    if all(try_lock(descriptor) for descriptor in life):
        return life
    unlock(*life)
    return []


def is_free(home: str) -> bool:
    """Return whether neither a server nor a keeper runs in this directory."""
    life = take_life_locks(home)
    unlock(*life)
    return bool(life)


def has_keeper(home: str) -> bool | None:
    """Return whether the server of this directory has a keeper; None if this user may not read the lock."""
    try:
        lock = os.open(os.path.join(home, KEEPER), os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return True
    unlock(lock)
    return False


def locate(home: str, users: Collection[int] | None = None) -> str:
    """Return the socket of the server of this directory, which must belong to one of `users`."""
    local = os.path.join(home, SOCKET)
    if len(os.fsencode(local)) <= MAX_ADDRESS:
        return local
    try:
        elsewhere = os.readlink(local)  # created by the keeper
        return elsewhere if _is_private(os.path.dirname(elsewhere), users) else local
    except OSError:
        return local


def main(home: str, binary: str, idle: str) -> None:
    """Detach, start or adopt the server, report the result, and stay until the server has exited."""
    if os.fork():
        os._exit(0)  # the starter reaps this process, so the keeper never becomes a zombie
    _reset_inherited_state()
    try:
        kept = _adopt(home) if binary == ADOPT else _start_server(home, binary)
    except (OSError, _NotStarted) as error:
        _report(f"failed {error}")
        return
    if kept is None:
        _report("held")
        return
    _report("ready")
    _watch(kept, float(idle), home)
    kept.server.wait()


class _KeptServer(NamedTuple):
    """A running server, its socket, a descriptor of its data directory, and the keeper lock."""

    server: _Server
    address: str
    data: int
    lock: int


class _NotStarted(Exception):
    """The server exited before it was ready."""


def _start_server(home: str, binary: str) -> _KeptServer | None:
    """Start a server, and wait until it is ready; None if this directory has one."""
    life = take_life_locks(home)
    if not life:
        return None
    log_start = os.fstat(2).st_size
    lock = _open_lock(home)
    _take_lock(lock)  # if a suspended keeper still holds it, `_watch` takes it later
    address = _choose_address(home)
    server = _spawn(home, binary, address, life)
    if not _wait_until_ready(server, address):
        raise _NotStarted(_describe_exit(server.wait(), log_start))
    return _KeptServer(server, address, life[-1], lock)


def _adopt(home: str) -> _KeptServer | None:
    """Become the keeper of a server whose keeper died; None if it has one, or belongs to another user.

    The listening process is checked again after its descriptor is open: its pid may have been reused before that, but
    not while it listens.
    """
    lock, address = _open_lock(home), locate(home)
    if not _take_lock(lock):
        return None
    first = _listener(address)
    if first.user != os.geteuid() or first.pid == 0:
        return None
    server = _Server(first.pid)
    if _listener(address) != first:
        return None
    return _KeptServer(server, address, os.open(os.path.join(home, DATA), os.O_RDONLY | os.O_DIRECTORY), lock)


def _listener(address: str) -> Peer:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(address)
        return check_peer(connection)


def _open_lock(home: str) -> int:
    return os.open(os.path.join(home, KEEPER), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _take_lock(lock: int) -> bool:
    """Take the keeper lock. Processes that test whether it is free hold it for a moment."""
    for _ in range(LOCK_ATTEMPTS):
        if try_lock(lock):
            return True
        time.sleep(0.01)
    return False


def _reset_inherited_state() -> None:
    """Reset what a process inherits: ignored and blocked signals, and the umask."""
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _report(text: str) -> None:
    """Report to the program that started us, if it still waits, and close its pipe."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, text.encode(errors="replace")[: select.PIPE_BUF])
    os.dup2(2, 1)


def _choose_address(home: str) -> str:
    """Return the path for the server's socket: in its home, or in a runtime directory if that path is too long.

    A link in the home then points to it: other processes may have another runtime directory, or none.
    """
    local = os.path.join(home, SOCKET)
    if len(os.fsencode(local)) <= MAX_ADDRESS:
        return local
    import hashlib

    directory = _runtime_directory()
    address = os.path.join(directory, hashlib.sha256(os.fsencode(home)).hexdigest()[:24] + ".sock")
    for old in (local, address):  # the server of a deleted home may listen there for a moment longer
        if os.path.lexists(old):
            os.unlink(old)
    os.symlink(address, local)
    return address


def _runtime_directory() -> str:
    """Return a private directory with a short path; create it if necessary."""
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("TMPDIR", ""), "/tmp"):  # noqa: S108 - is checked
        directory = os.path.join(base, f"holdfast-{os.geteuid()}")
        if not os.path.isabs(base) or len(os.fsencode(directory)) > MAX_ADDRESS - 30:
            continue
        with contextlib.suppress(OSError):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            if _is_private(directory, [os.geteuid()]):
                return directory
    raise OSError(
        "the path is too long for a socket, and no runtime directory is usable: set HOLDFAST_HOME to a shorter path,"
        " or XDG_RUNTIME_DIR to a directory that you own, with mode 0700"
    )


def _is_private(directory: str, users: Collection[int] | None) -> bool:
    """Return whether this is a directory, not a link, in which only one of these users can create a socket."""
    found = os.lstat(directory)
    is_theirs = found.st_uid in ((0, os.geteuid()) if users is None else users)
    return stat.S_ISDIR(found.st_mode) and is_theirs and not found.st_mode & 0o077


class _Server:
    """A server process, a child of this process or not, whose exit can be awaited without polling."""

    def __init__(self, pid: int, child: Popen[bytes] | None = None) -> None:
        self._child = child
        self._process = os.pidfd_open(pid)
        self._end = select.poll()
        self._end.register(self._process, select.POLLIN)

    def exits_within(self, seconds: float) -> bool:
        return bool(self._end.poll(seconds * 1000))

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just exited
            signal.pidfd_send_signal(self._process, number)

    def wait(self) -> int:
        """Wait for its exit. Return the status of a child; zero for others."""
        self._end.poll()
        return self._child.wait() if self._child else 0


def _spawn(home: str, binary: str, address: str, life: list[int]) -> _Server:
    """Start the server process. It inherits the life locks, so it holds them even without a keeper."""
    import subprocess

    command = [binary]
    for name, value in {**SETTINGS, "dir": os.path.join(home, DATA), "unixsocket": address}.items():
        command += [f"--{name}", value]
    environment = {**ENVIRONMENT, **os.environ}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, pass_fds=life, env=environment)
    return _Server(child.pid, child)


def _wait_until_ready(server: _Server, address: str) -> bool:
    """Wait until the server answers, however long it takes to load its data; false if it exits instead."""
    while not server.exits_within(0.01):
        if ping(address) == PONG:
            return True
    return False


def _describe_exit(status: int, log_start: int) -> str:
    """Describe the exit of a server by its status and its last lines of output."""
    how = f"it exited with status {status}" if status >= 0 else f"signal {-status} killed it"
    size = os.fstat(2).st_size
    begin = max(log_start, size - 4096)
    lines = os.pread(2, size - begin, begin).decode(errors="replace").strip().splitlines()
    return f"{how}; its last lines: " + " | ".join(lines[-5:]) if lines else f"{how}, without output"


def _watch(kept: _KeptServer, idle: float, home: str) -> None:
    """Wait until the server exits; stop it when it is idle or cannot be reached.

    A client that connects just as an idle server stops only loses its connection: `ensure` starts the server again.
    """
    server, address, data, lock = kept
    tick = min(1.0, idle / 10) if idle else 1.0
    received, used_at = 0, time.monotonic()
    while not server.exits_within(tick):
        if not _is_same_directory(data, os.path.join(home, DATA)):
            server.send(signal.SIGKILL)  # its data was deleted; the socket may belong to its successor
            return
        try_lock(lock)
        _sync(os.path.join(home, DATA, AOF_FOLDER))
        stats = info(address, "clients stats")
        before, received = received, int(stats.get("total_connections_received", received))
        if stats.get("connected_clients") != "1" or received != before + 1:  # that one is the keeper itself
            used_at = time.monotonic()
        if not os.path.exists(address) or (idle and time.monotonic() - used_at >= idle):
            server.send(signal.SIGTERM)  # it saves first
            return


def _sync(folder: str) -> None:
    """Sync the server's files to disk. If it replaces a file meanwhile, the rest follows at the next tick."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)


def _is_same_directory(descriptor: int, path: str) -> bool:
    """Return whether an open directory is still the one at that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
