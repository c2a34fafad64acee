"""Answers of the API: read the parameters of a request, call the resource, encode what it returns."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import quote

import msgspec
from starlette.datastructures import MultiDict
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from holdfast.store import repeatable
from holdfast.web.call import Call
from holdfast.web.flash import MAX_LENGTH, set_flash
from holdfast.web.paths import decode_name
from holdfast.web.problems import Problem, problem_of
from holdfast.web.resource import API, Chunks, Listed, ListOf, Resource, ResourceRoute
from holdfast.web.routing import Match
from holdfast.web.security.audit import count_of

MAX_BODY = 2 << 20  # bytes of a request
MAX_LIST_BODY = 32 << 20
MAX_IDEMPOTENCY_KEY = 255  # characters
SLICE = 100  # records of an export that are read at once
NDJSON = "application/x-ndjson"
FORM = "application/x-www-form-urlencoded"

# Fields of forms that are not part of the body: the method of the route, and what to show after it.
FORM_FIELDS = ("_method", "_next", "_message")
MADE = "made"  # as `_next`
MESSAGE = "Holdfast-Message"  # header: what an action did, for the page whose script sent it


async def answer(call: Call, match: Match) -> Response:
    """Answer a request to a resource."""
    route: ResourceRoute = match.route  # type: ignore[assignment] # as found in the table of resources
    resource = route.handler
    parameters: dict[str, Any] = {name: decode_name(segment) for name, segment in match.segments.items()}
    await resource.check(call, parameters)  # before the body is read, and errors in it are explained
    if resource.query is not None:
        parameters["query"] = read_query(call.request, resource.query)
    form = await read_form_of(call)
    if resource.body is not None:
        body = await read_body(call.request, MAX_LIST_BODY if is_list(resource.body) else MAX_BODY)
        read = _decode_lines if is_list(resource.body) and _is_lines(call.request) else _decode
        parameters["body"] = _convert_form(form, resource.body) if form else read(body, resource.body)
    if isinstance(resource.reply, ListOf) and route.method == "GET" and _wants_lines(call.request):
        return StreamingResponse(_lines(call, resource, parameters), media_type=NDJSON)
    with repeatable(_repetition(call.request, call.user.name)):
        reply = await resource.run(call, parameters)
    call.audited.setdefault("count", count_of(reply))
    if form.get("_next"):
        return back(call, form)
    response = encode(call.request, reply, call.status or route.status)
    response.headers.update(call.headers)
    if call.message:
        response.headers[MESSAGE] = quote(call.message[:MAX_LENGTH])
    return response


def _repetition(request: Request, user: str) -> str | None:
    """Return what identifies a request and its repetitions, if it has an Idempotency-Key."""
    key = request.headers.get("idempotency-key")
    if not key or request.method != "POST":
        return None
    if len(key) > MAX_IDEMPOTENCY_KEY:
        raise Problem(422, "INVALID", f"Idempotency-Key has {len(key)} characters (limit {MAX_IDEMPOTENCY_KEY})")
    body = hashlib.blake2b(getattr(request.state, "body", b""), digest_size=16).hexdigest()
    return "\n".join((key, user, request.scope["path"], request.scope["query_string"].decode("latin-1"), body))


def encode(request: Request, reply: Any, status: int) -> Response:
    """Encode what a resource returned. Small replies to GET have a tag, so that polling can be answered with 304."""
    if isinstance(reply, Response):
        return reply
    if isinstance(reply, Chunks):
        return StreamingResponse(_opened(reply.chunks), status_code=status, media_type=reply.media_type)
    if reply is None:
        return Response(status_code=204 if status == 200 else status)
    content = msgspec.json.encode(reply)
    if request.method not in ("GET", "HEAD"):
        return Response(content, status, media_type="application/json")
    tag = f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, status, {"ETag": tag}, "application/json")


# Parameters


def read_query(request: Request, kind: type) -> Any:
    """Read the query of a request as a struct: lists from repeated parameters, numbers and booleans from text."""
    return _convert_pairs(request.query_params.multi_items(), kind, "query")


def _convert_form(form: Mapping[str, Any], kind: type) -> Any:
    if not is_struct(kind):
        raise Problem(415, "FORM", "a form cannot say this; send JSON")
    pairs = [(name, each) for name, values in form.items() if name not in FORM_FIELDS for each in _listed(values)]
    return _convert_pairs(pairs, kind, "form")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _convert_pairs(pairs: list[tuple[str, str]], kind: type, where: str) -> Any:
    """Make a struct of named texts. An empty text stands for no value, as forms send all of their fields."""
    fields = {each.encode_name: _plain(each.type) for each in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    inner: dict[str, list[tuple[str, str]]] = {}  # of parts that are named as in `filter.queue`
    for name, text in pairs:
        part, dot, rest = name.partition(".")
        if dot and is_struct(fields.get(part)):
            inner.setdefault(part, []).append((rest, text))
            continue
        if name not in fields:
            raise Problem(422, "INVALID", f"unknown parameter {name[:60]!r}; known: {', '.join(fields)}")
        if text == "":
            continue
        if _takes_list(fields[name]):
            found.setdefault(name, []).append(text)
        elif name in found:
            raise Problem(422, "INVALID", f"{name} is given twice")
        else:
            found[name] = _read_object(name, text) if _takes_object(fields[name]) else text
    found |= {part: _convert_pairs(texts, fields[part], where) for part, texts in inner.items()}
    return _convert(found, kind, where)


def _takes_object(kind: Any) -> bool:
    inner = getattr(kind, "__origin__", kind)  # of Annotated
    if get_origin(inner) in (Union, UnionType):
        return any(map(_takes_object, get_args(inner)))
    return inner is dict or get_origin(inner) is dict


def _read_object(name: str, text: str) -> Any:
    """Read an object, which a form has as JSON."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise Problem(422, "INVALID", f"{name} must be a JSON object: {error}") from None


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _plain(kind: Any) -> Any:
    """Return a type without what is said of it."""
    return kind.__origin__ if get_origin(kind) is Annotated else kind


def is_list(kind: Any) -> bool:
    return get_origin(kind) is list


def _takes_list(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(_takes_list(each) for each in get_args(kind))
    return origin is list or kind is list or (origin is not None and _takes_list(getattr(kind, "__origin__", None)))


def _convert(value: Any, kind: type, where: str) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(422, "INVALID", f"{where}: {error}") from None


def is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """Read the body of a request, once; it stays in `request.state`."""
    known: bytes | None = getattr(request.state, "body", None)
    if known is not None:
        return known
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise Problem(413, "TOOBIG", f"the request has more than {limit:,} bytes")
        parts.append(part)
    body = b"".join(parts)
    request.state.body = body
    return body


async def read_form_of(call: Call) -> dict[str, Any]:
    """Read the form of a request, once; empty if it has none. It stays in `call.form`."""
    if not call.form and is_form(call.request):
        call.form = read_form(await read_body(call.request))
    return call.form


def read_form(body: bytes) -> dict[str, Any]:
    """Read the fields of a form: a text each, or a list if there are several."""
    from urllib.parse import parse_qsl

    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=2000)
    except ValueError:
        raise Problem(400, "INVALID", "the form cannot be read") from None
    fields = MultiDict(pairs)
    return {name: found[0] if len(found := fields.getlist(name)) == 1 else found for name in fields}


def _decode(body: bytes, kind: type) -> Any:
    if not body:
        body = b"{}"
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, "INVALID", f"body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Problem(400, "INVALID", "the body is not valid JSON") from None


def _is_lines(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == NDJSON


def _decode_lines(body: bytes, kind: Any) -> list[Any]:
    """Read a list that is sent as lines."""
    found = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            try:
                found.append(_decode(line, get_args(kind)[0]))
            except Problem as problem:
                raise Problem(problem.status, problem.code, f"line {number}: {problem.detail}") from None
    return found


# Lists as lines


def _wants_lines(request: Request) -> bool:
    return NDJSON in request.headers.get("accept", "")


async def _lines(call: Call, resource: Resource, parameters: dict[str, Any]) -> AsyncIterator[bytes]:
    """Send a list as lines: its records and, after each slice of them, `{"next": cursor}`; null after the last.

    An export that breaks is resumed with the last cursor. An error is the last line: `{"problem": {...}}`.
    """
    call.is_export = True
    query: Any = parameters.get("query")
    if hasattr(query, "cursor"):
        query = parameters["query"] = msgspec.structs.replace(query, limit=SLICE)
    while True:
        try:
            found: Listed = await resource(call, **parameters)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            yield msgspec.json.encode({"problem": problem.details()}) + b"\n"
            return
        yield b"".join(
            [
                *(msgspec.json.encode(each) + b"\n" for each in found.items),
                msgspec.json.encode({"next": found.next}),
                b"\n",
            ]
        )
        if found.next is None:
            return
        query = parameters["query"] = msgspec.structs.replace(query, cursor=found.next)


async def _opened(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for each in chunks:
        yield each


# Forms


def back(call: Call, form: Mapping[str, Any]) -> Response:
    """Return to the page that a form names, which shows its message; `made` is the page of what the form has made."""
    target = str(form["_next"])
    if target == MADE and "Location" in call.headers:
        target = call.url(call.headers["Location"].removeprefix(call.url(API)))
    if not target.startswith("/") or target.startswith(("//", "/\\")) or any(each < "!" for each in target):
        raise Problem(422, "INVALID", "_next must be a path of this site")
    response = RedirectResponse(target, 303)
    if message := call.message or form.get("_message"):
        set_flash(call.request, response, str(message))
    return response
