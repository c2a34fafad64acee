"""`holdfast work`: a worker. Its options follow from the settings of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.app_import import check_module
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.options import Decorator, F, Integer, read_duration
from holdfast.units import humanize
from holdfast.worker.settings import POOL_SETTINGS, WORKER_SETTINGS, Setting

SHORT = {"queues": "-Q", "concurrency": "-c", "processes": "-p"}
NAME_APP = "name the module of the app: `holdfast work shop`"
FOREIGN_OPTIONS = {  # of the workers of other queues
    "-A": NAME_APP,
    "--app": NAME_APP,
    "-q": "name the queues with -Q or --queues: `-Q mail,default`",
    "-l": "use --log-level",
    "--loglevel": "use --log-level",
    "-B": "leave it out: every worker fires schedules",
    "--beat": "leave it out: every worker fires schedules",
    "--with-scheduler": "leave it out: every worker fires schedules",
    "-P": "use --runner, or choose the runner of a task: @jobs.task(runner=...)",
    "--pool": "use --runner, or choose the runner of a task: @jobs.task(runner=...)",
    "--threads": "use --concurrency, for coroutines and threads",
    "--autoscale": "`holdfast load` shows how many workers are needed",
    "--max-tasks-per-child": "use --max-jobs-per-executor",
    "--hostname": "use --node",
}
METAVARS = {"duration": "DURATION", "size": "SIZE"}


def _setting_options(function: F) -> F:
    """Add an option for each setting of a worker, in the order of their declaration."""
    settings = [*POOL_SETTINGS.values(), *WORKER_SETTINGS.values()]
    for setting in reversed(settings):
        if setting.name != "app":
            function = _option(setting)(function)
    return function


def _option(setting: Setting) -> Decorator:
    name = f"--{setting.name.replace('_', '-')}"
    names = [f"{name}/{name.replace('show', 'hide')}"] if setting.name == "show_output" else [name]
    if setting.name in SHORT:
        names.insert(0, SHORT[setting.name])
    return click.option(*names, help=setting.meta.description, show_default=True, **_kind_options(setting, name))


def _kind_options(setting: Setting, name: str) -> dict[str, Any]:
    """Return the arguments of `click.option` that follow from the kind of a setting."""
    if setting.kind == "flag":
        return {"is_flag": True, "default": setting.default}
    if setting.kind == "choice":
        return {"type": click.Choice(setting.choices, case_sensitive=False), "default": setting.default}
    if setting.kind == "count":
        return {"type": Integer(setting.min, setting.max), "metavar": "NUMBER", "default": setting.default}

    def read(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        value: Any = text
        if text is not None and setting.kind == "duration":
            value = read_duration(text, name, minimum=setting.min, maximum=setting.max)
        return None if value is None else setting.read(value, name)

    return {"callback": read, "metavar": METAVARS.get(setting.kind), "default": _default_text(setting) or None}


def _default_text(setting: Setting) -> str | None:
    if setting.kind == "queues":
        return ",".join(setting.default)
    return humanize(setting.default) if isinstance(setting.default, int) else setting.default


@command(
    "work",
    "holdfast work shop.jobs:app -Q mail,default -p 4",
    "holdfast work tasks --order weighted --queues video=5,mail=1 --max-memory 1G",
    "holdfast work tasks --queues 'video-*,!video-test,mail'",
    "HOLDFAST_LEASE=1m holdfast work tasks --burst",
    shared=("url", "namespace"),
    foreign=FOREIGN_OPTIONS,
    context_settings={"auto_envvar_prefix": "HOLDFAST"},
)
@click.argument("app", envvar="HOLDFAST_APP", required=False)
@_setting_options
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), help="TOML file with these settings and pools."
)
@click.option("-v", "--verbose", is_flag=True, help="The same as --log-level DEBUG.")
@pass_client
@click.pass_context
def work(context: click.Context, client: Client, /, app: str | None, config: Path | None, **_: Any) -> int:
    """Run the jobs of an app until SIGTERM or Ctrl-C.

    APP is a module with one Holdfast app, or module:name. The current directory is searched first; only the worker's
    child processes import it. An app created with its own URL or namespace uses those; --url, --namespace,
    HOLDFAST_URL and HOLDFAST_NAMESPACE are for an app created without.

    On the first signal the worker stops claiming, and running jobs may finish or yield; jobs that still run after
    --stop-within are requeued. A second signal requeues them at once. The exit code is 0 after a shutdown or when there
    is nothing left to do, 1 if the app cannot be imported or the server can lose jobs.

    The command line overrides the environment, which overrides --config or else the table [tool.holdfast.worker] of
    pyproject.toml in the current directory. A file may describe several pools.
    """
    import asyncio

    from holdfast.worker.linux import open_standard_files, require_files
    from holdfast.worker.output.console import ConsoleStream, log_to
    from holdfast.worker.settings_file import make_settings, read_project_settings, read_settings_file
    from holdfast.worker.supervisor.supervisor import Supervisor

    open_standard_files()
    require_files()
    file = read_settings_file(config) if config else read_project_settings(Path.cwd())
    app = app or file.worker.get("app")
    if not app:
        raise click.UsageError("expected APP, the module of your app: `holdfast work tasks`.", context)
    check_module(app)
    settings = make_settings(app, _given(context), file)
    client.share_address()
    log_to(ConsoleStream(2), settings.log_level)

    async def run() -> int:
        return await Supervisor(settings).run()

    return asyncio.run(run())


def _given(context: click.Context) -> dict[str, Any]:
    """Return the settings that were given on the command line or in the environment."""
    given = {
        name: value
        for name, value in context.params.items()
        if (name in POOL_SETTINGS or name in WORKER_SETTINGS)
        and name != "app"
        and context.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    }
    return {**given, "log_level": "DEBUG"} if context.params["verbose"] else given
