"""The positions of an attempt at which a crash test can kill it.

    start ──▶ save, note, loop position, step, fields ... ──▶ end

A position is where the job is about to change something in the store. Two kills are possible there: before the change
is stored, and after. A third one loses earlier saves as well: a worker sends saves a moment later, unless the job waits
for them with `flush`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.store import Store
from holdfast.store.commands import Lease
from holdfast.testing.attempt import StoreLink

KillTime = Literal["before", "after", "unsent"]
FAR_BEYOND = 10  # times the limit
START, END = "the task began", "the outcome"

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_LOOPS = f"{_PACKAGE}running{os.sep}loops.py"


class Position(msgspec.Struct, frozen=True):
    """One position: what the job is about to store, and the line of its code; `unsent` saves may not be stored yet."""

    what: str
    file: str = ""
    line: int = 0
    unsent: int = 0


class Kill(NamedTuple):
    """Which kill to try: the number of a position, counted from the first attempt, and when."""

    number: int
    when: KillTime


class Killed(BaseException):
    """Raised at a position in the process of the test, in place of a kill."""


class TooMany(BaseException):
    """Raised at a position far beyond the limit, so that the undisturbed run ends soon."""


class Recorder:
    """Records the positions of one attempt, and kills it at the planned one."""

    def __init__(self, kill: Kill | None, die: Callable[[], object], *, first: int, limit: int) -> None:
        self.count = 0
        self.positions: list[Position] = []  # the first `limit` of them; with a limit of 0, none
        self.has_killed = False
        self.holds_saves = kill is not None and kill.when == "unsent" and kill.number >= first
        self._kill = kill
        self._die = die
        self._first = first
        self._limit = limit

    def reach(self, what: str, *, unsent: int = 0) -> None:
        """Note a position that the attempt has reached."""
        if len(self.positions) < self._limit:
            self.positions.append(_position(what, unsent))
        elif self._limit and self.count > FAR_BEYOND * self._limit:
            raise TooMany
        self.count += 1
        self._kill_if("before", "unsent")

    def stored(self) -> None:
        """Note that the store has what the attempt stored at the last position."""
        self._kill_if("after")

    def check_alive(self) -> None:
        """Raise again if the attempt was killed and its code goes on."""
        if self.has_killed:
            self._die()

    def _kill_if(self, *times: KillTime) -> None:
        if self._kill and self._kill.number == self._first + self.count - 1 and self._kill.when in times:
            self.has_killed = True
            self._die()


class CrashLink(StoreLink):
    """The link of a job under test: every change passes a position."""

    def __init__(self, store: Store, lease: Lease, recorder: Recorder) -> None:
        super().__init__(store, lease, stopping=False)
        self._recorder = recorder
        self._unsent = 0
        self._held: list[tuple[bytes | None, str | None, str | None]] = []
        self._lock = RLock()  # a job may have threads

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        with self._lock:
            self._recorder.check_alive()
            is_position = checkpoint is not None or note is not None  # reports alone are sent from time to time
            if is_position:
                self._recorder.reach(_name_of_save(note), unsent=self._unsent)
            if self._recorder.holds_saves:
                self._held.append((checkpoint, progress, note))
            else:
                super().save(checkpoint, progress, note)
            if is_position:
                self._unsent += 1
                self._recorder.stored()

    def request(self, name: str, *arguments: Any) -> tuple[str, Any]:
        with self._lock:
            self._recorder.check_alive()
            if name == "flush":
                self.send_held()
            if not (what := _name_of_request(name, arguments)):
                return super().request(name, *arguments)
            self._recorder.reach(what, unsent=self._unsent)
            reply = super().request(name, *arguments)
            self._recorder.stored()
            return reply

    def end(self) -> None:
        """Pass the last position: the task has ended, and its outcome is not stored."""
        with self._lock:
            self._recorder.check_alive()
            self._recorder.reach(END, unsent=self._unsent)
            self.send_held()

    def send_held(self) -> None:
        self._unsent = 0
        while self._held:
            super().save(*self._held.pop(0))


def _position(what: str, unsent: int) -> Position:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or what in (START, END):
        return Position(what, unsent=unsent)
    return Position(what, frame.f_code.co_filename, frame.f_lineno, unsent)


def _name_of_request(name: str, arguments: tuple[Any, ...]) -> str:
    """Return what a request stores; "" for one that only reads or waits."""
    if name == "attach":
        return "the fields" if any(arguments) else ""
    if name == "tag":
        return "the tags" if any(arguments) else ""
    return f"step {arguments[0]}" if name == "once" and arguments[1] is not None else ""


def _name_of_save(note: str | None) -> str:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_code.co_filename == _LOOPS:
            return "the position of the loop"
        frame = frame.f_back  # type: ignore[assignment]
    return "the checkpoint" if note is None else "the note"
