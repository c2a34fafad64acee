"""The app of the tests of tags and scopes: tasks in each runner that tag themselves and enqueue others."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, get_args

from holdfast import Advance, Holdfast, Task, current_job
from holdfast.job.option_table import Runner

RUNNERS: tuple[Runner, ...] = get_args(Runner)

tenant: ContextVar[str] = ContextVar("tenant")
jobs = Holdfast(scope=tenant, defaults={"tags": ["app"], "retries": 0})
TASKS: dict[str, Task[..., Any]] = {}


def _look() -> list[Any]:
    job = current_job()
    found = job.tag("seen", remove=["temporary"])
    child = leaf.enqueue()
    return [job.scope, found, tenant.get(""), child.id]


async def _alook() -> list[Any]:
    job = current_job()
    found = await job.atag("seen", remove=["temporary"])
    child = await leaf.aenqueue()
    return [job.scope, found, tenant.get(""), child.id]


@jobs.task(name="leaf", tags=["leaf"])
def leaf() -> str:
    return current_job().scope


@jobs.task(name="first")
def first(given: bool) -> None:
    raise Advance(last.options(tags="given").bind() if given else last.bind())


@jobs.task(name="last", tags=["last"])
def last() -> str:
    return current_job().scope


for runner in RUNNERS:
    TASKS[runner] = jobs.task(name=f"look.{runner}", runner=runner)(_alook if runner == "async" else _look)
