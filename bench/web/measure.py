"""What requests cost the web process and the store."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

from bench.server import Look, Server, between
from bench.web.process import WebProcess
from bench.web.requests import Request
from holdfast import Holdfast

SHORT = 200  # microseconds: calls of the store that are shorter are not logged
TRACK = "/api/v1/jobs/heavy-job:track"  # an action, after which nothing is remembered of what was answered before


@dataclass(frozen=True)
class Cost:
    """What a request costs, in milliseconds: those that find nothing remembered, and those right after another."""

    title: str
    kind: str  # page or resource
    status: int
    size: int  # bytes
    wall: float  # median, and so are the others unless it is said
    wall_p95: float
    cpu: float  # of the web process
    cpu_p95: float
    cpu_again: float
    store: float  # CPU of the server's main thread, mean
    commands: float  # in the server, those inside functions, too
    calls: float  # of functions: round trips
    longest: float  # call, the least of all times; 0 if none took `SHORT`

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    web: WebProcess, server: Server, app: Holdfast, request: Request, *, times: int = 20, seconds: float = 3.0
) -> Cost:
    """Make a request several times, and return what it costs."""
    url, accept = request.url(app), "text/html" if request.is_page else "application/json"
    status, content = web.get(url, accept)
    walls: list[float] = []
    own: list[float] = []
    again: list[float] = []
    longest: list[dict[str, float]] = []
    spent: list[tuple[float, float, float]] = []
    ends = time.monotonic() + seconds
    while len(walls) < times and (len(walls) < 2 or time.monotonic() < ends):
        web.ask("POST", TRACK, b"{}")
        _watch_calls(server)
        before, began, cpu = server.look(), time.perf_counter(), web.cpu()
        web.get(url, accept)
        walls.append(1000 * (time.perf_counter() - began))
        own.append(web.cpu() - cpu)
        after = server.look()
        spent.append(_spent(before, after))
        longest.append(_longest(server))
        cpu = web.cpu()
        web.get(url, accept)
        again.append(web.cpu() - cpu)
    return Cost(
        title=request.title, kind="page" if request.is_page else "resource", status=status, size=len(content),
        wall=statistics.median(walls), wall_p95=_p95(walls), cpu=statistics.median(own), cpu_p95=_p95(own),
        cpu_again=statistics.median(again), store=statistics.median(each[0] for each in spent),
        commands=statistics.median(each[1] for each in spent), calls=statistics.median(each[2] for each in spent),
        longest=_undisturbed(longest),
    )  # fmt: skip


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def _watch_calls(server: Server) -> None:
    server.client.config_set("slowlog-log-slower-than", SHORT)
    server.client.slowlog_reset()


def _longest(server: Server) -> dict[str, float]:
    """Return how long the longest call of each function took, of those that are logged."""
    found: dict[str, float] = {}
    for entry in server.client.slowlog_get(1000):
        words = entry["command"].split()
        if words[0].startswith(b"FCALL"):
            function = words[1].decode().split("_", 2)[2]
            found[function] = max(found.get(function, 0.0), entry["duration"] / 1000)
    return found


def _undisturbed(seen: list[dict[str, float]]) -> float:
    """Return how long the longest call takes. Of each function the least of all times counts: in the others, the server
    waited for a processor.
    """
    functions = {name for each in seen for name in each}
    return max((min(each.get(name, 0.0) for each in seen) for name in functions), default=0.0)


def _spent(before: Look, after: Look) -> tuple[float, float, float]:
    """Return milliseconds of the server, commands, and calls of functions."""
    found = between(before, after)
    calls = sum(number for name, (number, _) in found.calls.items() if name.startswith("fcall"))
    return found.cpu * 1000, found.commands(1), calls
