"""The app of tests of the REST API: tasks of QuantumLeap, and one that prints, saves and waits.

A task that waits for a gate continues when the test makes the file of that name in the directory GATES.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import Holdfast, current_job

jobs = Holdfast()


def is_open(gate: str) -> bool:
    return (Path(os.environ["GATES"]) / gate).exists()


def wait_for(gate: str) -> None:
    while not is_open(gate):
        time.sleep(0.01)


@jobs.task
def notify(entity: dict[str, str]) -> str:
    """Insert an entity into the database, which accepts it once its gate is open."""
    if not is_open(entity["id"]):
        raise ConnectionError("the database does not answer")
    return f"inserted {entity['id']}"


@jobs.task
def talk(name: str) -> str:
    """Print lines and save, before and after a gate."""
    print("first line", flush=True)
    current_job().save({"done": 1}, message="half")
    wait_for(name)
    print("last line", flush=True)
    return name
