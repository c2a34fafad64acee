"""Write the Grafana board: `python examples/grafana/board.py > examples/grafana/holdfast.json`.

Each panel is a row of PANELS; its place on the grid follows from its width.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

COLUMNS = 24  # of Grafana's grid
QUEUES = 'queue=~"$queue"'
WINDOW = "$__rate_interval"


class Panel(NamedTuple):
    """A panel: its queries, each with the legend of its lines."""

    title: str
    queries: tuple[tuple[str, str], ...]
    width: int = 8
    height: int = 8
    kind: str = "timeseries"
    unit: str = "short"
    stacked: bool = False
    red_above: float | None = None
    help: str = ""


def stat(title: str, query: str, *, unit: str = "short", red_above: float | None = None, help: str = "") -> Panel:
    return Panel(title, ((query, ""),), 3, 4, "stat", unit, red_above=red_above, help=help)


def lines(title: str, *queries: tuple[str, str], **more: Any) -> Panel:
    return Panel(title, queries, **more)


def quantile(fraction: float, name: str, by: str) -> tuple[str, str]:
    rates = f"sum by (le, {by}) (rate(holdfast_{name}_seconds_bucket{{{QUEUES}}}[{WINDOW}]))"
    return f"histogram_quantile({fraction}, {rates})", f"{{{{{by}}}}} p{fraction * 100:.0f}"


PANELS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        stat("Store", "min(holdfast_store_up)", help="1: it answers."),
        stat("Waiting", f'sum(holdfast_jobs{{state="waiting",{QUEUES}}})'),
        stat("Running", f'sum(holdfast_jobs{{state="running",{QUEUES}}})'),
        stat("Oldest wait", f"max(holdfast_oldest_seconds{{{QUEUES}}})", unit="s", red_above=900),
        stat("Failures, last hour", f"sum(increase(holdfast_failures_total{{{QUEUES}}}[1h]))", red_above=1),
        stat("Needed", f"sum(holdfast_needed{{{QUEUES}}})", help="Jobs that have to run at once."),
        stat("Workers", 'sum(holdfast_workers{state="live"})'),
        stat("Overdue", "sum(holdfast_overdue)", red_above=1, help="Due and not processed: no worker is live."),
    ),
    "Throughput and failures": (
        lines(
            "Attempts that ended, per second",
            (f"sum by (outcome) (rate(holdfast_attempts_total{{{QUEUES}}}[{WINDOW}]))", "{{outcome}}"),
            stacked=True,
            help="Retried: after an error, a crash or a lost lease. Other: failed for good, cancelled, snoozed.",
        ),
        lines(
            "Completed, per second, by queue",
            (
                f'sum by (queue) (rate(holdfast_attempts_total{{outcome="completed",{QUEUES}}}[{WINDOW}]))',
                "{{queue}}",
            ),
            stacked=True,
        ),
        lines(
            "Jobs that failed for good, per minute, by task",
            (f"60 * sum by (task) (rate(holdfast_failures_total{{{QUEUES}}}[{WINDOW}])) > 0", "{{task}}"),
        ),
    ),
    "Waiting": (
        lines(
            "Jobs that have not ended",
            (
                f'sum by (state) (holdfast_jobs{{state!~"succeeded|failed|cancelled",{QUEUES}}})',
                "{{state}}",
            ),
            stacked=True,
        ),
        lines("Oldest waiting job", (f"max by (queue) (holdfast_oldest_seconds{{{QUEUES}}})", "{{queue}}"), unit="s"),
        lines("Wait before the start", quantile(0.5, "wait", "queue"), quantile(0.95, "wait", "queue"), unit="s"),
    ),
    "Running": (
        lines("Run time, by task", quantile(0.5, "run", "task"), quantile(0.95, "run", "task"), unit="s", width=12),
        lines(
            "Concurrency that is needed, and that runs",
            (f"sum by (queue) (holdfast_needed{{{QUEUES}}})", "{{queue}} needed"),
            (f'sum by (queue) (holdfast_jobs{{state="running",{QUEUES}}})', "{{queue}} running"),
            width=12,
        ),
    ),
    "Workers": (
        lines("Workers", ("sum by (state) (holdfast_workers)", "{{state}}"), stacked=True, width=6),
        lines(
            "Slots",
            ("sum by (kind) (holdfast_slots)", "{{kind}}"),
            ('sum(holdfast_jobs{state="running"})', "running jobs"),
            width=6,
        ),
        lines("Memory of workers", ("sum(holdfast_workers_memory_bytes)", "memory"), unit="bytes", width=6),
        lines(
            "Stalled jobs and paused queues",
            ("sum(holdfast_stalled_jobs)", "stalled jobs"),
            (f"sum(holdfast_queue_paused{{{QUEUES}}})", "paused queues"),
            width=6,
        ),
    ),
    "Store": (
        lines(
            "Memory of the server",
            ("max(holdfast_store_memory_bytes)", "used"),
            ("max(holdfast_store_max_memory_bytes) > 0", "limit"),
            unit="bytes",
            width=12,
        ),
        lines("Time to read these metrics", ("max(holdfast_reading_seconds)", "seconds"), unit="s", width=12),
    ),
}


def board() -> dict[str, Any]:
    return {
        "title": "Holdfast",
        "uid": "holdfast",
        "tags": ["holdfast", "jobs"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": [_source(), _queue()]},
        "panels": list(_panels()),
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def _queue() -> dict[str, Any]:
    return {
        "name": "queue",
        "label": "Queue",
        "type": "query",
        "datasource": _datasource(),
        "query": {"query": "label_values(holdfast_jobs, queue)", "refId": "queue"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _datasource() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${source}"}


def _panels() -> Iterator[dict[str, Any]]:
    id, top = 0, 0
    for title, panels in PANELS.items():
        id += 1
        yield {"id": id, "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1}}
        left, top = 0, top + 1
        for panel in panels:
            id += 1
            yield {"id": id, "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height}, **_described(panel)}
            left += panel.width
        top += panels[0].height


def _described(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "text" if panel.kind == "stat" else "green", "value": None}]
    if panel.red_above is not None:
        steps.append({"color": "red", "value": panel.red_above})
    drawn = {"drawStyle": "line", "lineWidth": 1, "showPoints": "never"}
    if panel.stacked:
        drawn |= {"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        defaults["custom"] = drawn
    targets = [
        {"refId": chr(ord("A") + place), "datasource": _datasource(), "expr": query, "legendFormat": legend}
        for place, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _datasource(),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(board(), indent=1) + "\n")
