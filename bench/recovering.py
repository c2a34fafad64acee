"""Measure what happens to a job whose worker and all of its processes are killed by `kill -9`.

Each peer has a server of its own. As soon as the job has begun (four jobs, of Holdfast), its worker is killed, and what
counts is the time until it begins again: on a worker that is started at once, or on one that lived already. After some
patience it counts as not recovered, and the figure is the patience.
"""

from __future__ import annotations

import threading
import time

from bench import children
from bench.figures import Taken
from bench.roster import Peer
from bench.scene import Scene, Size, new_folder
from bench.server import Way, serving

IDLE = 3.0  # seconds until a worker that was started is idle
_few = threading.Semaphore(3)  # who starts at the same time; all may wait


def recovery(_scene: Scene, peer: Peer, size: Size) -> Taken:
    figures = {"seconds": _seconds(peer, size.patience, other=None)}
    if peer.name == "holdfast":
        figures["sibling"] = _seconds(peer, size.patience, other="one")
        figures["elsewhere"] = _seconds(peer, size.patience, other="other node")
    is_capped = {name: seconds >= size.patience for name, seconds in figures.items()}
    return Taken(figures, {"capped": is_capped, "patience": size.patience})


def _seconds(peer: Peer, patience: float, other: str | None) -> float:
    """Seconds until the job runs again; `other` is the kind of worker that lives meanwhile."""
    kind, jobs = peer.kind("stay")[0], peer.paces["stay"]
    with serving() as server, new_folder() as folder:
        scene = Scene(server, Way(server.url), folder)
        scene.clear()
        workers = []
        try:
            with _few:
                workers.append(scene.start(peer, kind))
                scene.run_command(peer, "enqueue", 1)
                scene.await_marks(2, "the worker ran nothing")  # it is up
                scene.forget_marks()
                scene.run_command(peer, "stay", jobs)
                scene.await_marks(2 * jobs, "the job did not begin")
                if other:
                    workers.append(scene.start(peer, other))
                    time.sleep(IDLE)
                time.sleep(1)  # so that the heartbeat of the worker is in the store
            children.kill(workers[0])
            killed = time.monotonic()
            if not other:
                workers.append(scene.start(peer, kind))
            children.wait_until(lambda: len(scene.lines()) >= 2 * jobs, timeout=patience, every=0.02)
            return min(patience, time.monotonic() - killed)
        finally:
            for worker in workers:
                children.kill(worker)
