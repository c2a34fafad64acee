"""Answers that several viewers share for some seconds, so that what they cost does not grow with their number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from holdfast.app import Holdfast
from holdfast.web.call import Call

T = TypeVar("T")

MAX_ANSWERS = 1000  # of one app

_Answers = dict[Hashable, tuple[float, "asyncio.Task[Any]", bool]]
_answers: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Holdfast, _Answers]] = WeakKeyDictionary()


async def shared(
    call: Call, key: Hashable, seconds: float, make: Callable[[], Awaitable[T]], *, lasts: bool = False
) -> T:
    """Return what `make` returned in the last seconds, to anybody with the same rights; errors are not kept.

    `lasts`: actions do not change it, as it is about the past, such as statistics.
    """
    of_apps = _answers.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    known = of_apps.setdefault(call.app, {})
    user, now = call.user, time.monotonic()
    place = (key, user.role, user.queues, user.may_see_data)
    until, task, _ = known.get(place, (0.0, None, False))
    if task is None or until < now or _has_failed(task):
        if len(known) >= MAX_ANSWERS:
            known.clear()
        task = asyncio.ensure_future(make())
        known[place] = now + seconds, task, lasts
    found: T = await asyncio.shield(task)
    return found


def forget_shared(app: Holdfast) -> None:
    """Forget all answers but those that last: an action has changed something, and who took it wants to see that."""
    of_apps = _answers.get(asyncio.get_running_loop())
    if of_apps and app in of_apps:
        of_apps[app] = {place: answer for place, answer in of_apps[app].items() if answer[2]}


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
