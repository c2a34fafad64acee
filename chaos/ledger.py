"""The ledger: a file for each job, outside of the store, to which its attempts append what they do.

    begin <done> <by>     an attempt begins with a checkpoint: the number of items done, and the attempt that saved it
    item <number>         an item is done
    save <done>           a checkpoint is about to be saved
    kept <done>           ... and the store has acknowledged it
    refused <done>        ... or refused it: the lease is lost
    did <step>            a step of `once` is done
    step <step> <value>   `once` has returned
    line <words>          a line was printed, and flushed
    end                   the task returns

A line is one write to a file that was opened for appending, and begins with the end of the one before: a write that was
cut off by a kill spoils no other. Times are those of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

LAST = ";"  # a line without it was cut off


class Entry(NamedTuple):
    """A line: when, of which attempt and process, what."""

    at: int  # nanoseconds
    attempt: int
    pid: int
    word: str
    rest: str = ""

    @property
    def number(self) -> int:
        """The first of the words after the first."""
        return int(self.rest.split()[0])

    @property
    def by(self) -> int:
        """Of a beginning: which attempt has saved what it found; -1 if that is not known."""
        return int(self.rest.split()[1])

    def __str__(self) -> str:
        return f"{self.at / 1e9:.3f} attempt {self.attempt} process {self.pid}: {self.word} {self.rest}".rstrip()


class Page:
    """The ledger of a job, as one attempt writes to it."""

    def __init__(self, path: Path, attempt: int) -> None:
        self._attempt = attempt
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, word: str, *rest: object) -> None:
        words = " ".join(map(str, (time.monotonic_ns(), self._attempt, os.getpid(), word, *rest)))
        os.write(self._descriptor, f"\n{words} {LAST}".encode())

    def close(self) -> None:
        os.close(self._descriptor)


class Book:
    """All ledgers of a directory, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: dict[str, list[Entry]] = {}
        self._begun: dict[str, list[Entry]] = {}
        self._ended: set[tuple[str, int]] = set()
        self._read: dict[str, int] = {}

    def of(self, job: str) -> list[Entry]:
        """What is in the ledger of a job by now."""
        entries = self._entries.setdefault(job, [])
        path = self.folder / job
        if not path.exists():
            return entries
        with path.open("rb") as file:
            file.seek(self._read.get(job, 0))
            data = file.read()
        whole = data.rfind(LAST.encode()) + 1  # the rest may be in the middle of being written
        self._read[job] = self._read.get(job, 0) + whole
        new = [entry for line in data[:whole].decode().split("\n") if (entry := parse(line))]
        self._begun.setdefault(job, []).extend(entry for entry in new if entry.word == "begin")
        self._ended.update((job, entry.attempt) for entry in new if entry.word == "end")
        entries += new
        return entries

    def begun(self, job: str) -> list[Entry]:
        """The beginnings of its attempts so far."""
        self.of(job)
        return self._begun.get(job, [])

    def running(self, job: str) -> Entry | None:
        """The beginning of its last attempt, unless that has ended."""
        begun = self.begun(job)
        return begun[-1] if begun and (job, begun[-1].attempt) not in self._ended else None


def parse(line: str) -> Entry | None:
    """Read a line; None if it was cut off."""
    words = line.split()
    if len(words) < 5 or words[-1] != LAST:
        return None
    at, attempt, pid, word, *rest = words[:-1]
    return Entry(int(at), int(attempt), int(pid), word, " ".join(rest))
