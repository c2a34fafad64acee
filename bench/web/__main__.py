"""Measure what the dashboard and the REST API cost: `python -m bench.web [--jobs N] [--workers N] [--out FILE]`.

A server is filled with jobs in all states, with a fleet's heartbeats, and with as much of all else as pages list; it
and `holdfast web` are processes of their own. Then are measured: each page and each resource that is read, an export of
all jobs with the memory of the web process, and 100 viewers of each of four pages, while nothing happens and while
jobs run.

Other programs make requests wait, but hardly change what they take: processor time of the web process and of the
server's main thread, commands and calls. With `--store URL` a store is measured that an earlier run has filled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import redis

from bench import noise
from bench.server import Server, serving
from bench.web.export import Export, export
from bench.web.measure import Cost, measure
from bench.web.process import WebProcess, serving_web
from bench.web.requests import PAGES, QUEUE, RESOURCES, Request, check_routes
from bench.web.store import Size, beat, fill
from bench.web.viewers import Load, look_at, traffic
from holdfast import Holdfast
from holdfast.web.paths import encode_name

BEAT = 15.0  # seconds between heartbeats of the fleet, which are not measured
VIEWERS = 100
PARTS = ("pages", "resources", "export", "viewers")


class Fleet:
    """Keeps workers live without measuring their heartbeats."""

    def __init__(self, app: Holdfast, size: Size) -> None:
        self._app, self._size, self._due = app, size, 0.0

    def keep_live(self) -> None:
        if time.monotonic() >= self._due:
            beat(self._app, self._size)
            self._due = time.monotonic() + BEAT


@contextmanager
def filled(url: str | None, size: Size) -> Iterator[Server]:
    """Yield a server with a store: a new one, or one that is filled already."""
    if url:
        yield Server(url, redis.Redis.from_url(url))
        return
    with serving() as server, closing(Holdfast(server.url)) as app:
        fill(app, size, say)
        yield server


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def costs_of(web: WebProcess, server: Server, app: Holdfast, fleet: Fleet, requests: Sequence[Request]) -> list[Cost]:
    found = []
    for request in requests:
        fleet.keep_live()
        found.append(measure(web, server, app, request))
        say(f"  {found[-1].title}: {found[-1].cpu:.1f} and {found[-1].store:.1f} ms of CPU")
    return found


def viewed(app: Holdfast) -> dict[str, list[str]]:
    """Return the addresses that viewers look at: of jobs, different ones."""
    running = [job.id for job in app.page(limit=VIEWERS, state="running", newest=True).rows]
    return {
        "overview": ["/"] * VIEWERS,
        "jobs": ["/jobs"] * VIEWERS,
        "job, 100 different": [f"/jobs/{encode_name(running[n % len(running)])}" for n in range(VIEWERS)],
        "queue": [f"/queues/{QUEUE}"] * VIEWERS,
    }


def loads_of(web: WebProcess, server: Server, app: Holdfast, fleet: Fleet) -> dict[str, dict[str, Load]]:
    found: dict[str, dict[str, Load]] = {"nothing": {}, "a hundred jobs a second": {}}
    for name, urls in {"nobody": [], **viewed(app)}.items():
        fleet.keep_live()
        found["nothing"][name] = asyncio.run(look_at(web, server, urls))
        fleet.keep_live()
        with traffic(server.url):
            found["a hundred jobs a second"][name] = asyncio.run(look_at(web, server, urls))
        say(f"  {name}: {found['nothing'][name]}\n    busy: {found['a hundred jobs a second'][name]}")
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    check_routes()
    size = Size(options.jobs, options.workers)
    found: dict[str, Any] = {"jobs": size.jobs, "workers": size.workers, "queues": size.queues}
    with filled(options.store, size) as server, closing(Holdfast(server.url)) as app:
        watch, fleet = noise.Watch(), Fleet(app, size)
        found["server"] = server.about()
        with serving_web(server.url) as web:
            if "pages" in options.only:
                found["pages"] = [each.as_row() for each in costs_of(web, server, app, fleet, PAGES)]
            if "resources" in options.only:
                found["resources"] = [each.as_row() for each in costs_of(web, server, app, fleet, RESOURCES)]
            if "viewers" in options.only:
                loads = loads_of(web, server, app, fleet)
                found["viewers"] = {
                    what: {name: asdict(load) for name, load in of_pages.items()} for what, of_pages in loads.items()
                }
            if "export" in options.only:
                found["export"] = asdict(export(web, server, "/api/v1/jobs"))
        found["noise"] = asdict(watch.read()) | {"load": os.getloadavg()[1], "processors": os.cpu_count()}
    return found


def table(found: dict[str, Any]) -> str:
    """Return the figures as tables in Markdown."""
    parts = []
    for kind in ("pages", "resources"):
        if kind in found:
            rows = [_cost_row(Cost(**each)) for each in found[kind]]
            parts.append(_markdown((kind, *COLUMNS), rows))
    for what, loads in found.get("viewers", {}).items():
        rows = [_load_row(name, Load(**each)) for name, each in loads.items()]
        parts.append(_markdown((f"{VIEWERS} viewers, while {what} happens", *LOADS), rows))
    if "export" in found:
        parts.append(_export_text(Export(**found["export"])))
    seen = found["noise"]
    parts.append(f"Other programs took {seen['other']:.0%} of the machine, {seen['steal']:.0%} was stolen.")
    return "\n\n".join(parts)


COLUMNS = ("web", "p95", "again", "store", "calls", "longest", "wall", "kB")
LOADS = ("pages a second", "web", "store", "commands a second", "calls a second", "page after")


def _cost_row(cost: Cost) -> list[str]:
    times = (f"{value:.1f}" for value in (cost.cpu, cost.cpu_p95, cost.cpu_again, cost.store))
    longest = f"{cost.longest:.1f}" if cost.longest else "< 0.2"
    return [f"`{cost.title}`", *times, f"{cost.calls:.0f}", longest, f"{cost.wall:.0f}", f"{cost.size / 1000:.0f}"]


def _load_row(name: str, load: Load) -> list[str]:
    numbers = (load.pages, load.web, load.store, load.commands, load.calls, load.wait)
    return [name, *(f"{value:,.0f}" for value in numbers)]


def _export_text(found: Export) -> str:
    return (
        f"Export of {found.records:,} jobs, {found.megabytes:,.0f} MB, in {found.seconds:.0f} s: {found.web:.0f} s of"
        f" CPU of the web process, {found.store:.0f} s of the server, whose longest call took {found.longest:.1f} ms."
        f" The web process had {found.before:.1f} MiB before, {found.most:.1f} at most, {found.after:.1f} after."
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--store", metavar="URL", help="measure this store, which is filled already")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all figures as JSON")
    options = parser.parse_args()
    found = run(options)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
