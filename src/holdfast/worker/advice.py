"""Mistakes of an app that end no job: a worker warns of each once."""

from __future__ import annotations

import logging

log = logging.getLogger("holdfast.worker")


class Advice:
    """What this worker has warned of."""

    def __init__(self) -> None:
        self._tasks: set[str] = set()

    def heard_misfit(self, task: str, id: str, words: str) -> None:
        """An executor says that a result does not fit the annotation of its task."""
        if task not in self._tasks:
            self._tasks.add(task)
            log.warning("%s: %s; correct what task %s is annotated to return (said once)", id, words, task)
