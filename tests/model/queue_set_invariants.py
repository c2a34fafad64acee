"""Invariants of sets of queues: who serves which, who is idle, and in which queues pools look for jobs.

The rules are at the heads of `queue_sets.lua` and `pools.lua`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tests.model.pools import Pool, set_id

if TYPE_CHECKING:
    from tests.model.invariants import Snapshot


def check(snapshot: Snapshot) -> None:
    texts = {id: text.decode() for id, text in snapshot.others("set").items()}
    _check_registry(snapshot, texts)
    _check_members(snapshot, texts)
    for id, text in texts.items():
        if not text.startswith("- "):
            _check_pool(snapshot, id, Pool(text, 0))


def _check_registry(snapshot: Snapshot, texts: dict[str, str]) -> None:
    assert set(texts) == set(snapshot.sets), "sets and their texts differ"
    assert all(set_id(text) == id for id, text in texts.items()), "a set has another text than its id is made of"
    digest = hashlib.sha1(" ".join(sorted(texts)).encode(), usedforsecurity=False).hexdigest() if texts else None
    assert snapshot.markers.get("sets") == digest, "the marker of sets is not theirs"
    pools = {id for id, text in texts.items() if not text.startswith("- ")}
    assert bool(pools) == ("pools" in snapshot.markers), "whether there are pools"
    assert bool(snapshot.filling) == ("filling" in snapshot.markers), "whether pools look at all queues"
    assert set(snapshot.filling) <= pools, "a set looks at all queues that is not a pool"
    assert set(snapshot.others("ready")) <= pools, "a set has ready queues that is not a pool"


def _check_members(snapshot: Snapshot, texts: dict[str, str]) -> None:
    """A set has one queue and its name, or is registered; a worker is in the one set that its record names."""
    for id in (*snapshot.idle, *snapshot.others("live")):
        assert id[0] != "+" or id in texts, f"somebody serves set {id}, which is not registered"
    found = [(worker, id) for id, members in snapshot.others("live").items() for worker in members]
    for worker, id in found:
        named = snapshot.worker_records[worker]["set"].decode()
        assert named == id, f"{worker} is in set {id}, and its record says {named}"


def _check_pool(snapshot: Snapshot, id: str, pool: Pool) -> None:
    """Every queue in which a job could start is ready, unless the pool has still to look at it."""
    ready, last = snapshot.others("ready").get(id, {}), snapshot.filling.get(id)
    assert all(pool.entry(queue) for queue in ready), f"a queue is ready that is not of pool {pool.text}"
    for queue in snapshot.queues:
        is_seen = last is None or queue <= last.decode()
        if pool.entry(queue) and is_seen and _can_start(snapshot, queue):
            assert queue in ready, f"pool {pool.text} does not know that jobs wait in {queue}"


def _can_start(snapshot: Snapshot, queue: str) -> bool:
    running = len(snapshot.indexes.get((queue, "running"), ()))
    concurrency = int(snapshot.config.get(f"{queue}/concurrency", snapshot.config.get("concurrency", b"0")))
    is_full = bool(concurrency) and running >= concurrency
    return bool(snapshot.indexes.get((queue, "waiting"))) and queue not in snapshot.paused and not is_full
