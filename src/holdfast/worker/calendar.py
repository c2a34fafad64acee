"""The worker's part in schedules: it declares those of its app, and tells the store further times when they run out."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast import commands, errors, schedule
from holdfast.worker.patient import PatientStore

log = logging.getLogger("holdfast.worker")


async def declare(store: PatientStore, declarations: Iterable[dict[str, Any]]) -> None:
    """Make the schedules of an app. A newer release may have made them already."""
    for declaration in declarations:
        try:
            if await store.run(commands.schedule(**declaration)):
                log.info("schedule %s is declared", declaration["name"])
        except errors.WrongState as error:
            log.warning("%s: left as it is", error)
        except errors.HoldfastError as error:
            log.error("schedule %s was refused: %s", declaration["name"], error)


async def refill(store: PatientStore, names: Sequence[str]) -> None:
    """Say further times of schedules. Of several workers that do, one is heard."""
    for fields in await store.run(commands.schedules(names)):
        if further := schedule.further_times(fields, time.time_ns() // 1_000_000):
            await store.run(commands.refill(fields["name"], *further))
