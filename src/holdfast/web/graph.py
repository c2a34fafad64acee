"""The dependencies of a job: the jobs that it waits for, those that wait for it, and so on, up to a number of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from holdfast.job.job import Job
from holdfast.web.call import Call
from holdfast.web.resource import about

MAX_NODES = 300
READ_AT_ONCE = 20  # whole jobs, which may have a few MiB each


class GraphNode(msgspec.Struct, frozen=True):
    """A job of a graph; of one that was deleted only the id is known, and how it ended."""

    id: Annotated[str, about("id of the job")]
    state: Annotated[str, about("state of the job")]
    task: Annotated[str | None, about("name of the task")]
    queue: Annotated[str | None, about("name of the queue")]
    level: Annotated[int, about("0: the job itself; -1: it waits for this one; 1: this one waits for it; and so on")]


class Edge(msgspec.Struct, frozen=True):
    """A dependency: `job` waits for `on`."""

    job: Annotated[str, about("id of the job that waits")]
    on: Annotated[str, about("id of the job that it waits for")]
    state: Annotated[str, about("pending, succeeded, failed or cancelled: what `job` knows of `on`")]


class Graph(msgspec.Struct, frozen=True):
    """A job, what it waits for, and what waits for it."""

    nodes: Annotated[list[GraphNode], about("the jobs")]
    edges: Annotated[list[Edge], about("who waits for whom")]
    truncated: Annotated[bool, about(f"whether there are more than {MAX_NODES} jobs")]


class GraphReader:
    """Reads a graph, level by level."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._nodes: dict[str, GraphNode] = {}
        self._edges: dict[tuple[str, str], Edge] = {}
        self._truncated = False

    async def read(self, id: str) -> Graph:
        job = await self._call.app.aget(id)
        self._add(GraphNode(id, job.state, job.task, job.queue, 0))
        await self._read_up([job], -1)
        await self._read_down([id], 1)
        return Graph(list(self._nodes.values()), list(self._edges.values()), self._truncated)

    def _add(self, node: GraphNode) -> bool:
        """Add a job, unless there are too many, or the user may not see it. Return whether it is new."""
        if node.id in self._nodes or not (node.queue is None or self._call.user.has_queue(node.queue)):
            return False
        if len(self._nodes) >= MAX_NODES:
            self._truncated = True
            return False
        self._nodes[node.id] = node
        return True

    def _connect(self, job: str, on: str, state: str) -> None:
        if job in self._nodes and on in self._nodes:
            self._edges.setdefault((job, on), Edge(job, on, state))

    async def _read_up(self, jobs: Sequence[Job[Any]], level: int) -> None:
        """Add what jobs wait for."""
        while jobs:
            known = {each.id: each.state for job in jobs for each in (*job.after, *job.waits)}
            new = [id for id in known if id not in self._nodes][: MAX_NODES + 1 - len(self._nodes)]
            found = await self._get(new)
            above = []
            for id in new:
                job = found.get(id)  # None: it was deleted
                node = (
                    GraphNode(id, job.state, job.task, job.queue, level)
                    if job
                    else GraphNode(id, known[id], None, None, level)
                )
                if self._add(node) and job:
                    above.append(job)
            for job in jobs:
                for each in (*job.after, *job.waits):
                    self._connect(job.id, each.id, each.state)
            jobs, level = above, level - 1

    async def _get(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        """Return jobs without their data, of which a few at a time are held."""
        found: dict[str, Job[Any]] = {}
        for first in range(0, len(ids), READ_AT_ONCE):
            for job in await self._call.app.aget_many(ids[first : first + READ_AT_ONCE]):
                if job and not job.unreadable:
                    found[job.id] = msgspec.structs.replace(
                        job, payload=None, result_bytes=None, checkpoint_bytes=None, attempts=(), notes=(), fields={}
                    )
        return found

    async def _read_down(self, ids: Sequence[str], level: int) -> None:
        """Add the jobs that wait for some."""
        while ids and not self._truncated:
            below = []
            for id in ids:
                limit = max(1, MAX_NODES + 1 - len(self._nodes))
                page = await self._call.app.apage(limit=limit, fields=("id", "state", "task", "queue"), waits_for=id)
                for row in page.rows:
                    if self._add(GraphNode(row["id"], row["state"], row["task"], row["queue"], level)):
                        below.append(row["id"])
                    self._connect(row["id"], id, "pending")
                self._truncated = self._truncated or page.cursor is not None
            ids, level = below, level + 1
