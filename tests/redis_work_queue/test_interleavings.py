"""Programs that use the protocol, one command at a time, in random orders; each may die between any two commands.

The chaos run kills real processes; this one finds orders that these never meet, such as a client that sleeps for an
hour between its pop and its lease. HOLDFAST_INTERLEAVINGS=10000 tries more of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from holdfast import Holdfast
from holdfast.job.outcome import Succeed
from holdfast.redis_work_queue import cleaning
from holdfast.redis_work_queue.shared_items import SharedItems
from holdfast.store import Command, commands
from holdfast.store.commands import Finish
from holdfast.store.driver import Action
from tests.model import invariants
from tests.redis_work_queue.document import WorkQueue

RUNS = int(os.environ.get("HOLDFAST_INTERLEAVINGS", "60"))
IDS = ("a", "b", "c")
BATCH = {"queue": "thumbs", "task": "make", "codec": "raw"}
Steps = Iterator[None]


class World:
    """A queue with three possible items, whose programs take turns."""

    def __init__(self, app: Holdfast, client: redis.Redis, prefix: str, seed: int) -> None:
        self.app = app
        self.db: Any = client
        self.prefix = prefix
        self.random = random.Random(seed)
        self.items: SharedItems = app.items("thumbs", protocol="redis-work-queue", prefix=prefix)
        self.added: Counter[str] = Counter()
        self.trues: Counter[str] = Counter()
        self.unseen: set[str] = set()  # ids of items whose data nobody has been given
        self.skipped: list[str] = []  # ids that Holdfast has completed before
        self.loses_leases = seed % 8 < 4  # else all that is completed must have been given to somebody
        self.counter = 0

    # One command at a time

    def document_add(self) -> Steps:
        queue, id = WorkQueue(self.db, self.prefix), self.random.choice(IDS)
        if not queue.db.exists(queue.item(id)):
            yield
            if queue.db.set(queue.item(id), id, nx=True):  # else two adders would count one item twice
                self._was_added(id)
            yield
            queue.db.lpush(queue.queue, id)

    def document_work(self) -> Steps:
        queue = WorkQueue(self.db, self.prefix)
        if (found := queue.db.rpoplpush(queue.queue, queue.processing)) is None:
            return
        id = found.decode()
        yield
        if queue.db.get(queue.item(id)) is None:
            return
        self.unseen.discard(id)
        yield
        queue.db.set(queue.lease_key(id), queue.session, ex=30)
        yield
        self.trues[id] += queue.db.delete(queue.item(id))
        yield
        queue.db.delete(queue.lease_key(id))
        yield
        queue.db.lrem(queue.processing, 0, id)

    def document_clean(self) -> Steps:
        queue = WorkQueue(self.db, self.prefix)
        for id in self.random.sample(IDS, 3):
            if not queue.db.exists(queue.item(id)):
                continue
            yield
            if queue.db.lpos(queue.queue, id) is not None:
                continue
            yield
            if queue.db.exists(queue.lease_key(id)):
                continue
            yield
            queue.db.lrem(queue.processing, 0, id)
            yield
            queue.db.lpush(queue.queue, id)

    # Holdfast: one call at a time

    def put(self) -> Steps:
        id = self.random.choice(IDS)
        if self.items.put(id.encode(), id=id).created:
            self._was_added(id)
        yield

    def work(self) -> Steps:
        if item := self.items.claim():
            self.unseen.discard(item.id)
            yield
            if self.random.random() < 0.3:
                item.release()
                return
            self._was_completed(item.id, item.complete())

    def clean(self) -> Steps:
        """Both looks, with others in between."""
        steps: Any = cleaning.clean_queue(self.items.prefix, deep=self.random.random() < 0.5)
        try:
            step = next(steps)
            while True:
                yield
                reply = None if isinstance(step, Action) else self.app.store.run(step)
                step = steps.send(reply)
        except StopIteration:
            return

    def bridge(self) -> Steps:
        prefix = self.items.prefix
        self.app.store.run(
            commands.work_queue_bridge(prefix, "thumbs", BATCH, slots=3, executors=["node/worker.1"], lease=30_000)
        )
        yield
        self.counter += 1
        claim = commands.claim_args(["thumbs"], counter=self.counter, limit=1)
        for job in self.app.store.run(commands.claim("node/worker.1", claim)).jobs:
            self.unseen.discard(job.payload.decode())
            yield
            self.app.store.run(commands.finish("node/worker.1", [Finish(job.id, job.attempt, Succeed(b""))]))

    def settle(self) -> Steps:
        self._count_ended(commands.work_queue_settle(self.items.prefix, "thumbs", lease=30_000, cursor="0"))
        yield

    def _count_ended(self, command: Command[Any]) -> None:
        """Count the items that a call completes, because their jobs have ended."""
        before = [id for id in IDS if self.db.exists(f"{self.prefix}:item:{id}")]
        completed = self.app.store.run(command).completed
        ended = [id for id in before if not self.db.exists(f"{self.prefix}:item:{id}")]
        assert len(ended) == completed
        for id in ended:
            self._was_completed(id, True)

    def _was_added(self, id: str) -> None:
        self.added[id] += 1
        self.unseen.add(id)

    def _was_completed(self, id: str, was: bool) -> None:
        self.trues[id] += was
        if was and id in self.unseen and not self.loses_leases:
            self.skipped.append(id)

    def expire(self) -> Steps:
        """Let all leases of an item expire, as after a long pause."""
        id = self.random.choice(IDS)
        self.db.delete(f"{self.prefix}:lease:{id}", f"{self.prefix}:leased_by_session:{id}")
        yield

    def run(self, steps: int) -> None:
        """Let programs take turns, start others, and die."""
        kinds: list[Callable[[], Steps]] = [self.document_add, self.put, self.document_work, self.document_work]
        kinds += [self.document_clean, self.work, self.work, self.clean, self.bridge, self.settle]
        kinds += [self.expire] * self.loses_leases
        running: list[Steps] = []
        for _ in range(steps):
            if len(running) < 4:
                running.append(self.random.choice(kinds)())
            program = self.random.choice(running)
            if self.random.random() < 0.05 or next(program, self) is self:
                running.remove(program)

    def end(self) -> None:
        """Everybody is dead, and all leases have expired: complete what is left."""
        for _ in range(4):
            for id in IDS:
                self.db.delete(f"{self.prefix}:lease:{id}", f"{self.prefix}:leased_by_session:{id}")
            self.items.clean(deep=True)
            for item in self.items.claim_many(10):
                self.unseen.discard(item.id)
                self.trues[item.id] += item.complete()


@pytest.mark.parametrize("part", range(4))
def test_no_order_of_commands_loses_an_item_or_completes_it_twice(
    server_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(cleaning, "PAUSE", 0)
    with redis.Redis.from_url(server_url) as client:
        for seed in range(part, RUNS, 4):
            app = Holdfast(server_url, namespace=f"{namespace}-{seed}")
            world = World(app, client, f"w{namespace}-{seed}", seed)
            world.run(150)
            world.end()
            invariants.check(client, app.address.namespace)
            left = world.db.keys(f"{world.prefix}:item:*")
            assert not left, f"seed {seed}: {left} cannot be claimed"
            assert not world.skipped, f"seed {seed}: {world.skipped} were completed before anybody got their data"
            for id in IDS:
                assert world.trues[id] <= world.added[id], f"seed {seed}: {id} was completed twice"
            app.close()
            for key in [*world.db.keys(f"{world.prefix}:*"), *world.db.keys(f"hf:{{{namespace}-{seed}}}:*")]:
                client.delete(key)
