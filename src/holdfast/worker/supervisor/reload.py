"""The source files of an app, watched for changes with `--reload`."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

Stamp = tuple[int, int]  # time of the last change, size


def loaded_files() -> list[str]:
    """Return the files of all imported modules, except installed ones and those of Holdfast."""
    ours = str(Path(__file__).parents[2])
    installed = tuple(f"{folder}{os.sep}" for folder in (ours, *sysconfig.get_paths().values()))
    files = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
    return sorted({file for file in files if file.endswith(".py") and not file.startswith(installed)})


class SourceFiles:
    """The files that executors have loaded, and those in the app's package or directory."""

    def __init__(self, app: str) -> None:
        self._app = app.partition(":")[0].partition(".")[0]
        self._loaded: set[str] = set()
        self._stamps = dict(self._scan())

    def add(self, files: Iterable[str]) -> None:
        """Watch these files too."""
        for file in set(files) - self._loaded:
            self._loaded.add(file)
            if stamp := _stamp(file):
                self._stamps.setdefault(file, stamp)

    def changed(self) -> list[str]:
        """Return the files that were changed, added or removed since the last call."""
        before, self._stamps = self._stamps, dict(self._scan())
        names = before.keys() | self._stamps.keys()
        return sorted(name for name in names if before.get(name) != self._stamps.get(name))

    def _scan(self) -> Iterator[tuple[str, Stamp]]:
        for file in self._loaded.union(self._files_of_app()):
            if stamp := _stamp(file):
                yield file, stamp

    def _files_of_app(self) -> Iterator[str]:
        """Yield all modules of the app's package; for a single module, those in its directory."""
        spec = None
        with suppress(ImportError, ValueError):
            importlib.invalidate_caches()
            spec = importlib.util.find_spec(self._app)
        if spec and spec.submodule_search_locations:
            for folder in spec.submodule_search_locations:
                yield from map(str, Path(folder).rglob("*.py"))
        else:
            beside = Path(spec.origin).parent if spec and spec.origin else Path.cwd()
            yield from map(str, beside.glob("*.py"))


def _stamp(file: str) -> Stamp | None:
    with suppress(OSError):
        status = os.stat(file)
        return status.st_mtime_ns, status.st_size
    return None
