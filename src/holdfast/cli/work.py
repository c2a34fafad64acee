"""Commands that run jobs: a worker, and the demonstration."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import partial
from typing import Any

import click

from holdfast.cli.imports import check_module
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.durations import HOUR, SECOND
from holdfast.names import check_name, check_queue

RUNNERS = ("fork", "spawn", "process", "thread")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LONGEST_NODE = 24  # characters

_option = partial(click.option, show_envvar=True, show_default=True)
_duration = partial(duration_option, show_envvar=True, show_default=True)


def _queues(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(check_queue(name.strip()) for name in value.split(","))


def _node(_: click.Context, __: click.Parameter, value: str) -> str:
    if len(value) > LONGEST_NODE:
        raise click.BadParameter(f"{value!r} is too long; it must be up to {LONGEST_NODE} characters")
    return check_name(value, "--node") if value else ""


@command(
    "work",
    "holdfast work tasks",
    "holdfast work shop.jobs:app --queues mail,default --processes 4",
    "HOLDFAST_QUEUES=video HOLDFAST_LEASE=1m holdfast work tasks",
    shared=("url", "namespace"),
    context_settings={"auto_envvar_prefix": "HOLDFAST"},
)
@click.argument("app", envvar="HOLDFAST_APP")
@_option("--queues", callback=_queues, default="default", help="Queues, most urgent first: a,b.")
@_option(
    "--processes", type=click.IntRange(1), default=os.cpu_count() or 2, help="Sync jobs at once, a process for each."
)
@_option("--concurrency", type=click.IntRange(1), default=100, help="Async jobs, and jobs in threads, at once.")
@_option("--runner", type=click.Choice(RUNNERS), default="fork", help="Runner of sync tasks that name none.")
@_option("--executors", type=click.IntRange(1), default=1, help="Processes that claim; the two above are for each.")
@_duration("--lease", "How long jobs stay ours without a sign of life.", least=SECOND, most=HOUR, default="30s")
@_duration("--stop-within", "How long jobs may take to end, or to yield, at a stop.", default="25s")
@_option("--node", callback=_node, default="", help="Name of this machine; else its host name.")
@_option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="INFO", help="What to log.")
@_option("--accept-data-loss", is_flag=True, help="Work on a server that loses jobs: see holdfast doctor.")
@pass_session
def work(session: Session, /, app: str, lease: timedelta, stop_within: timedelta, log_level: str, **more: Any) -> int:
    """Run the jobs of an app, until SIGTERM or Ctrl-C.

    APP is a module that has one Holdfast app, or module:name. It is looked for in the current directory first, and is
    imported by the worker's child processes only. An app that was made with a URL or namespace of its own uses those;
    --url and --namespace are for one that was made without, as are HOLDFAST_URL and HOLDFAST_NAMESPACE.

    At the first signal no more jobs are started, and those that run may end or yield; what is left after --stop-within
    is handed back and runs elsewhere. A second signal hurries. Exit code 0 after a stop, 1 if the app cannot be
    imported or the server loses jobs.
    """
    import asyncio
    import logging

    from holdfast.worker.settings import WorkerSettings
    from holdfast.worker.supervisor import Supervisor

    check_module(app)
    session.share_address()
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(message)s")
    settings = WorkerSettings(app=app, lease=_ms(lease), stop_within=_ms(stop_within), log_level=log_level, **more)

    async def run() -> int:
        return await Supervisor(settings).run()

    return asyncio.run(run())


def _ms(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


@command("demo", "holdfast demo", "holdfast demo --keep", shared=())
@click.option("--keep", is_flag=True, help="Keep the server and the jobs of the demonstration, to look at them.")
def demo(keep: bool) -> int:
    """See Holdfast work: jobs that are killed, and finish all the same."""
    from holdfast import demo as demonstration

    return demonstration.run(keep=keep)
