"""Random commands about schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.store import commands
from holdfast.store.commands import Command
from tests.model import strategies
from tests.model.subscription_rules import Subscribing

NAMES = ["nightly", "a.b-c_D"]
AHEAD = [-1000, 1, 999, 1000, 5000, 60_000, 3_600_000]

batches = st.fixed_dictionaries(
    {"queue": strategies.queue_names, "task": st.just("send")},
    optional={
        "priority": st.sampled_from([-1, 1]),
        "limits": strategies.limits.map(list),
        "share": st.sampled_from(strategies.SHARES),
        "deadline": st.sampled_from([1000, 90_000]),
        "keep": st.sampled_from([False, 1000, 3_600_000]),
        "fields": st.sampled_from([{"owner": "me"}, {"ticket": ""}]),
        "tags": strategies.tags,
        "scope": st.sampled_from(strategies.SCOPES),
    },
)
policies = st.fixed_dictionaries(
    {},
    optional={
        "missed": st.sampled_from(["one", "all", "all", "skip"]),
        "backlog": st.sampled_from([1, 2, 3, 120]),
        "late": st.sampled_from([0, 1000]),
        "overlap": st.sampled_from(["allow", "skip"]),
        "jitter": st.sampled_from([0, 1000, 50_000]),
        "spec": st.just("each night"),
    },
)
intervals = st.fixed_dictionaries(
    {"every": st.sampled_from([1000, 60_000, 3_600_000])},
    optional={"offset": st.sampled_from([0, 7, 1_700_000_030_000])},
)


class Schedules(Subscribing):
    @rule(data=st.data(), name=st.sampled_from(NAMES), batch=batches, policy=policies, fault=strategies.faults)
    def schedule(
        self, data: st.DataObject, name: str, batch: dict[str, Any], policy: dict[str, Any], fault: str
    ) -> None:
        times = st.fixed_dictionaries({"times": st.lists(st.sampled_from(AHEAD), unique=True).map(self.to_times)})
        how = {**policy, **data.draw(intervals | times, label="when")}
        payload = data.draw(strategies.blobs, label="payload")
        schedules = self.model.schedules
        revision = data.draw(st.sampled_from([None, 0, 1, 1, 2]), label="revision")
        if revision is None:
            command = commands.schedule(name, batch, payload, **how)
            self.send(command, lambda: schedules.schedule(name, batch, payload, how, self.now), bool, fault)
        else:
            how["revision"] = revision
            declare = commands.declare_schedule(name, batch, payload, **how)
            self.send(declare, lambda: schedules.declare(name, batch, payload, how, self.now), str, fault)

    @rule(
        name=st.sampled_from(NAMES),
        batch=batches,
        both=st.tuples(intervals, intervals),
        step=st.sampled_from(strategies.STEPS),
        fault=strategies.faults,
    )
    def override_and_reset(
        self, name: str, batch: dict[str, Any], both: tuple[dict[str, Any], ...], step: int, fault: str
    ) -> None:
        """Declare a schedule, make another of it by hand, and return to the declaration after some time."""
        first, second = both
        schedules, declared = self.model.schedules, {**first, "revision": 2}
        self.send(
            commands.declare_schedule(name, batch, b"[]", **declared),
            lambda: schedules.declare(name, batch, b"[]", declared, self.now),
            str,
            fault,
        )
        made = commands.schedule(name, batch, b"[1]", **second)
        self.send(made, lambda: schedules.schedule(name, batch, b"[1]", second, self.now), bool, fault)
        self.time_passes(step)
        self.send(commands.reset_schedule(name), lambda: schedules.reset(name, self.now), bool, fault)

    def to_times(self, ahead: list[int]) -> list[int]:
        return sorted(self.now + time for time in ahead)

    @precondition(lambda self: bool(self.model.schedules.all))
    @rule(data=st.data(), fault=strategies.faults)
    def steer_a_schedule(self, data: st.DataObject, fault: str) -> None:
        schedules = self.model.schedules
        name = data.draw(st.sampled_from([*schedules.all] * 5 + NAMES), label="name")
        ahead = data.draw(st.lists(st.sampled_from(AHEAD), unique=True) | st.just([*range(25)]), label="ahead")
        expected = schedules.last_known(name) if name in schedules.all else 0
        expected += data.draw(st.sampled_from([0, 0, 0, 1]), label="wrong by")
        times = sorted(max(expected, self.now - 2000) + time for time in ahead)
        acts: list[tuple[Command[Any], Callable[[], Any]]] = [
            (commands.refill(name, expected, times), lambda: schedules.refill(name, expected, times)),
            (commands.pause_schedule(name), lambda: schedules.pause(name, self.now)),
            (commands.resume_schedule(name), lambda: schedules.resume(name, self.now)),
            (commands.unschedule(name), lambda: schedules.unschedule(name)),
            (commands.trigger(name), lambda: schedules.trigger(name, self.now)),
            (commands.reset_schedule(name), lambda: schedules.reset(name, self.now)),
        ]
        command, expected_answer = acts[data.draw(st.sampled_from([0, 0, 1, 2, 2, 3, 4, 5, 5]), label="act")]
        self.send(command, expected_answer, lambda reply: reply, fault)

    @rule(step=st.sampled_from(strategies.STEPS), fault=strategies.faults)
    def upkeep(self, step: int, fault: str) -> None:
        self.time_passes(step)
        command = commands.upkeep(refills=5)
        self.send(command, lambda: self.model.upkeep(self.now), lambda reply: (*reply[:5], {*reply.refills}), fault)

    @precondition(lambda self: bool(self.model.schedules.timers()))
    @rule(late=st.sampled_from([0, 1, 999, 1000, 3500, 600_000]), executor=st.sampled_from(strategies.EXECUTORS))
    def it_is_time(self, late: int, executor: str) -> None:
        """Of the next firing, or somewhat later."""
        self.time_passes(max(0, min(self.model.schedules.timers().values()) - self.now) + late)
        counter = self.requests.get(executor, {"counter": 0})["counter"] + 1
        self.requests[executor] = commands.claim_args(strategies.QUEUES, counter=counter, limit=2)
        self.send_claim(executor, self.requests[executor], "none")
