"""Data of jobs is hidden from those without the right to it, and named fields from everybody: in every route."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest

from holdfast import Holdfast, current_job
from holdfast.records.table import Nested, Table, dict_of, field, list_of, optional
from holdfast.store import commands
from holdfast.store.commands import LogBlock
from holdfast.testing.workbench import Workbench
from holdfast.web.resource import ListOf, ResourceRoute
from holdfast.web.routes import RESOURCES
from holdfast.web.security.redaction import HARMLESS, HIDDEN, redacted, redacted_json
from holdfast.web.security.users import User
from holdfast.web.site import Site
from tests.web.every_route import QUEUE, SAFE, ask, every_route
from tests.web.serving import Web, serve, user_of

CANARY = "canary-4711"
VIEWER, OPERATOR = User("eve", "viewer"), User("ada", "operator")
NOTHING: frozenset[str] = frozenset()

# Fields with text or with anything that every viewer may see: names, states, settings, and what Holdfast itself says.
_VISIBLE = """
    about action advice app batch because by case code codec command cron cursor declared_when detail details done edges
    effect ended event events example examples executor explanation facts filter final_reason findings fingerprint
    forked_from group guarantee held_up_by hint home id items jobs key kind last_job level limit limits marks
    meaning means missed name namespace next node nodes not_on on outcome overlap pid place position problems queue
    queue_patterns queues reason refused repair retry role schedule scope server share shows socket source state status
    subscription tag tags task text throttled_by token traceback_of type tz unique unit unreadable url version what
    who worker workers
"""
VISIBLE = frozenset(_VISIBLE.split())


def tables() -> dict[str, Table]:
    """Return the tables of all replies, and those inside of them, by name."""
    found: dict[str, Table] = {}

    def add(table: Any) -> None:
        if isinstance(table, Table) and table.name not in found:
            found[table.name] = table
            for each in table.fields:
                add(innermost(each.type))

    for route in RESOURCES:
        assert isinstance(route, ResourceRoute)
        reply = route.handler.reply
        add(reply.table if isinstance(reply, ListOf) else reply)
    return found


def innermost(declared: Any) -> Any:
    while isinstance(declared, Nested):
        declared = declared.inner
    return declared


def made(declared: Any) -> Any:
    """Return a value of a declared type with the canary in every text."""
    if isinstance(declared, Table):
        return {each.name: made(each.type) for each in declared.fields}
    if isinstance(declared, Nested):
        value = made(declared.inner)
        shape = declared.around(int)
        return [value] if shape == list[int] else {CANARY: value} if shape == dict[str, int] else value
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        return {each.name: made(each.type) for each in msgspec.structs.fields(declared)}
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return made(arguments[0])
    if origin in (Union, UnionType):
        return made(next(each for each in arguments if each is not type(None)))
    if declared in (str, Any):
        return CANARY
    if origin in (list, tuple, frozenset, set):
        return [made(arguments[0])]
    if origin is dict:
        return {"any": made(arguments[1])}
    return {int: 7, float: 7.0, bool: True, datetime: "2026-01-01T00:00:00Z"}.get(declared)


def shown_fields(record: dict[str, Any], table: Table, place: str) -> Iterator[str]:
    """Yield the fields that show the canary, without those of records inside."""
    for each in table.fields:
        value, inner = record[each.name], innermost(each.type)
        if isinstance(inner, Table):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict) and one.keys() <= {other.name for other in inner.fields}:
                    yield from shown_fields(one, inner, inner.name)
        elif CANARY in repr(value):
            yield f"{place}.{each.name}"


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.name)
def test_every_field_with_text_is_hidden_or_known_to_be_harmless(table: Table) -> None:
    record = redacted(made(table), table, VIEWER, NOTHING)
    unknown = {each for each in shown_fields(record, table, table.name) if each.partition(".")[2] not in VISIBLE}
    unknown -= HARMLESS
    assert unknown == set(), "add them to DATA in redaction.py, or to VISIBLE here"


def test_every_struct_of_a_reply_hides_data() -> None:
    kinds = [each.handler.reply for each in RESOURCES if isinstance(each, ResourceRoute)]
    for kind in {each for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)}:
        reply = redacted(msgspec.convert(made(kind), kind, strict=False), None, VIEWER, NOTHING)
        shown = {name for name in reply.__struct_fields__ if CANARY in repr(getattr(reply, name))}
        assert shown <= VISIBLE, f"{kind.__name__}: add them to DATA in redaction.py, or to VISIBLE here"


FAILURES = Table("failure", field("type", str, ""), field("message", str, ""), field("notes", list[str], ""))
REASONS = Table("reason", field("code", str, ""), field("text", str, ""), field("facts", dict[str, Any], ""))
JOBS = Table(
    "job",
    field("id", str, ""),
    field("arguments", Any, ""),
    field("fields", dict[str, str], ""),
    field("failure", optional(FAILURES), ""),
    field("failures", list_of(FAILURES), ""),
    field("by_day", dict_of(FAILURES), ""),
    field("text", str, ""),
    field("facts", dict[str, Any], ""),
    field("also", list_of(REASONS), ""),
)
RECORD: dict[str, Any] = {
    "id": "j",
    "arguments": {"to": "ann", "Password": "hunter2", "deep": [{"password": {"a": 1}}]},
    "fields": {"password": "hunter2", "customer": "4711"},
    "failure": {"type": "E", "message": "hunter2", "notes": ["n"]},
    "failures": [{"type": "E", "message": "hunter2", "notes": []}],
    "by_day": {"monday": {"type": "E", "message": "hunter2", "notes": []}},
    "text": "it failed with hunter2",
    "facts": {"due": 1},
    "also": [{"code": "retrying", "text": "hunter2", "facts": {"error": "hunter2"}}],
}


def test_a_viewer_without_the_right_to_data_sees_no_data() -> None:
    hidden = {"type": "E", "message": HIDDEN, "notes": []}
    assert redacted(RECORD, JOBS, VIEWER, NOTHING) == {
        "id": "j",
        "arguments": {},
        "fields": {},
        "failure": None,
        "failures": [hidden],
        "by_day": {"monday": hidden},
        "text": HIDDEN,
        "facts": {"due": 1},
        "also": [{"code": "retrying", "text": HIDDEN, "facts": {"error": HIDDEN}}],
    }
    assert redacted(RECORD, JOBS, User("eve", "viewer", sees_data=True), NOTHING) is RECORD


def test_named_values_are_hidden_from_everybody_and_nothing_else() -> None:
    shown = redacted(RECORD, JOBS, OPERATOR, frozenset(["password"]))
    assert shown["arguments"] == {"to": "ann", "Password": HIDDEN, "deep": [{"password": HIDDEN}]}
    assert shown["fields"] == {"password": HIDDEN, "customer": "4711"}
    assert {**shown, "arguments": 0, "fields": 0} == {**RECORD, "arguments": 0, "fields": 0}
    assert RECORD["arguments"]["Password"] == "hunter2"  # noqa: S105


def test_names_are_hidden_in_stored_json_which_is_exact_otherwise() -> None:
    class Shown(msgspec.Struct):
        raw: msgspec.Raw
        words: str

    exact = '{"n": 9007199254740993.10}'
    shown = redacted(Shown(msgspec.Raw(exact.encode()), '[{"password": 1}]'), None, OPERATOR, frozenset(["password"]))
    assert bytes(shown.raw).decode() == exact
    assert shown.words == '[{"password":"[redacted]"}]'


def test_values_that_are_too_deep_are_hidden() -> None:
    deep: Any = CANARY
    for _ in range(5000):
        deep = [deep]
    assert CANARY not in repr(redacted({**RECORD, "arguments": deep}, JOBS, OPERATOR, frozenset(["password"])))


# Every route

JOBS_WITH_DATA = ("failed", "succeeded", "retrying", "waiting")


def _work(word: str) -> str:
    """Leave the word in everything that a job can have."""
    job = current_job()
    job.save({"seen": word}, progress=0.5, message=word)
    job.note(word)
    job.attach({"customer": word})
    if word.startswith("fail"):
        raise ValueError(word)
    return word


@pytest.fixture
def web(jobs: Holdfast, tmp_path: Path) -> Iterator[Web]:
    """A server with a job that failed, one that succeeded, one that will be retried, and one that waits."""
    work = jobs.task(name="work")(_work)
    for id, word, retries in (("failed", "fail ", 0), ("succeeded", "", 0), ("retrying", "fail again ", 5)):
        jobs.enqueue(work.bind(word + CANARY).options(queue=QUEUE, id=id, retries=retries))
    clock = ClockOfServer()
    for _ in range(3):
        done = Workbench(jobs, clock, tmp_path).run_one()
        assert done
        block = LogBlock(done.id, _created(jobs, done.id), 1, 0, CANARY.encode())
        jobs.store.run(commands.log([block]))
    jobs.enqueue(work.bind(CANARY).options(queue=QUEUE, id="waiting", delay="1h"))
    jobs.cancel("waiting", reason=CANARY)
    jobs.cancel_all(queue=QUEUE, state="waiting", reason=CANARY)
    jobs.note("failed", CANARY)
    stored = msgspec.json.encode([jobs.get(id).to_dict() for id in JOBS_WITH_DATA]).decode()
    assert stored.count(CANARY) > 20  # so there is something to hide
    with serve(Site(jobs, user_of)) as made:
        yield made


class ClockOfServer:
    def __call__(self) -> int:
        return time.time_ns() // 1_000_000

    def advance(self, milliseconds: int) -> None: ...


def _created(jobs: Holdfast, id: str) -> int:
    return int(jobs.get(id).created_at.timestamp() * 1000)


def test_no_route_shows_data_to_a_viewer_without_the_right_to_it(web: Web) -> None:
    for accept in ("application/json", "application/x-ndjson", "text/html"):
        for route in every_route():
            for id in (
                (JOBS_WITH_DATA if "id" in route.parameters else JOBS_WITH_DATA[:1]) if route.method in SAFE else ()
            ):
                _, text = ask(web, route, {"x-user": "viewer", "Accept": accept}, id=id, n="1")
                assert CANARY not in text, (route, accept, id)
        events = web.get("/api/v1/events?cursor=start&limit=100", headers={"x-user": "viewer", "Accept": accept})
        assert ("cancelled" in events.text, CANARY in events.text) == (True, False)


def test_who_may_see_data_sees_it(web: Web) -> None:
    routes = [route for route in every_route() if route.method in SAFE and "id" in route.parameters]
    seen = [CANARY in ask(web, route, {"x-user": "operator"}, id="failed", n="1")[1] for route in routes]
    assert any(seen) or not routes


def test_a_stream_of_events_shows_no_reasons(web: Web) -> None:
    headers = {"x-user": "viewer", "Accept": "text/event-stream", "Last-Event-ID": "0-1"}
    with web.client.stream("GET", "/api/v1/events", headers=headers) as response:
        for line in response.iter_lines():
            assert CANARY not in line
            if '"cancelled"' in line:
                return


# Names that are hidden everywhere


def _quiet(secret: str) -> dict[str, str]:
    """Leave the secret under its name in everything that a job can have."""
    job = current_job()
    job.save({"Secret": secret})
    job.attach({"secret": secret})
    return {"secret": secret}


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_no_route_shows_a_value_whose_name_is_hidden(jobs: Holdfast, tmp_path: Path, role: str) -> None:
    quiet = jobs.task(name="quiet")(_quiet)
    jobs.enqueue(quiet.bind(CANARY).options(queue=QUEUE, id="ended"))
    done = Workbench(jobs, ClockOfServer(), tmp_path).run_one()
    assert done
    assert done.state == "succeeded"
    assert msgspec.json.encode(done.to_dict()).count(CANARY.encode()) >= 3
    with serve(Site(jobs, user_of, frozenset(["secret"]))) as web:
        for accept in ("application/json", "application/x-ndjson", "text/html"):
            for route in every_route():
                if route.method in SAFE:
                    _, text = ask(web, route, {"x-user": role, "Accept": accept}, id="ended", n="1")
                    assert CANARY not in text, (route, accept)


@pytest.mark.parametrize("wrap", [msgspec.json.encode, lambda text: msgspec.json.encode({"deep": [text]})])
def test_names_are_hidden_in_json_that_is_text_of_json(wrap: Any) -> None:
    """A result may be the text of JSON: then what is stored is JSON of text of JSON."""
    inner = b' {"password": "hunter2", "n": 1}'
    stored = wrap(wrap(inner.decode()).decode())
    names = frozenset(["password"])
    assert b"hunter2" not in (redacted_json(stored, names) or b"")
    for value in (stored.decode(), msgspec.Raw(stored), inner.decode()):
        shown = redacted({**RECORD, "arguments": value}, JOBS, OPERATOR, names)["arguments"]
        assert b"hunter2" not in msgspec.json.encode(shown), value
    again = msgspec.json.encode(stored.decode())
    assert b"hunter2" not in (redacted_json(again, names) or b"")


def test_stored_bytes_that_are_not_json_are_not_shown_if_names_are_hidden() -> None:
    names = frozenset(["secret"])
    assert redacted_json(b'{"secret": 1, "n": 1.50}', names) == b'{"secret":"[redacted]","n":1.5}'
    assert redacted_json(b'{"n": 1.50}', names) == b'{"n": 1.50}'
    assert redacted_json(b"\x80\x04secret", names) is None
