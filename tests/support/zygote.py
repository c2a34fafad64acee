"""The program `holdfast` in a new process, without the third of a second that it takes to import it.

A process imports the program once, and forks for each command line: it gets the words, the directory, the environment
and the three streams of the command, and returns its exit code. Nothing else is shared.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from typing import NoReturn

MOST = 1 << 24  # bytes of a request


class Zygote:
    """A process that is ready to become the program."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.zygote", str(its.fileno())], pass_fds=[its.fileno()]
            )
        self._socket = ours
        atexit.register(self.close)

    def run(self, words: list[str], cwd: str, environ: dict[str, str], streams: list[int]) -> int:
        """Run the program in a process of its own, and return its exit code."""
        request = json.dumps([words, cwd, environ]).encode()
        socket.send_fds(self._socket, [struct.pack("!I", len(request))], streams)
        self._socket.sendall(request)
        return int(struct.unpack("!i", self._socket.recv(4))[0])

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(connection: socket.socket) -> None:
    """Fork for each request, until the other side is gone."""
    while True:
        head, streams, _, _ = socket.recv_fds(connection, 4, 3)
        if not head:
            return
        data = b""
        while len(data) < struct.unpack("!I", head)[0]:
            data += connection.recv(MOST)
        child = os.fork()
        if child == 0:
            connection.close()
            words, cwd, environ = json.loads(data)
            _become(words, cwd, environ, streams)
        for stream in streams:
            os.close(stream)
        status = os.waitpid(child, 0)[1]
        connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))


def _become(words: list[str], cwd: str, environ: dict[str, str], streams: list[int]) -> NoReturn:
    """Be the program, as if it was started with these words."""
    from holdfast.cli.program import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["holdfast", *words]
    sys.path[0] = cwd
    sys.stdin, sys.stdout = os.fdopen(0, "r"), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1)
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    for out in (sys.stdout, sys.stderr):
        out.flush()
    os._exit(code)


if __name__ == "__main__":
    from holdfast.store import pool  # noqa: F401 - so that no command has to load the Redis client

    _serve(socket.socket(fileno=int(sys.argv[1])))
