"""Worker settings have the same bounds in a file, as a flag, as an environment variable, and as a keyword."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import click
import msgspec
import pytest

from holdfast.cli.work import _given, work
from holdfast.errors import Invalid
from holdfast.units import Duration, humanize
from holdfast.worker import embedded
from holdfast.worker.embedded import EmbeddedSettings
from holdfast.worker.settings import POOL_SETTINGS, WORKER_SETTINGS, ExecutorStart, Kind, Pool, Setting, WorkerSettings
from holdfast.worker.settings_file import read_settings_file

SETTINGS = {**POOL_SETTINGS, **WORKER_SETTINGS}
FLAGS = [setting for setting in SETTINGS.values() if setting.name != "app"]


def spelled(setting: Setting, value: Any) -> str:
    """Write a value as users do on the command line; durations and sizes are numbers here."""
    if setting.kind == "duration":
        return humanize(value) if value >= 0 else f"{value}ms"
    return ",".join(value) if isinstance(value, list) else str(value)


def as_file(setting: Setting, value: Any, folder: Path) -> Any:
    text = value if isinstance(value, int | list) and setting.kind != "duration" else spelled(setting, value)
    path = folder / "worker.toml"
    path.write_text(f"{setting.name} = {str(text).lower() if isinstance(text, bool) else repr(text)}")
    found = read_settings_file(path)
    return {**found.worker, **found.every_pool}[setting.name]


def parsed(*arguments: str) -> dict[str, Any]:
    with work.make_context("work", ["tasks", *arguments]) as context:
        return _given(context)


def as_flag(setting: Setting, value: Any, _: Path) -> Any:
    flag = f"--{setting.name.replace('_', '-')}"
    if setting.kind == "flag":
        words = [flag if value else flag.replace("show", "hide")]
    else:
        words = [f"{flag}={spelled(setting, value)}"]
    return parsed(*words)[setting.name]


def as_variable(setting: Setting, value: Any, _: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"HOLDFAST_{setting.name.upper()}", spelled(setting, value))
        return parsed()[setting.name]


def as_keyword(setting: Setting, value: Any, _: Path) -> Any:
    given = spelled(setting, value) if setting.kind == "duration" else value
    made = embedded._settings({setting.name: given})
    return getattr(made.pools[0] if setting.name in POOL_SETTINGS else made, setting.name)


Way = Callable[[Setting, Any, Path], Any]


def ways(setting: Setting) -> list[Way]:
    everywhere: list[Way] = [as_file, as_flag, as_variable]
    return [*everywhere, as_keyword] if setting.name in EmbeddedSettings.__annotations__ else everywhere


def allowed(setting: Setting) -> Iterator[Any]:
    if setting.kind in ("count", "duration", "size"):
        yield from (setting.min, setting.max)
    elif setting.kind == "choice":
        yield from (choice for name in setting.choices for choice in (name, name.upper(), name.lower()))
    elif setting.kind == "flag":
        yield from (True,) if setting.name != "show_output" else (True, False)
    elif setting.kind == "queues":
        yield from (["a", "b-*", "!b-c"],)
    else:
        yield "a" * (setting.meta.max_length or 1)


def refused(setting: Setting) -> Iterator[Any]:
    if setting.kind in ("count", "duration", "size"):
        yield from (setting.min - 1, setting.max + 1, "many")
    elif setting.kind == "choice":
        yield "sideways"
    elif setting.kind == "queues":
        yield from (["a b"], ["a", "a"], [f"a={0}"])
    elif setting.kind == "name":
        yield from ("a" * ((setting.meta.max_length or 1) + 1), "a/b")


def cases(values: Callable[[Setting], Iterator[Any]]) -> list[Any]:
    return [
        pytest.param(setting, way, value, id=f"{setting.name}-{way.__name__}-{value}")
        for setting in FLAGS
        for value in values(setting)
        for way in ways(setting)
    ]


@pytest.mark.parametrize(("setting", "way", "value"), cases(allowed))
def test_a_setting_takes_the_same_values_in_every_way(setting: Setting, way: Way, value: Any, tmp_path: Path) -> None:
    expected = SETTINGS[setting.name].read(
        spelled(setting, value) if setting.kind == "duration" else value, setting.name
    )

    assert way(setting, value, tmp_path) == expected


@pytest.mark.parametrize(("setting", "way", "value"), cases(refused))
def test_a_setting_refuses_the_same_values_in_every_way(setting: Setting, way: Way, value: Any, tmp_path: Path) -> None:
    with pytest.raises((Invalid, click.UsageError)):
        way(setting, value if value != "many" or setting.kind != "duration" else -1, tmp_path)


def test_every_setting_is_an_option_with_its_help_default_and_bounds() -> None:
    options = {option.name: option for option in work.params if isinstance(option, click.Option)}

    assert list(options)[: len(FLAGS)] == [setting.name for setting in FLAGS]
    for setting in FLAGS:
        option = options[setting.name]
        assert option.help == setting.meta.description
        if isinstance(option.type, click.IntRange):
            assert (option.type.min, option.type.max, option.default) == (setting.min, setting.max, setting.default)
    assert (options["queues"].default, options["stop_within"].default) == ("default", "25s")
    assert [options[name].opts[0] for name in ("queues", "concurrency", "verbose")] == ["-Q", "-c", "-v"]


def test_verbose_is_the_log_level_debug() -> None:
    assert parsed("-v", "-Q", "a,b", "-c", "7") == {"log_level": "DEBUG", "queues": {"a": 1, "b": 1}, "concurrency": 7}
    assert parsed() == {}


def test_the_keywords_of_an_embedded_worker_have_the_types_of_its_settings() -> None:
    kinds: dict[Kind, Any] = {"count": int, "duration": Duration, "flag": bool, "name": str}

    for name, hint in get_type_hints(EmbeddedSettings).items():
        setting = SETTINGS[name]
        assert hint == kinds.get(setting.kind, setting.type) or setting.kind == "queues", name


def test_an_executor_decodes_its_settings_with_the_same_bounds() -> None:
    start = ExecutorStart(
        name="a", parent=1, settings=WorkerSettings(app="a"), pool=Pool(executors=5000), control=3, lease_clock=4
    )

    with pytest.raises(msgspec.ValidationError, match="Expected `int` <= 1000"):
        msgspec.json.decode(msgspec.json.encode(start), type=ExecutorStart)
