"""Bad input: each case a clear error with its code, and nothing changed in the store, compared before and after."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pytest

from holdfast import Holdfast, HoldfastError, commands
from holdfast.commands import Finish, Held, NewJob
from holdfast.outcome import Succeed
from holdfast.task import Task
from tests.servers import running_server

EXECUTOR = "node/worker.1"
HUGE = 1 << 60


class Site(NamedTuple):
    app: Holdfast
    task: Task[..., Any]
    typed: Task[..., Any]


class Case(NamedTuple):
    name: str
    do: Callable[[Site], Any]
    code: str
    words: str  # that the message has: what is wrong, which one, or what to do


@pytest.fixture
def site(server_url: str, namespace: str) -> Iterator[Site]:
    """An app with a waiting, a running and an ended job, a paused queue, a setting and a worker."""
    app = Holdfast(server_url, namespace=namespace)

    @app.task(name="anything")
    def anything(value: object = None) -> object:
        return value

    @app.task(name="typed")
    def typed(count: int, name: str = "x") -> int:
        return count + len(name)

    for id in ("ended", "running", "waiting"):
        anything.options(id=id, unique=f"key-{id}").enqueue(id)
    for number, id in enumerate(("ended", "running"), 1):
        request = commands.claim_args(["default"], counter=number, limit=1)
        assert app.store.run(commands.claim(EXECUTOR, request)).jobs[0].id == id
    app.store.run(commands.finish(EXECUTOR, [Finish("ended", 1, Succeed(b"1"))]))
    app.store.run(commands.renew("node/worker", [Held(EXECUTOR, "running", 1)], queues=["default"]))
    app.pause("paused")
    app.configure({"lease": "1m"}, queue="default")
    yield Site(app, anything, typed)
    app.close()


def contents(app: Holdfast) -> dict[bytes, bytes]:
    """Every key of the namespace, as the server would write it down."""
    pattern = app.address.key.replace("{", "[{]").replace("}", "[}]").removesuffix("meta") + "*"
    keys = sorted(app.store.execute("KEYS", pattern))
    return {key: app.store.execute("DUMP", key) for key in keys}


def itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def asynchronously(make: Callable[[Site], Any]) -> Callable[[Site], Any]:
    """The same by the async face."""

    def do(site: Site) -> Any:
        async def run() -> Any:
            try:
                return await make(site)
            finally:
                await site.app.aclose()

        return asyncio.run(run())

    return do


def raw(**changes: Any) -> Callable[[Site], Any]:
    """Enqueue as a client in another language might, which checks nothing by itself."""

    def do(site: Site) -> Any:
        job = NewJob(**{"id": "new", "payload": b"1", "queue": "q", "task": "t", **changes})
        return site.app.store.run(commands.enqueue([job]))

    return do


def claim(**changes: Any) -> Callable[[Site], Any]:
    request = {"queues": ["default"], "counter": 9, "limit": 1, **changes}
    return lambda site: site.app.store.run(commands.claim(changes.get("executor", EXECUTOR), request))


CASES = [
    # Arguments of tasks
    Case("a NaN", lambda s: s.task.enqueue(math.nan), "INVALID", "NaN"),
    Case("an infinity in a list", lambda s: s.task.enqueue([1.0, math.inf]), "INVALID", "infinit"),
    Case("bytes without an annotation", lambda s: s.task.enqueue(b"x"), "INVALID", "bytes"),
    Case("a set", lambda s: s.task.enqueue({1, 2}), "INVALID", "set"),
    Case("an object", lambda s: s.task.enqueue(object()), "INVALID", "object"),
    Case("a dict with keys that are no text", lambda s: s.task.enqueue({1: 2}), "INVALID", "keys"),
    Case("a list that holds itself", lambda s: s.task.enqueue(itself()), "INVALID", "deep"),
    Case("a list that is nested too deep", lambda s: s.task.enqueue(deep(200)), "INVALID", "deep"),
    Case("half a character", lambda s: s.task.enqueue("\ud800"), "INVALID", "Unicode"),
    Case("two mebibytes", lambda s: s.task.enqueue("x" * (2 << 20)), "TOOBIG", "1048576"),
    Case("a wrong type", lambda s: s.typed.enqueue("three"), "INVALID", "count"),
    Case("a missing argument", lambda s: s.typed.enqueue(), "INVALID", "count"),
    Case("an argument too many", lambda s: s.typed.enqueue(1, "a", 2), "INVALID", "typed"),
    Case("an unknown argument", lambda s: s.typed.enqueue(1, colour="red"), "INVALID", "colour"),
    Case("the same, async", asynchronously(lambda s: s.typed.aenqueue("three")), "INVALID", "count"),
    # Options
    Case("a queue with braces", lambda s: s.task.options(queue="{a}").enqueue(1), "INVALID", "queue is '{a}'"),
    Case("a queue with a glob", lambda s: s.task.options(queue="video-*").enqueue(1), "INVALID", "queue"),
    Case("a queue with a space", lambda s: s.task.options(queue="a b").enqueue(1), "INVALID", "queue"),
    Case("a queue without a name", lambda s: s.task.options(queue="").enqueue(1), "INVALID", "1 to 100"),
    Case("a queue of 101 letters", lambda s: s.task.options(queue="q" * 101).enqueue(1), "INVALID", "1 to 100"),
    Case("a queue in Cyrillic", lambda s: s.task.options(queue="видео").enqueue(1), "INVALID", "queue"),
    Case("an id with a newline", lambda s: s.task.options(id="a\nb").enqueue(1), "INVALID", "id is"),
    Case("an id with a glob", lambda s: s.task.options(id="*").enqueue(1), "INVALID", "id is"),
    Case("an id of 200 letters", lambda s: s.task.options(id="i" * 200).enqueue(1), "INVALID", "128"),
    Case("an unknown option", lambda s: s.task.options(color="red").enqueue(1), "INVALID", "color"),  # type: ignore[call-arg]
    Case("a priority too high", lambda s: s.task.options(priority=256).enqueue(1), "INVALID", "255"),
    Case("a priority that is true", lambda s: s.task.options(priority=True).enqueue(1), "INVALID", "priority"),
    Case("retries below none", lambda s: s.task.options(retries=-1).enqueue(1), "INVALID", "retries"),
    Case("retries without end", lambda s: s.task.options(retries=HUGE).enqueue(1), "INVALID", "1000"),
    Case("a delay below nothing", lambda s: s.task.options(delay=-1).enqueue(1), "INVALID", "delay"),
    Case("a delay in words", lambda s: s.task.options(delay="soon").enqueue(1), "INVALID", "1h30m"),
    Case("a delay of NaN", lambda s: s.task.options(delay=math.nan).enqueue(1), "INVALID", "delay"),
    Case("a delay of a century", lambda s: s.task.options(delay="5000w").enqueue(1), "INVALID", "delay"),
    Case("a time without a zone", lambda s: s.task.options(at=datetime(2030, 1, 1)).enqueue(1), "INVALID", "time zone"),
    Case(
        "both a delay and a time",
        lambda s: s.task.options(delay=1, at=datetime.now(UTC)).enqueue(1),
        "INVALID",
        "delay and at",
    ),
    Case(
        "a time in the far future",
        lambda s: s.task.options(at=datetime.now(UTC) + timedelta(days=9999)).enqueue(1),
        "INVALID",
        "due time",
    ),
    Case("a time-out of nothing", lambda s: s.task.options(timeout=0).enqueue(1), "INVALID", "timeout"),
    Case("an unknown runner", lambda s: s.task.options(runner="gpu").enqueue(1), "INVALID", "runner"),  # type: ignore[arg-type]
    Case("a unique key with a space", lambda s: s.task.options(unique="a b").enqueue(1), "INVALID", "unique"),
    Case("a task that is not bound", lambda s: s.app.enqueue(cast(Any, s.task)), "INVALID", "task.bind(...)"),
    Case("a span without a key", lambda s: s.task.options(unique_for="kept").enqueue(1), "INVALID", "unique_for"),
    Case(
        "a span of nonsense",
        lambda s: s.task.options(unique="k", unique_for="always").enqueue(1),
        "INVALID",
        "'pending'",
    ),
    Case("debounce and a delay", lambda s: s.task.options(debounce=1, delay=1).enqueue(1), "INVALID", "debounce"),
    Case("keep that is no bool", lambda s: s.task.options(keep=0).enqueue(1), "INVALID", "keep"),  # type: ignore[arg-type]
    # Ids that are there, or not
    Case("an id that is there", lambda s: s.task.options(id="ended", on_exists="error").enqueue(1), "EXISTS", "ended"),
    Case("an id of another task", lambda s: s.typed.options(id="ended").enqueue(1), "EXISTS", "anything"),
    Case(
        "a key that is taken",
        lambda s: s.task.options(unique="key-waiting", on_exists="error").enqueue(1),
        "EXISTS",
        "key-waiting",
    ),
    Case(
        "replacing what runs",
        lambda s: s.task.options(id="running", on_exists="replace").enqueue(1),
        "STATE",
        "cancel it first",
    ),
    Case(
        "the same id twice in one call",
        lambda s: s.app.enqueue_many([s.task.options(id="x").bind(n) for n in range(2)]),
        "INVALID",
        "twice",
    ),
    Case("an unknown id", lambda s: s.app.get("nobody"), "NOTFOUND", "nobody"),
    Case("an unknown id, async", asynchronously(lambda s: s.app.aget("nobody")), "NOTFOUND", "nobody"),
    Case("an id that is none", lambda s: s.app.get("{}*"), "INVALID", "job id"),
    Case("cancelling an unknown id", lambda s: s.app.cancel("nobody"), "NOTFOUND", "nobody"),
    Case("cancelling what has ended", lambda s: s.app.cancel("ended"), "STATE", "ended"),
    Case("retrying what waits", lambda s: s.app.retry("waiting"), "STATE", "has not ended"),
    Case("deleting what runs", lambda s: s.app.delete("running"), "STATE", "cancel it first"),
    Case("waiting for the text of an id", lambda s: s.app.result("ended"), "INVALID", "jobs.get"),  # type: ignore[arg-type]
    Case("waiting for a negative time", lambda s: s.app.get("waiting").result(timeout=-1), "INVALID", "timeout"),
    # Queues, settings, fields, notes, workers
    Case("an unknown state", lambda s: list(s.app.list(state="sleeping")), "INVALID", "sleeping"),
    Case("a queue with a glob, listed", lambda s: list(s.app.list(queue="*")), "INVALID", "queue"),
    Case("pausing a name with braces", lambda s: s.app.pause("{x}"), "INVALID", "queue"),
    Case("forgetting a queue with jobs", lambda s: s.app.forget("default"), "STATE", "delete them first"),
    Case("an unknown setting", lambda s: s.app.configure({"leese": "1m"}), "INVALID", "lease"),
    Case("a lease too short", lambda s: s.app.configure({"lease": "1ms"}), "INVALID", "from 1s to 1h"),
    Case("a lease of nonsense", lambda s: s.app.configure({"lease": "long"}), "INVALID", "lease"),
    Case("a number that is none", lambda s: s.app.configure({"history": 1.5}), "INVALID", "history"),
    Case("a good setting and a bad one", lambda s: s.app.configure({"grace": 1, "lost": -1}), "INVALID", "lost"),
    Case("a setting of all, for a queue", lambda s: s.app.configure({"events": 500}, queue="q"), "INVALID", "queue"),
    Case("a field with a glob", lambda s: s.app.attach("waiting", {"a*": "x"}), "INVALID", "field"),
    Case("a field that is no text", lambda s: s.app.attach("waiting", {"a": 1}), "INVALID", "text"),  # type: ignore[dict-item]
    Case("a field too long", lambda s: s.app.attach("waiting", {"a": "x" * 5000}), "TOOBIG", "4096"),
    Case("too many fields", lambda s: s.app.attach("waiting", {f"f{n}": "" for n in range(65)}), "TOOBIG", "64"),
    Case("a field of an unknown job", lambda s: s.app.attach("nobody", {"a": "x"}), "NOTFOUND", "nobody"),
    Case("a note too long", lambda s: s.app.note("waiting", "x" * 1001), "TOOBIG", "1000"),
    Case("a note without words", lambda s: s.app.note("waiting", ""), "INVALID", "text"),
    Case("an unknown worker", lambda s: s.app.deregister("node/nobody"), "NOTFOUND", "node/nobody"),
    Case("a worker that is live", lambda s: s.app.deregister("node/worker"), "STATE", "stop it first"),
    Case("no name of a worker", lambda s: s.app.deregister("{}"), "INVALID", "node"),
    Case("an event id of nonsense", lambda s: s.app.events("yesterday"), "INVALID", "event"),
    # Items
    Case("an item that is text", lambda s: s.app.items().put("text"), "INVALID", "encode"),  # type: ignore[arg-type]
    Case("an item of two mebibytes", lambda s: s.app.items().put(b"x" * (2 << 20)), "TOOBIG", "1048576"),
    Case("items of a queue with a glob", lambda s: s.app.items("a*"), "INVALID", "queue"),
    Case("an unknown item", lambda s: s.app.items().value("nobody"), "NOTFOUND", "nobody"),
    # What a client in another language might send
    Case("a priority of text", raw(priority="high"), "INVALID", "priority"),
    Case("a fraction of a millisecond", raw(delay=0.5), "INVALID", "delay"),
    Case("a huge delay", raw(delay=HUGE), "INVALID", "delay"),
    Case("a task with braces", raw(task="{t}"), "INVALID", "task"),
    Case("a queue with a newline", raw(queue="a\nb"), "INVALID", "queue"),
    Case("a codec that nobody knows", raw(codec="pickle"), "INVALID", "pickle"),
    Case("a claim of nothing", claim(limit=0), "INVALID", "limit"),
    Case("a claim of a million", claim(limit=1_000_000), "INVALID", "limit"),
    Case("a claim by nobody", claim(executor="nobody"), "INVALID", "executor"),
    Case("a claim with an old counter", claim(counter=1), "INVALID", "counter"),
    Case("a claim of no queue", claim(queues=[]), "INVALID", "queues"),
    Case("a claim for a month", claim(lease=30 * 86_400_000), "INVALID", "lease"),
    Case(
        "saving without a lease",
        lambda s: s.app.store.run(commands.save(Held(EXECUTOR, "ended", 1), b"1")),
        "LOST",
        "lost its lease",
    ),
]


def test_there_are_at_least_sixty_cases() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_bad_input_is_a_clear_error_and_changes_nothing(case: Case, site: Site) -> None:
    before = contents(site.app)

    with pytest.raises(HoldfastError) as caught:
        case.do(site)

    assert caught.value.code == case.code
    assert case.words in str(caught.value)
    assert contents(site.app) == before


def test_a_closed_server_is_unavailable_whatever_is_asked_of_it() -> None:
    with running_server() as url:
        app = Holdfast(url)

        @app.task(name="anything")
        def task(value: int) -> int:
            return value

        task.options(id="stored").enqueue(1)

    asked: list[Callable[[], Any]] = [
        lambda: task.enqueue(1),
        lambda: app.get("stored"),
        lambda: app.cancel("stored"),
        app.queues,
        app.workers,
        app.config,
        lambda: app.items().claim(),
        lambda: asyncio.run(task.aenqueue(1)),
    ]
    for ask in asked:
        with pytest.raises(HoldfastError) as caught:
            ask()
        assert caught.value.code == "UNAVAILABLE"
        assert "cannot be reached" in str(caught.value)
