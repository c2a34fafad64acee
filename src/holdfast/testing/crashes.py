"""The crash test: run a job once undisturbed, then once for each kill, and compare what it leaves behind.

    undisturbed run ──▶ positions ──▶ one run per kill ──▶ comparison ──▶ message

Each attempt runs in a fork of the test's process, so a kill is a real SIGKILL: no `except`, `finally` or `with` of the
task runs. In the process of the test, for effects that live in its memory, an exception takes the place of the kill.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import msgspec

from holdfast.app import Holdfast
from holdfast.constants import MAX_BATCH
from holdfast.errors import Invalid, JobNotFound, WrongState
from holdfast.job.job import Job
from holdfast.job.outcome import Cancelled, Unknown
from holdfast.running import loops
from holdfast.store.commands import Lease
from holdfast.task.call import CallEnd, LocalCall, crash_outcome
from holdfast.task.task import BoundCall
from holdfast.testing import differences
from holdfast.testing.assertions import why_pending
from holdfast.testing.differences import Crash, Left
from holdfast.testing.environment import bench_of
from holdfast.testing.forked import Die, Died, call_in_fork
from holdfast.testing.positions import END, START, CrashLink, Kill, Killed, Position, Recorder, TooMany
from holdfast.testing.workbench import Workbench, require_no_loop
from holdfast.units import Duration, milliseconds
from holdfast.worker.messages import JobEnded, encode

MAX_POSITIONS = 100
MAX_TURNS = 1000  # attempts and waits of one run; more of them suggest a job that never ends


class CrashOptions(TypedDict, total=False):
    """The options of `crash_everywhere`."""

    effects: Callable[[], object] | None
    reset: Callable[[], object] | None
    in_process: bool
    limit: int
    timeout: Duration


class Attempted(msgspec.Struct):
    """An attempt that was not killed: its end, and the positions that it passed."""

    ended: JobEnded
    positions: list[Position]
    passed: int


class Run(NamedTuple):
    """One run of the job, with all of its attempts."""

    left: Left
    positions: list[Position]
    was_killed: bool


_decode = msgspec.msgpack.Decoder(Attempted).decode


def crash_everywhere(
    call: BoundCall[Any],
    *,
    effects: Callable[[], object] | None = None,
    reset: Callable[[], object] | None = None,
    in_process: bool = False,
    limit: int = MAX_POSITIONS,
    timeout: Duration = "1m",
) -> int:
    """Kill a job at each of its positions, one kill per run, and compare each run with an undisturbed one.

    crash_everywhere(bill.bind(7), effects=lambda: ledger.read_text(), reset=lambda: ledger.write_text(""))

    A position is the start or the end of an attempt, a save, a note, an item of a loop, or a step. The job is killed
    before and after the store has the change, and then goes on until it ends. Compared are its result, the jobs that it
    enqueued, how far its progress got, its notes, of which none may be missing, and what `effects` returns: a snapshot
    of what the task changes elsewhere. `reset` is called before each run. Returns the number of kills.

    Attempts run in forks of this process and are killed with SIGKILL, so `effects` cannot see variables of the task.
    With `in_process` they run here, and an exception takes the place of the kill: `finally` blocks run. The app is the
    one in use by a `Workbench`, whose clock advances to each retry; without one, a server is started.

    Raises:
        AssertionError: runs differ; or the job fails without a kill, has more than `limit` positions, or an attempt
            does not end within `timeout`.
    """
    __tracebackhide__ = True
    seconds = milliseconds(timeout, what="timeout", minimum=1) / 1000
    require_no_loop("acrash_everywhere()")
    with bench_of(_app_of(call)) as bench:
        test = CrashTest(bench, call, effects=effects, reset=reset, in_process=in_process, limit=limit, seconds=seconds)
        undisturbed = test.undisturbed()
        kills = list(_kills(undisturbed.positions))
        crashes = [Crash(undisturbed.positions[kill.number], kill.when, test.run(kill)) for kill in kills]
    if message := differences.report(call.task, undisturbed.left, crashes):
        raise AssertionError(message)
    return len(kills)


async def acrash_everywhere(call: BoundCall[Any], **options: Unpack[CrashOptions]) -> int:
    """Kill a job at each of its positions, like `crash_everywhere`, in a thread next to the event loop."""
    __tracebackhide__ = True
    return await asyncio.to_thread(crash_everywhere, call, **options)


def _app_of(call: BoundCall[Any]) -> Holdfast:
    if not isinstance(call, BoundCall):
        raise Invalid(f"expected a bound call, as task.bind(...), got {call!r:.200}")
    app = call.variant.app
    if not isinstance(app, Holdfast):
        raise Invalid(f"{call.name} belongs to {app!r}, which is not a Holdfast app")
    return app


def _kills(positions: list[Position]) -> Iterator[Kill]:
    for number, position in enumerate(positions):
        yield Kill(number, "before")
        if position.what not in (START, END):
            yield Kill(number, "after")
        if position.unsent:
            yield Kill(number, "unsent")


class CrashTest:
    """Runs one call again and again, each time from the beginning."""

    def __init__(
        self,
        bench: Workbench,
        call: BoundCall[Any],
        *,
        effects: Callable[[], object] | None,
        reset: Callable[[], object] | None,
        in_process: bool,
        limit: int,
        seconds: float,
    ) -> None:
        if call.effective_options.at_most_once:
            raise Invalid(f"{call.name} runs at most once: a crash ends its job, so there is nothing to compare")
        if waiting := bench.app.count(state="waiting"):
            raise Invalid(f"the app has waiting jobs ({waiting}), which would run too: run or delete them first")
        self._bench = bench
        self._call = call.options(id=call.id)
        self._effects = effects
        self._reset = reset
        self._in_process = in_process
        self._limit = limit
        self._seconds = seconds
        self._events = bench._enqueued_since("start")[1]
        self._claimed: dict[str, str] = {}  # the jobs of a run by id, also those that are not kept

    def undisturbed(self) -> Run:
        """Run the job twice without a kill.

        Raises:
            AssertionError: it does not succeed, has no visible effects, has too many positions, or both runs differ.
        """
        __tracebackhide__ = True
        run = self.run(None)
        name, left = self._call.name, run.left
        if left.state != "succeeded":
            raise AssertionError(f"{name} ended as {left.state} without a crash: {left.why or 'no reason is known'}")
        if self._effects is not None and left.effects == left.effects_before:
            raise AssertionError(
                f"{name} has changed nothing that effects() returns: {left.effects!r:.200}{self._hint}"
            )
        again = self.run(None)
        if lines := differences.lines(left, again.left):
            reset = "" if self._effects is None or self._reset else " Without reset=, effects of earlier runs are left."
            raise AssertionError(f"two runs of {name} differ without a crash.{reset}\n" + "\n".join(lines))
        if [each.what for each in run.positions] != [each.what for each in again.positions]:
            raise AssertionError(f"two runs of {name} differ without a crash: they save or do steps in another order")
        return run

    @property
    def _hint(self) -> str:
        if self._in_process:
            return ""
        return (
            ". The job runs in a process of its own: return what is outside of the process, such as a file or rows of "
            "a database, or pass in_process=True"
        )

    def run(self, kill: Kill | None) -> Run:
        """Run the job until it ends, with one kill or none."""
        if self._reset is not None:
            self._reset()
        before = self._snapshot()
        self._claimed.clear()
        try:
            job = self._bench.app.enqueue(self._call)
            if not job.created:
                raise Invalid(
                    f"job {job.id} exists already, in state {job.state}; bind the call again, or delete the job"
                )
            if self._bench.app.get(job.id).crashes == 0:
                raise Invalid(f"{job.task} has crashes=0: a crash ends its job, so there is nothing to compare")
            record, attempts, was_killed = self._run_until_ended(job, kill)
            left = self._left(record, before)
        finally:
            self._remove_jobs()
        return Run(left, [position for attempt in attempts for position in attempt.positions], was_killed)

    def _run_until_ended(self, job: Job[Any], kill: Kill | None) -> tuple[Job[Any], list[Attempted], bool]:
        """Run the job and those that it enqueues; returns its record, its whole attempts, and whether it was killed."""
        record, attempts, was_killed = job, list[Attempted](), False
        for _ in range(MAX_TURNS):
            attempt = self._bench._claim(None, False)
            if attempt is None and record.is_final:
                return record, attempts, was_killed
            if attempt is None:
                self._advance(record)
                continue
            self._claimed[attempt.job.id] = _text_of(attempt.job)
            own = attempt.job.id == job.id
            first = sum(each.passed for each in attempts)
            recorder_of = _Recorders(kill if own and not was_killed else None, first, self._limit if own else 0)
            try:
                attempted = self._attempt(attempt, recorder_of)
                if own and isinstance(attempted, Attempted):
                    self._check_number(attempted.passed + (first if kill is None else 0), attempt.job.attempt)
            except BaseException:
                self._bench._record(attempt.job, Cancelled())
                raise
            after = self._bench._finish(attempt, _end_of(attempted), False)
            if own:
                record, was_killed = after, was_killed or attempted is None
                attempts += [attempted] if isinstance(attempted, Attempted) else []
        what = (
            f"{job.task} has {record.state}, but the jobs that it enqueued go on"
            if record.is_final
            else f"{job.task} is still {record.state}"
        )
        raise AssertionError(f"{what} after {MAX_TURNS} attempts and waits; does a task enqueue itself endlessly?")

    def _check_number(self, positions: int, attempts: int) -> None:
        if positions <= self._limit:
            return
        where = f"{self._call.name} can be killed at {positions} positions or more"
        if positions <= 2 * attempts + self._limit // 2:  # most of them are the starts and ends of attempts
            raise AssertionError(
                f"{where} (limit {self._limit}) in {attempts} attempts, and has not ended: does it snooze without end, "
                "or wait for new jobs in each attempt? Jobs to wait for need an id"
            )
        raise AssertionError(
            f"{where} (limit {self._limit}): call it with less work, fewer items for example, or pass a higher limit="
        )

    def _attempt(self, attempt: LocalCall, recorder_of: _Recorders) -> Attempted | Died | None:
        """Make an attempt; returns None if it was killed as planned."""
        lease = Lease(self._bench._executor, attempt.job.id, attempt.job.attempt)

        def make(die: Callable[[], Any]) -> Attempted | None:
            recorder = recorder_of(die)
            link = CrashLink(self._bench.app.store, lease, recorder)
            return _attempted(attempt._replace(link=link), link, recorder)

        if self._in_process:
            return make(_raise_killed)
        try:
            reply = call_in_fork(lambda die: encode(make(die)), self._seconds)
        except Died as died:
            return died
        except TimeoutError:
            raise AssertionError(
                f"attempt {attempt.job.attempt} of {attempt.job.task} has not ended within {self._seconds:g} s; pass a "
                "longer timeout= if that is normal"
            ) from None
        return None if reply is None else _decode(reply)

    def _advance(self, record: Job[Any]) -> None:
        """Let time pass until the job is due, or one that it may wait for."""
        app = self._bench.app
        job = app.get(record.id)
        others = [] if job.due_at else app.list(state="scheduled", limit=MAX_BATCH)
        times = [each.due_at for each in (job, *others) if each.due_at]
        if not times:
            raise AssertionError(f"{job.task} cannot go on: it is {job.state}{why_pending(job)}")
        self._bench.advance(max(min(times) - self._bench.now, timedelta(milliseconds=1)))

    # What a run leaves behind

    def _snapshot(self) -> object:
        return None if self._effects is None else copy.deepcopy(self._effects())

    def _left(self, record: Job[Any], before: object) -> Left:
        ids, _ = self._bench._enqueued_since(self._events)  # an id twice, if its first job was not kept
        texts = self._claimed | {job.id: _text_of(job) for job in self._bench._records(ids)}
        return Left(
            state=record.state,
            why=record.why,
            result=msgspec.json.decode(record.result_bytes or b"null"),
            jobs=sorted(texts.get(id, "a job that is not kept") for id in ids if id != record.id),
            notes=[note.text for note in record.notes if note.what == "reported"],
            progress=record.progress.fraction if record.progress else None,
            effects=self._snapshot(),
            effects_before=before,
        )

    def _remove_jobs(self) -> None:
        """Remove the jobs of a run, so that the next one begins as this one did."""
        ids, self._events = self._bench._enqueued_since(self._events)
        app = self._bench.app
        for job in self._bench._records(ids):
            with suppress(WrongState):  # it has ended, perhaps because one that it waits for was cancelled
                app.cancel(job.id)
        for id in reversed(ids):  # those that wait for others were enqueued after them, as a rule
            with suppress(JobNotFound):
                app.delete(id)


class _Stored(Protocol):
    @property
    def task(self) -> str: ...
    @property
    def payload(self) -> bytes | None: ...


def _text_of(job: _Stored) -> str:
    """Return the task and the arguments of a job."""
    return f"{job.task}({(job.payload or b'').decode(errors='replace')})"


class _Recorders(NamedTuple):
    """Makes the recorder of an attempt, once it is known how that dies."""

    kill: Kill | None
    first: int
    limit: int

    def __call__(self, die: Die | Callable[[], object]) -> Recorder:
        return Recorder(self.kill, die, first=self.first, limit=self.limit)


def _attempted(attempt: LocalCall, link: CrashLink, recorder: Recorder) -> Attempted | None:
    try:
        with _each_item_saved():
            recorder.reach(START)
            end = attempt.call()
            end.reraise(errors=False)
            link.end()
    except Killed:
        return None
    except TooMany:
        end = CallEnd(Unknown())  # never stored: see `_check_number`
    return None if recorder.has_killed else Attempted(JobEnded.of(end.outcome), recorder.positions, recorder.count)


@contextmanager
def _each_item_saved() -> Iterator[None]:
    """Let loops save after each item, not from time to time: then each item is a position."""
    before, loops.SAVE_INTERVAL = loops.SAVE_INTERVAL, 0.0
    try:
        yield
    finally:
        loops.SAVE_INTERVAL = before


def _raise_killed() -> None:
    raise Killed


def _end_of(attempted: Attempted | Died | None) -> CallEnd:
    """Return how an attempt ended, as a worker reports it."""
    if attempted is None:
        return CallEnd(crash_outcome("killed by crash_everywhere", signal=9))
    if isinstance(attempted, Died):
        return CallEnd(crash_outcome("its process ended", exit_code=attempted.exit_code, signal=attempted.signal))
    return CallEnd(attempted.ended.outcome)
