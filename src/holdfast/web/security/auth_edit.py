"""Change one entry of the file of users, and leave everything else in it as it is, comments too.

The new text is parsed before it replaces the old one, and must have exactly the entries that are meant.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.web.security.auth_file import check_name, parse_entries, read_entries

OPENING = """\
# Users and tokens of `holdfast web`; `holdfast web users` and `holdfast web tokens` write entries.
# Who can read this file can guess passwords: only its owner may read it (mode 600).
key = "{key}"  # signs the cookies of those who signed in
"""

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_HEADER = re.compile(r"\s*\[(?!\[)(?P<name>[^\]]*)\]\s*(?:#.*)?")


def set_entry(path: Path, kind: str, name: str, values: Mapping[str, Any]) -> None:
    """Add or replace `[kind.name]`, and create the file if there is none.

    Raises:
        Invalid: the file cannot be changed, or the entry is not allowed in it.
    """
    check_name(name)
    given = {key: value for key, value in values.items() if value is not None}
    block = "\n".join([f"[{_header(kind, name)}]", *(f"{key} = {_toml(value)}" for key, value in given.items())])
    with _locked(path) as text:
        rest = _without(text or OPENING.format(key=secrets.token_urlsafe(32)), kind, name)
        _replace(path, (text, f"{rest.rstrip()}\n\n{block}\n"), kind, name, given)


def remove_entry(path: Path, kind: str, name: str) -> None:
    """Remove `[kind.name]`, which exists."""
    with _locked(path) as text:
        _replace(path, (text, _without(text, kind, name)), kind, name, None)


def _without(text: str, kind: str, name: str) -> str:
    """Return the text without a table: from its header to the next one."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            header = _HEADER.fullmatch(line.rstrip("\r\n"))
            inside = header is not None and _parts(header["name"]) == [kind, name]
        if not inside:
            kept.append(line)
    return "".join(kept)


def _replace(path: Path, texts: tuple[str, str], kind: str, name: str, values: Mapping[str, Any] | None) -> None:
    """Write the second of two texts, if it differs from the first by this entry alone."""
    old, new = texts
    before = msgspec.to_builtins(parse_entries(old.encode(), path), builtin_types=(datetime,))
    found = parse_entries(new.encode(), path)
    after = msgspec.to_builtins(found, builtin_types=(datetime,))
    entry = after[kind].pop(name, None)
    before[kind].pop(name, None)
    if not old:
        after["key"] = None
    is_meant = after == before and (entry is None) == (values is None)
    if not is_meant or not all(entry[key] == value for key, value in (values or {}).items()):
        raise Invalid(f"{path} is written in a way that cannot be changed here; edit [{_header(kind, name)}] in it")
    _write(path, new)


def _write(path: Path, text: str) -> None:
    """Replace the file at once, so that a server never reads half of it."""
    path = path.resolve()
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        descriptor, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of mode 600
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(made, mode)
            os.replace(made, path)
        except BaseException:
            os.unlink(made)
            raise
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def _locked(path: Path) -> Iterator[str]:
    """Yield the text of the file; it is empty if there is no file. Another program that changes it waits."""
    path = path.resolve()
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Invalid(f"{path.parent} cannot be read: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not path.exists():
            yield ""
            return
        read_entries(path)
        yield path.read_text("utf-8")
    finally:
        os.close(folder)


def _header(kind: str, name: str) -> str:
    return f"{kind}.{name if _BARE.fullmatch(name) else json.dumps(name)}"


def _parts(header: str) -> list[str]:
    """Return the parts of the name of a table: `users."ada@example.org"` has two."""
    found = re.findall(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""", header)
    return [next(part for part in each if part) for each in found if any(each)]


def _toml(value: Any) -> str:
    """Write a text, a list of texts, a boolean or a moment."""
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value)
