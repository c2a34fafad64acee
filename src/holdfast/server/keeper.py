"""The keeper: a small process that starts one embedded server, watches it, and stops it when nobody needs it.

    ensure() ──▶ launcher ──fork──▶ keeper ──▶ valkey-server
                 exits at once      └── both hold the life locks: they are free when the last of the two is dead

A server outlives its keeper, but then nobody syncs its file, or stops it. The keeper alone holds another lock; whoever
finds that one free starts a keeper that adopts the server.

It is run as a script, by its path, and imports the standard library only: it outlives the program that started it, so
it must hold none of that program's memory, descriptors or terminal. `holdfast.server` imports what both need.

To the starter it says one thing, on standard output: `ready`, `held` (another server has this directory), or
`failed` and why. End of file instead means that the keeper was killed.
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

if TYPE_CHECKING:  # the fast path of `ensure` imports this module, and starts nothing
    from subprocess import Popen

PONG = "+PONG"
SOCKET, LIFE, KEEPER, DATA = "server.sock", "life.lock", "keeper.lock", "data"
TRIES = 50  # at a lock that others take for a moment, to look whether it is free
ADOPT = ""  # in the place of a program: the server runs already
APPENDED = "appendonlydir"  # where the server keeps its append-only files, in its data
LONGEST_ADDRESS = 100  # bytes; the kernel's limit for the path of a socket is 107
PATIENCE = 1.0  # seconds that one question to the server may take

# The data is in the append-only file alone: snapshots (`save`) would only write it a second time, and less often.
# A power cut may tear the file's last command; it was not yet promised to be on disk, so loading goes on without it.
# The server never syncs the file (`appendfsync no`), the keeper does, every second: a server that syncs by itself holds
# back writes while a sync is under way, after they were acknowledged, and a kill -9 would lose them.
# Small hashes and sorted sets are lists, which are searched from their beginning: good for the record of a job, of some
# ten fields, bad for a hundred running jobs. So lists are short (128 entries, by default).
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
# The server of the wheel allocates by the C library. With more freed pieces kept at hand, and large pages where the
# system gives them on request, it takes an eighth less time: decision 19. What the user has set wins.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=2000:glibc.malloc.hugetlb=1"}


class Stranger(PermissionError):
    """A process listens at a socket whose `user` is not trusted."""

    def __init__(self, user: int) -> None:
        super().__init__(f"a process of the user {user} listens there, who is not trusted")
        self.user = user


_CREDENTIALS = struct.Struct("iII")


class Peer(NamedTuple):
    """The process that began to listen at a socket; zero if it is in another PID namespace."""

    pid: int
    user: int
    group: int


def check_peer(connection: socket.socket, users: Collection[int] | None = None) -> Peer:
    """Return who listens at the other end of a connection: before anything is sent there.

    Raises:
        Stranger: it is none of these users; or neither this one nor root.
    """
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    peer = Peer(*_CREDENTIALS.unpack(told))
    if peer.user not in ((0, os.geteuid()) if users is None else users):
        raise Stranger(peer.user)
    return peer


def ask(address: str, command: str, timeout: float = PATIENCE, users: Collection[int] | None = None) -> str:
    """Send one command to the server at a unix socket and return its reply; empty if it hung up.

    Raises:
        Stranger: somebody else listens there; nothing was sent.
        OSError: nobody listens there, or nobody answers in time.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(address)
        check_peer(connection, users)
        connection.sendall(command.encode() + b"\r\n")
        with connection.makefile("rb") as reply:
            head = reply.readline().decode()
            return reply.read(int(head[1:])).decode() if head.startswith("$") else head.rstrip()


def greet(address: str, timeout: float = PATIENCE) -> str:
    """Return the reply to a PING, or nothing if there was none."""
    try:
        return ask(address, "PING", timeout)
    except OSError:
        return ""


def inform(address: str, sections: str, timeout: float = PATIENCE) -> dict[str, str]:
    """Return what the server says of itself, or nothing if it does not answer."""
    try:
        return read_info(ask(address, f"INFO {sections}", timeout))
    except OSError:
        return {}


def read_info(reply: str) -> dict[str, str]:
    """Read the reply to INFO."""
    return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)


def try_lock(descriptor: int) -> bool:
    """Take a lock on an open file, unless someone else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(*descriptors: int) -> None:
    """Give locks back, also those that a fork in another thread has copied meanwhile: closing alone would not."""
    for descriptor in descriptors:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def take_life(home: str) -> list[int]:
    """Take the right to run a server on this directory; nothing if a server, or its keeper, has it.

    The directory of the data is locked too. People delete lock files when
    something seems stuck, and a second server would ruin the data.
    """
    life = [os.open(os.path.join(home, LIFE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)]
    life.append(os.open(os.path.join(home, DATA), os.O_RDONLY | os.O_DIRECTORY))
    if all(try_lock(descriptor) for descriptor in life):
        return life
    unlock(*life)
    return []


def is_free(home: str) -> bool:
    """Say whether no server, and no keeper, lives in this directory."""
    life = take_life(home)
    unlock(*life)
    return bool(life)


def is_kept(home: str) -> bool | None:
    """Say whether the server of this directory has a keeper; None if this user may not know."""
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
    """Return where the server of this directory listens, if there is one; it may be a process of these users."""
    local = os.path.join(home, SOCKET)
    if len(os.fsencode(local)) <= LONGEST_ADDRESS:
        return local
    try:
        elsewhere = os.readlink(local)  # left by the keeper
        return elsewhere if _is_private(os.path.dirname(elsewhere), users) else local
    except OSError:
        return local


def main(home: str, binary: str, idle: str) -> None:
    """Detach, start the server, tell the starter how that went, and stay until the server has ended."""
    if os.fork():
        os._exit(0)  # the starter waits for this one, so that the keeper is nobody's child and never a zombie
    _forget_the_starter()
    try:
        kept = _adopt(home) if binary == ADOPT else _begin(home, binary)
    except (OSError, _NotStarted) as error:
        _report(f"failed {error}")
        return
    if kept is None:
        _report("held")
        return
    _report("ready")
    _watch(kept, float(idle), home)
    kept.server.wait()


class _Kept(NamedTuple):
    """A server that runs, where it listens, its directory of data, and the lock that says that it has a keeper."""

    server: _Server
    address: str
    data: int
    lock: int


class _NotStarted(Exception):
    """The server has ended before it was ready."""


def _begin(home: str, binary: str) -> _Kept | None:
    """Start a server, and wait until it is ready; None if this directory has one."""
    life = take_life(home)
    if not life:
        return None
    log_start = os.fstat(2).st_size
    lock = _open_lock(home)
    _take(lock)  # a keeper before us may be frozen, and have it: then it is taken later
    address = _choose_address(home)
    server = _start(home, binary, address, life)
    if not _becomes_ready(server, address):
        raise _NotStarted(_how_it_ended(server.wait(), log_start))
    return _Kept(server, address, life[-1], lock)


def _adopt(home: str) -> _Kept | None:
    """Become the keeper of a server that has lost its own; None if it has one, or another user's process is the server.

    We look twice who listens, before and after we have a descriptor of that process: its number may have been given to
    another meanwhile, but not while it listens.
    """
    lock, address = _open_lock(home), locate(home)
    if not _take(lock):
        return None
    first = _listening(address)
    if first.user != os.geteuid() or first.pid == 0:
        return None
    server = _Server(first.pid)
    if _listening(address) != first:
        return None
    return _Kept(server, address, os.open(os.path.join(home, DATA), os.O_RDONLY | os.O_DIRECTORY), lock)


def _listening(address: str) -> Peer:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(address)
        return check_peer(connection)


def _open_lock(home: str) -> int:
    return os.open(os.path.join(home, KEEPER), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _take(lock: int) -> bool:
    """Take the lock of keepers. Whoever looks whether it is free has it for a moment."""
    for _ in range(TRIES):
        if try_lock(lock):
            return True
        time.sleep(0.01)
    return False


def _forget_the_starter() -> None:
    """Undo what a process inherits: ignored and blocked signals, and the mask of new files."""
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _report(words: str) -> None:
    """Tell the starter, if it still listens, and let go of its pipe."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, words.encode(errors="replace")[: select.PIPE_BUF])
    os.dup2(2, 1)


def _choose_address(home: str) -> str:
    """Return where the server shall listen: at home, or in a runtime directory if that path is too long.

    Then a link is left at home: another process may have another runtime
    directory, or none.
    """
    local = os.path.join(home, SOCKET)
    if len(os.fsencode(local)) <= LONGEST_ADDRESS:
        return local
    import hashlib

    directory = _runtime_directory()
    address = os.path.join(directory, hashlib.sha256(os.fsencode(home)).hexdigest()[:24] + ".sock")
    for old in (local, address):  # the server of a deleted home may still listen there, for a moment
        if os.path.lexists(old):
            os.unlink(old)
    os.symlink(address, local)
    return address


def _runtime_directory() -> str:
    """Return a directory with a short name that is ours alone; make it if need be."""
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("TMPDIR", ""), "/tmp"):  # noqa: S108 - is checked
        directory = os.path.join(base, f"holdfast-{os.geteuid()}")
        if not os.path.isabs(base) or len(os.fsencode(directory)) > LONGEST_ADDRESS - 30:
            continue
        with contextlib.suppress(OSError):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            if _is_private(directory, [os.geteuid()]):
                return directory
    raise OSError(
        "the path is too long for a socket, and there is no other place: set HOLDFAST_HOME to a shorter path,"
        " or XDG_RUNTIME_DIR to a directory of yours with mode 0700"
    )


def _is_private(directory: str, users: Collection[int] | None) -> bool:
    """Say whether this is a directory, no link to one, that nobody but one of these users can put a socket into."""
    found = os.lstat(directory)
    is_theirs = found.st_uid in ((0, os.geteuid()) if users is None else users)
    return stat.S_ISDIR(found.st_mode) and is_theirs and not found.st_mode & 0o077


class _Server:
    """A server, as the child of this process or not, whose end can be waited for without polling."""

    def __init__(self, pid: int, child: Popen[bytes] | None = None) -> None:
        self._child = child
        self._process = os.pidfd_open(pid)
        self._end = select.poll()
        self._end.register(self._process, select.POLLIN)

    def ends_within(self, seconds: float) -> bool:
        return bool(self._end.poll(seconds * 1000))

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            signal.pidfd_send_signal(self._process, number)

    def wait(self) -> int:
        """Wait for its end. Returns how it ended, of a child."""
        self._end.poll()
        return self._child.wait() if self._child else 0


def _start(home: str, binary: str, address: str, life: list[int]) -> _Server:
    """Start the server. It inherits the locks, so they are held as long as it lives, even without a keeper."""
    import subprocess

    command = [binary]
    for name, value in {**SETTINGS, "dir": os.path.join(home, DATA), "unixsocket": address}.items():
        command += [f"--{name}", value]
    environment = {**ENVIRONMENT, **os.environ}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, pass_fds=life, env=environment)
    return _Server(child.pid, child)


def _becomes_ready(server: _Server, address: str) -> bool:
    """Wait until the server answers, however long it loads its data; false if it ends instead."""
    while not server.ends_within(0.01):
        if greet(address) == PONG:
            return True
    return False


def _how_it_ended(status: int, log_start: int) -> str:
    """Describe the end of a server by its exit status and the last lines that it wrote."""
    how = f"it exited with status {status}" if status >= 0 else f"signal {-status} ended it"
    size = os.fstat(2).st_size
    begin = max(log_start, size - 4096)
    lines = os.pread(2, size - begin, begin).decode(errors="replace").strip().splitlines()
    return f"{how}; its last lines: " + " | ".join(lines[-5:]) if lines else f"{how}, and wrote nothing"


def _watch(kept: _Kept, idle: float, home: str) -> None:
    """Wait for the end of the server, and bring it about when nobody uses it or can reach it.

    A client may connect just as an idle server is told to stop. It loses its
    connection, nothing else, and `ensure` starts the server again.
    """
    server, address, data, lock = kept
    tick = min(1.0, idle / 10) if idle else 1.0
    received, used_at = 0, time.monotonic()
    while not server.ends_within(tick):
        if not _is_same(data, os.path.join(home, DATA)):
            server.send(signal.SIGKILL)  # its data was deleted: nothing to save, and the socket may be a successor's
            return
        try_lock(lock)
        _sync(os.path.join(home, DATA, APPENDED))
        stats = inform(address, "clients stats")
        before, received = received, int(stats.get("total_connections_received", received))
        if stats.get("connected_clients") != "1" or received != before + 1:  # the one is ourselves
            used_at = time.monotonic()
        if not os.path.exists(address) or (idle and time.monotonic() - used_at >= idle):
            server.send(signal.SIGTERM)  # it saves first
            return


def _sync(folder: str) -> None:
    """Have what the server wrote put on disk. If it just replaces a file, the rest is put there the next time."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)


def _is_same(descriptor: int, path: str) -> bool:
    """Say whether an open directory is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
