"""Whether the web process lives, and whether it reaches the store."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from holdfast.errors import StoreUnavailable
from holdfast.web.call import Call
from holdfast.web.resource import Resources, about

routes = Resources()

PATIENCE = 0.8  # seconds, as many probes wait for a second


class Health(msgspec.Struct, frozen=True):
    """The state of the web process."""

    status: Annotated[str, about("ok")]


@routes.get("/health/live", role="public", scope="none", reply=Health)
async def show_live(_: Call) -> Health:
    """Tell that this process answers requests."""
    return Health("ok")


@routes.get("/health/ready", role="public", scope="none", reply=Health)
async def show_ready(call: Call) -> Health:
    """Tell that the store answers, too, within a second; 503 if it does not."""
    try:
        async with asyncio.timeout(PATIENCE):
            await call.app.aconfig()
    except TimeoutError:
        raise StoreUnavailable(f"the store did not answer within {PATIENCE:g} s") from None
    return Health("ok")
