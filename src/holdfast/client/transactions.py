"""Enqueue inside a transaction of another client: jobs are stored if and only if its EXEC runs.

See docs/transactions.md.

enqueue_with ──▶ check_enqueue (now) ──▶ FCALL in the pipeline ──▶ its execute() ──▶ QueuedJobs.jobs(replies)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast import errors
from holdfast.client.enqueue import App, Chunk, existing_job, needs_replica, new_jobs
from holdfast.constants import MAX_BATCH, MAX_PAYLOAD
from holdfast.job.job import Job
from holdfast.names import check_own_key
from holdfast.store import AsyncStore, Steps, Store, client_method, commands, read_url
from holdfast.store.commands import EnqueueReply
from holdfast.task.task import BoundCall

KIND = "a pipeline of redis-py or valkey-py, such as client.pipeline()"


class Pipeline(Protocol):
    """A transaction of redis-py or valkey-py, sync or async, of one server or of a cluster."""

    def __len__(self) -> int: ...
    def execute_command(self, *parts: Any) -> Any: ...


class QueuedJobs:
    """Calls in a transaction that has not been executed yet."""

    def __init__(self, app: App, chunk: Chunk, position: int) -> None:
        self.ids: list[str] = [call.id for call in chunk.calls]  # of the jobs, unless a unique key has an owner
        self._app = app
        self._chunk = chunk
        self._position = position

    def __repr__(self) -> str:
        return f"<QueuedJobs {' '.join(self.ids[:3])}{' ...' if len(self.ids) > 3 else ''}>"

    @property
    def store(self) -> Store:
        return self._app.store

    @property
    def async_store(self) -> AsyncStore:
        return self._app.async_store

    def _jobs(self, replies: Sequence[Any]) -> Steps[list[Job[Any]]]:
        """Return the jobs, given the list that `execute()` of the pipeline returned.

        Raises:
            HoldfastError: the server refused these jobs; the rest of the transaction was executed.
        """
        if not isinstance(replies, Sequence) or len(replies) <= self._position:
            raise errors.Invalid("expected the list of replies that execute() of the pipeline returned")
        stored = _read_reply(self._chunk, replies[self._position])
        jobs = dict(zip(stored.ids, new_jobs(self._app, self._chunk, stored), strict=True))
        if not all(stored.created) or any(task.effective_options.after for task in self._chunk.tasks):
            calls = dict(zip(stored.ids, self._chunk.calls, strict=True))
            for fields in filter(None, (yield commands.get(list(calls), brief=True))):
                jobs[fields["id"]] = existing_job(self._app, calls[fields["id"]], fields)
        return [jobs[id] for id in stored.ids]

    jobs, ajobs = client_method(_jobs, "QueuedJobs")


def enqueue_with(self: App, pipeline: Pipeline, /, *calls: BoundCall[Any]) -> Steps[QueuedJobs]:
    """Add bound calls to a transaction of another client of the same server: they are stored if its EXEC runs.

    with client.pipeline() as pipe:
        pipe.decrby("stock:pen", 2)
        queued = jobs.enqueue_with(pipe, ship.bind("pen", 2))
        replies = pipe.execute()
    [job] = queued.jobs(replies)

    The calls are checked by the store first, all or none, so that EXEC does not refuse them. If the reply of EXEC is
    lost, repeat the transaction with the same calls: their jobs are stored once.

    Raises:
        Invalid: this is not a transaction, it executes commands immediately, or it uses another database.
        HoldfastError: the store would refuse the calls; nothing was added.
    """
    _check(pipeline, self)
    if not 1 <= len(calls) <= MAX_BATCH:
        raise errors.Invalid(f"expected 1 to {MAX_BATCH} calls, got {len(calls)}")
    chunk = Chunk.of(self, calls)
    if needs_replica(chunk.tasks):
        raise errors.Invalid("acknowledge='replica' is not possible in a transaction; call WAIT after its EXEC instead")
    for call in calls:
        if len(call.payload) > MAX_PAYLOAD:
            raise errors.TooBig(f"the arguments of job {call.id} are {len(call.payload)} bytes (limit {MAX_PAYLOAD})")
    yield commands.check_enqueue(chunk.command)  # also loads the library
    position = len(pipeline)
    pipeline.execute_command(*self.store.pack(chunk.command))
    return QueuedJobs(self, chunk, position)


def key(self: App, name: str, /) -> str:
    """Return the name of a key for data of yours in the slot of the jobs: `hf:{namespace}:own:<name>`.

    Holdfast neither reads nor removes it. In a cluster, a transaction and the app's own Lua need keys in this slot.
    """
    return f"hf:{{{self.store.address.namespace}}}:own:{check_own_key(name)}"


def _check(pipeline: Any, app: App) -> None:
    """Refuse a pipeline that would store jobs at once, or elsewhere."""
    if not hasattr(pipeline, "execute_command") or not hasattr(pipeline, "__len__"):
        raise errors.Invalid(f"expected {KIND}, got {type(pipeline).__name__}")
    state = getattr(pipeline, "_execution_strategy", pipeline)  # of a cluster
    is_explicit = _flag(state, "explicit_transaction")
    if _flag(state, "watching") and not is_explicit:
        raise errors.Invalid("the pipeline executes commands at once after watch(); call its multi() first")
    if not is_explicit and not _is_transaction(pipeline):
        raise errors.Invalid("the pipeline is not a transaction; create it with transaction=True")
    database = getattr(getattr(pipeline, "connection_pool", None), "connection_kwargs", {}).get("db") or 0
    url = app.store.address.url
    expected = (read_url(url).options.get("db") or 0) if url else 0
    if int(database) != int(expected):
        raise errors.Invalid(f"the pipeline uses database {database}, but the jobs are in database {expected}")


def _flag(state: Any, name: str) -> bool:
    return bool(getattr(state, name, False) or getattr(state, f"_{name}", False))


def _is_transaction(pipeline: Any) -> bool:
    if strategy := getattr(pipeline, "_execution_strategy", None):
        return "Transaction" in type(strategy).__name__
    return getattr(pipeline, "is_transaction", None) is True or getattr(pipeline, "transaction", None) is True


def _read_reply(chunk: Chunk, reply: Any) -> EnqueueReply:
    if isinstance(reply, Exception):
        from holdfast.store import server_errors

        if server_errors.is_function_missing(reply):
            raise errors.HoldfastError(
                "these jobs were not stored, but the rest of the transaction was executed: its server has no library;"
                " it is another server than that of the app, or its functions were deleted meanwhile"
            )
        raise errors.from_reply(str(reply)) or errors.HoldfastError(f"these jobs were not stored: {reply}")
    if not isinstance(reply, list) or len(reply) != len(chunk.calls) + 1 or type(reply[0]) is not int:
        raise errors.Invalid("these replies are not those of the transaction to which the jobs were added")
    # A client may decode the texts of replies.
    return chunk.command.read([part.encode() if isinstance(part, str) else part for part in reply])
