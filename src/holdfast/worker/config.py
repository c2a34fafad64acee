"""A worker's settings from a file, and what was said on the command line put over it.

    app = "tasks"                       settings of the worker
    stop_within = "1m"
    processes = 2                       settings of every pool that has none of its own

    [[pools]]
    name = "video"
    queues = ["video"]

Without a table of pools there is one pool. What is wrong is said with its line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import Invalid
from holdfast.text import suggestion
from holdfast.worker.queue_order import MOST_QUEUES
from holdfast.worker.settings import Pool, WorkerSettings
from holdfast.worker.values import NAME_OF_POOL, OF_POOL, OF_WORKER, Read

TABLE_OF_PROJECT = "tool.holdfast.worker"  # in pyproject.toml
MAX_BYTES = 1 << 20

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")


class Config(NamedTuple):
    """What a file says. Nothing, if there is none."""

    name: str = ""
    worker: Mapping[str, Any] = {}
    every_pool: Mapping[str, Any] = {}
    pools: tuple[Mapping[str, Any], ...] = ()


def read_config(path: Path, table: str = "") -> Config:
    """Read a TOML file, or one table of it.

    Raises:
        Invalid: the file cannot be read, or something in it is wrong.
    """
    try:
        text = _read_text(path)
        found: Any = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{path} is no TOML: {error}") from None
    for part in table.split(".") if table else ():
        found = found.get(part, {}) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise Invalid(f"{path.name}: {table} must be a table")
    return _File(path.name, table, text).read(found)


def config_of_project(folder: Path) -> Config:
    """Read the table [tool.holdfast.worker] of the project in a folder, if there is one."""
    path = folder / "pyproject.toml"
    if not path.exists() or "holdfast" not in _read_text(path, errors="replace"):
        return Config()
    return read_config(path, TABLE_OF_PROJECT)


def _read_text(path: Path, errors: str = "strict") -> str:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)  # some files have no end: /dev/zero, a pipe
    if len(data) > MAX_BYTES:
        raise Invalid(f"{path} has more than {MAX_BYTES >> 20} MiB: a TOML file with settings of a worker was expected")
    return data.decode("utf-8", errors)


class _File:
    """Reads the values of one file, and knows where each stands."""

    def __init__(self, name: str, table: str, text: str) -> None:
        self._name = name
        self._table = table
        self._lines = text.splitlines()

    def read(self, found: dict[str, Any]) -> Config:
        tables = found.pop("pools", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise Invalid(f"{self._name}: pools must be tables: write [[{self._prefix('pools')}]] before each")
        known = {**OF_WORKER, **OF_POOL}
        top = self._values(found, known, self._section(self._table), "", also=("pools",))
        pools = tuple(self._pool(number, table) for number, table in enumerate(tables))
        self._check_names(pools)
        return Config(
            self._name,
            {key: value for key, value in top.items() if key in OF_WORKER},
            {key: value for key, value in top.items() if key in OF_POOL},
            pools,
        )

    def _pool(self, number: int, table: dict[str, Any]) -> dict[str, Any]:
        name = table.get("name")
        section = self._section(self._prefix("pools"), number)
        whose = f"pool {name or number + 1}: "
        if name is None:
            raise self._error(section, "", f"{whose}it has no name")
        return self._values(table, {"name": NAME_OF_POOL, **OF_POOL}, section, whose, not_here=OF_WORKER)

    def _values(
        self,
        table: dict[str, Any],
        known: dict[str, Read],
        section: tuple[int, int],
        whose: str,
        *,
        also: tuple[str, ...] = (),
        not_here: Mapping[str, Read] | None = None,
    ) -> dict[str, Any]:
        values = {}
        for key, value in table.items():
            if key in (not_here or {}):
                raise self._error(section, key, f"{whose}{key} is a setting of the whole worker: write it at the top")
            if key not in known:
                raise self._error(section, key, f"{whose}there is no setting {key!r}{_meant(key, (*known, *also))}")
            try:
                values[key] = known[key](value, key)
            except Invalid as error:
                raise self._error(section, key, f"{whose}{error}") from None
        return values

    def _check_names(self, pools: tuple[dict[str, Any], ...]) -> None:
        names = [pool["name"] for pool in pools]
        for number, name in enumerate(names):
            if name in names[:number]:
                section = self._section(self._prefix("pools"), number)
                raise self._error(section, "name", f"there are two pools of the name {name}")

    # Lines

    def _prefix(self, name: str) -> str:
        return f"{self._table}.{name}" if self._table else name

    def _sections(self) -> Iterator[tuple[str, int]]:
        """The headers of tables, without spaces and quotes, and their line numbers from 1."""
        for number, line in enumerate(self._lines, 1):
            if header := _HEADER.match(line):
                yield re.sub(r"[\s\"']", "", header[2]), number

    def _section(self, table: str, number: int = 0) -> tuple[int, int]:
        """The first and last line of the nth table of a name; zeros, if it is written in another way."""
        headers = list(self._sections())
        ends = [line - 1 for _, line in headers] + [len(self._lines)]
        if not table:
            return 1, ends[0]
        found = [(line, ends[place + 1]) for place, (name, line) in enumerate(headers) if name == table]
        return found[number] if number < len(found) else (0, 0)

    def _error(self, section: tuple[int, int], key: str, words: str) -> Invalid:
        first, last = section
        written = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]")
        lines = [number for number in range(max(first, 1), last + 1) if written.match(self._lines[number - 1])]
        lines += [number for name, number in self._sections() if name == self._prefix(key)]
        line = lines[0] if key and lines else first
        return Invalid(f"{self._name}, line {line}: {words}" if line else f"{self._name}: {words}")


def _meant(key: str, known: tuple[str, ...]) -> str:
    return suggestion(key.replace("-", "_"), known)


def make_settings(app: str, flags: Mapping[str, Any], config: Config) -> WorkerSettings:
    """Put flags over what a file says. Flags of pools have no place beside pools that a file describes.

    Raises:
        Invalid: they do not go together.
    """
    of_pool = {name: value for name, value in flags.items() if name in OF_POOL}
    of_worker = {name: value for name, value in flags.items() if name not in OF_POOL}
    if config.pools and of_pool:
        flag = next(iter(of_pool)).replace("_", "-")
        raise Invalid(f"--{flag} is given, but {config.name} describes pools; change it there")
    tables = config.pools or (of_pool,)
    pools = tuple(Pool(**{**config.every_pool, **table}) for table in tables)
    for pool in pools:
        _check_weights(pool, config)
    settings = WorkerSettings(**{**config.worker, **of_worker, "app": app, "pools": pools})
    if len(settings.queues) > MOST_QUEUES:
        raise Invalid(f"a worker serves up to {MOST_QUEUES} queues, not {len(settings.queues)}; start several")
    return settings


def _check_weights(pool: Pool, config: Config) -> None:
    if pool.order != "weighted" and any(weight > 1 for weight in pool.queues.values()):
        whose = f"{config.name}: pool {pool.name}: " if config.pools else ""
        raise Invalid(f"{whose}weights of queues are for the order weighted, not for {pool.order}")
