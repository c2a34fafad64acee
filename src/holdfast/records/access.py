"""Access to the web: its address, users and tokens."""

from __future__ import annotations

from datetime import datetime

from holdfast.records.table import Field, Output, Record, Table, column, done_column, field


def _listed(record: Record, _: Output) -> str:
    return "all" if record["queues"] is None else ",".join(record["queues"])


_USER = column("user", str, "name of the user", whole=True)
_TOKEN = column("token", str, "name of the token", whole=True)


def _rights(whose: str) -> tuple[Field, ...]:
    return (
        column("role", str, "viewer, operator or admin"),
        column("queues", list[str] | None, f"names and patterns of the {whose}'s queues; null: all", show=_listed),
        column("sees_data", bool, "whether it sees arguments, results, errors and logs", title="DATA"),
    )


WEB = Table(
    "web server",
    field("url", str, "its address"),
    field("sign_in", list[str], "how one is known to it: password, token or proxy; empty: nobody signs in"),
    name="WebServer",
)
WEB_USERS = Table(
    "user", _USER, *_rights("user"), column("password", bool, "whether it can sign in with a password"), name="WebUser"
)
WEB_TOKENS = Table(
    "token",
    _TOKEN,
    *_rights("token"),
    column("scope", str | None, "what it is for; null: everything that its role may do"),
    column("expires_at", datetime | None, "when it expires; null: never", title="EXPIRES"),
    name="WebToken",
)
WEB_TOKEN_ADDED = Table(
    "token",
    _TOKEN,
    field("secret", str, "the token itself, which is not stored and shown only now"),
    field("expires_at", datetime | None, "when it expires; null: never"),
    name="AddedWebToken",
)
WEB_USER_CHANGED = Table(
    "user", _USER, column("done", str, "added, changed or removed", title=""), name="ChangedWebUser"
)
WEB_TOKEN_REMOVED = Table("token", _TOKEN, done_column("removed"), name="RemovedWebToken")
