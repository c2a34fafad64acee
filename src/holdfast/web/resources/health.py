"""Whether the web process lives, and whether it reaches the store."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.web.call import Call
from holdfast.web.resource import Resources, about

routes = Resources()


class Health(msgspec.Struct, frozen=True):
    """The state of the web process."""

    status: Annotated[str, about("ok")]


@routes.get("/health/live", role="public", scope="none", reply=Health)
async def show_live(_: Call) -> Health:
    """Tell that this process answers requests."""
    return Health("ok")


@routes.get("/health/ready", role="public", scope="none", reply=Health)
async def show_ready(call: Call) -> Health:
    """Tell that the store answers, too; 503 if it does not."""
    await call.app.aconfig()
    return Health("ok")
