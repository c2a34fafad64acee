"""Bad input: each case a clear error with its code, and nothing changed in the store, compared before and after."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pytest

from holdfast import Holdfast, HoldfastError
from holdfast.job.outcome import Succeed
from holdfast.store import Command, commands
from holdfast.store.commands import Finish, Lease
from holdfast.task.task import Task
from tests.support.new_job import NewJob
from tests.support.servers import running_server

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
    """An app with a waiting, a running, an ended and a blocked job, a paused queue, a setting, a worker, a limit, a
    share and a schedule."""
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
    app.store.run(commands.renew("node/worker", [Lease(EXECUTOR, "running", 1)], queues=["default"]))
    app.pause("paused")
    app.configure({"lease": "1m"}, queue="default")
    anything.options(id="failed").enqueue()
    app.fail("failed")
    anything.options(id="blocked", after="failed", limits="api", share="acme").enqueue()
    app.set_limit("api", 5, per="1s")
    app.schedule("nightly", anything.bind(), cron="0 2 * * *", tz="Europe/Berlin")
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


def raw_schedule(
    command: Callable[..., Command[Any]] = commands.schedule, batch: dict[str, Any] | None = None, **changes: Any
) -> Callable[[Site], Any]:
    whole = {"queue": "q", "task": "t", **(batch or {})}
    how = {"every": 60_000, **changes}
    return lambda site: site.app.store.run(command("raw", whole, b"[]", **how))


def raw_call(function: str, **args: Any) -> Callable[[Site], Any]:
    return lambda site: site.app.store.run(Command(function, args, lambda reply: reply))


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
    Case("a dict with keys that are not text", lambda s: s.task.enqueue({1: 2}), "INVALID", "keys"),
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
    Case("keep for no time", lambda s: s.task.options(keep=0).enqueue(1), "INVALID", "keep"),
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
    # Jobs to wait for
    Case("after an unknown id", lambda s: s.task.options(after="nobody").enqueue(), "NOTFOUND", "nobody"),
    Case(
        "after a call that is not stored",
        lambda s: s.task.options(after=s.task.bind()).enqueue(),
        "NOTFOUND",
        "store it before, or in the same call",
    ),
    Case(
        "after an unknown id, async",
        asynchronously(lambda s: s.task.options(after=["ended", "nobody"]).aenqueue()),
        "NOTFOUND",
        "nobody",
    ),
    Case(
        "after an unknown id, of one of many",
        lambda s: s.app.enqueue_many([s.task.bind(), s.task.bind().options(after="nobody")]),
        "NOTFOUND",
        "nobody",
    ),
    Case(
        "after a task", lambda s: s.task.options(after=cast(Any, s.task)).enqueue(), "INVALID", "or a call, from bind"
    ),
    Case("after a number", lambda s: s.task.options(after=cast(Any, 7)).enqueue(), "INVALID", "a job, a bound call"),
    Case("after nothing", lambda s: s.task.options(after=cast(Any, [None])).enqueue(), "INVALID", "id is None"),
    Case("after a glob", lambda s: s.task.options(after="*").enqueue(), "INVALID", "id is '*'"),
    Case(
        "after 1,001 jobs", lambda s: s.task.options(after=[str(n) for n in range(1001)]).enqueue(), "INVALID", "1000"
    ),
    Case("after itself", lambda s: s.task.options(id="me", after="me").enqueue(), "CYCLE", "me would wait for itself"),
    Case(
        "a circle in one call",
        lambda s: s.app.enqueue_many(
            [s.task.options(id=id, after=after).bind() for id, after in (("a", "b"), ("b", "c"), ("c", "a"))]
        ),
        "CYCLE",
        "would wait for itself",
    ),
    Case(
        "a policy of nonsense",
        lambda s: s.task.options(after="waiting", on_failed=cast(Any, "ignore")).enqueue(),
        "INVALID",
        "'block', 'cancel', 'run'",
    ),
    Case("waiting for itself, later", lambda s: s.app.depend("blocked", add="blocked"), "CYCLE", "blocked"),
    Case("waiting for nobody, later", lambda s: s.app.depend("blocked", add="nobody"), "NOTFOUND", "nobody"),
    Case("an unknown job waits", lambda s: s.app.depend("nobody", add="waiting"), "NOTFOUND", "nobody"),
    Case("what runs waits", lambda s: s.app.depend("running", add="waiting"), "STATE", "only before a job starts"),
    Case("what has ended waits", lambda s: s.app.depend("ended", add="waiting"), "STATE", "only before a job starts"),
    Case(
        "what has ended waits, async",
        asynchronously(lambda s: s.app.adepend("ended", add="waiting")),
        "STATE",
        "only before a job starts",
    ),
    Case(
        "another policy of nonsense",
        lambda s: s.app.depend("blocked", on_failed=cast(Any, "ignore")),
        "INVALID",
        "'block', 'cancel' or 'run'",
    ),
    Case(
        "a job instead of an id",
        lambda s: s.app.depend(cast(Any, s.app.get("blocked")), remove="failed"),
        "INVALID",
        "pass its .id",
    ),
    Case("deleting what is waited for", lambda s: s.app.delete("failed"), "BLOCKED", "remove the dependency"),
    Case(
        "replacing what is waited for by one that waits",
        lambda s: s.task.options(id="failed", after="blocked", on_exists="replace").enqueue(),
        "BLOCKED",
        "failed",
    ),
    # Deadlines, limits, shares
    Case("a deadline of nothing", lambda s: s.task.options(deadline=0).enqueue(), "INVALID", "deadline"),
    Case("a deadline in words", lambda s: s.task.options(deadline="soon").enqueue(), "INVALID", "1h30m"),
    Case(
        "a deadline without a zone",
        lambda s: s.task.options(deadline=datetime(2030, 1, 1)).enqueue(),
        "INVALID",
        "time zone",
    ),
    Case(
        "due after its deadline",
        lambda s: s.task.options(delay="2m", deadline="1m").enqueue(),
        "INVALID",
        "due after its deadline",
    ),
    Case("a limit with a space", lambda s: s.task.options(limits="a b").enqueue(), "INVALID", "api:acme"),
    Case("a limit with two keys", lambda s: s.task.options(limits="a:b:c").enqueue(), "INVALID", "api:acme"),
    Case("limits that are a number", lambda s: s.task.options(limits=cast(Any, 5)).enqueue(), "INVALID", "a name"),
    Case(
        "nine limits",
        lambda s: s.task.options(limits=list("abcdefghi")).enqueue(),
        "INVALID",
        "limits has 9 names (limit 8)",
    ),
    Case("a share with a space", lambda s: s.task.options(share="a b").enqueue(), "INVALID", "share is 'a b'"),
    Case(
        "a limit of none",
        lambda s: s.app.set_limit("gpu", 0),
        "INVALID",
        "slots is 0; it must be an int from 1 to 1000000",
    ),
    Case("a limit of a text", lambda s: s.app.set_limit("gpu", cast(Any, "5")), "INVALID", "slots"),
    Case("a limit of one key", lambda s: s.app.set_limit("api:acme", 5), "INVALID", "applies to each of its keys"),
    Case("a limit without a name", lambda s: s.app.set_limit("", 5), "INVALID", "a limit is ''"),
    Case("a limit per nothing", lambda s: s.app.set_limit("api", 5, per=0), "INVALID", "per is 0"),
    Case("a limit, async", asynchronously(lambda s: s.app.aset_limit("api", -1)), "INVALID", "slots is -1"),
    Case("a limit that is a text", lambda s: s.app.set_limit("gpu", cast(Any, "2")), "INVALID", "slots is '2'"),
    Case("a limit for no time", lambda s: s.app.set_limit("gpu", 2, ttl=0), "INVALID", "ttl"),
    Case("a limit for ever", lambda s: s.app.set_limit("gpu", 2, ttl="99999d"), "INVALID", "ttl"),
    Case("a ttl of nonsense", lambda s: s.app.store.run(commands.set_limit("a", 1, ttl=-1)), "INVALID", "ttl"),
    Case(
        "a limit of a revision of nonsense",
        lambda s: s.app.store.run(commands.declare_limit("a", 1, per=0, revision=-1)),
        "INVALID",
        "revision",
    ),
    Case("the reset of what is not declared", lambda s: s.app.reset_limit("gpu"), "STATE", "remove it instead"),
    Case("the reset of a key", lambda s: s.app.reset_limit("api:acme"), "INVALID", "without a key"),
    Case(
        "the reset of no schedule", lambda s: s.app.reset_schedule("none"), "NOTFOUND", "schedule none does not exist"
    ),
    Case("a slot that is not held", lambda s: s.app.release_slot("gpu", "failed"), "STATE", "does not hold a slot"),
    Case("a start that is taken back", lambda s: s.app.release_slot("api", "failed"), "STATE", "cannot be taken back"),
    Case("a slot of no limit", lambda s: s.app.release_slot("a b", "failed"), "INVALID", "api:acme"),
    Case("keys of a key", lambda s: next(s.app.limit_keys("api:acme")), "INVALID", "without a key"),
    Case("holders of no limit", lambda s: next(s.app.limit_holders("a b")), "INVALID", "api:acme"),
    Case("parked by no limit", lambda s: next(s.app.limit_parked("a b")), "INVALID", "api:acme"),
    Case(
        "a cursor of nonsense",
        lambda s: s.app.store.run(commands.limit_parked("api", cursor="x,x,x,x,x")),
        "INVALID",
        "cursor",
    ),
    Case("a cursor of a number", raw_call("limit_parked", name="api", cursor=5), "INVALID", "cursor"),
    Case("a cursor of holders", raw_call("limit_holders", name="api", cursor=5), "INVALID", "cursor"),
    Case("a cursor of two holders", raw_call("limit_holders", name="api", cursor=["a", "b"]), "INVALID", "cursor"),
    Case("holders of nothing", raw_call("limit_holders"), "INVALID", "a limit must be"),
    Case("keys of nothing", raw_call("limit_keys"), "INVALID", "a limit must be"),
    Case("keys of a truth", raw_call("limit_keys", name=True), "INVALID", "a limit must be"),
    Case("limits after a truth", raw_call("limits", after=True), "INVALID", "a limit must be"),
    Case("a slot of nothing", raw_call("release_slot", id="failed"), "INVALID", "a limit must be"),
    Case("removing the limit of a key", lambda s: s.app.remove_limit("api:acme"), "INVALID", "api:acme"),
    Case("a weight of none", lambda s: s.app.set_share_weight("default", "acme", 0), "INVALID", "from 1 to 100, not 0"),
    Case("a weight of a share with a glob", lambda s: s.app.set_share_weight("default", "*", 2), "INVALID", "share"),
    Case("a weight in a queue with a glob", lambda s: s.app.set_share_weight("*", "acme", 2), "INVALID", "queue"),
    # Operators
    Case("moving nowhere", lambda s: s.app.move("waiting"), "INVALID", "specify `queue` or `priority`"),
    Case("moving to a glob", lambda s: s.app.move("waiting", queue="*"), "INVALID", "queue"),
    Case("moving too high", lambda s: s.app.move("waiting", priority=-999), "INVALID", "priority"),
    Case("moving what runs", lambda s: s.app.move("running", queue="other"), "STATE", "cannot be moved"),
    Case("moving nobody", lambda s: s.app.move("nobody", queue="other"), "NOTFOUND", "nobody"),
    Case("moving, async", asynchronously(lambda s: s.app.amove("ended", priority=1)), "STATE", "has ended"),
    Case("releasing what waits", lambda s: s.app.release("waiting"), "STATE", "is not running"),
    Case("releasing with a bad delay", lambda s: s.app.release("running", delay="soon"), "INVALID", "delay"),
    Case(
        "releasing with a reason of bytes", lambda s: s.app.release("running", reason=cast(Any, 1)), "INVALID", "text"
    ),
    Case("failing what has ended", lambda s: s.app.fail("ended"), "STATE", "has already ended"),
    Case("failing with a bad group", lambda s: s.app.fail("waiting", group="a b"), "INVALID", "group is 'a b'"),
    Case("failing nobody", asynchronously(lambda s: s.app.afail("nobody")), "NOTFOUND", "nobody"),
    Case("cancelling no job at all", lambda s: s.app.cancel_with_dependents(), "INVALID", "1 to 1000"),
    Case("cancelling a list", lambda s: s.app.cancel_with_dependents(cast(Any, ["waiting"])), "INVALID", "id is"),
    Case(
        "cancelling all of no kind",
        lambda s: s.app.cancel_all(),
        "INVALID",
        "give queue, state, task, group, fingerprint, tag, scope",
    ),
    Case(
        "cancelling all of a mistyped kind",
        lambda s: s.app.cancel_all(queue="default", taks="typed"),  # type: ignore[call-arg]
        "INVALID",
        "has no filter 'taks'; did you mean task?",
    ),
    Case(
        "retrying all of an unknown state",
        lambda s: s.app.retry_all(state="bad"),
        "INVALID",
        "expected scheduled",
    ),
    Case("deleting all of a glob", lambda s: s.app.delete_all(queue="*"), "INVALID", "queue"),
    Case("moving all nowhere", lambda s: s.app.move_all(queue="default"), "INVALID", "specify `to`, the queue"),
    Case("releasing all, badly", lambda s: s.app.release_all(state="running", delay=-1), "INVALID", "delay"),
    Case("failing all with a bad group", lambda s: s.app.fail_all(queue="default", with_group="?"), "INVALID", "group"),
    Case("cancelling all, async", asynchronously(lambda s: s.app.acancel_all()), "INVALID", "give queue"),
    Case("load of a glob", lambda s: s.app.load("video-*"), "INVALID", "queue"),
    Case("load for a target of nothing", lambda s: s.app.load(target=0), "INVALID", "target"),
    # Schedules
    Case("a schedule without times", lambda s: s.app.schedule("x", s.task.bind()), "INVALID", "either cron or every"),
    Case(
        "a schedule with both",
        lambda s: s.app.schedule("x", s.task.bind(), cron="* * * * *", every=60),
        "INVALID",
        "either cron or every",
    ),
    Case(
        "a schedule of a task", lambda s: s.app.schedule("x", cast(Any, s.task), every=60), "INVALID", "task.bind(...)"
    ),
    Case(
        "a schedule with a glob", lambda s: s.app.schedule("*", s.task.bind(), every=60), "INVALID", "schedule is '*'"
    ),
    Case(
        "a cron of nonsense", lambda s: s.app.schedule("x", s.task.bind(), cron="daily"), "INVALID", "30 2 * * mon-fri"
    ),
    Case(
        "a cron that is not text",
        lambda s: s.app.schedule("x", s.task.bind(), cron=cast(Any, 5)),
        "INVALID",
        "cron is 5",
    ),
    Case(
        "a zone that is none",
        lambda s: s.app.schedule("nightly", s.task.bind(), cron="0 2 * * *", tz="Europe/Berln"),
        "INVALID",
        "a name like Europe/Berlin",
    ),
    Case(
        "a zone of an interval", lambda s: s.app.schedule("x", s.task.bind(), every=60, tz="UTC"), "INVALID", "use cron"
    ),
    Case(
        "an offset of a cron",
        lambda s: s.app.schedule("x", s.task.bind(), cron="0 2 * * *", offset=5),
        "INVALID",
        "only be used with every",
    ),
    Case("an interval too short", lambda s: s.app.schedule("x", s.task.bind(), every=0.1), "INVALID", "from 1s"),
    Case(
        "a policy of missed times that is none",
        lambda s: s.app.schedule("x", s.task.bind(), every=60, missed=cast(Any, "none")),
        "INVALID",
        "'one', 'all', 'skip'",
    ),
    Case(
        "a scheduled call with an id",
        lambda s: s.app.schedule("x", s.task.options(id="x").bind(), every=60),
        "INVALID",
        "each firing is a job of its own",
    ),
    Case(
        "a scheduled call after another",
        lambda s: s.app.schedule("x", s.task.options(after="waiting").bind(), every=60),
        "INVALID",
        "cannot have the option after",
    ),
    Case(
        "a scheduled call with a time for a deadline",
        lambda s: s.app.schedule("x", s.task.options(deadline=datetime.now(UTC)).bind(), every=60),
        "INVALID",
        "must be a duration, not a time",
    ),
    Case(
        "a schedule, async",
        asynchronously(lambda s: s.app.aschedule("x", s.task.bind(), every="1m", backlog=0)),
        "INVALID",
        "backlog is 0",
    ),
    Case("an unknown schedule", lambda s: s.app.get_schedule("nobody"), "NOTFOUND", "nobody"),
    Case("pausing an unknown schedule", lambda s: s.app.pause_schedule("nobody"), "NOTFOUND", "nobody"),
    Case("resuming an unknown schedule", lambda s: s.app.resume_schedule("nobody"), "NOTFOUND", "nobody"),
    Case("triggering an unknown schedule", lambda s: s.app.trigger("nobody"), "NOTFOUND", "nobody"),
    Case("triggering, async", asynchronously(lambda s: s.app.atrigger("nobody")), "NOTFOUND", "nobody"),
    Case("removing a schedule with a glob", lambda s: s.app.unschedule("*"), "INVALID", "schedule"),
    # Queues, settings, fields, notes, workers
    Case("an unknown state", lambda s: list(s.app.list(state="sleeping")), "INVALID", "sleeping"),
    Case("a queue with a glob, listed", lambda s: list(s.app.list(queue="*")), "INVALID", "queue"),
    Case("pausing a name with braces", lambda s: s.app.pause("{x}"), "INVALID", "queue"),
    Case("forgetting a queue with jobs", lambda s: s.app.forget("default"), "STATE", "delete its jobs first"),
    Case("an unknown setting", lambda s: s.app.configure({"leese": "1m"}), "INVALID", "lease"),
    Case("a lease too short", lambda s: s.app.configure({"lease": "1ms"}), "INVALID", "from 1s to 1h"),
    Case("a lease of nonsense", lambda s: s.app.configure({"lease": "long"}), "INVALID", "lease"),
    Case("a number that is none", lambda s: s.app.configure({"history": 1.5}), "INVALID", "history"),
    Case("a good setting and a bad one", lambda s: s.app.configure({"grace": 1, "lost": -1}), "INVALID", "lost"),
    Case("a setting of all, for a queue", lambda s: s.app.configure({"events": 500}, queue="q"), "INVALID", "queue"),
    Case("a field with a glob", lambda s: s.app.attach("waiting", {"a*": "x"}), "INVALID", "field"),
    Case("a field that is not text", lambda s: s.app.attach("waiting", {"a": 1}), "INVALID", "str"),  # type: ignore[dict-item]
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
    Case("after the same job twice", raw(after=("waiting", "waiting")), "INVALID", "twice"),
    Case("after a text", raw(after="waiting"), "INVALID", "after"),
    Case("after no job", raw(after=()), "INVALID", "after"),
    Case("limits that are a text", raw(limits="api"), "INVALID", "limits"),
    Case("a policy nobody knows", raw(after=("waiting",), on_failed="ignore"), "INVALID", "on_failed"),
    Case("a deadline before 1970", raw(deadline_at=-1), "INVALID", "deadline"),
    Case("a schedule of an unknown field", raw_schedule(batch={"after": ["nobody"]}), "INVALID", "after"),
    Case(
        "a schedule with jobs due after their deadline",
        raw_schedule(batch={"deadline": 1}, jitter=60000),
        "INVALID",
        "",
    ),
    Case("a spec of a list", raw_schedule(spec=["cron"]), "INVALID", "`spec` must be a text"),
    Case("times that go back", raw_schedule(every=None, times=[2, 1]), "INVALID", "ascending order"),
    Case("a time in words", raw_schedule(every=None, times=["noon"]), "INVALID", "a time"),
    Case("a revision of nonsense", raw_schedule(commands.declare_schedule, revision=-1), "INVALID", "revision"),
    Case("a claim of nothing", claim(limit=0), "INVALID", "limit"),
    Case("a claim of a million", claim(limit=1_000_000), "INVALID", "limit"),
    Case("a claim by nobody", claim(executor="nobody"), "INVALID", "executor"),
    Case("a claim with an old counter", claim(counter=1), "INVALID", "counter"),
    Case("a claim of no queue", claim(queues=[]), "INVALID", "queues"),
    Case("a claim for a month", claim(lease=30 * 86_400_000), "INVALID", "lease"),
    Case(
        "saving without a lease",
        lambda s: s.app.store.run(commands.save(Lease(EXECUTOR, "ended", 1), b"1")),
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
