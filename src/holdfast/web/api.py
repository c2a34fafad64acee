"""Answers of the API: read the parameters of a request, call the resource, encode what it returns."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from holdfast.constants import MAX_BATCH
from holdfast.store import repeatable
from holdfast.web.call import Call
from holdfast.web.flash import MAX_LENGTH, set_flash
from holdfast.web.paths import decode_name
from holdfast.web.problems import Problem, problem_of
from holdfast.web.resource import API, Chunks, Listed, ListOf, Resource, ResourceRoute
from holdfast.web.routing import Match
from holdfast.web.security.audit import count_of
from holdfast.web.streaming import EVENT_STREAM, preferred

MAX_BODY = 2 << 20  # bytes of a request
MAX_LIST_BODY = 32 << 20
MAX_LINES = 4 * MAX_BATCH  # of a list that is sent as lines, empty ones among them
MAX_IDEMPOTENCY_KEY = 255  # characters
SLICE = 100  # records of an export that are read at once
JSON = "application/json"
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
    query = read_query(call.request, resource.query or NoQuery)
    if resource.query is not None:
        parameters["query"] = query
    form = await read_form_of(call)
    if form.get("_next"):
        check_target(form)  # an action with a wrong form has no effect
    if resource.body is not None:
        body = await read_body(call.request, MAX_LIST_BODY if is_list(resource.body) else MAX_BODY)
        read = _decode
        if is_list(resource.body):
            read = _decode_lines if _is_lines(call.request) else _decode_list
        parameters["body"] = _convert_form(form, resource.body) if form else read(body, resource.body)
    if isinstance(resource.reply, ListOf) and route.method == "GET" and _wants_lines(call.request):
        return await _answer_lines(call, resource, parameters)
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
        return _stream(request, _opened(reply.chunks), reply.media_type, status)
    if reply is None:
        return Response(status_code=204 if status == 200 else status)
    content = msgspec.json.encode(reply)
    if request.method not in ("GET", "HEAD"):
        return Response(content, status, media_type=JSON)
    tag = f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, status, {"ETag": tag}, JSON)


def _stream(request: Request, parts: AsyncIterator[bytes], media_type: str, status: int = 200) -> Response:
    """Send parts as they are made. The answer to HEAD has none, so nothing is read for it."""
    if request.method != "HEAD":
        return StreamingResponse(parts, status, media_type=media_type)
    response = Response(status_code=status, media_type=media_type)
    del response.headers["content-length"]
    return response


# Parameters


class NoQuery(msgspec.Struct):
    """No parameters."""


def read_query(request: Request, kind: type, *, of_form: bool = False) -> Any:
    """Read the query of a request as a struct: lists from repeated parameters, numbers and booleans from text.

    Forms send all of their fields: an empty one stands for no value. An empty cursor is that of the first page, with
    which loops begin.
    """
    pairs = [each for each in request.query_params.multi_items() if each != ("cursor", "")]
    return _convert_pairs(_without_empty(pairs) if of_form else pairs, kind, "query")


def _convert_form(form: Mapping[str, Any], kind: type) -> Any:
    if not is_struct(kind):
        raise Problem(415, "FORM", "a form cannot say this; send JSON")
    pairs = [(name, each) for name, values in form.items() if name not in FORM_FIELDS for each in _listed(values)]
    return _convert_pairs(_without_empty(pairs), kind, "form")


def _without_empty(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in pairs if text]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _convert_pairs(pairs: list[tuple[str, str]], kind: type, where: str) -> Any:
    """Make a struct of named texts."""
    fields = {each.encode_name: _plain(each.type) for each in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    inner: dict[str, list[tuple[str, str]]] = {}  # of parts that are named as in `filter.queue`
    for name, text in pairs:
        part, dot, rest = name.partition(".")
        if dot and is_struct(fields.get(part)):
            inner.setdefault(part, []).append((rest, text))
            continue
        if name not in fields:
            known = f"known: {', '.join(fields)}" if fields else "there are none"
            raise Problem(422, "INVALID", f"unknown parameter {name[:60]!r}; {known}")
        if _takes_list(fields[name]):
            found.setdefault(name, []).append(text)
        elif name in found:
            raise Problem(422, "INVALID", f"{name} is given twice")
        else:
            found[name] = _read_object(name, text) if _takes_object(fields[name]) else text
    found |= {part: _convert_pairs(texts, fields[part], where) for part, texts in inner.items()}
    made = _convert(found, kind, where)
    for each in msgspec.structs.fields(kind):
        if isinstance(found.get(each.encode_name), str) and getattr(made, each.name) is None:  # the text is `null`
            raise Problem(422, "INVALID", f"{each.encode_name} is null; leave it out")
    return made


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
    """Return a type without its annotations."""
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
    if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
        raise Problem(415, "ENCODING", f"the body has the encoding {encoding[:60]!r}; send it as it is")
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
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        found.setdefault(name, []).append(text)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in found.items()}


def _decode(body: bytes, kind: type) -> Any:
    if not body:
        body = b"{}"
    try:
        body.decode()  # what stays encoded, such as arguments, would not be checked
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, "INVALID", f"body: {error}{_known_fields(str(error), kind)}") from None
    except UnicodeDecodeError as error:
        raise Problem(400, "INVALID", f"the body is not UTF-8 (byte {error.start})") from None
    except (msgspec.DecodeError, RecursionError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise Problem(400, "INVALID", f"the body is not valid JSON: {why}") from None


def _decode_list(body: bytes, kind: Any) -> Any:
    """Read a list. One that is too long is refused before its parts are read: each takes far more memory then."""
    _check_length(_decode(body, list[msgspec.Raw]) if body else ())
    return _decode(body, kind)


def _check_length(parts: Sequence[Any]) -> None:
    if len(parts) > MAX_BATCH:
        raise Problem(422, "INVALID", f"the list has {len(parts):,} parts (limit {MAX_BATCH:,})")


def _known_fields(error: str, kind: type) -> str:
    """Return the known fields, for the message of an unknown one."""
    is_unknown = "unknown field" in error and " - at " not in error and is_struct(kind)
    return f"; known: {', '.join(kind.__struct_fields__)}" if is_unknown else ""  # type: ignore[attr-defined]


def _is_lines(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == NDJSON


def _decode_lines(body: bytes, kind: Any) -> list[Any]:
    """Read a list that is sent as lines."""
    found = []
    lines = body.split(b"\n", MAX_LINES)
    _check_length([each for each in lines if each.strip()])
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(_decode(line, get_args(kind)[0]))
            except Problem as problem:
                raise Problem(problem.status, problem.code, f"line {number}: {problem.detail}") from None
    return found


# Lists as lines


def _wants_lines(request: Request) -> bool:
    return preferred(request, JSON, NDJSON, EVENT_STREAM) == NDJSON


async def _answer_lines(call: Call, resource: Resource, parameters: dict[str, Any]) -> Response:
    """Send a list as lines. An error in its first slice is answered as that of any request."""
    call.is_export = True
    query: Any = parameters.get("query")
    if hasattr(query, "cursor"):
        parameters["query"] = msgspec.structs.replace(query, limit=SLICE)
    first: Listed = await resource.run(call, parameters)
    return _stream(call.request, _lines(call, resource, parameters, first), NDJSON)


async def _lines(call: Call, resource: Resource, parameters: dict[str, Any], found: Listed) -> AsyncIterator[bytes]:
    """Yield a list as lines: its records and, after each slice of them, `{"next": cursor}`; null after the last.

    An export that breaks is resumed with the last cursor. An error is the last line: `{"problem": {...}}`.
    """
    while True:
        yield b"".join(
            [
                *(msgspec.json.encode(each) + b"\n" for each in found.items),
                msgspec.json.encode({"next": found.next}),
                b"\n",
            ]
        )
        if found.next is None:
            return
        parameters["query"] = msgspec.structs.replace(parameters["query"], cursor=found.next)
        try:
            found = await resource(call, **parameters)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            yield msgspec.json.encode({"problem": problem.details()}) + b"\n"
            return


async def _opened(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for each in chunks:
        yield each


# Forms


def check_target(form: Mapping[str, Any]) -> str:
    """Return where a form leads: a path of this site, or `made`."""
    target = str(form["_next"])
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and all(each >= "!" for each in target)
    if not (is_path or target == MADE):
        raise Problem(422, "INVALID", "_next must be a path of this site")
    return target


def back(call: Call, form: Mapping[str, Any]) -> Response:
    """Return to the page that a form names, which shows its message; `made` is the page of what the form has made."""
    target = check_target(form)
    if target == MADE:
        target = call.url(call.headers["Location"].removeprefix(call.url(API)) if "Location" in call.headers else "/")
    response = RedirectResponse(target, 303)
    if message := call.message or form.get("_message"):
        set_flash(call.request, response, str(message))
    return response
