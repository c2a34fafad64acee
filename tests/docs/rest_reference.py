"""Generates docs/rest/ from the specification of the API, with an example of each request: `make reference`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.constants import MAX_DURATION
from holdfast.web.openapi import specification
from holdfast.web.resource import API, ResourceRoute
from holdfast.web.routes import RESOURCES
from tests.web.examples import EXAMPLES, Example

FOLDER = Path(__file__).parents[2] / "docs" / "rest"
Schema = dict[str, Any]

HEAD = """\
# REST reference

Look up every request of the API, generated from its specification by `make reference`. [REST](../rest.md) explains what
all of them share: names in paths, rights, errors, pages, lines, and how to repeat requests. In the examples, `$API` is
`http://127.0.0.1:8420/api/v1`. The specification itself is at `/api/v1/openapi.json`.
"""
MAX_INLINE = 8  # fields of a body that are described with the request


class Page(NamedTuple):
    """One generated page: the requests that some modules of `holdfast.web` declare."""

    title: str
    modules: tuple[str, ...]


PAGES = {
    "jobs": Page("Jobs", ("resources.jobs", "resources.job_parts", "resources.job_views")),
    "actions": Page("Actions on jobs", ("resources.job_actions",)),
    "operations": Page("Operations on all jobs that match", ("resources.operations",)),
    "batches": Page("Batches", ("resources.batches",)),
    "events": Page("Events and subscriptions", ("resources.events", "resources.subscriptions")),
    "queues": Page("Queues", ("resources.queues",)),
    "items": Page("Items", ("resources.items",)),
    "limits": Page("Limits", ("resources.limits",)),
    "schedules": Page("Schedules", ("resources.schedules",)),
    "workers": Page("Workers", ("resources.workers",)),
    "failures": Page("Failures", ("resources.failures",)),
    "statistics": Page("Statistics and plans", ("resources.statistics", "resources.plans")),
    "tags": Page("Tags, scopes and tracked jobs", ("resources.tags",)),
    "config": Page("Settings", ("resources.config",)),
    "checks": Page("Checks", ("resources.checks",)),
    "functions": Page("Functions of the app's Lua", ("resources.functions",)),
    "service": Page(
        "The service",
        (
            "resources.info",
            "resources.attention",
            "resources.health",
            "resources.session",
            "resources.metrics",
            "openapi",
        ),
    ),
}
RIGHTS = {
    "queue": "with rights on the queue",
    "job": "with rights on the queue of the job",
    "all": "with rights on all queues",
    "visible": "; only what concerns the queues of the user is shown and changed",
    "none": "",
}
# What stands for names in the examples that only their world knows.
NAMES = {
    "worker": "=bm9kZS9vbmU", "dead": "=Z29uZS9kZWFk", "renewed": "$TOKEN", "failed": "$TOKEN", "released": "$TOKEN",
}  # fmt: skip


def write() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return _Reference().write()


class _Reference:
    """The specification, and where each type is described: on the first page that needs it."""

    def __init__(self) -> None:
        self.specification = specification(RESOURCES)
        self.components: dict[str, Schema] = self.specification["components"]["schemas"]

    def write(self) -> dict[str, str]:
        pages = {f"{name}.md": "\n".join(self._page(name)).rstrip() + "\n" for name in PAGES}
        return {"README.md": "\n".join([HEAD, *self._index()]).rstrip() + "\n", **pages}

    def _index(self) -> Iterator[str]:
        for name, page in PAGES.items():
            yield f"## [{page.title}]({name}.md)\n"
            yield from self._requests(name, f"{name}.md")
            yield ""

    def _page(self, name: str) -> Iterator[str]:
        yield f"# {PAGES[name].title}\n"
        yield "[All requests](README.md), and [what they share](../rest.md).\n"
        yield from self._requests(name)
        yield ""
        for route in routes_of(name):
            yield from self._request(name, route)
        described = [kind for kind, page in self.pages_of_types.items() if page == name]
        if described:
            yield "## Types\n"
        for kind in sorted(described):
            yield from self._type(name, kind)

    def _requests(self, name: str, page: str = "") -> Iterator[str]:
        yield from ("| request | |", "|---|---|")
        for route in routes_of(name):
            operation = self._operation(route)
            yield f"| [`{title(route)}`]({page}#{anchor(title(route))}) | {operation['summary']} |"

    def _operation(self, route: ResourceRoute) -> Schema:
        operation: Schema = self.specification["paths"][route.path][route.method.lower()]
        return operation

    # A request

    def _request(self, page: str, route: ResourceRoute) -> Iterator[str]:
        operation = self._operation(route)
        yield f"## `{title(route)}`\n"
        yield f"{operation['summary']}\n"
        if "description" in operation:
            yield f"{operation['description']}\n"
        yield f"*{rights(route)}*\n"
        yield from self._parameters(page, operation)
        yield from self._body(page, operation)
        yield from (f"```sh\n{curl(each)}\n```\n" for each in examples_of(route))
        yield f"Answer: {self._answers(page, route, operation)}\n"

    def _parameters(self, page: str, operation: Schema) -> Iterator[str]:
        shown = [each for each in operation["parameters"] if each["name"] != "Idempotency-Key"]
        if shown:
            yield from ("| parameter | in | type | |", "|---|---|---|---|")
        for each in shown:
            kind = "text" if each["in"] == "path" else self._shown(page, each["schema"]).removesuffix(" or null")
            required = ", required" if each["required"] and each["in"] == "query" else ""
            words = f"{_sentence(each['description'])}{_default(each['schema'])}"
            yield f"| `{each['name']}` | {each['in']} | {kind}{required} | {words} |"
        if shown:
            yield ""

    def _body(self, page: str, operation: Schema) -> Iterator[str]:
        if "requestBody" not in operation:
            return
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        component = self.components.get(_name(schema), {})
        if len(component.get("properties", {})) > MAX_INLINE or "properties" not in component:
            yield f"Body: {self._shown(page, schema)}.\n"
        elif component["properties"]:
            yield from self._fields(page, component, "field of the body")

    def _answers(self, page: str, route: ResourceRoute, operation: Schema) -> str:
        found: dict[str, list[str]] = {}  # the statuses of each answer
        for status in route.statuses:
            content = operation["responses"][str(status)].get("content", {})
            found.setdefault(self._content(page, content), []).append(str(status))
        answers = [f"{' or '.join(each)}{': ' if words else ''}{words}" for words, each in found.items()]
        return "; or ".join(answers) + "."

    def _content(self, page: str, content: dict[str, Schema]) -> str:
        if "application/json" not in content:
            return ", or ".join(f"`{media_type}`" for media_type in content)
        schema = content["application/json"]["schema"]
        items = schema.get("properties", {}).get("items", {}).get("items")
        more = "".join(f", or `{each}`" for each in content if each != "application/json")
        if "$ref" not in schema and items is not None:
            listed = self._shown(page, items) if "$ref" in items else "[`Job`](jobs.md#job), or some of its fields"
            return f"a page of {listed}{more}"
        return "an object" if schema.get("type") == "object" else self._shown(page, schema)

    # A type

    def _type(self, page: str, name: str) -> Iterator[str]:
        component = self.components[name]
        yield f"### `{name}`\n"
        words = str(component.get("description", ""))
        if words and name in self._bodies:
            yield f"{words}\n"
        yield from self._fields(page, component, "field")

    def _fields(self, page: str, component: Schema, head: str) -> Iterator[str]:
        required = component.get("required", ()) if "body" in head else ()
        yield from (f"| {head} | type | |", "|---|---|---|")
        for name, schema in component["properties"].items():
            mark = ", required" if name in required else ""
            words = f"{_sentence(schema.get('description', ''))}{_default(schema)}"
            yield f"| `{name}` | {self._shown(page, schema)}{mark} | {words} |"
        yield ""

    def _shown(self, page: str, schema: Schema) -> str:
        """Return a type in words, with links to those that are described elsewhere."""
        if "$ref" in schema:
            name = _name(schema)
            place = self.pages_of_types.get(name, page)
            return f"[`{name}`]({'' if place == page else f'{place}.md'}#{name.lower()})"
        if "anyOf" in schema:
            if any(each.get("maximum") == MAX_DURATION / 1000 for each in schema["anyOf"]):
                return _duration(schema)
            return " or ".join(dict.fromkeys(self._shown(page, each) for each in schema["anyOf"]))
        if "enum" in schema:
            return ", ".join(f"`{each}`" if each is not None else "null" for each in schema["enum"])
        if schema.get("type") == "array":
            return self._list(page, schema)
        if schema.get("type") == "object":
            values = schema.get("additionalProperties")
            return f"object of {self._shown(page, values)} by name" if values else "object"
        return _scalar(schema)

    def _list(self, page: str, schema: Schema) -> str:
        if "prefixItems" in schema:
            return f"list of {' and '.join(self._shown(page, each) for each in schema['prefixItems'])}"
        most = f"up to {schema['maxItems']:,} of " if "maxItems" in schema else ""
        return f"list of {most}{self._shown(page, schema.get('items') or {})}"

    # Where types are described

    @cached_property
    def _bodies(self) -> set[str]:
        return {
            name
            for path in self.specification["paths"].values()
            for operation in path.values()
            if "requestBody" in operation
            for name in _named(operation["requestBody"])
        }

    @cached_property
    def pages_of_types(self) -> dict[str, str]:
        """The page of each type: the first that needs it. Small bodies are described with their requests."""
        found: dict[str, str] = {}
        self._place("Job", "jobs", found)  # of which the list of jobs has some fields
        for page in PAGES:
            for route in routes_of(page):
                operation = self._operation(route)
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
                is_small = len(self.components.get(_name(body), {}).get("properties", ())) <= MAX_INLINE
                wanted = [*_named(operation["responses"]), *(_named(operation.get("requestBody", {})))]
                if is_small and "$ref" in body:
                    wanted.remove(_name(body))
                    wanted += _named(self.components[_name(body)])
                for name in wanted:
                    self._place(name, page, found)
        return found

    def _place(self, name: str, page: str, found: dict[str, str]) -> None:
        if name not in found and name != "ProblemDetails" and "properties" in self.components.get(name, {}):
            found[name] = page
            for inner in _named(self.components[name]):
                self._place(inner, page, found)


def routes_of(page: str) -> list[ResourceRoute]:
    """Return the routes of a page, in the order of their declaration."""
    modules = {f"holdfast.web.{each}" for each in PAGES[page].modules}
    return [route for route in RESOURCES if route.handler.function.__module__ in modules]


def title(route: ResourceRoute) -> str:
    return f"{route.method} {route.path.removeprefix(API)}"


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def rights(route: ResourceRoute) -> str:
    if route.role == "public":
        return "For everybody."
    words = RIGHTS[route.handler.scope]
    return f"Role {route.role}{'' if words.startswith(';') or not words else ' '}{words}."


def examples_of(route: ResourceRoute) -> Iterator[Example]:
    """Yield the first example that succeeds, if there is one."""
    found = [each for each in EXAMPLES if each.route is route]
    yield from [each for each in found if each.status < 400][:1] or found[:1]


def curl(example: Example) -> str:
    """Return an example as a command line."""
    path = example.path
    body = "" if example.json is None else msgspec.json.encode(example.json).decode()
    for name, value in NAMES.items():
        path, body = path.replace(f"<{name}>", value), body.replace(f"<{name}>", value)
    words = [f'"{"$API" if example.base else "http://127.0.0.1:8420"}{path}"']
    if example.method != ("POST" if body else "GET"):
        words.insert(0, f"-X {example.method}")
    if body:
        words.append(f"--json {_quoted(body)}")
    return " ".join(["curl", *words])


def _quoted(body: str) -> str:
    text = msgspec.json.format(body.encode(), indent=-1).decode()
    spaced = re.sub(r'(?<=["\]}\w]),(?=["\[{\w])', ", ", re.sub(r'":(?=\S)', '": ', text))
    return '"' + spaced.replace('"', '\\"') + '"' if "$TOKEN" in spaced else shlex.quote(spaced)


def _named(value: Any) -> list[str]:
    """Return the names of the types that a part of the specification refers to."""
    if isinstance(value, dict):
        own = [_name(value)] if "/schemas/" in str(value.get("$ref", "")) else []
        return own + [name for each in value.values() for name in _named(each)]
    return [name for each in value for name in _named(each)] if isinstance(value, list) else []


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _duration(schema: Schema) -> str:
    """Return what stands for text or a number of seconds, and for what may be given instead."""
    types = {each.get("type") for each in schema["anyOf"]} - {"string", "number"}
    words = {"boolean": " or boolean", "null": " or null"}
    return f"[duration](../rest.md#durations){''.join(words[each] for each in sorted(types))}"


def _scalar(schema: Schema) -> str:
    kind = schema.get("type")
    if schema.get("format") == "date-time":
        return "time"
    if schema.get("format") == "date":
        return "date"
    if schema.get("contentEncoding") == "base64":
        return "base64"
    if isinstance(kind, list):
        return " or ".join(_scalar({**schema, "type": each}) for each in kind)
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean", "null": "null"}
    return f"{words[kind]}{_bounds(schema)}" if kind else "any JSON"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if low is not None and high is not None:
        return f" from {low:,.10g} to {high:,.10g}" if schema.get("minimum") is not None else f" up to {high:,.10g}"
    return f" of at least {low:,.10g}" if low is not None else ""


def _default(schema: Schema) -> str:
    value = schema.get("default")
    return "" if value in (None, [], {}, "", False) else f" Default: `{msgspec.json.encode(value).decode()}`."


def _sentence(words: str) -> str:
    """Return a description as a cell of a table."""
    text = words.replace("|", "\\|")
    return f"{text[:1].upper()}{text[1:]}{'' if not text or text.endswith('.') else '.'}"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in write().items():
        (FOLDER / name).write_text(text)
    print(f"wrote {FOLDER}")
