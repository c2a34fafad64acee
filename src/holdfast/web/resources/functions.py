"""Functions of the app's own Lua: called by name, with JSON arguments."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.records.job_actions import CALLED
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.resource import Resources, about

routes = Resources()


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a function."""

    arguments: Annotated[list[Any], about("JSON values")] = []


@routes.post("/functions/{function}:call", reply=CALLED, role="admin", client="call")
async def call_function(call: Call, function: str, body: Arguments) -> Record:
    """Call a function of the app's own Lua, which may change anything in the namespace; return its value.

    409 with the code REFUSED if it refuses the call.
    """
    return {"value": await call.app.acall(function, *body.arguments)}


@routes.post("/functions/{function}:query", reply=CALLED, client="query")
async def query_function(call: Call, function: str, body: Arguments) -> Record:
    """Call a function of the app's own Lua that writes nothing, and return its value."""
    call.check_data()
    return {"value": await call.app.aquery(function, *body.arguments)}
