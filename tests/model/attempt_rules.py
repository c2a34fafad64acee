"""Steps, logs and requests of attempts, as a model and as random commands: the rules at the heads of `steps.lua`,
`log.lua` and `worker_requests.lua`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast import errors
from holdfast.constants import LOG_HEAD, LOG_TAIL, USAGE_BLOCK
from holdfast.store import commands
from holdfast.store.caller import caller_name
from holdfast.store.commands import Lease, LogBlock, LogReply
from tests.model import strategies
from tests.model.core import worker_of
from tests.model.job import STATES
from tests.model.machine import NAMESPACE
from tests.model.model import Model
from tests.model.operation_rules import OperationRules
from tests.model.strategies import WORKERS

ATTEMPTS = 10
STEPS = ["charge-card", "a/b:c@d._-", "x" * 100]
NUMBERS = [-1, 0, 0, 1, 7, 8, 9, 31, 32, 33, 40, 2**40]


@dataclass
class Runs:
    """Steps and logs are of their job, and go with it."""

    model: Model

    def once(self, held: Lease, step: str, result: bytes | None, created: int | None) -> bytes | None:
        job = self.model.holder(*held, created)
        if not job:
            raise errors.LeaseLost
        if result is not None:
            job.steps.setdefault(step, result)
        return job.steps.get(step)

    def log(self, blocks: list[LogBlock]) -> list[str]:
        return [self._keep(block) if 0 < len(block.data) <= 8192 else "INVALID" for block in blocks]

    def _keep(self, block: LogBlock) -> str:
        job = self.model.jobs.get(block.id)
        if not job or job.created != block.created or not job.attempt - ATTEMPTS < block.attempt <= job.attempt:
            return "NOTFOUND"
        where = block.attempt, block.number
        known = job.log.get(where, b"")
        if block.number != USAGE_BLOCK and len(known) > len(block.data):
            return "OK"
        job.log[where] = block.data
        if not known:
            job.log = {place: data for place, data in job.log.items() if self._stays(place, where)}
        return "OK"

    @staticmethod
    def _stays(place: tuple[int, int], new: tuple[int, int]) -> bool:
        """Beside a new block: not in the middle, nor of an attempt long ago."""
        is_between = place[0] == new[0] and LOG_HEAD <= place[1] <= new[1] - LOG_TAIL
        return not is_between and place[0] > new[0] - ATTEMPTS

    def read(self, id: str, attempt: int | None, first: int) -> LogReply:
        job = self.model.jobs.get(id)
        if not job:
            raise errors.JobNotFound
        chosen = attempt or max((its for its, _ in job.log), default=0)
        blocks = {number: data for (its, number), data in job.log.items() if its == chosen}
        return LogReply(
            chosen,
            job.state != "running" or chosen != job.attempt,
            sorted({its for its, number in job.log if number != USAGE_BLOCK}),
            {number: blocks[number] for number in sorted(blocks) if number >= first or number == USAGE_BLOCK},
        )

    def ask(self, word: str, worker: str, id: str, inbox: str) -> tuple[str, bytes]:
        list_key = f"hf:{{{NAMESPACE}}}:inbox:{inbox}".encode()
        if word == "drain":
            if worker not in self.model.workers:
                raise errors.WorkerNotFound
            self.model.send_message(worker, f"drain {inbox} {caller_name()}")
            return worker, list_key
        job = self.model.jobs.get(id)
        if not job:
            raise errors.JobNotFound
        if job.state != "running":
            raise errors.WrongState
        asked = worker_of(job.run.executor)
        self.model.send_message(asked, f"stack {job.run.executor} {id} {job.attempt} {inbox}")
        return asked, list_key


class Asking(OperationRules):
    """Rules about what runs: who prints, who keeps steps, who is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = Runs(self.model)

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), step=st.sampled_from(STEPS), result=st.none() | strategies.blobs, fault=strategies.faults)
    def once(self, data: st.DataObject, step: str, result: bytes | None, fault: str) -> None:
        executor = self.draw_executor(data)
        held = Lease(executor, *self.draw_leases(data, executor)[0])
        created = self.draw_created(data, held.id)
        expected = partial(self.runs.once, held, step, result, created)
        self.send(commands.once(held, step, result, created=created), expected, lambda reply: reply, fault)

    @rule(data=st.data(), fault=strategies.faults)
    def print_something(self, data: st.DataObject, fault: str) -> None:
        blocks = data.draw(st.lists(self.draw_block(data), min_size=1, max_size=4), label="blocks")
        self.send(commands.log(blocks), partial(self.runs.log, blocks), list, fault)

    def draw_block(self, data: st.DataObject) -> st.SearchStrategy[LogBlock]:
        """Mostly of attempts that are, or were."""
        [id, *_] = self.draw_ids(data, STATES[4:])
        job = self.model.jobs.get(id)
        last = job.attempt if job else 1
        return st.builds(
            LogBlock,
            st.just(id),
            st.sampled_from([job.created if job else 0] * 9 + [1]),
            st.sampled_from([last or 1] * 5 + [last + 1, max(1, last - 1), max(1, last - 10)]),
            st.sampled_from(NUMBERS),
            st.sampled_from([b"a line\n", b"a line\nand more\n", b"x" * 8192, b"x" * 8193, b""]),
        )

    @rule(data=st.data(), first=st.sampled_from([0, 0, 1, 9, 50]))
    def read_a_log(self, data: st.DataObject, first: int) -> None:
        [id, *_] = self.draw_ids(data, STATES[4:])
        attempt = data.draw(st.sampled_from([None, None, 1, 2, 12]), label="attempt")
        expected = partial(self.runs.read, id, attempt, first)
        self.send(commands.logs(id, attempt, block=first), expected, lambda reply: reply, "none")

    @rule(data=st.data(), word=st.sampled_from(["drain", "stack", "stack"]), worker=st.sampled_from(WORKERS))
    def ask(self, data: st.DataObject, word: str, worker: str) -> None:
        [id, *_] = self.draw_ids(data, STATES[4:5])
        said: dict[str, Any] = {"worker": worker} if word == "drain" else {"id": id}
        command = commands.request(word, inbox="me", **said)
        self.send(command, partial(self.runs.ask, word, worker, id, "me"), tuple, "none")

    @rule(text=st.sampled_from(["", "a stack", "x" * 300_000]))
    def answer(self, text: str) -> None:
        self.send(
            commands.respond("me", text.encode()),
            partial(self.model.send_message, "me", text[: 256 << 10]),
            lambda reply: reply,
            "none",
        )

    def compare_keys(self, snapshot: Any) -> None:
        super().compare_keys(snapshot)
        jobs = self.model.jobs.values()
        logs = {job.id: {f"{its} {number}": data for (its, number), data in job.log.items()} for job in jobs if job.log}
        assert snapshot.others("g") == logs, "logs differ"
        assert snapshot.others("o") == {job.id: job.steps for job in jobs if job.steps}, "steps differ"
