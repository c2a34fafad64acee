"""Print the path of the newest Python on this machine that is newer than this one; nothing, if there is none.

It looks on the PATH and among the versions of pyenv, whose commands on the PATH work for chosen versions only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NAME = re.compile(r"python3\.(\d+)")
SHOW = "import sys, venv, ensurepip; print(*sys.version_info[:2])"  # a Python without these cannot be set up


def candidates() -> Iterator[tuple[int, Path]]:
    """Yield the minor version and the path of each `python3.N`, whether or not it works."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for folder in [*folders, *sorted(pyenv.glob("*/bin"))]:
        for path in folder.glob("python3.*") if folder.is_dir() else ():
            if found := NAME.fullmatch(path.name):
                yield int(found[1]), path


def works(path: Path, minor: int) -> bool:
    try:
        done = subprocess.run([path, "-c", SHOW], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.split() == ["3", str(minor)]


def newest(than: int) -> Path | None:
    """Return the newest Python whose minor version is above `than`."""
    found = sorted({each for each in candidates() if each[0] > than}, reverse=True)
    return next((path for minor, path in found if works(path, minor)), None)


if __name__ == "__main__":
    print(newest(sys.version_info.minor) or "")
