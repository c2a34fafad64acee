"""Sends the calls in an outbox: on request, and in the background once the server is reachable again.

The background thread starts when the outbox has entries and ends when it has none. It may end with its process at any
moment: the next process that uses the same outbox sends the rest.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

from holdfast import errors
from holdfast.outbox.entry import Entry
from holdfast.outbox.outbox import Outbox, SendResult
from holdfast.store import Deadline, Store
from holdfast.store.deadline import DEFAULT_SECONDS

MIN_PAUSE, MAX_PAUSE = 0.1, 2.0  # seconds between two attempts
POLL_INTERVAL = 0.1  # seconds, while waiting for a job to be sent

log = logging.getLogger("holdfast.outbox")


class Sender:
    """The outbox of an app and the thread that sends its entries."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.outbox = Outbox(folder, store.address)
        self._store = store
        self._reset_thread()

    def _reset_thread(self) -> None:
        """Start without a thread: a forked process does not have its parent's, and the lock may have been held."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(self) -> SendResult:
        """Send all calls in the outbox, and count them.

        Raises:
            StoreUnavailable, StoreFull: the unsent calls stay in the outbox.
        """
        try:
            result = self.outbox.send(self._deliver)
        except errors.HoldfastError:
            raise
        except OSError as error:
            raise errors.StoreUnavailable(f"calls in the outbox cannot be sent: {error}") from error
        if result.sent:
            log.info("sent %d calls from the outbox", result.sent)
        return result

    def catch_up(self) -> bool:
        """Send for up to two seconds, unless another process is sending. Return whether the outbox is empty now.

        Without this, processes that live only for a moment would leave their calls to the next one, endlessly.
        """
        deadline = Deadline()

        def deliver(entry: Entry) -> None:
            self._deliver(entry, deadline.seconds_left())

        try:
            self.outbox.send(deliver, lock_timeout=0)
        except (errors.HoldfastError, OSError):  # includes TimeoutError
            return False
        return not self.outbox.has_entries

    def _deliver(self, entry: Entry, seconds: float = DEFAULT_SECONDS) -> None:
        self._store.run(entry.command.within(Deadline(seconds, size=sum(map(len, entry.blobs)))))

    def start(self) -> None:
        """Send in the background, if the outbox has entries."""
        if self._pid != os.getpid():
            self._reset_thread()
        with self._lock:
            if self._thread is not None or not self.outbox.has_entries:
                return
            self._thread = threading.Thread(target=self._send_until_empty, name="holdfast-send", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the process is exiting; another one will send
                self._thread = None

    def _send_until_empty(self) -> None:
        pause, last_error = MIN_PAUSE, ""
        while True:
            try:
                self.send()
            except errors.StoreUnavailable as error:
                log.debug("not sent yet: %s", error)
            except Exception as error:
                if str(error) != last_error:
                    log.warning("calls in the outbox cannot be sent yet: %s", error)
                last_error = str(error)
            with self._lock:
                if not self.outbox.has_entries:
                    self._thread = None
                    return
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def wait_until_sent(self, id: str, deadline: float | None) -> None:
        """Wait until a job has left the outbox.

        Raises:
            ResultTimeout: it is still there at the deadline.
            HoldfastError: the store refused it.
        """
        while self._is_unsent(id):
            time.sleep(_next_pause(id, deadline))

    async def await_until_sent(self, id: str, deadline: float | None) -> None:
        """Wait until a job has left the outbox, like `wait_until_sent`."""
        import asyncio

        while await asyncio.to_thread(self._is_unsent, id):
            await asyncio.sleep(_next_pause(id, deadline))

    def _is_unsent(self, id: str) -> bool:
        is_unsent = self.outbox.has_job(id)
        if is_unsent:
            self.start()
        return is_unsent


def _next_pause(id: str, deadline: float | None) -> float:
    if deadline is None:
        return POLL_INTERVAL
    left = deadline - time.monotonic()
    if left <= 0:
        raise errors.ResultTimeout(f"job {id} is still in the outbox: the server was not reachable before the timeout")
    return min(POLL_INTERVAL, left)
