"""The home of the embedded server: where it is, and whether it can be trusted.

What lies in a home decides which jobs run, and who reads their arguments. One that is found by walking up may be
anybody's: that of a cloned repository, or of a directory below /tmp. So it must belong to this user, and nobody else
may write to it. One that was chosen, by HOLDFAST_HOME or HOLDFAST_TRUST, may belong to another user.
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

TRUST = "HOLDFAST_TRUST"  # directories, separated by colons: homes there, or below, may belong to other users
ANYWHERE = "*"
OTHERS_MAY_WRITE = 0o022


class NotTrusted(ServerStartFailed):
    """Another user may have prepared this home. To try again changes nothing."""


def find_home(environ: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Path:
    """Return the server's directory: HOLDFAST_HOME, or `.holdfast` beside the nearest pyproject.toml or .git."""
    chosen = Path(environ.get("HOLDFAST_HOME") or "").expanduser()
    if chosen.is_absolute():  # the directory that this process is in may be gone
        return chosen
    here = (cwd or Path()).absolute()
    if environ.get("HOLDFAST_HOME"):
        return here / chosen
    for directory in (here, *here.parents):
        if (directory / "pyproject.toml").exists() or (directory / ".git").exists():
            return directory / ".holdfast"
    return here / ".holdfast"


def has_data(home: Path) -> bool:
    """Say whether a server lives, or has lived, in this directory.

    Raises:
        NotTrusted: it is not trusted.
    """
    check_trust(home)
    return os.path.lexists(home / keeper.DATA)


def check_trust(home: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a home that another user may have prepared, unless it was chosen. One that is not there is no danger.

    Raises:
        NotTrusted: it is not trusted; the message says whose it is, and how to allow it.
    """
    if is_chosen(home, environ):
        return
    for path in (str(home), os.path.realpath(home)):  # a link, and where it leads
        try:
            found = os.lstat(path)
        except OSError:  # whoever needs the home says what is wrong with it
            return
        if found.st_uid != os.geteuid():
            whose = f"belongs to {user(found.st_uid)}, not to {user(os.geteuid())}"
            raise NotTrusted(
                f"{home} {whose}, so it is not used: its owner would decide which jobs run, and read their arguments."
                f" To trust it: {_permission(path)}"
            )
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & OTHERS_MAY_WRITE:
            raise NotTrusted(
                f"{home} can be written by other users (mode {stat.S_IMODE(found.st_mode):04o}), so it is not used."
                f" To mend that: chmod go-w {shlex.quote(path)}"
            )


def is_chosen(home: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether the user named this home: by HOLDFAST_HOME, or by a directory in HOLDFAST_TRUST that it lies in."""
    chosen, trusted = environ.get("HOLDFAST_HOME"), environ.get(TRUST)
    if not chosen and not trusted:
        return False
    real = os.path.realpath(home)
    with suppress(FileNotFoundError):  # it was chosen from a directory that is gone
        if chosen and os.path.realpath(find_home(environ)) == real:
            return True
    return any(_is_within(real, folder) for folder in (trusted or "").split(os.pathsep))


def trusted_users(home: Path, environ: Mapping[str, str] = os.environ) -> frozenset[int]:
    """Return whose processes may be the server of a home: ours, root's, and the owner's if it was chosen."""
    users = {0, os.geteuid()}
    if is_chosen(home, environ):
        with suppress(OSError):  # it is not there
            users.add(os.stat(home).st_uid)
    return frozenset(users)


def make_directory(directory: Path) -> None:
    """Make a private directory, unless it is there. Nobody else may write to those above it, whatever the umask."""
    for parent in reversed([parent for parent in directory.parents if not parent.exists()]):
        parent.mkdir(mode=0o755, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def write_once(path: Path, text: str) -> None:
    """Write a small private file, unless there is something of that name."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)


def user(number: int) -> str:
    """Return how people know a user."""
    import pwd

    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def _permission(path: str) -> str:
    """Return the line for a shell that has a home trusted."""
    variable = "HOLDFAST_HOME" if os.pathsep in path else TRUST
    return f"export {variable}={shlex.quote(path)}"


def _is_within(real: str, folder: str) -> bool:
    """Whether a path is a directory, or below it. Directories that are not absolute count for nothing."""
    if folder == ANYWHERE:
        return True
    folder = os.path.expanduser(folder)
    return os.path.isabs(folder) and Path(real).is_relative_to(os.path.realpath(folder))
