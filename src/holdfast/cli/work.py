"""Commands that run jobs: a worker, and the demonstration."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.imports import check_module
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.constants import LEAST_LEASE, MOST_LEASE
from holdfast.units import SECOND

RUNNERS = ("fork", "spawn", "process", "thread")
ORDERS = ("strict", "round-robin", "weighted")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_option = partial(click.option, show_envvar=True, show_default=True)
_count = partial(_option, type=click.IntRange(1))
_duration = partial(duration_option, show_envvar=True, show_default=True)


def _queues(_: click.Context, __: click.Parameter, value: str) -> dict[str, int]:
    from holdfast.worker.values import read_queues

    return read_queues(value, "--queues")


def _node(_: click.Context, __: click.Parameter, value: str) -> str:
    from holdfast.worker.values import read_node

    return read_node(value, "--node")


def _size(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from holdfast.units import size_in_bytes

    return None if value is None else size_in_bytes(value, what=parameter.opts[0])


@command(
    "work",
    "holdfast work shop.jobs:app --queues mail,default --processes 4",
    "holdfast work tasks --order weighted --queues video=5,mail=1 --max-memory 1G",
    "holdfast work tasks --queues 'video-*,!video-test,mail'",
    "HOLDFAST_LEASE=1m holdfast work tasks --burst",
    shared=("url", "namespace"),
    context_settings={"auto_envvar_prefix": "HOLDFAST"},
)
@click.argument("app", envvar="HOLDFAST_APP", required=False)
@_option("--queues", callback=_queues, default="default", help="Queues or patterns, most urgent first: a,'b-*','!b-c'.")
@_option("--order", type=click.Choice(ORDERS), default="strict", help="Order of queues; weighted: --queues a=5,b=1.")
@_count("--processes", default=os.cpu_count() or 2, help="Sync jobs at once, a process for each.")
@_count("--concurrency", default=100, help="Async jobs, and jobs in threads, at once.")
@_option("--runner", type=click.Choice(RUNNERS), default="fork", help="Runner of sync tasks that name none.")
@_count("--executors", default=1, help="Processes that claim; the two above are for each.")
@_duration(
    "--lease",
    "How long jobs stay ours without a sign of life; else as each queue has it.",
    least=LEAST_LEASE,
    most=MOST_LEASE,
)
@_duration("--stop-within", "How long jobs may take to end, or to yield, at a stop.", default="25s")
@_option("--burst", is_flag=True, help="End when nothing waits and nothing runs; what is due later is left.")
@_count("--max-jobs", help="End after so many jobs have run.")
@_count("--max-jobs-per-executor", help="Replace an executor after so many jobs.")
@_duration("--max-age", "Replace an executor at this age; its jobs run on.", least=SECOND)
@_option("--max-memory", metavar="SIZE", callback=_size, help="Replace an executor that has more, with its jobs: 512M.")
@_option("--config", type=click.Path(dir_okay=False, path_type=Path), help="TOML file with these settings, and pools.")
@_option("--reload", is_flag=True, help="For development: start the app anew when a file of it changes.")
@_option("--node", callback=_node, default="", help="Name of this machine; else its host name.")
@_option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="INFO", help="What to log.")
@_option("--allow-exec", is_flag=True, help="Also run any program that is enqueued: enqueue --exec. Think before.")
@_option("--show-output/--hide-output", default=True, help="Print what jobs print, too, after their ids.")
@_option("--accept-data-loss", is_flag=True, help="Work on a server that loses jobs: see holdfast doctor.")
@pass_session
@click.pass_context
def work(context: click.Context, session: Session, /, app: str | None, config: Path | None, **_: Any) -> int:
    """Run the jobs of an app, until SIGTERM or Ctrl-C.

    APP is a module that has one Holdfast app, or module:name. It is looked for in the current directory first, and is
    imported by the worker's child processes only. An app that was made with a URL or namespace of its own uses those;
    --url and --namespace are for one that was made without, as are HOLDFAST_URL and HOLDFAST_NAMESPACE.

    At the first signal no more jobs are started, and those that run may end or yield; what is left after --stop-within
    is handed back and runs elsewhere. A second signal hurries. Exit code 0 after a stop, or when there is nothing more
    to do, 1 if the app cannot be imported or the server loses jobs.

    Settings come from the command line, then the environment, then --config or else the table [tool.holdfast.worker]
    of pyproject.toml here. A file may describe several pools.
    """
    import asyncio

    from holdfast.worker.config import config_of_project, make_settings, read_config
    from holdfast.worker.linux import open_standard_files, require_files
    from holdfast.worker.output.console import Outlet, say_to
    from holdfast.worker.supervisor.supervisor import Supervisor

    open_standard_files()
    require_files()
    file = read_config(config) if config else config_of_project(Path.cwd())
    app = app or file.worker.get("app")
    if not app:
        raise click.UsageError("Missing argument 'APP': the module that has your app.", context)
    check_module(app)
    settings = make_settings(app, _given(context), file)
    session.share_address()
    say_to(Outlet(2), settings.log_level)

    async def run() -> int:
        return await Supervisor(settings).run()

    return asyncio.run(run())


def _given(context: click.Context) -> dict[str, Any]:
    """The settings that were given, on the command line or in the environment."""
    defaults = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    return {
        name: value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
        for name, value in context.params.items()
        if name not in ("app", "config") and context.get_parameter_source(name) not in defaults
    }


@command("demo", "holdfast demo", "holdfast demo --keep", shared=())
@click.option("--keep", is_flag=True, help="Use the server of this project, and keep the jobs, to look at them.")
def demo(keep: bool) -> int:
    """See jobs that are killed again and again, and finish."""
    from holdfast.demo import demo as demonstration

    return demonstration.run(keep=keep)
