"""`holdfast web users` and `holdfast web tokens`: who may use the dashboard and the REST API."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.errors import print_note
from holdfast.cli.options import read_duration
from holdfast.errors import HoldfastError, NotFound
from holdfast.records.access import (
    WEB_TOKEN_ADDED,
    WEB_TOKEN_REMOVED,
    WEB_TOKENS,
    WEB_USER_CHANGED,
    WEB_USERS,
)
from holdfast.text import did_you_mean

if TYPE_CHECKING:
    from holdfast.web.security.auth_file import Entries, TokenEntry, UserEntry

AUTH_FILE = Path("holdfast-web.toml")
ROLES = ("viewer", "operator", "admin")
NEVER = "never"

auth_option = click.option(
    "--auth", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", envvar="HOLDFAST_WEB_AUTH",
    help=f"File of users and tokens. Default: {AUTH_FILE}, if it is here.",
)  # fmt: skip


def need_web() -> None:
    """Explain what is missing if the extra is not installed."""
    try:
        import uvicorn

        import holdfast.web
    except ImportError as error:
        raise click.ClickException(f"{error.name} is not installed: pip install 'holdfast[web]'") from None
    _ = uvicorn, holdfast.web


def chosen_file(auth: Path | None) -> Path | None:
    """Return the file of users: the one that was named, or the usual one if it exists."""
    return auth or (AUTH_FILE if AUTH_FILE.exists() else None)


def _rights_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options that say what somebody may do."""
    for option in (
        click.option(
            "--data/--no-data", "sees_data", default=None,
            help="Whether arguments, results, errors and logs are shown. Default: not to viewers.",
        ),
        click.option("--queues", metavar="QUEUES", help="Queues and patterns, such as mail,video-*. Default: all."),
        click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="What it may do."),
    ):  # fmt: skip
        function = option(function)
    return function


def _rights(role: str, queues: str | None, sees_data: bool | None) -> dict[str, Any]:
    from holdfast.web.security.users import check_queues

    entries = None if queues is None else check_queues([each for each in queues.split(",") if each])
    return {"role": role, "queues": entries, "sees_data": sees_data}


def _entries(path: Path) -> Entries:
    """Return what a file has; nothing if it does not exist."""
    from holdfast.web.security.auth_file import Entries, read_entries

    return read_entries(path) if path.exists() else Entries()


def _check_exists(kind: str, name: str, entries: Mapping[str, Any]) -> None:
    if name not in entries:
        raise NotFound(f"no {kind} {name}{did_you_mean(name, entries)}")


def _check_new(kind: str, name: str, entries: Mapping[str, Any]) -> None:
    if name in entries:
        raise HoldfastError(f"{kind} {name} exists; remove it first, or edit its entry in the file")


# Users


@click.group(
    "users", cls=Group, default="list",
    examples=("holdfast web users", "holdfast web users add ada --role operator --queues mail,video"),
)  # fmt: skip
def users() -> None:
    """List, add and remove users of the dashboard.

    Without a command, users are listed. A running server reads the file again when it has changed.
    """


@command("list", "holdfast web users", "holdfast web users --json | jq '.[].user'", output=WEB_USERS)
@auth_option
@pass_client
def list_users(client: Client, auth: Path | None) -> None:
    """List users and what they may do."""
    need_web()
    entries = _entries(auth or AUTH_FILE)
    client.output.list([_user_record(name, each) for name, each in entries.users.items()], WEB_USERS)


def _user_record(name: str, entry: UserEntry) -> dict[str, Any]:
    user = entry.user(name, "")
    return {
        "user": name,
        "role": entry.role,
        "queues": entry.queues,
        "sees_data": user.may_see_data,
        "password": entry.password is not None,
    }


@command(
    "add",
    "holdfast web users add ada --role operator --queues mail,video",
    "holdfast web users add eve --auth web.toml < password",
    output=WEB_USER_CHANGED,
)
@click.argument("name")
@_rights_options
@click.option("--no-password", is_flag=True, help="The user comes through a proxy, which knows who it is.")
@auth_option
@pass_client
def add_user(client: Client, /, name: str, no_password: bool, auth: Path | None, **rights: Any) -> None:
    """Add a user. The password is asked for on the terminal, or read from standard input: its first line."""
    need_web()
    from holdfast.web.security.auth_edit import set_entry
    from holdfast.web.security.auth_file import check_name
    from holdfast.web.security.passwords import hash_password

    path = auth or AUTH_FILE
    _check_new("user", check_name(name), _entries(path).users)
    values = _rights(**rights)
    set_entry(path, "users", name, {**values, "password": None if no_password else hash_password(_ask_password())})
    client.output.one({"user": name, "done": "added"}, WEB_USER_CHANGED)


@command("password", "holdfast web users password ada", output=WEB_USER_CHANGED)
@click.argument("name")
@auth_option
@pass_client
def change_password(client: Client, name: str, auth: Path | None) -> None:
    """Change the password of a user, whose sessions end.

    Exit code 3 if the user does not exist.
    """
    need_web()
    import msgspec

    from holdfast.web.security.auth_edit import set_entry
    from holdfast.web.security.passwords import hash_password

    path = auth or AUTH_FILE
    entries = _entries(path).users
    _check_exists("user", name, entries)
    values = msgspec.to_builtins(entries[name])
    set_entry(path, "users", name, {**values, "password": hash_password(_ask_password())})
    client.output.one({"user": name, "done": "changed"}, WEB_USER_CHANGED)


@command("remove", "holdfast web users remove ada", output=WEB_USER_CHANGED)
@click.argument("name")
@auth_option
@pass_client
def remove_user(client: Client, name: str, auth: Path | None) -> None:
    """Remove a user, whose sessions end.

    Exit code 3 if the user does not exist.
    """
    need_web()
    from holdfast.web.security.auth_edit import remove_entry

    path = auth or AUTH_FILE
    _check_exists("user", name, _entries(path).users)
    remove_entry(path, "users", name)
    client.output.one({"user": name, "done": "removed"}, WEB_USER_CHANGED)


def _ask_password() -> str:
    """Ask for a password on the terminal, twice; or read it from standard input."""
    from holdfast.web.security.passwords import MAX_PASSWORD, check_password

    if sys.stdin.isatty():
        return check_password(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return check_password(sys.stdin.readline(MAX_PASSWORD + 2).rstrip("\r\n"))


# Tokens


@click.group(
    "tokens", cls=Group, default="list",
    examples=("holdfast web tokens", "holdfast web tokens add prometheus --scope metrics"),
)  # fmt: skip
def tokens() -> None:
    """List, add and remove tokens, with which programs use the REST API.

    Without a command, tokens are listed. A program sends its token with each request: `Authorization: Bearer hft_...`
    """


@command("list", "holdfast web tokens", output=WEB_TOKENS)
@auth_option
@pass_client
def list_tokens(client: Client, auth: Path | None) -> None:
    """List tokens and what they may do."""
    need_web()
    entries = _entries(auth or AUTH_FILE)
    client.output.list([_token_record(name, each) for name, each in entries.tokens.items()], WEB_TOKENS)


def _token_record(name: str, entry: TokenEntry) -> dict[str, Any]:
    return {
        "token": name,
        "role": entry.role,
        "queues": entry.queues,
        "sees_data": entry.user(name, "").may_see_data,
        "scope": entry.scope,
        "expires_at": entry.expires,
    }


def _read_expiry(_: click.Context, __: click.Parameter, text: str) -> timedelta | None:
    return None if text == NEVER else read_duration(text, "--expires", minimum=1000)


@command(
    "add",
    "holdfast web tokens add ci --role operator --queues builds --expires 90d",
    "holdfast web tokens add prometheus --scope metrics --expires never",
    "export TOKEN=$(holdfast web tokens add script)",
    output=WEB_TOKEN_ADDED,
)
@click.argument("name")
@_rights_options
@click.option("--scope", metavar="SCOPE", help="Only for this: metrics.")
@click.option(
    "--expires", metavar="DURATION", default="365d", show_default=True, callback=_read_expiry,
    help="How long it is valid; never: for ever.",
)  # fmt: skip
@auth_option
@pass_client
def add_token(
    client: Client, /, name: str, scope: str | None, expires: timedelta | None, auth: Path | None, **rights: Any
) -> None:
    """Add a token, and print it: only its hash is stored, so it is never shown again."""
    need_web()
    from holdfast.web.security.auth_edit import set_entry
    from holdfast.web.security.auth_file import check_name
    from holdfast.web.security.passwords import hash_token, new_token

    path, secret = auth or AUTH_FILE, new_token()
    _check_new("token", check_name(name), _entries(path).tokens)
    expires_at = None if expires is None else datetime.now(UTC).replace(microsecond=0) + expires
    values = {**_rights(**rights), "scope": scope, "hash": hash_token(secret), "expires": expires_at}
    set_entry(path, "tokens", name, values)
    client.output.value({"token": name, "secret": secret, "expires_at": expires_at}, "secret")
    until = f"until {expires_at:%Y-%m-%d}" if expires_at else "for ever"
    print_note(f"token {name} is valid {until}, and is shown only now; revoke it: holdfast web tokens remove {name}")


@command("remove", "holdfast web tokens remove ci", output=WEB_TOKEN_REMOVED)
@click.argument("name")
@auth_option
@pass_client
def remove_token(client: Client, name: str, auth: Path | None) -> None:
    """Remove a token: requests with it are refused from now on.

    Exit code 3 if the token does not exist.
    """
    need_web()
    from holdfast.web.security.auth_edit import remove_entry

    path = auth or AUTH_FILE
    _check_exists("token", name, _entries(path).tokens)
    remove_entry(path, "tokens", name)
    client.output.one({"token": name, "removed": True}, WEB_TOKEN_REMOVED)


for each in (list_users, add_user, change_password, remove_user):
    users.add_command(each)
for each in (list_tokens, add_token, remove_token):
    tokens.add_command(each)
