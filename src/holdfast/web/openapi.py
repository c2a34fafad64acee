"""The specification of the API, OpenAPI 3.1, made from the table of resources."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.records.table import Table
from holdfast.version import __version__
from holdfast.web.api import is_list
from holdfast.web.call import Call
from holdfast.web.problems import ProblemDetails
from holdfast.web.resource import API, ListOf, ResourceRoute, Resources, Stream

Schema = dict[str, Any]

REF = "#/components/schemas/{name}"
NAME = {
    "type": "string",
    "minLength": 1,
    "pattern": "^([A-Za-z0-9_-][A-Za-z0-9_.-]*|=[A-Za-z0-9_-]+)$",
    "description": "As it is, or else `=` and its base64url.",
}
PATH_PARAMETERS = {
    "id": "id of the job",
    "other": "id of the other job",
    "attempt": "number of the attempt",
    "operation": "id of the operation",
    "tag": "the tag",
    "share": "key of the share",
    "worker": "name of the worker: node/worker",
    "limit": "name of the limit; with a key if it is about the jobs of a key: api:acme",
    "failure": "fingerprint or group of failures; or a task or a queue, see `by`",
}
DESCRIPTION = """\
Query, inspect, count and change jobs, queues, schedules, limits and workers of a Holdfast namespace.

Names and ids in paths are written as they are if they match `[A-Za-z0-9_-][A-Za-z0-9_.-]*`, or else as `=` and their
base64url. Lists have pages: pass `next` as `cursor`. With `Accept: application/x-ndjson` a list is sent whole, as
lines; after each slice a line `{"next": cursor}` tells where to resume. Errors are RFC 9457 problem details.
"""


def add_specification(resources: Resources) -> None:
    """Add the route that shows the specification of all resources, itself included."""

    @lru_cache(8)  # roots under which the application is mounted
    def made(server: str) -> Schema:
        return specification(resources, server=server)

    @resources.get("/openapi.json", scope="none", reply=dict)
    async def show_specification(call: Call) -> Schema:
        """Show this specification."""
        return made(call.url("") or "/")


def specification(routes: Iterable[ResourceRoute], *, server: str = "/") -> Schema:
    """Return the specification of these routes."""
    found = list(routes)
    kinds = dict.fromkeys(kind for route in found for kind in _kinds(route))
    schemas, components = msgspec.json.schema_components([*kinds, ProblemDetails], ref_template=REF)
    _lift_descriptions(components)
    by_kind = dict(zip([*kinds, ProblemDetails], schemas, strict=True))
    paths: dict[str, Schema] = {}
    for route in found:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": __version__, "description": DESCRIPTION, "license": {"name": "MIT"}},
        "servers": [{"url": server}],
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": _content("application/problem+json", by_kind[ProblemDetails], "What went wrong.")},
        },
    }


def _kinds(route: ResourceRoute) -> Iterator[type]:
    """Return the types that a route needs as schemas. Queries are written out as parameters."""
    resource = route.handler
    if resource.body is not None:
        yield resource.body
    table = resource.reply.table if isinstance(resource.reply, ListOf) else resource.reply
    if isinstance(table, Table):
        yield table.struct
    elif isinstance(table, type):
        yield table


def _operation(route: ResourceRoute, by_kind: dict[type, Schema], components: dict[str, Schema]) -> Schema:
    resource = route.handler
    summary, _, description = inspect.cleandoc(resource.__doc__ or "").partition("\n")
    operation: Schema = {
        "operationId": route.name,
        "tags": [route.path.removeprefix(API).split("/")[1].partition(":")[0]],
        "summary": summary,
        "parameters": [_path_parameter(name) for name in route.parameters],
        "responses": {**_replies(route, by_kind, components), **_problems(route)},
        "x-role": route.role,
    }
    if description.strip():
        operation["description"] = description.strip()
    if resource.query is not None:
        operation["parameters"] += _query(resource.query)
    operation["parameters"] += [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
        for name, text in route.headers.items()
    ]
    if resource.body is not None:
        operation["requestBody"] = _body(resource.body, by_kind[resource.body], components)
    if route.role == "public":
        operation["security"] = []
    return operation


def _path_parameter(name: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": NAME,
        "description": PATH_PARAMETERS.get(name, f"name of the {name}"),
    }


def _body(kind: Any, schema: Schema, components: dict[str, Schema]) -> Schema:
    content = {"application/json": {"schema": schema}}
    if is_list(kind):
        return {"required": True, "content": {**content, "application/x-ndjson": {"schema": {"type": "string"}}}}
    component = components.get(_name(schema), {}) if "$ref" in schema else {}
    return {"required": bool(component.get("required")), "content": content}


def _lift_descriptions(components: dict[str, Schema]) -> None:
    """Give a field that may be null the description of its other type."""
    for component in components.values():
        for schema in component.get("properties", {}).values():
            inner = [each["description"] for each in schema.get("anyOf", ()) if "description" in each]
            if inner:
                schema.setdefault("description", inner[0])


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _query(kind: type) -> Iterator[Schema]:
    """Return the parameters of a query. Their types are those of the struct; a text is read as one of them."""
    [schema], components = msgspec.json.schema_components([kind], ref_template=REF)
    _lift_descriptions(components)
    component = components[_name(schema)]
    for name, schema in component["properties"].items():
        described = _without_null({key: value for key, value in schema.items() if key != "description"})
        parameter = {
            "name": name,
            "in": "query",
            "required": name in component.get("required", ()),
            "schema": described,
        }
        if "description" in schema:
            parameter["description"] = schema["description"]
        yield parameter


def _without_null(schema: Schema) -> Schema:
    """Return the schema of a parameter that can be left out: a text cannot say null."""
    found = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    if "enum" in found:
        found["enum"] = [each for each in found["enum"] if each is not None]
    if "anyOf" in found:
        others = [each for each in found.pop("anyOf") if each != {"type": "null"}]
        found |= others[0] if len(others) == 1 else {"anyOf": others}
    found.pop("description", None)
    return found


def _replies(route: ResourceRoute, by_kind: dict[type, Schema], components: dict[str, Schema]) -> Schema:
    """Return the answers of success by status."""
    usual = _reply(route, by_kind, components)
    return {str(status): {"description": "Nothing."} if status == 204 else usual for status in route.statuses}


def _reply(route: ResourceRoute, by_kind: dict[type, Schema], components: dict[str, Schema]) -> Schema:
    reply = route.handler.reply
    if reply is None:
        return {"description": "Done."}
    if isinstance(reply, Stream):
        return _content(reply.media_type, {"type": "string"}, "The content.")
    if isinstance(reply, ListOf):
        record = by_kind[reply.table.struct]
        if reply.partial:
            record = {"type": "object", "properties": components[_name(record)]["properties"]}
        found = _content("application/json", _page_of(record), "A page of the list.")
        for media_type in ("application/x-ndjson", *([reply.stream] if reply.stream else [])):
            found["content"][media_type] = {"schema": {"type": "string"}}
        return found
    kind = reply.struct if isinstance(reply, Table) else reply
    return _content("application/json", by_kind[kind], "Done." if route.method != "GET" else "What was asked for.")


def _page_of(record: Schema) -> Schema:
    number = {"type": "integer", "minimum": 0}
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": record},
            "next": {"type": ["string", "null"], "description": "the cursor of the next page"},
            "looked_at": {**number, "description": "number of jobs that were compared with the filter"},
            "matched": {**number, "description": "number of all matches, if an index has it"},
        },
    }


def _content(media_type: str, schema: Schema, description: str) -> Schema:
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _problems(route: ResourceRoute) -> Schema:
    """Return the errors that a route may answer with."""
    is_open = route.role == "public"
    statuses = [401, 403, 404] if not is_open else [] if route.method == "GET" else [401, 403, 404, 429]
    if route.method != "GET":
        statuses += [400, 409, 413, 415, 507]
    return {str(status): {"$ref": "#/components/responses/Problem"} for status in sorted({*statuses, 422, 503})}
