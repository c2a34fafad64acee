"""What every command has: the options that all share, its examples, the client, and a place to write to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Protocol, TypeVar

import click

from holdfast import Holdfast
from holdfast.cli.complaints import note
from holdfast.cli.output import Output
from holdfast.errors import StoreUnavailable
from holdfast.server.home import has_data
from holdfast.store import read_url
from holdfast.text import suggestion
from holdfast.units import CENTURY, milliseconds, utc

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
        self.spoken: set[str] = set()  # options of the command line: they win over the environment

    @cached_property
    def app(self) -> Holdfast:
        """A client without tasks, of a store that is there: to look at nothing, no server is started."""
        made = Holdfast(self.url, namespace=self.namespace)
        home = made.address.home
        if home is not None and not has_data(home):
            raise StoreUnavailable(
                f"there is no server here: no URL is given, and {home} has no data. Run this where your project is, set"
                " HOLDFAST_URL to the address of a server, or start one here: `holdfast server start`"
            )
        return made

    @cached_property
    def new_app(self) -> Holdfast:
        """A client without tasks, of a store that may be started now for the first time."""
        made = Holdfast(self.url, namespace=self.namespace)
        note_new_server(made)
        return made

    @cached_property
    def output(self) -> Output:
        chosen = {name for name in ("json", "plain") if getattr(self, name)}
        chosen = chosen & self.spoken or chosen
        if len(chosen) > 1:
            raise click.UsageError("--json and --plain are both given; choose one.")
        if chosen:
            return Output(chosen.pop(), self.now)
        return Output("table" if sys.stdout.isatty() else "plain", self.now)

    def now(self) -> datetime:
        """The server's time: ages are not to depend on the clock of this machine."""
        seconds, microseconds = self.app.store.execute("TIME")
        return utc(int(seconds) * 1000 + int(microseconds) // 1000)

    def share_address(self) -> None:
        """Have apps that are imported, here or in child processes, use the address given on this command line.

        Raises:
            Invalid: it is none; an app would say so with a traceback.
        """
        if self.url:
            read_url(self.url)
        for name, value in (("HOLDFAST_URL", self.url), ("HOLDFAST_NAMESPACE", self.namespace)):
            if value is not None:
                os.environ[name] = value


pass_session = click.make_pass_decorator(Session, ensure=True)


def note_new_server(app: Holdfast) -> None:
    """Say to people that a server is about to be started where there was none: the directory may be the wrong one."""
    home = app.address.home
    if home is not None and not has_data(home):
        note(f"no URL is given, so a new embedded server is started; its data is in {home}")


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if not value:
        return
    session, name = context.ensure_object(Session), parameter.name or ""
    setattr(session, name, value)
    if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
        session.spoken.add(name)


def shared_options(*, environment: bool = False) -> list[click.Parameter]:
    """Return the options that stand before or after the command's name. Only those before it look at the environment,
    or a variable would win over an option."""

    def option(name: str, words: str, **more: Any) -> click.Option:
        variable = f"HOLDFAST_{name[2:].upper()}"
        return click.Option(
            [name],
            help=f"{words} [{variable}]",
            envvar=variable if environment else None,
            callback=_remember,
            expose_value=False,
            allow_from_autoenv=False,
            **more,
        )

    return [
        option("--url", "Server: redis://, rediss://, valkey://, valkeys:// or unix://; else the embedded server."),
        option("--namespace", "Namespace of the jobs; else default."),
        option("--json", "Print JSON, errors too.", is_flag=True),
        option("--plain", "Print tab-separated text, as is done when piped.", is_flag=True),
    ]


class Command(click.Command):
    """A command whose help ends with examples.

    `shared` names the options that it has in common with others; `fields` says what its JSON objects have.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        shared: Sequence[str] = SHARED,
        fields: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        for parameter in self.params:
            if isinstance(parameter, click.Option):
                parameter.show_envvar = True
        self.params = [*self.params, *(option for option in shared_options() if option.name in shared)]
        self.examples = examples
        self.fields = fields or {}

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - a sentence that is cut says nothing
        return first_sentence(self)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        if self.fields:
            with formatter.section("JSON fields"):
                formatter.write_dl(list(self.fields.items()))
        write_examples(formatter, self.examples)


class Group(click.Group):
    """Commands under one name, whose help ends with examples; one may be the `default`, whose name may be left out."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), default: str | None = None, **more: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **more})
        self.examples = examples
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, take the one that is the default."""
        if self._default and not ctx.resilient_parsing and not (args and args[0][:1].isalnum()):
            args = args if args and args[0] in ctx.help_option_names else [self._default, *args]
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - the same
        return first_sentence(self)

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first; of a name that is none, say which is like it."""
        name = args[0]
        if name not in self.commands and not ctx.resilient_parsing and name[:1].isalnum():
            raise click.UsageError(f"there is no command {name!r}{suggestion(name, self.commands)}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; without one, say which there are."""
        code = super().invoke(ctx)
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
        return code


def first_sentence(command: click.Command) -> str:
    """Return what a list of commands says of one."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].rstrip('.')}."


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def command(name: str, *examples: str, **more: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function, with examples for its help."""
    return click.command(name, cls=Command, examples=examples, **more)


def duration_option(name: str, words: str, *, least: int = 0, most: int = CENTURY, **more: Any) -> Decorator:
    """Declare an option that takes a duration."""

    def read(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
        return None if value is None else duration(value, name, least=least, most=most)

    return click.option(name, metavar="DURATION", callback=read, help=words, **more)


def duration(text: str, what: str, *, least: int = 0, most: int = CENTURY) -> timedelta:
    """Read a duration: 30s, 1h30m, or a number of seconds."""
    words = f"{text}s" if text[-1:].isdigit() else text
    return timedelta(milliseconds=milliseconds(words, what=what, least=least, most=most))
