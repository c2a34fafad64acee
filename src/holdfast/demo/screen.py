"""The output of the demonstration: a live view on a terminal, lines elsewhere."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.job.job import Job
from holdfast.text import pluralize

EVENTS = 8  # lines
ROWS = 12  # running jobs, at most
BAR = 20  # columns


@dataclass(frozen=True)
class Scene:
    """The state of the demonstration at one moment."""

    elapsed: float
    enqueued: int
    total: int
    counts: dict[str, int]
    workers: dict[str, str]
    running: list[Job[Any]]
    kills: int
    recovered: int

    @property
    def summary(self) -> str:
        counts = ", ".join(f"{self.counts.get(state, 0)} {state}" for state in ("waiting", "running", "succeeded"))
        kills = f"{pluralize(self.kills, 'kill')}, {pluralize(self.recovered, 'attempt')} recovered"
        return f"{self.enqueued} of {self.total} enqueued, {counts}; {kills}"


class Screen(Protocol):
    def log(self, message: str) -> None: ...
    def show(self, scene: Scene, *, last: bool = False) -> None: ...
    def close(self) -> None: ...


def open_screen() -> Screen:
    console = Console()
    return LiveView(console) if console.is_terminal else LineView()


class LineView:
    """Prints a line for each event, and a summary every second."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._shown_at = -1.0

    def log(self, message: str) -> None:
        print(f"{self._elapsed:5.1f} s  {message}", flush=True)

    def show(self, scene: Scene, *, last: bool = False) -> None:
        self._elapsed = scene.elapsed
        if last or scene.elapsed - self._shown_at >= 1:
            self._shown_at = scene.elapsed
            self.log(scene.summary)

    def close(self) -> None:
        """Do nothing: there is no view to close."""


class LiveView:
    """Draws counts, workers, a progress bar for each running job, and the latest events."""

    def __init__(self, console: Console) -> None:
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._elapsed = 0.0
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def log(self, message: str) -> None:
        self._events.append(f"{self._elapsed:5.1f} s  {message}")

    def show(self, scene: Scene, *, last: bool = False) -> None:  # noqa: ARG002 - every scene is drawn
        self._elapsed = scene.elapsed
        workers = "   ".join(f"{name} {state}" for name, state in scene.workers.items())
        parts: list[RenderableType] = [
            Text(f"{scene.elapsed:5.1f} s  {scene.summary}", style="bold"),
            Columns([ProgressBar(scene.total, scene.counts.get("succeeded", 0), width=3 * BAR)]),
            Text(workers, style="dim"),
            _bars(scene.running[: max(1, min(ROWS, self._live.console.height - EVENTS - 5))]),
            *(Text(event, style=_style(event), no_wrap=True, overflow="ellipsis") for event in self._events),
        ]
        self._live.update(Group(*parts), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _bars(running: list[Job[Any]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for job in running:
        done = (job.progress.fraction if job.progress else None) or 0.0
        attempt = Text(f"attempt {job.attempt}", style="yellow" if job.attempt > 1 else "dim")
        table.add_row(job.id, job.task, attempt, f"worker {job.worker[-4:]}", ProgressBar(1.0, done, width=BAR))
    return table


def _style(event: str) -> str:
    return "green" if "taken over" in event else "red" if "killed" in event else ""
