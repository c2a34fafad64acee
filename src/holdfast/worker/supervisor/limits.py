"""The limits of a worker's app: the worker declares them before its first job is claimed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from holdfast import errors
from holdfast.store import commands
from holdfast.worker.retrying_store import RetryingStore

log = logging.getLogger("holdfast.worker")

OVERRIDDEN = (
    "limit %s is overridden, so its new declaration does not apply; `holdfast limits reset %s` returns to the "
    "declaration"
)


class WorkerLimits:
    """Declares limits."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store

    async def declare(self, declarations: Iterable[dict[str, Any]]) -> None:
        for declaration in declarations:
            await self._declare(declaration)

    async def _declare(self, declaration: dict[str, Any]) -> None:
        """Declare a limit. A newer release may have declared it already."""
        name = declaration["name"]
        try:
            match await self._store.run(commands.declare_limit(**declaration)):
                case "applied":
                    log.info("limit %s is declared", name)
                case "overridden":
                    log.warning(OVERRIDDEN, name, name)
        except errors.WrongState as error:
            log.warning("%s; the newer declaration stays in effect", error)
        except errors.HoldfastError as error:
            log.error("limit %s is not declared: %s", name, error)
