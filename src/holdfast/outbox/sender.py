"""Sends what is kept on disk: when asked to, and in the background as soon as the store is back.

The thread starts when there is something to send, and ends when there is nothing more. It ends with its process at any
moment, too: what is left is sent by the next process that uses the same outbox.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Protocol

from holdfast import errors
from holdfast.outbox.outbox import Entry, Outbox
from holdfast.store.deadline import SECONDS, Deadline
from holdfast.store.store import Address, Store

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two attempts
LOOK_EVERY = 0.1  # seconds, whether a job was sent

log = logging.getLogger("holdfast.outbox")


class Place(Protocol):
    """Where an app's store is."""

    @property
    def address(self) -> Address: ...
    @property
    def store(self) -> Store: ...


class Sender:
    """The calls that an app has kept, and the thread that sends them."""

    def __init__(self, app: Place, folder: Path) -> None:
        self.outbox = Outbox(folder, app.address)
        self._store = app.store
        self._renew()

    def _renew(self) -> None:
        """A forked process has no thread of its parent's, and a lock may be held by one."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(self) -> int:
        """Send all that is kept, and return how many calls that were.

        Raises:
            StoreUnavailable, StoreFull: the rest stays where it is.
        """
        try:
            number = self.outbox.send(self._deliver)
        except errors.HoldfastError:
            raise
        except OSError as error:
            raise errors.StoreUnavailable(f"calls that are kept on disk cannot be sent: {error}") from error
        if number:
            log.info("%d calls were sent that had been kept on disk", number)
        return number

    def catch_up(self) -> bool:
        """Send what is kept, for about two seconds, unless somebody is doing that. Returns whether nothing is left.

        A program that runs for a moment only would otherwise leave it all to the next, for ever.
        """
        deadline = Deadline()

        def deliver(kept: Entry) -> None:
            self._deliver(kept, deadline.seconds_left())

        try:
            self.outbox.send(deliver, patience=0)
        except (errors.HoldfastError, OSError):  # which a TimeoutError is, too
            return False
        return not self.outbox.has_entries

    def _deliver(self, kept: Entry, seconds: float = SECONDS) -> None:
        self._store.run(kept.command.within(Deadline(seconds, size=sum(map(len, kept.blobs)))))

    def start(self) -> None:
        """Send in the background, if there is anything to send."""
        if self._pid != os.getpid():
            self._renew()
        with self._lock:
            if self._thread is not None or not self.outbox.has_entries:
                return
            self._thread = threading.Thread(target=self._send_until_done, name="holdfast-send", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the process is about to end; another will send
                self._thread = None

    def _send_until_done(self) -> None:
        pause, said = FIRST_PAUSE, ""
        while True:
            try:
                self.send()
            except errors.StoreUnavailable as error:
                log.debug("not sent yet: %s", error)
            except Exception as error:
                if str(error) != said:
                    log.warning("calls that are kept on disk cannot be sent yet: %s", error)
                said = str(error)
            with self._lock:
                if not self.outbox.has_entries:
                    self._thread = None
                    return
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def wait(self, id: str, deadline: float | None) -> None:
        """Return when a job is in the store.

        Raises:
            ResultTimeout: it is still on disk.
            HoldfastError: the store refused it.
        """
        while self.has_job(id):
            time.sleep(_patience(id, deadline))

    async def await_(self, id: str, deadline: float | None) -> None:
        """Return when a job is in the store, as `wait` does."""
        import asyncio

        while await asyncio.to_thread(self.has_job, id):
            await asyncio.sleep(_patience(id, deadline))

    def has_job(self, id: str) -> bool:
        has_job = self.outbox.has_job(id)
        if has_job:
            self.start()
        return has_job


def _patience(id: str, deadline: float | None) -> float:
    if deadline is None:
        return LOOK_EVERY
    left = deadline - time.monotonic()
    if left <= 0:
        raise errors.ResultTimeout(f"job {id} is still kept on disk: the store could not be reached in the time given")
    return min(LOOK_EVERY, left)
