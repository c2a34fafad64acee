"""Commands and groups of commands: click's, with examples, JSON fields, headings and suggestions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.client import Client
from holdfast.cli.options import SHARED, shared_options
from holdfast.records.table import Table
from holdfast.text import suggestion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Command(click.Command):
    """A command whose help ends with the fields of its output and with examples.

    `shared` names the options that it has in common with other commands; `output` declares the records it prints;
    `in_columns` is False if they are only columns with --watch. `foreign` has options of other queues, and what to do
    here instead.
    """

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), shared: Sequence[str] = SHARED, output: Table | None = None,
        in_columns: bool = True, foreign: Mapping[str, str] = MappingProxyType({}), **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **more)
        for parameter in self.params:
            if isinstance(parameter, click.Option):
                parameter.show_envvar = False  # see `holdfast help environment`
        self.params = [*self.params, *(option for option in shared_options() if option.name in shared)]
        self.examples = examples
        self.foreign = foreign
        self.output = output
        self.columns = output.column_names if output and in_columns else []

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the variable of each option after the option, as `holdfast help environment` says."""
        for option in self.params if ctx.auto_envvar_prefix else ():
            if isinstance(option, click.Option) and option.allow_from_autoenv and option.envvar is None:
                option.envvar = variable_of(option, ctx)
        with suggesting(self.foreign, ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; --json with --plain is refused before anything is done."""
        _ = ctx.ensure_object(Client).output
        return super().invoke(ctx)

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - a sentence is never cut
        return first_sentence(self)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        if self.columns:
            with formatter.section("Columns when piped"):
                formatter.write_text(", ".join(self.columns))
        if self.output:
            with formatter.section("JSON fields"):
                formatter.write_dl(list(self.output.help.items()))
        write_examples(formatter, self.examples)


_NAMED_LATER = "holdfast.cli.named_later"  # in `Context.meta`: a command of the group that follows its options


class Group(click.Group):
    """Commands under one name, whose help ends with examples.

    The name of the `default` command may be left out.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), default: str | None = None, **more: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **more})
        self.examples = examples
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command if none is named."""
        is_named = args and (args[0][:1].isalnum() or args[0] in ctx.help_option_names)
        if self._default and not is_named and (args or not ctx.resilient_parsing):
            ctx.meta[_NAMED_LATER] = next((word for word in args if word in self.commands), None)
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands, and the options of the default command."""
        items = super().shell_complete(ctx, incomplete)
        if self._default and incomplete.startswith("-"):
            items = click.Command.shell_complete(self.commands[self._default], ctx, incomplete)
        return items

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - a sentence is never cut
        return first_sentence(self)

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first, or suggest one with a similar name."""
        name = args[0]
        if name not in self.commands and not ctx.resilient_parsing and name[:1].isalnum():
            raise click.UsageError(f"unknown command {name!r}{self.suggest(name)}", ctx)
        return super().resolve_command(ctx, args)

    def suggest(self, name: str) -> str:
        """Return the end of an error message about an unknown command."""
        return suggestion(name, self.commands)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; without one, print the help."""
        try:
            code = super().invoke(ctx)
        except click.UsageError as error:
            if not (named := ctx.meta.get(_NAMED_LATER)):
                raise
            hint = f"options go after the command: `{ctx.command_path} {named} ...`"
            raise click.UsageError(f"{error.format_message().rstrip('.')}; {hint}", error.ctx) from None
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
        return code


@contextmanager
def suggesting(foreign: Mapping[str, str], context: click.Context) -> Iterator[None]:
    """Answer an option of another queue with what to do here."""
    try:
        yield
    except click.NoSuchOption as error:
        if error.option_name not in foreign:
            raise
        raise click.UsageError(f"unknown option {error.option_name}; {foreign[error.option_name]}", context) from None


def variable_of(option: click.Option, context: click.Context) -> str:
    """Return the environment variable of an option, such as HOLDFAST_JOBS_LIMIT."""
    long = next(name for name in option.opts if name.startswith("--"))
    return f"{context.auto_envvar_prefix}_{long[2:].replace('-', '_').upper()}"


def first_sentence(command: click.Command) -> str:
    """Return the summary of a command for a list of commands."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].rstrip('.')}."


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def command(name: str, *examples: str, **more: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function, with examples for its help."""
    return click.command(name, cls=Command, examples=examples, **more)
