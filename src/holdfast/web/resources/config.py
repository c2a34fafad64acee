"""Runtime settings of the namespace and of queues: listed, changed and reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from holdfast.client.config import read_value
from holdfast.errors import NotFound
from holdfast.records.config import SETTINGS
from holdfast.store.commands import Setting
from holdfast.text import suggestion
from holdfast.web.call import Call
from holdfast.web.resource import Listed, ListOf, Resources, about
from holdfast.web.resources.queues import find_queue

routes = Resources()

Value = Annotated[float, msgspec.Meta(ge=0)] | str  # a number, seconds of a duration, or text such as 30s
Changes = dict[str, Value | None]


class SettingValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of a setting."""

    value: Annotated[Value, about("a number; of a duration its seconds, or text such as 1h30m")]


# All queues


@routes.get("/config", reply=ListOf(SETTINGS), scope="none", client="config")
async def list_settings(call: Call) -> Listed:
    """List runtime settings with their values, defaults and bounds; durations are in seconds."""
    return _listed(await call.app.aconfig())


@routes.patch("/config", reply=ListOf(SETTINGS), role="admin", client="configure")
async def change_settings(call: Call, body: Changes) -> Listed:
    """Change settings of all queues at once; null resets one to its default. The answer has those that were named.

    A value is a number, for a duration in seconds, or text such as `30s` or `1h30m`.
    """
    return await _change(call, None, body)


@routes.put("/config", reply=ListOf(SETTINGS), role="admin", client="configure")
async def replace_settings(call: Call, body: Changes) -> Listed:
    """Set these settings of all queues, and reset all others to their defaults. The answer has all settings."""
    return await _replace(call, None, body)


@routes.put("/config/{setting}", reply=SETTINGS, role="admin", client="configure")
async def change_setting(call: Call, setting: str, body: SettingValue) -> dict[str, Any]:
    """Change a setting of all queues."""
    return await _change_one(call, None, setting, body.value)


@routes.delete("/config/{setting}", role="admin", client="configure")
async def reset_setting(call: Call, setting: str) -> None:
    """Reset a setting to its default."""
    await _change_one(call, None, setting, None)


# One queue


@routes.get("/queues/{queue}/config", reply=ListOf(SETTINGS), client="config")
async def list_queue_settings(call: Call, queue: str) -> Listed:
    """List runtime settings with their values for a queue. `source` tells whether the queue has its own."""
    settings = await call.app.aconfig(queue)
    if all(each.source != "queue" for each in settings):
        await find_queue(call, queue)
    return _listed(settings)


@routes.patch("/queues/{queue}/config", reply=ListOf(SETTINGS), role="admin", client="configure")
async def change_queue_settings(call: Call, queue: str, body: Changes) -> Listed:
    """Change settings of a queue; null resets one to the value of all queues. The queue need not exist yet.

    A value is a number, for a duration in seconds, or text such as `30s` or `1h30m`.
    """
    return await _change(call, queue, body)


@routes.put("/queues/{queue}/config", reply=ListOf(SETTINGS), role="admin", client="configure")
async def replace_queue_settings(call: Call, queue: str, body: Changes) -> Listed:
    """Set these settings of a queue, and reset all others to the values of all queues. The answer has all settings."""
    return await _replace(call, queue, body)


@routes.put("/queues/{queue}/config/{setting}", reply=SETTINGS, role="admin", client="configure")
async def change_queue_setting(call: Call, queue: str, setting: str, body: SettingValue) -> dict[str, Any]:
    """Change a setting of a queue. The queue need not exist yet."""
    return await _change_one(call, queue, setting, body.value)


@routes.delete("/queues/{queue}/config/{setting}", role="admin", client="configure")
async def reset_queue_setting(call: Call, queue: str, setting: str) -> None:
    """Reset a setting of a queue to the value of all queues."""
    await _change_one(call, queue, setting, None)


# Both


def _listed(settings: Sequence[Setting]) -> Listed:
    return Listed(items=SETTINGS.records(settings))


async def _change(call: Call, queue: str | None, changes: Mapping[str, Any]) -> Listed:
    call.audited["settings"] = " ".join(sorted(changes))
    found = await _configure(call, queue, await call.app.aconfig(queue), changes)
    return _listed([each for each in found if each.name in changes])


async def _replace(call: Call, queue: str | None, values: Mapping[str, Any]) -> Listed:
    call.audited["settings"] = " ".join(sorted(values))
    known = await call.app.aconfig(queue)
    changes = {each.name: None for each in known if queue is None or each.per_queue}
    return _listed(await _configure(call, queue, known, changes | dict(values)))


async def _change_one(call: Call, queue: str | None, name: str, value: Any) -> dict[str, Any]:
    known = await call.app.aconfig(queue)
    names = [each.name for each in known]
    if name not in names:
        raise NotFound(f"unknown setting {name!r}{suggestion(name, names)}")
    found = await _configure(call, queue, known, {name: value})
    return SETTINGS.record(next(each for each in found if each.name == name))


async def _configure(
    call: Call, queue: str | None, known: Sequence[Setting], changes: Mapping[str, Any]
) -> list[Setting]:
    settings = {each.name: each for each in known}
    return await call.app.aconfigure(
        {name: _read(settings.get(name), value) for name, value in changes.items()}, queue=queue
    )


def _read(setting: Setting | None, value: Any) -> Any:
    """Read a value of a request; those of unknown settings are refused later."""
    if isinstance(value, str) and setting is not None:
        return read_value(setting, value)
    if isinstance(value, float) and value.is_integer():  # JSON does not tell 3 from 3.0
        return int(value)
    return value
