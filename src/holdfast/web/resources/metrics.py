"""Metrics for Prometheus, and the concurrency that a queue needs, for autoscalers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary, proxy

import msgspec
from msgspec import Meta

from holdfast.metrics import OPENMETRICS, PROMETHEUS, Collector
from holdfast.web.call import Call
from holdfast.web.resource import Chunks, Resources, Stream

if TYPE_CHECKING:
    from holdfast.app import Holdfast

routes = Resources()

# One for all scrapers of an app, which it does not keep alive.
_collectors: WeakKeyDictionary[Holdfast, Collector] = WeakKeyDictionary()


class AutoscaleQuery(msgspec.Struct, frozen=True):
    target: Annotated[str, Meta(max_length=40, description="time within which a waiting job should start")] = "1m"


class Autoscale(msgspec.Struct, frozen=True):
    """The load of a queue, for an autoscaler."""

    queue: Annotated[str, Meta(description="name of the queue")]
    needed: Annotated[int, Meta(description="number of jobs that have to run at once")]
    running: Annotated[int, Meta(description="number of running jobs")]
    waiting: Annotated[int, Meta(description="number of jobs waiting for a worker")]
    oldest: Annotated[float | None, Meta(description="seconds that the oldest job has been waiting")]
    workers: Annotated[int, Meta(description="number of live workers that serve it")]
    paused: Annotated[bool, Meta(description="whether the queue is paused; then running jobs are all that it needs")]


@routes.get("/metrics", base="", scope="visible", reply=Stream(PROMETHEUS, has_data=False))
async def show_metrics(call: Call) -> Chunks:
    """Return the metrics of the namespace as text, for Prometheus; as OpenMetrics if the request asks for that.

    A reading of the store is used for a few seconds. Users with rights on some queues get the metrics of these queues.
    """
    collector = _collectors.get(call.app) or _collectors.setdefault(call.app, Collector(proxy(call.app)))
    is_open = "application/openmetrics-text" in call.request.headers.get("accept", "")
    media_type = OPENMETRICS if is_open else PROMETHEUS
    sees = None if call.user.has_all_queues else call.user.has_queue
    return Chunks(media_type, _once(await collector.atext(media_type, sees)))


async def _once(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


@routes.get("/autoscale/{queue}", reply=Autoscale, client="load")
async def show_autoscale(call: Call, queue: str, query: AutoscaleQuery) -> Autoscale:
    """Return the concurrency that a queue needs; of a queue that does not exist yet, 0."""
    [load] = await call.app.aload(queue, target=query.target)
    return Autoscale(queue, load.needed, load.running, load.waiting, load.oldest, load.workers, load.paused)
