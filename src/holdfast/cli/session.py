"""What every command has: the options that all share, its examples, the client, and a place to write to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Protocol, TypeVar

import click

from holdfast import Holdfast
from holdfast.cli.output import Output
from holdfast.durations import CENTURY, milliseconds, utc

F = TypeVar("F", bound=Callable[..., Any])
SHARED = ("url", "namespace", "json", "plain")


class Decorator(Protocol):
    """Returns the function that it is given."""

    def __call__(self, function: F, /) -> F: ...


class Session:
    """One call of the program: the options that all commands share, and what they lead to."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.namespace: str | None = None
        self.json = False
        self.plain = False

    @cached_property
    def app(self) -> Holdfast:
        """A client without tasks."""
        return Holdfast(self.url, namespace=self.namespace)

    @cached_property
    def output(self) -> Output:
        if self.json and self.plain:
            raise click.UsageError("--json and --plain are both given; choose one.")
        if self.json:
            return Output("json", self.now)
        return Output("plain" if self.plain or not sys.stdout.isatty() else "table", self.now)

    def now(self) -> datetime:
        """The server's time: ages are not to depend on the clock of this machine."""
        seconds, microseconds = self.app.store.execute("TIME")
        return utc(int(seconds) * 1000 + int(microseconds) // 1000)

    def share_address(self) -> None:
        """Have apps that are imported, here or in child processes, use the address given on this command line."""
        for name, value in (("HOLDFAST_URL", self.url), ("HOLDFAST_NAMESPACE", self.namespace)):
            if value is not None:
                os.environ[name] = value


pass_session = click.make_pass_decorator(Session, ensure=True)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        setattr(context.ensure_object(Session), parameter.name or "", value)


def shared_options(*, environment: bool = False) -> list[click.Parameter]:
    """Return the options that stand before or after the command's name. Only those before it look at the environment,
    or a variable would win over an option."""

    def option(name: str, words: str, **more: Any) -> click.Option:
        return click.Option(
            [name], help=words, callback=_remember, expose_value=False, allow_from_autoenv=False, **more
        )

    url, namespace = ("HOLDFAST_URL", "HOLDFAST_NAMESPACE") if environment else (None, None)
    return [
        option("--url", "Server: redis://, rediss:// or unix://. [HOLDFAST_URL; else the embedded server]", envvar=url),
        option("--namespace", "Namespace of the jobs. [HOLDFAST_NAMESPACE; else default]", envvar=namespace),
        option("--json", "Print JSON.", is_flag=True),
        option("--plain", "Print tab-separated text, as is done when piped.", is_flag=True),
    ]


class Command(click.Command):
    """A command whose help ends with examples. `shared` names the options that it has in common with others."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), shared: Sequence[str] = SHARED, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params = [*self.params, *(option for option in shared_options() if option.name in shared)]
        self.examples = examples

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)


class Group(click.Group):
    """Commands under one name, whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **more})
        self.examples = examples

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; without one, say which there are."""
        code = super().invoke(ctx)
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
        return code


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def command(name: str, *examples: str, **more: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function, with examples for its help."""
    return click.command(name, cls=Command, examples=examples, **more)


def duration_option(name: str, words: str, *, least: int = 0, most: int = CENTURY, **more: Any) -> Decorator:
    """Declare an option that takes a duration: 30s, 1h30m, or a number of seconds."""

    def read(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
        if value is None:
            return None
        text = f"{value}s" if value[-1:].isdigit() else value
        return timedelta(milliseconds=milliseconds(text, what=name, least=least, most=most))

    return click.option(name, metavar="DURATION", callback=read, help=words, **more)
