"""A way to a server that can be cut, for one worker of several: its connections stay, and nothing comes through."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path


class Relay:
    """Passes on all bytes, both ways, until it is cut."""

    def __init__(self, folder: Path, url: str) -> None:
        self._server = url.removeprefix("unix://")
        self._is_open = threading.Event()
        self._is_open.set()
        self._ends: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/r")
        self._listener.listen()
        self.url = f"unix://{folder}/r"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        self._is_open.clear()

    def mend(self) -> None:
        self._is_open.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # so that no more come
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                other = socket.socket(socket.AF_UNIX)
                other.connect(self._server)
                self._ends += [one, other]
                for source, target in ((one, other), (other, one)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._is_open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
