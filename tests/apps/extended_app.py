"""The app of the tests of own Lua in workers; HOLDFAST_EXTEND names its file."""

from __future__ import annotations

from typing import get_args

from holdfast import Holdfast, Task
from holdfast.job.option_table import Runner

RUNNERS: tuple[Runner, ...] = get_args(Runner)

jobs = Holdfast(defaults={"retries": 0})
TASKS: dict[str, Task[[], str]] = {}


def _call() -> str:
    version: str = jobs.call("version", leaf.bind())
    return version


async def _acall() -> str:
    version: str = await jobs.acall("version", leaf.bind())
    return version


@jobs.task(name="leaf")
def leaf() -> None:
    pass


for runner in RUNNERS:
    TASKS[runner] = jobs.task(name=f"call-{runner}", runner=runner)(_acall if runner == "async" else _call)
