"""The settings file of a worker, and the flags that override it.

    app = "tasks"                       settings of the worker
    stop_within = "1m"
    processes = 2                       settings of every pool that has none of its own

    [[pools]]
    name = "video"
    queues = ["video"]

Without `[[pools]]` there is one pool. Errors name the line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.client.queue_patterns import join
from holdfast.errors import Invalid
from holdfast.text import suggestion
from holdfast.worker.settings import (
    MAX_QUEUES,
    POOL_NAME,
    POOL_SETTINGS,
    WEIGHTED,
    WORKER_SETTINGS,
    Pool,
    Setting,
    WorkerSettings,
)

PROJECT_TABLE = "tool.holdfast.worker"  # in pyproject.toml
MAX_BYTES = 1 << 20

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")


class SettingsFile(NamedTuple):
    """The contents of a settings file; all empty if there is no file."""

    name: str = ""
    worker: Mapping[str, Any] = {}
    every_pool: Mapping[str, Any] = {}
    pools: tuple[Mapping[str, Any], ...] = ()


def read_settings_file(path: Path, table: str = "") -> SettingsFile:
    """Read a TOML file, or one table of it.

    Raises:
        Invalid: the file cannot be read, or a setting in it is wrong.
    """
    try:
        text = _read_text(path)
        found: Any = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{path} is not valid TOML: {error}") from None
    for part in table.split(".") if table else ():
        found = found.get(part, {}) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise Invalid(f"{path.name}: {table} must be a table")
    return _Reader(path.name, table, text).read(found)


def read_project_settings(folder: Path) -> SettingsFile:
    """Read the table [tool.holdfast.worker] of the pyproject.toml in a folder, if there is one."""
    path = folder / "pyproject.toml"
    if not path.exists() or "holdfast" not in _read_text(path, errors="replace"):
        return SettingsFile()
    return read_settings_file(path, PROJECT_TABLE)


def _read_text(path: Path, errors: str = "strict") -> str:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)  # some files have no end: /dev/zero, a pipe
    if len(data) > MAX_BYTES:
        raise Invalid(f"{path} has more than {MAX_BYTES >> 20} MiB; expected a TOML file with settings of a worker")
    return data.decode("utf-8", errors)


class _Reader:
    """Reads the values of one file and finds the line of each."""

    def __init__(self, name: str, table: str, text: str) -> None:
        self._name = name
        self._table = table
        self._lines = text.splitlines()

    def read(self, found: dict[str, Any]) -> SettingsFile:
        tables = found.pop("pools", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise Invalid(f"{self._name}: pools must be tables: write [[{self._prefix('pools')}]] before each")
        known = {**WORKER_SETTINGS, **POOL_SETTINGS}
        top = self._values(found, known, self._section(self._table), "", also=("pools",))
        pools = tuple(self._pool(number, table) for number, table in enumerate(tables))
        self._check_names(pools)
        return SettingsFile(
            self._name,
            {key: value for key, value in top.items() if key in WORKER_SETTINGS},
            {key: value for key, value in top.items() if key in POOL_SETTINGS},
            pools,
        )

    def _pool(self, number: int, table: dict[str, Any]) -> dict[str, Any]:
        name = table.get("name")
        section = self._section(self._prefix("pools"), number)
        whose = f"pool {name or number + 1}: "
        if name is None:
            raise self._error(section, "", f"{whose}name is missing")
        return self._values(table, {"name": POOL_NAME, **POOL_SETTINGS}, section, whose, of_worker=WORKER_SETTINGS)

    def _values(
        self,
        table: dict[str, Any],
        known: Mapping[str, Setting],
        section: tuple[int, int],
        whose: str,
        *,
        also: tuple[str, ...] = (),
        of_worker: Mapping[str, Setting] | None = None,
    ) -> dict[str, Any]:
        values = {}
        for key, value in table.items():
            if key in (of_worker or {}):
                raise self._error(section, key, f"{whose}{key} is a setting of the whole worker: move it to the top")
            if key not in known:
                like = suggestion(key.replace("-", "_"), (*known, *also))
                raise self._error(section, key, f"{whose}unknown setting {key!r}{like}")
            try:
                values[key] = known[key].read(value, key)
            except Invalid as error:
                raise self._error(section, key, f"{whose}{error}") from None
        return values

    def _check_names(self, pools: tuple[dict[str, Any], ...]) -> None:
        names = [pool["name"] for pool in pools]
        for number, name in enumerate(names):
            if name in names[:number]:
                section = self._section(self._prefix("pools"), number)
                raise self._error(section, "name", f"two pools are named {name}")

    # Lines

    def _prefix(self, name: str) -> str:
        return f"{self._table}.{name}" if self._table else name

    def _sections(self) -> Iterator[tuple[str, int]]:
        """Yield the headers of tables, without spaces and quotes, and their line numbers from 1."""
        for number, line in enumerate(self._lines, 1):
            if header := _HEADER.match(line):
                yield re.sub(r"[\s\"']", "", header[2]), number

    def _section(self, table: str, number: int = 0) -> tuple[int, int]:
        """Return the first and last line of the nth table of a name; zeros if the table is written inline."""
        headers = list(self._sections())
        ends = [line - 1 for _, line in headers] + [len(self._lines)]
        if not table:
            return 1, ends[0]
        found = [(line, ends[index + 1]) for index, (name, line) in enumerate(headers) if name == table]
        return found[number] if number < len(found) else (0, 0)

    def _error(self, section: tuple[int, int], key: str, text: str) -> Invalid:
        first, last = section
        written = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]")
        lines = [number for number in range(max(first, 1), last + 1) if written.match(self._lines[number - 1])]
        lines += [number for name, number in self._sections() if name == self._prefix(key)]
        line = lines[0] if key and lines else first
        return Invalid(f"{self._name}, line {line}: {text}" if line else f"{self._name}: {text}")


def make_settings(app: str, flags: Mapping[str, Any], file: SettingsFile) -> WorkerSettings:
    """Combine a settings file with flags, which override it.

    Raises:
        Invalid: a flag of a pool is given although the file has pools, or the settings contradict each other.
    """
    of_pool = {name: value for name, value in flags.items() if name in POOL_SETTINGS}
    of_worker = {name: value for name, value in flags.items() if name not in POOL_SETTINGS}
    if file.pools and of_pool:
        flag = next(iter(of_pool)).replace("_", "-")
        raise Invalid(f"--{flag} does not apply to the pools of {file.name}: set it there for each pool")
    pools = tuple(Pool(**{**file.every_pool, **table}) for table in file.pools or (of_pool,))
    for pool in pools:
        _check_weights(pool, file)
    settings = WorkerSettings(**{**file.worker, **of_worker, "app": app, "pools": pools})
    if (count := len(join(pool.queues for pool in pools))) > MAX_QUEUES:
        raise Invalid(f"a worker serves up to {MAX_QUEUES} queues and patterns, not {count}; start several workers")
    return settings


def _check_weights(pool: Pool, file: SettingsFile) -> None:
    if pool.order not in WEIGHTED and any(weight > 1 for weight in pool.queues.values()):
        whose = f"{file.name}: pool {pool.name}: " if file.pools else ""
        raise Invalid(
            f"{whose}queues have weights, but order is {pool.order}: set order to weighted or fair, or remove the "
            "weights"
        )
