"""People who look at pages: each loads one, follows the events that concern it, and loads it again as live.js does."""

from __future__ import annotations

import asyncio
import html
import itertools
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from bench.server import Server, between
from bench.web.process import WebProcess
from bench.web.requests import QUEUE
from holdfast import Holdfast
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.job.outcome import Error, Succeed
from holdfast.store import Command, commands
from holdfast.store.commands import Finish

PAUSE = 1.0  # seconds between two refreshes of a page, as in live.js
EVERY = 10.0  # between two of a page that does not say, without events
COMING = 8.0  # in which the viewers come
PATIENCE = 180.0  # until each of them has refreshed its page
SECONDS = 12.0  # that are measured
TURN = 0.1  # between two calls of a worker
JOBS = 10  # that it runs in each
TIMEOUT = 120.0  # seconds without an answer

_MAIN = re.compile(r'<main id="main"([^>]*)>')
_ATTRIBUTE = re.compile(r'data-(events|every)="([^"]*)"')
_LOG = re.compile(r'data-log="([^"]*)"(?: data-log-at="([^"]*)")?')


@dataclass
class Seen:
    """What viewers did."""

    pages: int = 0
    events: int = 0
    errors: int = 0
    waited: float = 0.0  # seconds, for all pages together


@dataclass(frozen=True)
class Load:
    """What is done in each second."""

    pages: float
    wait: float  # milliseconds until a page came, mean
    web: float  # milliseconds of CPU of the web process
    store: float  # and of the server
    commands: float
    calls: float  # of functions
    events: float  # that were sent to viewers
    errors: int


class Viewer:
    """Somebody with a page in a visible tab."""

    def __init__(self, client: httpx.AsyncClient, url: str, seen: Seen) -> None:
        self._client, self._url, self._seen = client, url, seen
        self._news = asyncio.Event()
        self.loads = 0

    async def look(self) -> None:
        text = await self._load({})
        main = _MAIN.search(text)
        found = dict(_ATTRIBUTE.findall(main[1])) if main else {}
        every = float(found.get("every", EVERY))
        streams = [self._follow(f"/api/v1/events?{html.unescape(found.get('events', ''))}", {})]
        for address, place in _LOG.findall(text):
            streams.append(self._follow(html.unescape(address), {"Last-Event-ID": place} if place else {}, is_log=True))
        following = [asyncio.create_task(each) for each in streams]
        try:
            while True:
                began = time.monotonic()
                await asyncio.wait([asyncio.create_task(self._news.wait())], timeout=every)
                await asyncio.sleep(max(0.0, began + PAUSE - time.monotonic()))
                self._news.clear()
                await self._load({"Holdfast-Live": "1"})
        finally:
            for each in following:
                each.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    async def _load(self, headers: dict[str, str]) -> str:
        began = time.monotonic()
        try:
            response = await self._client.get(self._url, headers={"Accept": "text/html", **headers})
        except httpx.HTTPError:
            self._seen.errors += 1
            return ""
        self.loads += 1
        self._seen.pages += 1
        self._seen.errors += response.status_code != 200
        self._seen.waited += time.monotonic() - began
        return response.text

    async def _follow(self, url: str, headers: dict[str, str], *, is_log: bool = False) -> None:
        accept = {"Accept": "text/event-stream", **headers}
        async with self._client.stream("GET", url, headers=accept) as response:
            if not is_log:
                self._news.set()
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    self._seen.events += 1
                    if not is_log:
                        self._news.set()


async def look_at(web: WebProcess, server: Server, urls: Sequence[str]) -> Load:
    """Have somebody look at each page, and return what all of them cost in each second."""
    seen = Seen()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    base = f"http://{web.host}:{web.port}"
    async with httpx.AsyncClient(base_url=base, timeout=TIMEOUT, limits=limits, trust_env=False) as client:
        viewers = [Viewer(client, url, seen) for url in urls]
        looking = []
        for viewer in viewers:
            looking.append(asyncio.create_task(viewer.look()))
            await asyncio.sleep(COMING / len(urls))
        await _until_all_refreshed(viewers)
        before, cpu, began, first = server.look(), web.cpu(), time.monotonic(), Seen(**vars(seen))
        await asyncio.sleep(SECONDS)
        spent, seconds = between(before, server.look()), time.monotonic() - began
        own, pages = web.cpu() - cpu, seen.pages - first.pages
        load = Load(
            pages=pages / seconds, wait=1000 * (seen.waited - first.waited) / max(1, pages), web=own / seconds,
            store=1000 * spent.cpu / seconds, commands=spent.commands(1) / seconds,
            calls=sum(number for name, (number, _) in spent.calls.items() if name.startswith("fcall")) / seconds,
            events=(seen.events - first.events) / seconds, errors=seen.errors - first.errors,
        )  # fmt: skip
        for each in looking:
            each.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
    return load


async def _until_all_refreshed(viewers: Sequence[Viewer]) -> None:
    """Wait until the first pages, which cost more, have been loaded."""
    ends = time.monotonic() + PATIENCE
    while any(viewer.loads < 2 for viewer in viewers) and time.monotonic() < ends:
        await asyncio.sleep(0.2)


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """Run some jobs meanwhile: a hundred a second, one in ten of which fails."""
    is_over = threading.Event()
    thread = threading.Thread(target=_run_jobs, args=(url, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _run_jobs(url: str, is_over: threading.Event) -> None:
    app = Holdfast(url)
    executor, numbers = "node-busy/w.1", itertools.count()
    error = Failure(type="shop.errors.Busy", message="busy", traceback="", group="Busy", fingerprint="b" * 12, place="")
    batch: dict[str, Any] = {"queue": QUEUE, "task": "mail.send", "count": JOBS, "priority": 200}
    started = int(time.time() * 1000)
    while not is_over.wait(TURN):
        number = next(numbers)
        ids = " ".join(f"busy-{started}-{number * JOBS + place}" for place in range(JOBS))
        app.store.run(Command("enqueue", {"batches": [batch]}, lambda _: None, (ids.encode(), *[b"{}"] * JOBS)))
        request = commands.claim_args([QUEUE], counter=started + number, limit=JOBS, pid=1)
        ended = [
            Finish(
                job.id, job.attempt, Succeed(b"1") if place else Error(failure.encode(error), "Busy", final=True), 1, 1,
                job.created,
            )
            for place, job in enumerate(app.store.run(commands.claim(executor, request)).jobs)
        ]  # fmt: skip
        app.store.run(commands.finish(executor, ended))
    app.close()
