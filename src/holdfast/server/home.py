"""The home of the embedded server: its directory, and whether it is trusted.

The owner of a home decides which jobs run and can read their arguments. A home that was found by walking up from the
current directory may belong to anybody: it may lie in a cloned repository, or below /tmp. So it must belong to this
user, and only this user may write to it. A home chosen by HOLDFAST_HOME or HOLDFAST_TRUST may belong to another user.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.errors import ServerStartFailed
from holdfast.server import keeper

SEARCHED_FROM = "HOLDFAST_WORKER_DIRECTORY"  # instead of the current directory: set for jobs that run in another one
TRUST = "HOLDFAST_TRUST"  # directories, separated by colons: homes in or below them may belong to other users
ANYWHERE = "*"
OTHERS_MAY_WRITE = 0o022


class NotTrusted(ServerStartFailed):
    """Another user may have prepared this home. A retry does not help."""


def find_home(environ: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Path:
    """Return the server's directory: HOLDFAST_HOME, or `.holdfast` beside the nearest pyproject.toml or .git."""
    chosen = Path(environ.get("HOLDFAST_HOME") or "").expanduser()
    if chosen.is_absolute():  # the current directory may no longer exist
        return chosen
    here = (cwd or Path(environ.get(SEARCHED_FROM) or "")).absolute()
    if environ.get("HOLDFAST_HOME"):
        return here / chosen
    for directory in (here, *here.parents):
        if (directory / "pyproject.toml").exists() or (directory / ".git").exists():
            return directory / ".holdfast"
    return here / ".holdfast"


def has_data(home: Path) -> bool:
    """Return whether a server runs, or has run, in this directory.

    Raises:
        NotTrusted: another user may have prepared it.
    """
    check_trust(home)
    return os.path.lexists(home / keeper.DATA)


def check_trust(home: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a home that another user may have prepared, unless it was chosen. A missing home is harmless.

    Raises:
        NotTrusted: another user owns it or may write to it; the message explains how to allow it.
    """
    if is_chosen(home, environ):
        return
    for path in (str(home), os.path.realpath(home)):  # a link and its target
        try:
            found = os.lstat(path)
        except OSError:  # the caller that uses the home raises a better message
            return
        if found.st_uid != os.geteuid():
            owners = f"belongs to {describe_user(found.st_uid)}, not to {describe_user(os.geteuid())}"
            raise NotTrusted(
                f"{home} {owners}, so it is not used: its owner would decide which jobs run, and read their arguments."
                f" To trust it: {_trust_command(path)}"
            )
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & OTHERS_MAY_WRITE:
            raise NotTrusted(
                f"{home} is writable by other users (mode {stat.S_IMODE(found.st_mode):04o}), so it is not used."
                f" To fix this: chmod go-w {shlex.quote(path)}"
            )


def is_chosen(home: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user chose this home, by HOLDFAST_HOME or a directory in HOLDFAST_TRUST that contains it."""
    chosen, trusted = environ.get("HOLDFAST_HOME"), environ.get(TRUST)
    if not chosen and not trusted:
        return False
    real = os.path.realpath(home)
    with suppress(FileNotFoundError):  # the current directory no longer exists
        if chosen and os.path.realpath(find_home(environ)) == real:
            return True
    return any(_is_within(real, folder) for folder in (trusted or "").split(os.pathsep))


def trusted_users(home: Path, environ: Mapping[str, str] = os.environ) -> frozenset[int]:
    """Return the users whose processes may be the server of a home: this user, root, and its owner if it was chosen."""
    users = {0, os.geteuid()}
    if is_chosen(home, environ):
        with suppress(OSError):  # it does not exist
            users.add(os.stat(home).st_uid)
    return frozenset(users)


def make_directory(directory: Path) -> None:
    """Create a private directory, unless it exists. Other users cannot write to new parents, even with a lax umask."""
    for parent in reversed([parent for parent in directory.parents if not parent.exists()]):
        parent.mkdir(mode=0o755, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def write_once(path: Path, text: str) -> None:
    """Write a small private file, unless it exists."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)


def describe_user(number: int) -> str:
    """Return the name and number of a user."""
    import pwd

    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def _trust_command(path: str) -> str:
    """Return the shell command that makes a home trusted."""
    variable = "HOLDFAST_HOME" if os.pathsep in path else TRUST
    return f"export {variable}={shlex.quote(path)}"


def _is_within(real: str, folder: str) -> bool:
    """Return whether a path is a directory or lies below it. Relative directories are ignored."""
    if folder == ANYWHERE:
        return True
    folder = os.path.expanduser(folder)
    return os.path.isabs(folder) and Path(real).is_relative_to(os.path.realpath(folder))
