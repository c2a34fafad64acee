"""Damage between random commands: entries that the records can restore are removed, and repaired.

Afterwards all keys fit together again, and the jobs are those of the model. A repair may leave hints that the model
does not have, such as an earlier time at which a limit is looked at again, so the state before the damage is put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import redis
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model import invariants
from tests.model.invariants import EXPIRES, FINAL, Snapshot
from tests.model.machine import NAMESPACE, Machine
from tests.support.store_check import findings, nothing_found, repair_all

PREFIX = f"hf:{{{NAMESPACE}}}:"
LISTS = (
    "queues", "schedules", "subscriptions", "operations", "batches", "batches_done", "fingerprints", "tags", "scopes:",
)  # fmt: skip


class Loss(NamedTuple):
    """A command that removes something, and what it removes: a key, and a member unless it is the whole key."""

    command: str
    key: str
    member: str = ""


class DamageRules(Machine):
    @rule(data=st.data())
    def damage_and_repair(self, data: st.DataObject) -> None:
        losses = list(_losses(invariants.read(self.client, NAMESPACE)))
        if not losses:
            return
        chosen = data.draw(st.lists(st.sampled_from(losses), min_size=1, max_size=4), label="losses")
        with _undone(self.client):
            for loss in chosen:
                members = [loss.member] if loss.member else []
                self.client.execute_command(loss.command, f"{PREFIX}{loss.key}", *members)
            assert findings(self.store), "nothing was found"
            repair_all(self.store)
            nothing_found(self.store)
            self.compare_jobs()
            self.read_keys()
        self.compare()


@contextmanager
def _undone(client: redis.Redis) -> Iterator[None]:
    """Put all keys back to what they were before the block."""
    before = {name: (client.dump(name), client.pttl(name)) for name in client.scan_iter(f"{PREFIX}*")}
    yield
    client.delete(*client.scan_iter(f"{PREFIX}*"))
    for name, (value, ttl) in before.items():
        if value is not None:
            client.restore(name, max(ttl, 0), value)


def _losses(snapshot: Snapshot) -> Iterator[Loss]:
    with_jobs = {queue for queue, _ in snapshot.indexes}  # nothing tells of a queue without jobs
    yield from _index_entries(snapshot)
    yield from _timers(snapshot)
    for name in LISTS:
        known = snapshot.others("scopes").get("", {}) if name == "scopes:" else getattr(snapshot, name)
        yield from (Loss("ZREM", name, member) for member in known if name != "queues" or member in with_jobs)
    for executor, held in snapshot.held.items():
        yield from (Loss("HDEL", f"x:{executor}", id) for id, marks in held.items() if "s" not in marks)
    for path, members in snapshot.others("scope").items():
        quiet = (id for id in members if snapshot.jobs[id].state not in ("waiting", "throttled"))
        yield from (Loss("ZREM", f"scope:{path}", id) for id in quiet)
    for batch, ids in snapshot.others("bo").items():
        if len(ids) > 1:  # a batch without open members may end
            yield from (_one_of(id, Loss("SREM", f"bo:{batch}", id), Loss("ZREM", f"batch:{batch}", id)) for id in ids)
    yield from (Loss("DEL", f"k:{name}") for name, ticket in snapshot.uniques.items() if _is_restored(snapshot, name))
    if snapshot.config:
        yield Loss("DEL", "config_copy")


def _one_of(id: str, one: Loss, other: Loss) -> Loss:
    """Choose one of two entries of a job that restore each other: nothing restores both."""
    return one if sum(id.encode()) % 2 else other


def _is_restored(snapshot: Snapshot, name: str) -> bool:
    """Whether the record of its owner tells that it must have this key."""
    ticket = snapshot.uniques[name]
    if ticket.letter == "t":
        return False
    return ticket.letter != "q" or snapshot.jobs[ticket.id].attempt == 0


def _index_entries(snapshot: Snapshot) -> Iterator[Loss]:
    """Repairing a waiting or throttled job leaves hints for executors, and jobs that expire may have been set aside."""
    is_capped = "other" in snapshot.markers
    for (queue, state), members in snapshot.indexes.items():
        if state in ("waiting", "throttled") or (state == "failed" and is_capped):
            continue
        for id, _ in members:
            entry = Loss("ZREM", f"q:{queue}:{state}", id)
            if state == "scheduled":
                yield _one_of(id, entry, Loss("ZREM", "timers", id))
            elif not (state in FINAL and snapshot.jobs[id].flags & EXPIRES):
                yield entry
    for kind in () if is_capped else ("g", "p", "t"):
        for name, jobs in snapshot.others(f"f{kind}").items():
            yield from (Loss("ZREM", f"f{kind}:{name}", id) for id in jobs)
            yield Loss("ZREM", f"failed:{kind}", name)


def _timers(snapshot: Snapshot) -> Iterator[Loss]:
    """Timers of schedules, of limits that expire, and of deadlines before the first attempt."""
    for timer in snapshot.timers:
        record = snapshot.jobs.get(timer[1:])
        is_deadline = timer[0] == "!" and record and record.attempt == 0 and record.state not in ("running", *FINAL)
        if timer[0] in "&=" or is_deadline:
            yield Loss("ZREM", "timers", timer)
