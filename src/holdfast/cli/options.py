"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import click

from holdfast.cli.client import Client
from holdfast.units import CENTURY, milliseconds, size_in_bytes, with_unit

F = TypeVar("F", bound=Callable[..., Any])
SHARED = ("url", "namespace", "json", "plain")


class Integer(click.IntRange):
    """An integer within bounds, whose error message names them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected an integer {self._bounds()}, got {value!r}", param, ctx)

    def _bounds(self) -> str:
        return f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"


class Decorator(Protocol):
    """Returns the function that it is given."""

    def __call__(self, function: F, /) -> F: ...


def shared_options(*, environment: bool = False) -> list[click.Parameter]:
    """Return the options that stand before or after the command's name.

    Only those before it read the environment; otherwise a variable would override an option.
    """

    def option(name: str, help: str, **more: Any) -> click.Option:
        variable = f"HOLDFAST_{name[2:].upper()}" if environment else None
        return click.Option(
            [name], help=help, envvar=variable, callback=_store, expose_value=False, allow_from_autoenv=False, **more
        )

    return [
        option(
            "--url",
            "Server: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://. Default: the embedded server.",
        ),
        option("--namespace", "Namespace of the jobs. Default: default."),
        option("--json", "Print JSON, errors too.", is_flag=True),
        option("--plain", "Print tab-separated text, as in a pipe.", is_flag=True),
    ]


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if not value:
        return
    client, name = context.ensure_object(Client), parameter.name or ""
    setattr(client, name, value)
    if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
        client.from_command_line.add(name)


def duration_option(
    *names: str, help: str, minimum: int = 0, maximum: int = CENTURY, default: str | None = None
) -> Decorator:
    """Declare an option that takes a duration; the bounds are in milliseconds."""

    def read(_: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
        return None if value is None else read_duration(value, parameter.opts[-1], minimum=minimum, maximum=maximum)

    return click.option(
        *names, metavar="DURATION", callback=read, help=help, default=default, show_default=default is not None
    )


def read_duration(text: str, name: str, *, minimum: int = 0, maximum: int = CENTURY) -> timedelta:
    """Read a duration: 30s, 1h30m, or a number of seconds."""
    return timedelta(milliseconds=milliseconds(with_unit(text), what=name, minimum=minimum, maximum=maximum))


def read_time(_: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    """Read a time in ISO 8601; without a zone it is local."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        hint = parameter.opts[0]
        raise click.BadParameter(
            f"expected a time such as 2024-07-01T02:00+02:00, got {text!r}", param_hint=hint
        ) from None
    return value if value.tzinfo else value.astimezone()


def read_size(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Read a size: 512M, 2G, or a number of bytes."""
    return None if text is None else size_in_bytes(text, what=parameter.opts[0])


def limit_option(help: str, *, default: int | None = None, minimum: int = 1, maximum: int | None = None) -> Decorator:
    """Declare -n/--limit: the maximum number of rows."""
    return click.option(
        "-n", "--limit", type=Integer(minimum, maximum), metavar="NUMBER", default=default,
        show_default=default is not None, help=help,
    )  # fmt: skip


def yes_option() -> Decorator:
    """Declare -y/--yes: skip the confirmation."""
    return click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
