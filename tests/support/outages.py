"""Servers that are not there, or not well: what the tests of outages share."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import hiredis
import redis

from holdfast.server.binary import find_binary

PATIENCE = 60  # seconds for a condition to come true


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)  # between looks at a condition


class Switch:
    """A server that can be killed, stopped and started again with all that it has acknowledged."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{folder}/s"

    def on(self) -> None:
        if self._process is not None:
            return
        binary = str(find_binary())
        line = [binary, "--unixsocket", f"{self._folder}/s", "--port", "0", "--dir", str(self._folder), "--save", ""]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*line, "--appendonly", "yes", "--appendfsync", "always", *self._options], stdout=log, stderr=log
            )
        with redis.Redis(unix_socket_path=f"{self._folder}/s") as client:
            eventually(lambda: _answers(client))

    def off(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.off()
        self.on()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@contextmanager
def switch(*options: str) -> Iterator[Switch]:
    """A server that is off until it is switched on."""
    folder = Path(tempfile.mkdtemp(prefix="hfo-"))
    made = Switch(folder, *options)
    try:
        yield made
    finally:
        made.off()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def refused() -> Iterator[str]:
    yield "redis://127.0.0.1:1"


@contextmanager
def unknown_name() -> Iterator[str]:
    yield "redis://no-such-host.invalid"


@contextmanager
def swallowing() -> Iterator[str]:
    """A port whose backlog is full: the kernel drops what else comes, as a firewall does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        callers = [socket.socket() for _ in range(8)]
        for caller in callers:
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(listener.getsockname())
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        for caller in callers:
            caller.close()


@contextmanager
def silent() -> Iterator[str]:
    """A server that accepts and never says anything, as one that is stopped does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def answering(answer: Callable[[list[bytes]], bytes | Iterator[bytes] | None]) -> Iterator[str]:
    """A server that answers each command so, perhaps in pieces; with None it hangs up."""
    ends: list[socket.socket] = []

    def serve(end: socket.socket) -> None:
        reader = hiredis.Reader()
        with suppress(OSError):
            while data := end.recv(65536):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    said = answer(command)
                    if said is None:
                        return end.close()
                    for piece in (said,) if isinstance(said, bytes) else said:
                        end.sendall(piece)
        return None

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                end, _ = listener.accept()
                ends.append(end)
                threading.Thread(target=serve, args=(end,), daemon=True).start()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        accepting = threading.Thread(target=accept, args=(listener,), daemon=True)
        accepting.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def _only_function(reply: bytes | None) -> Callable[[list[bytes]], bytes | None]:
    return lambda command: reply if command[0] == b"FCALL" else b"+OK\r\n"


def loading() -> Any:
    return answering(_only_function(b"-LOADING Valkey is loading the dataset in memory\r\n"))


def dying_in_mid_reply() -> Any:
    """Sends the beginning of a reply, and then nothing more."""
    return answering(_only_function(b"*2\r\n:17"))


def hanging_up() -> Any:
    return answering(_only_function(None))


def _passed_on(url: str, command: list[bytes]) -> bytes:
    """Have a server carry out a command, and return its reply."""
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(url.removeprefix("unix://"))
        end.sendall(b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in command))
        reader, reply = hiredis.Reader(), b""
        while reader.gets() is False:
            part = end.recv(65536)
            reader.feed(part)
            reply += part
    return reply


@contextmanager
def losing_a_reply(url: str) -> Iterator[str]:
    """Passes commands on to a server, and hangs up instead of giving the first reply to a function."""
    lost: list[bytes] = []

    def answer(command: list[bytes]) -> bytes | None:
        reply = _passed_on(url, command)
        if command[0] == b"FCALL" and not lost and not reply.startswith(b"-"):
            lost.append(command[1])
            return None
        return reply

    with answering(answer) as address:
        yield address
    assert lost


def tearing(url: str) -> Any:
    """Passes commands on to a server, and its replies back byte by byte."""
    return answering(lambda command: (bytes([byte]) for byte in _passed_on(url, command)))


def restarting_before(url: str, verb: bytes, *, after: int = 0) -> Any:
    """Passes commands on to a server, which is loading its data when this one comes, after some of its kind."""
    passed: list[bytes] = []

    def answer(command: list[bytes]) -> bytes | None:
        if command[0] == b"FCALL" and command[1].endswith(b"_" + verb):
            if len(passed) == after:
                return b"-LOADING Valkey is loading the dataset in memory\r\n"
            reply = _passed_on(url, command)
            passed.extend([verb] * (not reply.startswith(b"-")))
            return reply
        return _passed_on(url, command)

    return answering(answer)


def ignore_signal_of_size_limits() -> None:
    """For a process that is to see a full disk: no file may have more than 4 KiB."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def environment(outbox: Path, **more: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**ours, "HOLDFAST_OUTBOX": str(outbox), **more}
