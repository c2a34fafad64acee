"""Random operations: started, driven step by step, repeated, stopped, resumed, and left to upkeep."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.store import commands
from holdfast.store.commands import OperationReply
from tests.model import strategies
from tests.model.filters import Filter
from tests.model.query_rules import Queries, filters

ARGUMENTS: dict[str, dict[str, Any]] = {
    "cancel": {"reason": "because"},
    "retry": {"queue": "video", "from_start": True},
    "delete": {},
    "move": {"queue": "mail", "priority": 1},
    "release": {"delay": 2000, "reason": ""},
    "fail": {"group": "bad", "reason": "because"},
    "tag": {"tags": ["b", "new"]},
    "untag": {"tags": ["a", "none"]},
    "track": {},
    "untrack": {},
}
actions = st.sampled_from(sorted(ARGUMENTS))


class OperationRules(Queries):
    @rule(
        action=actions,
        filter=filters,
        limits=st.sampled_from([[], [], [1], [2, 1], [1, 1, 1], [5, 2], [None]]),
        fault=strategies.faults,
        is_new=st.sampled_from([True, True, True, False]),
        then=st.sampled_from(["", "", "stop", "stop and resume", "upkeep"]),
    )
    def operate(
        self, action: str, filter: Filter, limits: list[int | None], then: str, *, fault: str, is_new: bool
    ) -> None:
        """Start an operation, or one that was started, and do some of its steps: at once, so that the clock stands."""
        arguments, operations = ARGUMENTS[action], self.model.operations
        operations.begun += is_new
        id = f"o{operations.begun}"
        self.send(
            commands.start_operation(id, action, arguments=arguments, **filter),
            lambda: operations.start(id, action, arguments, filter, self.now),
            read,
            fault,
        )
        for limit in limits:
            self.step(id, operations.all[id].steps, limit, fault)
        if "stop" in then:
            self.send(commands.stop_operation(id), lambda: operations.stop(id), read, fault)
        if "resume" in then:
            self.send(commands.resume_operation(id), lambda: operations.resume(id, self.now), read, fault)
        if then == "upkeep" and operations.running:
            self.upkeep_continues(12, 5000, "none")

    def step(self, id: str, step: int, limit: int | None, fault: str) -> None:
        operations = self.model.operations
        command = commands.continue_operation(id, step, limit=limit)
        self.send(command, lambda: operations.go_on(id, step, limit, self.now), read, fault)

    @precondition(lambda self: self.model.operations.all)
    @rule(
        data=st.data(),
        what=st.sampled_from(["step", "step", "step", "stop", "resume"]),
        before=st.sampled_from([0, 1, 20, 5000]),
        fault=strategies.faults,
    )
    def steer_an_operation(self, data: st.DataObject, what: str, before: int, fault: str) -> None:
        operations = self.model.operations
        open_ones = [id for id, each in operations.all.items() if each.state != "done"]
        id = data.draw(st.sampled_from(open_ones * 5 + [*operations.all, "nobody"]), label="operation")
        self.time_passes(before)
        if what == "step":
            steps = operations.all[id].steps if id in operations.all else 0
            late = data.draw(st.sampled_from([0, 0, 0, 1]), label="late")
            limit = data.draw(st.sampled_from([None, 1, 2]), label="limit")
            self.step(id, max(0, steps - late), limit, fault)
        elif what == "stop":
            self.send(commands.stop_operation(id), lambda: operations.stop(id), read, fault)
        else:
            self.send(commands.resume_operation(id), lambda: operations.resume(id, self.now), read, fault)

    @precondition(lambda self: self.model.operations.running)
    @rule(times=st.integers(1, 15), first=st.sampled_from([1, 5000, 5000]), fault=strategies.faults)
    def upkeep_continues(self, times: int, first: int, fault: str) -> None:
        for number in range(times):
            self.time_passes(20 if number else first)
            self.send(commands.upkeep(refills=100), lambda: self.model.upkeep(self.now), read_upkeep, fault)
            if not self.model.operations.running:
                return


def read_upkeep(reply: commands.UpkeepReply) -> tuple[Any, ...]:
    return *reply[:5], {*reply.refills}


def read(reply: OperationReply) -> tuple[Any, ...]:
    return (
        reply.id,
        reply.action,
        reply.state,
        reply.started,
        reply.steps,
        reply.looked_at,
        reply.total,
        reply.answers,
    )
