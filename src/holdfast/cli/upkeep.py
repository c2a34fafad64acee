"""`holdfast upkeep`: process due timers where all workers may be scaled to zero."""

from __future__ import annotations

import signal
import time

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.errors import print_error, print_note
from holdfast.cli.exit_codes import REFUSED
from holdfast.client.libraries import remove_unused_libraries
from holdfast.client.upkeep import Upkeep
from holdfast.errors import StoreUnavailable
from holdfast.records.upkeep import UPKEEP
from holdfast.text import pluralize

MAX_WAIT = 1.0  # seconds: something that is due soon may have been stored meanwhile
MIN_WAIT = 0.01  # seconds
RETRY_INTERVAL = 0.5  # seconds, while the store is unreachable
LIBRARY_INTERVAL = 86_400.0  # seconds between two removals of unused function libraries
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@command("upkeep", "holdfast upkeep", "holdfast upkeep --once", output=UPKEEP)
@click.option("--once", is_flag=True, help="Process everything that is due, and exit.")
@pass_client
def upkeep(client: Client, once: bool) -> int:
    """Process due timers without a worker, until SIGTERM or Ctrl-C.

    Delayed jobs become waiting, schedules fire, deadlines and leases expire, throttled jobs get free slots of their
    limits, and expired records are removed. Workers do all of this, so `upkeep` is needed only where all workers may be
    scaled to zero: without it, `holdfast load` is still right, but nothing changes. It needs no app, and runs no jobs;
    several may run at once. It prints the number of processed timers whenever there are any. Exit code 1 if some cannot
    be processed.
    """
    app = client.app
    if once:
        result = app.upkeep()
        _print(client, result)
        return REFUSED if _print_overdue(result) else 0
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # delivered by sigtimedwait below
    print_note(f"processing timers of namespace {app.address.namespace} at {app.address.display}; Ctrl-C ends it")
    loop = _Loop(client)
    while not signal.sigtimedwait(SIGNALS, loop.step()):
        pass
    return 0


class _Loop:
    """Processes due timers repeatedly, and reports changes of the situation only."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_unreachable = False
        self._overdue = 0
        self._libraries_due = time.monotonic()

    def step(self) -> float:
        """Process everything that is due. Return how many seconds to wait."""
        try:
            result = self._client.app.upkeep()
            self._remove_libraries()
        except StoreUnavailable as error:
            if not self._is_unreachable:
                print_error(f"{error}; retrying until it is reachable", error.code)
            self._is_unreachable = True
            return RETRY_INTERVAL
        if self._is_unreachable:
            print_note("the store is reachable again")
        if result.processed:
            _print(self._client, result)
        if result.overdue != self._overdue:
            _print_overdue(result)
        self._is_unreachable, self._overdue = False, result.overdue
        return MAX_WAIT if result.wait is None or result.overdue else max(MIN_WAIT, min(MAX_WAIT, result.wait))

    def _remove_libraries(self) -> None:
        """Remove unused function libraries, once a day."""
        if time.monotonic() >= self._libraries_due:
            for name in remove_unused_libraries(self._client.app.store):
                print_note(f"removed the function library {name}, which nobody has called for 30 days")
            self._libraries_due = time.monotonic() + LIBRARY_INTERVAL


def _print(client: Client, result: Upkeep) -> None:
    client.output.stream(UPKEEP.record(result), UPKEEP)


def _print_overdue(result: Upkeep) -> bool:
    if result.overdue:
        print_error(f"cannot process {pluralize(result.overdue, 'overdue timer')}; a newer release may know how")
    return result.overdue > 0
