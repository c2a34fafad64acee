"""Every message between the processes of a worker, with its sender, its receiver and its fields.

    supervisor ◀──▶ executor ◀──▶ job's process
                        ◀──▶ zygote

A message is a msgpack array: its name, then its fields. Where the connection is a stream, its length comes first
(`pack`); the zygote's sockets keep messages apart by themselves (`encode`). `transport` reads and writes streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from holdfast.job import outcome
from holdfast.job.outcome import Outcome
from holdfast.redis_work_queue.shared_queue import SharedQueue

MAX_PACKET = 256  # bytes of a message to or from the zygote


class Message(msgspec.Struct, array_like=True, tag=True, gc=False):
    """The base of all messages."""


# Supervisor to executor


class Stop(Message):
    """End within a deadline: jobs see `stopping` now, and are interrupted when it is over."""

    seconds: float


class Retire(Message):
    """Claim no more, and end when all jobs have ended."""


class LeaveIfIdle(Message):
    """Retire, unless there is work: the worker runs in burst mode, and every executor is idle."""


class AllowClaims(Message):
    """Start or stop claiming; when stopped, release jobs that have not started.

    Sent to a new executor, and when the server starts or stops evicting jobs.
    """

    allowed: bool


class ClaimNow(Message):
    """There may be work: claim without waiting."""


class Grant(Message):
    """Run up to this many jobs more, of a worker that has a limit (`max_jobs`)."""

    jobs: int


class PredecessorLoad(Message):
    """The executors that this one replaced still run these jobs, which occupy its slots."""

    processes: int  # jobs that have a process of their own
    inprocess: int  # jobs that share the executor's process


class LeaseRenewed(Message):
    """The supervisor has renewed the lease of an exclusive job for the first time."""

    id: str
    attempt: int


class Interrupt(Message):
    """End an attempt early."""

    id: str
    attempt: int
    reason: Literal["cancelled", "lost", "lapsing"]


class StackRequest(Message):
    """Reply with the stack of a job that shares the executor's process."""

    id: str
    attempt: int
    inbox: str


class Ping(Message):
    """Reply with a Pong, to prove that no coroutine blocks the event loop."""


FromSupervisor = (
    Stop
    | Retire
    | LeaveIfIdle
    | AllowClaims
    | ClaimNow
    | Grant
    | PredecessorLoad
    | LeaseRenewed
    | Interrupt
    | StackRequest
    | Ping
)


# Executor to supervisor


class LoadedFiles(Message):
    """The source files that the app was imported from; only sent with `--reload`."""

    paths: list[str]


class LoadFailed(Message):
    """The app could not be imported, or not be served by this pool. The executor ends."""

    reason: str


class AppLoaded(Message):
    """The executor has imported the app, and waits for AllowClaims."""

    tasks: list[str]
    in_process: list[str]  # those that run in the executor's own process: coroutines and threads
    revision: int
    queues: list[str]  # that its tasks use
    url: str | None
    home: str
    namespace: str
    timeout: float
    schedules: list[Any]  # that it declares, as arguments of the command
    limits: list[Any]  # in the same way
    shared_queues: list[SharedQueue] = []
    subscriptions: list[Any] = []  # that it declares, as arguments of the command


class LeasedJob(msgspec.Struct, array_like=True, gc=False):
    """One job of a claim."""

    id: str
    attempt: int
    lease: int  # milliseconds
    max_silence: int  # milliseconds that its executor may be unresponsive, by the job's limits; 0: no limit
    task: str


class JobsClaimed(Message):
    """The executor holds these leases from now on; sent before any of the jobs starts."""

    jobs: list[LeasedJob]


class ExclusiveClaimed(Message):
    """An exclusive job was claimed: kill it before its lease can lapse."""

    executor: str
    id: str
    attempt: int
    lease: int  # milliseconds
    claimed_at: float  # by the clock of `boot_time`


class JobStarted(Message):
    """A job runs in a process of its own."""

    id: str
    attempt: int
    pid: int
    delay: int  # milliseconds since it was claimed
    created: int


class AttemptsEnded(Message):
    """The executor holds these leases no longer."""

    attempts: list[tuple[str, int]]


class JobCounted(Message):
    """A job has run that counts against the grant of the executor."""


class Woken(Message):
    """A retiring executor was woken by the store: its successor has to claim."""


class Idle(Message):
    """In burst mode: a claim brought nothing, and no job runs."""


class Leaving(Message):
    """The executor ends because there is no work. Sent before Retiring."""


class Retiring(Message):
    """The executor claims no more."""

    unused: int  # jobs that it was granted and will not run


class ResultMismatch(Message):
    """A result does not fit the return annotation of its task."""

    task: str
    id: str
    note: str


class AttemptCounts(Message):
    """How many attempts ended in one second, by how they ended."""

    counts: dict[str, int]


class StackReply(Message):
    """The stack of a job, '' before it has started, None if it does not run here."""

    inbox: str
    stack: str | None


class Pong(Message):
    """The reply to a Ping."""


FromExecutor = (
    LoadedFiles
    | LoadFailed
    | AppLoaded
    | JobsClaimed
    | ExclusiveClaimed
    | JobStarted
    | AttemptsEnded
    | JobCounted
    | Woken
    | Idle
    | Leaving
    | Retiring
    | ResultMismatch
    | AttemptCounts
    | StackReply
    | Pong
)


# Executor to job's process


class RunCall(Message):
    """Run a job."""

    turn: int  # the number of the job among those of this process
    call: list[Any]  # the fields of a `Call`


class StopJob(Message):
    """Let the job see `stopping`."""

    reason: str


class Reply(Message):
    """The reply to a Request."""

    number: int
    code: str  # of an error; '' if there is none
    value: Any  # or the message of the error


ToJob = RunCall | StopJob | Reply


# Job's process to executor


class JobReceived(Message):
    """The process has read its RunCall: a crash from now on is charged to the job."""


class Save(Message):
    """What a running job saves; None: unchanged."""

    turn: int
    checkpoint: bytes | None
    progress: str | None
    note: str | None


class Request(Message):
    """A running job waits for something that its executor asks the store for."""

    turn: int
    number: int
    name: str  # flush, once, attach, tag
    arguments: list[Any]


class JobEnded(Message):
    """How the attempt ended: the name of an outcome, and its fields."""

    kind: str
    fields: list[Any]

    @classmethod
    def of(cls, ended: Outcome) -> JobEnded:
        return cls(type(ended).__name__, [getattr(ended, name) for name in ended.__match_args__])

    @property
    def outcome(self) -> Outcome:
        made: Outcome = _OUTCOMES[self.kind](*self.fields)
        return made


FromJob = JobReceived | Save | Request | JobEnded

_OUTCOMES = {
    kind.__name__: kind
    for kind in (
        outcome.Advanced,
        outcome.Blocked,
        outcome.Succeed,
        outcome.Error,
        outcome.Crash,
        outcome.Release,
        outcome.Unknown,
        outcome.Snoozed,
        outcome.Cancelled,
    )
}


# Executor to zygote, with the other end of a socket pair attached

ProcessKind = Literal["fork", "spawn", "reuse", "alone"]
FORK: Final = "fork"  # a process for one job
SPAWN: Final = "spawn"  # a process for one job, with an interpreter of its own
REUSE: Final = "reuse"  # a process for many jobs; under a zygote that can only spawn, with an interpreter of its own
ALONE: Final = "alone"  # a zygote for one job, with a guard as its parent; the socket is its control socket


class StartProcess(Message):
    """Start a process, and reply with ProcessStarted or ProcessRefused, in the order of these messages."""

    kind: ProcessKind


# Zygote to executor


class ProcessStarted(Message):
    """The process runs, and waits for a RunCall."""

    pid: int


class ProcessRefused(Message):
    """The machine is out of processes, memory or descriptors."""


class ProcessEnded(Message):
    """A process has ended, and nothing that it started is left."""

    pid: int
    status: int  # as `os.wait` returns it; UNKNOWN_STATUS if something else in the zygote has reaped the process
    memory: int  # bytes, at most


UNKNOWN_STATUS = -1

FromZygote = ProcessStarted | ProcessRefused | ProcessEnded


KINDS = frozenset(str(kind.__struct_config__.tag) for kind in Message.__subclasses__())

encode = msgspec.msgpack.Encoder().encode


def decoder(union: Any) -> Callable[[bytes | bytearray], Any]:
    """Make the function that decodes the messages of one sender: FromJob, FromZygote ..."""
    return msgspec.msgpack.Decoder(union).decode


def pack(message: Message) -> bytes:
    """Encode a message for a stream."""
    body = encode(message)
    return len(body).to_bytes(4) + body
