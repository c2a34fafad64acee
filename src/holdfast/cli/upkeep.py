"""A program that moves time on, for where all workers may be gone: it claims nothing, and runs no app."""

from __future__ import annotations

import signal

import click

from holdfast.cli.complaints import complain, note
from holdfast.cli.exits import REFUSED
from holdfast.cli.fields import UPKEPT
from holdfast.cli.output import Column
from holdfast.cli.session import Session, command, pass_session
from holdfast.client.upkeep import Upkeep
from holdfast.errors import StoreUnavailable

EVERY = 1.0  # seconds, at most: something that is due soon may have come meanwhile
SOON = 0.01  # seconds, at least
AWAY = 0.5  # seconds until the next try, while the store is away
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@command("upkeep", "holdfast upkeep", "holdfast upkeep --once", fields=UPKEPT)
@click.option("--once", is_flag=True, help="Move all that is due, and end.")
@pass_session
def upkeep(session: Session, once: bool) -> int:
    """Move time on where no worker runs, until SIGTERM or Ctrl-C.

    Due jobs become waiting, schedules fire, deadlines and leases end, parked jobs whose limit has room wait again, and
    what is kept too long is removed. Workers do all of this in passing, so this is for where all of them may be scaled
    to zero: then `holdfast load` is right all the same, but nothing moves. It needs no app and claims nothing; any
    number may run at once. Printed is how much was moved, whenever something was. Exit code 1 if something cannot be
    moved.
    """
    app = session.app
    if once:
        done = app.upkeep()
        _show(session, done)
        return REFUSED if _complain_of_rest(done) else 0
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # they wait until they are looked at, below
    note(f"moving what is due in namespace {app.address.namespace} of {app.address.display}; Ctrl-C ends it")
    loop = _Loop(session)
    while not signal.sigtimedwait(SIGNALS, loop.step()):
        pass
    return 0


class _Loop:
    """Moves what is due again and again, and says of what goes on only that it begins and ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_away = False
        self._rest = 0

    def step(self) -> float:
        """Move all that is due. Returns how many seconds to wait."""
        try:
            done = self._session.app.upkeep()
        except StoreUnavailable as error:
            if not self._is_away:
                complain(f"{error}; trying again until it is back", error.code)
            self._is_away = True
            return AWAY
        if self._is_away:
            note("the store is back")
        if done.moved:
            _show(self._session, done)
        if done.overdue != self._rest:
            _complain_of_rest(done)
        self._is_away, self._rest = False, done.overdue
        return EVERY if done.wait is None or done.overdue else max(SOON, min(EVERY, done.wait))


def _show(session: Session, done: Upkeep) -> None:
    columns = [Column("MOVED", lambda row: row["moved"], right=True)]
    session.output.stream({"moved": done.moved, "overdue": done.overdue}, columns)


def _complain_of_rest(done: Upkeep) -> bool:
    if done.overdue:
        complain(f"{done.overdue:,} timers are overdue and cannot be moved; a worker of another release may know how")
    return done.overdue > 0
