"""docs/protocol.md matches the code: functions, arguments, refusals, keys, packed fields; a client needs nothing else.

The tests use a plain socket, like a client in another language: no Redis client, and nothing of Holdfast but the text
of the library.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import constants
from holdfast.events.types import TYPES
from holdfast.job.retries import BUDGETS
from holdfast.store.library import library

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "protocol.md").read_text()
LUA = {path.stem: path.read_text() for path in (ROOT / "src" / "holdfast" / "store" / "lua").glob("*.lua")}
FIX = "write it into docs/protocol.md, or take it out there"
VERB = re.compile(r"^register(?:_action)?\('(\w+)', \{(.*?)\}", re.M)
EVERYWHERE = {"acknowledge", "now", "token"}  # which arguments every function takes
COMPUTED = {  # what a function adds to its arguments for itself
    "batches": {"adder", "batches", "ids", "batch"},  # of `enqueue`
    "cancel": {"awaited"},
    "subscriptions": {"ids"},
    "enqueue": {
        "ids",
        "spec",
        "flags",
        "is_plain",
        "head",
        "due_time",
        "is_shared",
        "is_cached",
        "own_fields",
        "fields_size",
        "marks",
    },
    "extension": {"ids"},
    "finish": {"created", "executor", "ids", "unique", "due_time", "known", "marks"},
    "schedules": {"ids", "at"},
}


class Wire:
    """RESP, by hand."""

    def __init__(self, path: str, namespace: str) -> None:
        self.namespace = namespace
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.reader = self.socket.makefile("rb")

    def send(self, *parts: str | bytes) -> Any:
        encoded = [part.encode() if isinstance(part, str) else part for part in parts]
        self.socket.sendall(
            b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in encoded)
        )
        return self.receive()

    def call(self, verb: str, args: dict[str, Any], *blobs: str) -> Any:
        return self.send("FCALL", f"hf_{DIGEST}_{verb}", "1", self.key("meta"), json.dumps(args), *blobs)

    def key(self, rest: str) -> str:
        return f"hf:{{{self.namespace}}}:{rest}"

    def receive(self) -> Any:
        line = self.reader.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.receive() for _ in range(int(rest))] if rest != b"-1" else None
        if kind == b"$":
            return self.reader.read(int(rest) + 2)[:-2].decode(errors="surrogateescape") if rest != b"-1" else None
        return int(rest) if kind == b":" else line.decode().removeprefix("+")

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.fixture
def wire(server_url: str, namespace: str) -> Iterator[Wire]:
    made = Wire(server_url.removeprefix("unix://"), namespace)
    made.send("FUNCTION", "LOAD", "REPLACE", library())
    yield made
    made.close()


DIGEST = library().partition("\n")[0].rpartition("_")[2]


def _sections() -> dict[str, str]:
    """The section of each function."""
    part = TEXT.partition("\n## Functions\n")[2].partition("\n## ")[0]
    found = re.split(r"^### `(\w+)`$", part, flags=re.M)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def _rows(heading: str) -> list[tuple[str, ...]]:
    """The rows of the table whose head has this in its last column."""
    table = re.search(rf"^\|[^\n]*\| {heading} \|\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.M)
    assert table, f"expected a table of {heading}"
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in table[1].splitlines()]


def _code(text: str) -> set[str]:
    return {part for quoted in re.findall(r"`([^`]+)`", text) for part in quoted.split()}


def test_every_function_of_the_library_is_documented_and_no_other(wire: Wire) -> None:
    listed = wire.send("FUNCTION", "LIST", "LIBRARYNAME", f"holdfast_{DIGEST}")
    (registered,) = (dict(zip(row[::2], row[1::2], strict=True))["functions"] for row in listed)
    functions = [dict(zip(row[::2], row[1::2], strict=True)) for row in registered]
    names = {each["name"].removeprefix(f"hf_{DIGEST}_") for each in functions}
    assert names == {*_sections()}, FIX
    sentence = re.search(r"only ([^.]*) are\s+refused then, all others may\s+write", TEXT)
    assert sentence
    refused_when_full = {
        each["name"].removeprefix(f"hf_{DIGEST}_")
        for each in functions
        if not {"allow-oom", "no-writes"} & {*each["flags"]}
    }
    assert refused_when_full == _code(sentence[1]), FIX


def test_each_function_says_what_it_replies_what_it_refuses_and_what_happens_if_it_is_repeated() -> None:
    flags = {verb: flags for text in LUA.values() for verb, flags in VERB.findall(text)}
    for name, section in _sections().items():
        assert "Reply:" in section, name
        assert re.search(r"\b[Rr]efuses\b", section), name
        assert re.search(r"Reads only|\b[Ss]afe\b|second (?:call|time|entry)", section), name
        assert ("Reads only" in section) == ("no-writes" in flags[name]), name


@pytest.mark.parametrize("part", sorted(part for part, text in LUA.items() if VERB.search(text)))
def test_every_argument_and_every_refusal_of_a_function_is_documented_with_it(part: str) -> None:
    names = [verb for verb, _ in VERB.findall(LUA[part])]
    documented = _code("".join(_sections()[name] for name in names))
    code = re.sub(r"--.*", "", LUA[part])
    arguments = {*re.findall(r"\bargs\.(\w+)", code), *re.findall(r"\b(?:batch|item)\.(\w+)", code)}
    assert arguments - COMPUTED.get(part, set()) - EVERYWHERE <= documented, FIX
    assert {*re.findall(r"refuse\('(\w+)'", code)} <= documented, FIX


def test_every_argument_that_is_documented_is_one_of_the_function() -> None:
    files = {verb: part for part, text in LUA.items() for verb, _ in VERB.findall(text)}
    for name, section in _sections().items():
        table = re.search(r"^\| argument .*\n\|[-|]+\|\n((?:\|.*\n)+)", section, re.M)
        documented = [line.strip("|").split(" | ")[0] for line in table[1].splitlines()] if table else []
        for argument in _code(" ".join(documented)) - EVERYWHERE:
            assert re.search(rf"\b{argument}\b", LUA[files[name]]), f"{name} does not know {argument}: {FIX}"


def test_every_code_that_a_function_refuses_with_is_in_the_list_of_codes() -> None:
    used = {code for text in LUA.values() for code in re.findall(r"refuse\('(\w+)'", text)}
    table = TEXT.partition("| code | meaning |")[2].partition("\n\n")[0]
    assert used == _code(table), FIX


def test_every_key_is_documented_and_no_other() -> None:
    patterns = set()
    for expression in re.findall(r"^function key\.\w+\(.*?\) return base \.\. (.*?) end$", LUA["keys"], re.M):
        parts = re.sub(r"string\.format\('%d', (\w+)\)", r"\1", expression).split(" .. ")
        patterns.add("".join(part.strip("'") if part.startswith("'") else f"<{part}>" for part in parts))
    assert len(patterns) == LUA["keys"].count("function key."), "a key is made in another way: look at this test"
    assert patterns == {key.strip(" `") for key, *_ in _rows("written by")}, FIX


def test_every_limit_is_documented_with_its_value() -> None:
    known = {(name, str(value)) for name, value in vars(constants).items() if name.isupper()}
    assert known == {(name.strip("` "), value) for name, value, _ in _rows("of what")}, FIX


def test_every_state_outcome_and_flag_of_a_record_is_documented() -> None:
    for table, row in (("STATE_OF", "state"), ("OUTCOME_OF", "outcome"), ("NOTE_OF", "what")):
        body = re.search(rf"local {table} = \{{(.*?)\}}", LUA["record"], re.S)
        assert body
        letters = re.findall(r"(?:\['(.)'\]|\b(\w)) = '(\w+)'", re.sub(r"--.*", "", body[1]))
        (documented,) = re.findall(rf"^\| 1 \| {row}: (.*) \|$", TEXT, re.M)
        described = dict(re.findall(r"`(.)` (\w+)", documented))
        assert {bracketed or plain: word for bracketed, plain, word in letters} == described, FIX
    flags = [int(n) for line in re.findall(r"= (\d+(?:, \d+){2,})\n", LUA["record"]) for n in line.split(", ")]
    (flagged,) = re.findall(r"^\| 2 \| flags: (.*) \|$", TEXT, re.M)
    assert flags == [int(number) for number in re.findall(r"\b\d+\b", flagged)], FIX


def test_every_type_of_event_is_documented_and_no_other() -> None:
    used = {kind for text in LUA.values() for kind in re.findall(r"\bemit(?:_about)?\('(\w+)'", text)}
    computed = {"succeeded", "failed", "cancelled", "timeout", "stalled"}  # which are emitted by state, or by group
    (documented,) = re.findall(r"Types: ([\w,\s]+)\.", _sections()["events"])
    assert used | computed == {*re.findall(r"\w+", documented)}, FIX
    assert used | computed == {each.name for each in TYPES}, "events/types.py declares what Lua emits"


def test_every_name_that_get_answers_with_is_documented_and_no_other(wire: Wire) -> None:
    budgets = dict.fromkeys(BUDGETS.values(), 1)
    wire.call("enqueue", {"batches": [{"queue": "mail", "task": "send", "tags": ["marked"], **budgets}]}, "a", "{}")
    wire.call("claim", {"executor": "host/abc.0", "counter": 1, "queues": ["mail"], "limit": 1})
    wire.call("save", {"executor": "host/abc.0", "id": "a", "attempt": 1}, "checkpoint")
    (running,) = wire.call("get", {"ids": ["a"]})
    item = {"id": "a", "attempt": 1, "outcome": "succeed", "blob": True}
    wire.call("finish", {"executor": "host/abc.0", "items": [item]}, "result")
    (job,) = wire.call("get", {"ids": ["a"]})
    reply = _sections()["get"].partition("a list of names and values:")[2].partition("Read it by name")[0]
    assert {name for name, _ in [*_pairs(running), *_pairs(job)]} == _code(reply) - {"0"}, FIX


def test_the_packed_formats_are_documented_as_they_are() -> None:
    formats = {packed for text in LUA.values() for packed in re.findall(r"'(>[BcdhisI\d]+)'", text)}
    assert len(formats) == 19
    for packed in formats:
        assert f"`{packed}`" in TEXT, FIX


def _unpack(heading: str, packed: bytes) -> dict[str, int | bytes]:
    """Read a packed field by nothing but its table."""
    found: dict[str, int | bytes] = {}
    at = 0
    for size, meaning in _rows(heading):
        name = re.split(r"[:,]| \+ ", meaning)[0]
        rest = packed[at:].ljust(64, b"\0") if heading in ("head", "status") else packed[at:]
        if size == "n":
            found[name] = rest
        elif size == "n + 1":
            found[name] = rest.partition(b"\0")[0]
            at += rest.index(b"\0") + 1
        else:
            width = int(size.split()[0])
            is_text = meaning.startswith(("state", "outcome", "what"))
            found[name] = rest[:width] if is_text else int.from_bytes(rest[:width], signed="signed" in size)
            at += width
    return found


def test_a_record_can_be_read_by_its_tables_alone(wire: Wire) -> None:
    batch = {"queue": "mail", "task": "send", "priority": -3, "retries": 5, "timeout": 0, "lost": 2, "stalls": 0}
    (created, _) = wire.call("enqueue", {"batches": [batch], "now": 1_700_000_000_000}, "a", "x" * 65)
    claim = {"executor": "host/abc.0", "counter": 1, "queues": ["mail"], "limit": 1, "pid": 77, "lease": 60000}
    wire.call("claim", {**claim, "now": 1_700_000_000_250})
    wire.call("note", {"id": "a", "text": "hello", "who": "ann@web1", "now": 1_700_000_000_300})
    fields = wire.send("HGETALL", wire.key("j:a"))
    record = {name: value.encode("utf-8", "surrogateescape") for name, value in _pairs(fields)}
    packed = (("head", "h"), ("status", "s"), ("attempt", "a1"))
    head, status, attempt = (_unpack(what, record[field]) for what, field in packed)
    assert (head["version"], head["created"], head["queue"], head["task"]) == (1, created, b"mail", b"send")
    assert (head["priority"], head["retries"], head["lost"], head["backoff"], head["timeout"]) == (-3, 6, 3, 0, 1)
    assert (head["timeouts"], head["stalls"], head["out_of_memory"]) == (0, 1, 0)
    assert (status["state"], status["since"], status["attempt"], status["lease"]) == (b"r", 250, 1, 60000)
    assert (status["timeouts_used"], status["stalls_used"], status["out_of_memory_used"]) == (0, 0, 0)
    assert (attempt["claimed"], attempt["waited"], attempt["process id"]) == (created + 250, 250, 77)
    assert (attempt["outcome"], attempt["executor"]) == (b"-", b"host/abc.0")
    assert (record["p"], wire.send("GET", wire.key("p:a"))) == (b">", "x" * 65)
    (note,) = wire.send("LRANGE", wire.key("n:a"), "0", "-1")
    packed = note.encode("utf-8", "surrogateescape")
    assert _unpack("note", packed) == {"time": created + 300, "what": b"N", "who": b"ann@web1", "text": b"hello"}
    assert wire.send("HGET", wire.key("x:host/abc.0"), "a") == "1@60000"


def _pairs(flat: list[str]) -> list[tuple[str, str]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _read(text: str) -> Any:
    """A reply, as the walk writes it down."""
    if not text.startswith("["):
        return int(text) if text.lstrip("-").isdecimal() else text
    stack: list[list[Any]] = [[]]
    for token in shlex.split(text.replace("[", " [ ").replace("]", " ] ")):
        if token == "[":  # noqa: S105
            stack.append([])
        elif token == "]":  # noqa: S105
            stack[-2].append(stack.pop())
        else:
            stack[-1].append(int(token) if token.isdecimal() else None if token == "nil" else token)  # noqa: S105
    return stack[0][0]


def _fits(reply: Any, documented: Any) -> bool:
    if documented == "*":
        return isinstance(reply, int) and reply > 1_600_000_000_000
    if not isinstance(documented, list) or not isinstance(reply, list):
        return bool(reply == documented)
    if documented[-1:] == ["..."]:
        documented = documented[:-1]
        reply = reply[: len(documented)]
    return len(reply) == len(documented) and all(map(_fits, reply, documented))


def _walk(namespace: str) -> list[tuple[list[str], Any]]:
    block = (
        TEXT.replace("{walk}", f"{{{namespace}}}")
        .partition("## A session over")[2]
        .partition("```text\n")[2]
        .partition("```")[0]
    )
    lines = block.strip().splitlines()
    steps = []
    for request, reply in zip(lines[::2], lines[1::2], strict=True):
        assert request.startswith("-> ")
        assert reply.startswith("<- ")
        parts = re.findall(r"\{\"(?:.*\})|\S+", request[3:].replace("DIGEST", DIGEST))
        steps.append((parts, _read(reply[3:])))
    return steps


def test_the_walk_of_the_document_works_with_nothing_but_a_socket(wire: Wire) -> None:
    steps = _walk(wire.namespace)
    for parts, documented in steps:
        reply = wire.send(*parts)
        assert _fits(reply, documented), f"{' '.join(parts)}\nreply: {reply}\ndocumented: {documented}"
    called = {parts[1].removeprefix(f"hf_{DIGEST}_") for parts, _ in steps if parts[0] == "FCALL"}
    assert {"enqueue", "claim", "renew", "save", "finish", "get", "add_waiter", "requeue_orphaned"} <= called


def test_a_client_written_from_the_document_and_python_understand_each_other(wire: Wire, server_url: str) -> None:
    from holdfast import Holdfast

    app = Holdfast(server_url, namespace=wire.namespace)
    job = app.items("mail").put(b"hello", id="from-python")
    claim = {"executor": "host/abc.0", "counter": 1, "queues": ["mail"], "limit": 1}
    kinds, id, attempt, _, kind, payload, _ = wire.call("claim", claim)[2:]
    assert (kinds[:3], id, attempt, kind, payload) == (["mail", "raw", "raw"], "from-python", 1, 0, "hello")
    item = {"id": "from-python", "attempt": 1, "outcome": "succeed", "blob": True}
    assert wire.call("finish", {"executor": "host/abc.0", "items": [item]}, "sent")[0] == ["OK"]
    assert job.refresh().result_bytes == b"sent"
    got = dict(_pairs(wire.call("get", {"ids": ["from-python"]})[0]))
    assert (got["state"], got["result"], got["payload"]) == ("succeeded", "sent", "hello")
    app.close()
