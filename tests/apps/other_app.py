"""An app that knows none of the tasks of worker_app, as before a deploy."""

from __future__ import annotations

from holdfast import Holdfast

jobs = Holdfast()


@jobs.task
def greet(name: str) -> str:
    return f"hello {name}"
