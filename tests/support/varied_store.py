"""A store with jobs of every kind and state, and one of everything else, to damage."""

from __future__ import annotations

from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Callback, Finish, Lease, LogBlock
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.support.new_job import NewJob

ONE, TWO = "node/one.0", "node/one.1"
WORKER = "node/one"
LONG = b"x" * 200
LONG_TAGS = tuple(f"{number}" + "t" * 40 for number in range(4))
BATCH = {"queue": "later", "task": "task"}


def fill(store: Store, clock: TestClock) -> None:
    """Store jobs in every state, with every option, and what else there is."""
    _settings(store)
    _plain_jobs(store)
    _dependencies(store)
    _limits(store)
    _batches(store)
    _others(store, clock)
    store.run(commands.upkeep())


def put(store: Store, id: str, queue: str, **options: object) -> None:
    store.run(commands.enqueue([NewJob(id=id, payload=b"[]", queue=queue, task="task", **options)]))  # type: ignore[arg-type]


def claim(store: Store, queue: str, limit: int = 1, executor: str = ONE) -> list[str]:
    _counter[0] += 1
    request = commands.claim_args([queue], counter=_counter[0], limit=limit)
    return [job.id for job in store.run(commands.claim(executor, request)).jobs]


_counter = [0]


def _end(store: Store, id: str, outcome: Succeed | Error) -> None:
    store.run(commands.finish(ONE, [Finish(id, 1, outcome)]))


def _settings(store: Store) -> None:
    store.run(commands.renew(WORKER, [], executors=[ONE, "node/one.1"], queues=["mail", "run", "pool*"]))
    store.run(commands.configure(None, set={"keep_failed": 86_400_000}, reset=[]))
    store.run(commands.configure("mail", set={"retries": 7}, reset=[]))


def _plain_jobs(store: Store) -> None:
    put(store, "waiting", "mail", priority=3, unique="w", unique_for="queued")
    put(store, "kept", "mail", unique="k", unique_for="kept", keep=1_000_000)
    put(store, "timed", "mail", unique="t", unique_for=1_000_000, deadline=900_000)
    put(store, "scheduled", "mail", delay=600_000)
    put(store, "marked", "mail", tags=("a", "b"), scope="/x/y", fields={"one": "1"})
    put(store, "long-marks", "mail", tags=LONG_TAGS)
    store.run(commands.track(["marked"]))
    put(store, "shared", "fair", share="ann")
    store.run(commands.set_share_weight("fair", "ann", 3))
    put(store, "doomed", "mail", unique="p", unique_for="pending")
    store.run(commands.cancel(["doomed"]))
    store.run(commands.enqueue([NewJob(id="long", payload=LONG, queue="run", task="task")]))
    claim(store, "run")
    store.run(commands.save(Lease(ONE, "long", 1), LONG, progress="y" * 100, notes=["half"]))
    store.run(commands.once(Lease(ONE, "long", 1), "step", b"done"))
    created = store.run(commands.get(["long"]))[0]["created"]  # type: ignore[index]
    store.run(commands.log([LogBlock("long", created, 1, 0, b"printed")]))
    put(store, "running", "run")
    claim(store, "run")
    for id, outcome in (("succeeded", Succeed(LONG)), ("failed", Error(b'"oops"', "Net", final=True))):
        put(store, id, "ends", keep=500_000)
        claim(store, "ends")
        _end(store, id, outcome)
    put(store, "paused", "paused")
    store.run(commands.pause("paused"))
    claim(store, "empty")
    store.run(commands.claim(TWO, commands.claim_args(pool="weighted pool*=2", counter=1, limit=1, idle=True)))
    put(store, "pooled", "pool1")


def _dependencies(store: Store) -> None:
    put(store, "first", "chain")
    put(store, "second", "chain", after=("first",))
    put(store, "third", "chain", after=("first", "second"), on_failed="run")


def _limits(store: Store) -> None:
    store.run(commands.set_limit("api", 1))
    store.run(commands.set_limit("rate", 1, per=3_600_000))
    store.run(commands.set_limit("brief", 2, ttl=900_000))
    for number in range(3):
        put(store, f"api{number}", "api", limits=("api", "unheard"))
        put(store, f"rate{number}", "rate", limits=("rate:ann",))
    claim(store, "api", 3)
    claim(store, "rate", 3)


def _batches(store: Store) -> None:
    done = Callback("done", "after-batch", {"queue": "calls", "task": "report"}, b"[1]")
    store.run(commands.open_batch("import", callbacks=[done]))
    for number in range(3):
        put(store, f"member{number}", "members", in_batch="import")
    claim(store, "members")
    _end(store, "member0", Succeed(b"1"))
    store.run(commands.close_batch("import"))
    store.run(commands.open_batch("over"))
    put(store, "over1", "over", in_batch="over")
    claim(store, "over")
    _end(store, "over1", Succeed(b"1"))
    store.run(commands.close_batch("over"))


def _others(store: Store, clock: TestClock) -> None:
    store.run(commands.schedule("hourly", BATCH, b"[]", every=3_600_000))
    store.run(commands.schedule("soon", BATCH, b"[]", times=[clock.now + 5_000_000]))
    store.run(commands.declare_subscription("audit", "{}", BATCH, 1, "now"))
    store.run(commands.start_operation("op1", "tag", arguments={"tags": ["z"]}, queues=["mail"]))
