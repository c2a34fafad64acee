"""Explain against claim: a copy of a namespace is asked which jobs are ready, and then claimed from, queue by queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from itertools import count
from typing import Any

import redis

from holdfast.store import commands
from holdfast.store.store import Address, Store
from tests.conftest import TestClock

EXECUTOR = "node/asked.0"
QUIET = 5  # calls in a row that found nothing to do: then time has been advanced
MAX_CALLS = 300

_copies = count()
_counters = count(1)


class Comparison:
    """Compares a namespace at any time, without changing it."""

    def __init__(self, url: str, namespace: str, clock: TestClock) -> None:
        self._url, self._namespace, self._clock = url, namespace, clock
        self.client = redis.Redis.from_url(url)
        self.seen: Counter[str] = Counter()  # codes: a test that never meets a reason shows nothing

    def compare(self, ids: Iterable[str]) -> None:
        """The jobs that explain calls ready are those that the next claims hand out."""
        asked = self._copy(self._namespace)
        with closing(self._open(asked)) as store:
            for _ in range(QUIET):
                settle(store)
            explained = explain_all(store, sorted({*ids, *self._stored(asked)}))
        for queue in sorted({row["queue"] for row in explained}):
            self._compare_queue(asked, queue, [row for row in explained if row["queue"] == queue])
        self._remove(asked)

    def _compare_queue(self, asked: str, queue: str, rows: list[dict[str, Any]]) -> None:
        copy = self._copy(asked)
        with closing(self._open(copy)) as store:
            handed = claim_all(store, queue) & {row["id"] for row in rows}  # claims may store jobs, such as callbacks
        self._remove(copy)
        ready = {row["id"] for row in rows if row["ready"]}
        offered = {row["id"] for row in rows if is_offered(row)}
        codes = {row["id"]: row["reasons"] for row in rows}
        self.seen.update("ready" if row["ready"] else row["reasons"][0][0] for row in rows)
        self.seen["offered"] += len(offered)
        assert handed <= ready | offered, f"handed out, and not ready: {[(id, codes[id]) for id in handed - ready]}"
        if not handed & offered:  # one that got a slot after all may have taken it from another
            assert ready == handed, f"ready, and not handed out: {[(id, codes[id]) for id in ready - handed]}"
            self.seen["exactly"] += 1

    def _stored(self, namespace: str) -> set[str]:
        """Return the ids of all jobs, also of those that a schedule has stored meanwhile."""
        base = f"hf:{{{namespace}}}:j:"
        return {key.decode().removeprefix(base) for key in self.client.scan_iter(f"{base}*", count=1000)}

    def _copy(self, namespace: str) -> str:
        into, base = f"copy{next(_copies)}", f"hf:{{{namespace}}}:"
        for key in self.client.scan_iter(f"{base}*", count=1000):
            name, kept = f"hf:{{{into}}}:{key.decode().removeprefix(base)}", self.client.dump(key)
            if kept:
                self.client.restore(name, max(0, self.client.pttl(key)), kept)
        return into

    def _open(self, namespace: str) -> Store:
        return Store(Address.find(self._url, namespace=namespace), clock=self._clock)

    def _remove(self, namespace: str) -> None:
        for key in self.client.scan_iter(f"hf:{{{namespace}}}:*", count=1000):
            self.client.delete(key)


def is_offered(row: dict[str, Any]) -> bool:
    """Return whether a job is parked although its limit has a free slot: who gets that is only decided by claims."""
    return row["state"] == "throttled" and any(code == "limit" and facts["free"] > 0 for code, facts in row["reasons"])


def settle(store: Store) -> None:
    """Advance time until nothing is overdue."""
    for _ in range(MAX_CALLS):
        reply = store.run(commands.upkeep())
        if reply.before <= reply.stuck and not reply.surplus:
            return


def explain_all(store: Store, ids: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for first in range(0, len(ids), 100):
        found += [row for row in store.run(commands.explain(ids[first : first + 100])) if row]
    unreadable = [row["id"] for row in found if "unreadable" in row]
    records = store.run(commands.get(unreadable)) if unreadable else []
    assert all(row and "unreadable" in row for row in records), unreadable
    return [row for row in found if "unreadable" not in row]


def claim_all(store: Store, queue: str) -> set[str]:
    """Claim from a queue until nothing more is handed out."""
    handed: set[str] = set()
    empty = 0
    while empty < QUIET:
        request = commands.claim_args([queue], counter=next(_counters), limit=100)
        jobs = store.run(commands.claim(EXECUTOR, request)).jobs
        handed |= {job.id for job in jobs}
        empty = 0 if jobs else empty + 1
    return handed
