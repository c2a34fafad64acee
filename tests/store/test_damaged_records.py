"""Damaged, missing and newer records: the record decides, and what is wrong with one job concerns that job alone.

Each verb is run on six jobs, of which one is damaged in some way. The others get the answers of an undamaged run. Then
the record is put back as it was, time passes, and all keys fit together: nothing was done to the damaged job meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from holdfast import Holdfast, JobIsNewer, JobUnreadable, errors
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease
from holdfast.store.store import Address, Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.store.lua.test_state_machine import LEASE, ONE, THREE, TWO, ask, job, new, put, take

IDS = [f"a{number}" for number in range(6)]
DAY = 86_400


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as made:
        yield made


@dataclass
class Scene:
    """Six jobs in a namespace of their own."""

    store: Store
    clock: TestClock
    client: redis.Redis
    base: str

    def key(self, name: str) -> str:
        return self.base + name

    def record(self, id: str) -> str:
        return self.key(f"j:{id}")

    def pass_time(self, rounds: int = 40) -> None:
        """Let leases end and entries be compared, without running anything."""
        for _ in range(rounds):
            self.clock.advance(14)  # less than half a lease: longer, and the store would seem to have been away
            self.store.run(commands.claim("node/other.0", ask("nothing")))

    def reach_everything(self) -> None:
        """Claim what waits, take it back, and let it be old: so each index, timer and held entry is met."""
        take(self.store, "node/last.0", "q", "r", limit=10)
        for worker in ("node/one", "node/two", "node/last"):
            while self.store.run(commands.requeue_orphaned(worker=worker)):
                pass
        for _ in range(3):
            self.clock.advance(40 * DAY)
            self.store.run(commands.claim("node/other.0", ask("nothing")))

    def check(self) -> invariants.Snapshot:
        return invariants.check(self.client, self.base.split("{")[1].split("}")[0])


@pytest.fixture
def scenes(server_url: str, namespace: str, client: redis.Redis) -> Iterator[Callable[[], Scene]]:
    made: list[Scene] = []

    def new_scene() -> Scene:
        name, clock = f"{namespace}{len(made)}", TestClock()
        store = Store(Address.find(server_url, namespace=name), clock=clock)
        made.append(Scene(store, clock, client, f"hf:{{{name}}}:"))
        return made[-1]

    yield new_scene
    for scene in made:
        scene.store.close()


# How a record may be damaged


def newer(scene: Scene, id: str) -> None:
    head = scene.client.hget(scene.record(id), "h")
    scene.client.hset(scene.record(id), "h", b"\x02" + head[1:])


def gone(scene: Scene, id: str) -> None:
    scene.client.delete(scene.record(id))


def without_status(scene: Scene, id: str) -> None:
    scene.client.hdel(scene.record(id), "s")


def with_a_strange_state(scene: Scene, id: str) -> None:
    status = scene.client.hget(scene.record(id), "s")
    scene.client.hset(scene.record(id), "s", b"\xff" + status[1:])


def with_a_short_head(scene: Scene, id: str) -> None:
    scene.client.hset(scene.record(id), "h", b"\x01")


def with_a_queue_that_is_not_text(scene: Scene, id: str) -> None:
    head = scene.client.hget(scene.record(id), "h")
    scene.client.hset(scene.record(id), "h", head[:7] + b"\xff\xfe" + head[8:])


def of_a_wrong_type(scene: Scene, id: str) -> None:
    scene.client.delete(scene.record(id))
    scene.client.set(scene.record(id), "not a hash")


DAMAGES = [
    newer,
    gone,
    without_status,
    with_a_strange_state,
    with_a_short_head,
    with_a_queue_that_is_not_text,
    of_a_wrong_type,
]


# What is done to six jobs: how they come to be, and the verb, which returns an answer for each id


def waiting(scene: Scene) -> None:
    put(scene.store, *IDS)


def running(scene: Scene) -> None:
    put(scene.store, *IDS)
    take(scene.store, limit=6)


def scheduled(scene: Scene) -> None:
    put(scene.store, *IDS, delay=10_000)


def scheduled_with_deadlines(scene: Scene) -> None:
    put(scene.store, *IDS, delay=10_000, deadline=30_000)


def ended(scene: Scene) -> None:
    running(scene)
    scene.store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b"r" * 100)) for id in IDS]))


def failed(scene: Scene) -> None:
    running(scene)
    scene.store.run(commands.finish(ONE, [Finish(id, 1, Error(b"{}", "E", final=True)) for id in IDS]))


def claim(scene: Scene) -> dict[str, Any]:
    claimed = scene.store.run(commands.claim(TWO, ask(limit=10))).jobs
    assert len(claimed) == len({each.id for each in claimed})
    return {each.id: (each.attempt, each.payload) for each in claimed}


def claim_one_by_one(scene: Scene) -> dict[str, Any]:
    return {id: "taken" for _ in range(8) for id in take(scene.store, TWO)}


def finish(scene: Scene) -> dict[str, Any]:
    items = [Finish(id, 1, Succeed(b"done") if id != "a1" else Error(b"{}", "E")) for id in IDS]
    return dict(zip(IDS, scene.store.run(commands.finish(ONE, items)).answers, strict=True))


def finish_and_claim(scene: Scene) -> dict[str, Any]:
    items = [Finish(id, 1, Succeed(b"done")) for id in IDS]
    reply = scene.store.run(commands.finish(ONE, items, request=ask(limit=10)))
    return dict(zip(IDS, reply.answers, strict=True))


def lose_executor(scene: Scene) -> dict[str, Any]:
    for _ in range(5):
        if not scene.store.run(commands.requeue_orphaned(executor=ONE)):
            return {}
    raise AssertionError("it never ends")


def lose_worker(scene: Scene) -> dict[str, Any]:
    for _ in range(5):
        if not scene.store.run(commands.requeue_orphaned(worker="node/one")):
            return {}
    raise AssertionError("it never ends")


def renew(scene: Scene) -> dict[str, Any]:
    renewed = scene.store.run(commands.renew("node/one", [Lease(ONE, id, 1) for id in IDS], executors=[ONE]))
    lost = {held.id for held in renewed.lost}
    return {id: "lost" if id in lost else "held" for id in IDS}


def let_leases_end(scene: Scene) -> dict[str, Any]:
    scene.clock.advance(14)  # in steps, or the store would seem to have been away
    for _ in range(3):
        scene.store.run(commands.claim("node/other.0", ask("nothing")))
        scene.clock.advance(14)
    return claim(scene)


def let_them_be_due(scene: Scene) -> dict[str, Any]:
    scene.clock.advance(11)
    return claim(scene)


def let_them_be_old(scene: Scene) -> dict[str, Any]:
    scene.clock.advance(8 * DAY)
    scene.store.run(commands.claim("node/other.0", ask("nothing")))
    return {id: scene.store.run(commands.get([id]))[0] is None for id in IDS}


def by_id(verb: Callable[..., commands.Command[list[str]]], **options: Any) -> Callable[[Scene], dict[str, Any]]:
    return lambda scene: dict(zip(IDS, scene.store.run(verb(IDS, **options)), strict=True))


def act(scene: Scene) -> dict[str, Any]:
    scene.store.run(commands.start_operation("o", "cancel", states=["waiting"]))
    scene.store.run(commands.continue_operation("o", 0))
    return {}


def get(scene: Scene) -> dict[str, Any]:
    found = scene.store.run(commands.get(IDS))
    return {id: fields and fields.get("state", fields.get("unreadable")) for id, fields in zip(IDS, found, strict=True)}


def list_all(scene: Scene) -> dict[str, Any]:
    page = scene.store.run(commands.list_jobs())
    return {fields["id"]: fields.get("state", fields.get("unreadable")) for fields in page.jobs}


def load(scene: Scene) -> dict[str, Any]:
    assert scene.store.run(commands.load()).samples[0].waiting == 6
    return {}


def load_of_due(scene: Scene) -> dict[str, Any]:
    """With deadlines that have passed, whose jobs are looked at."""
    scene.clock.advance(31)
    loaded = scene.store.run(commands.load())
    assert loaded.samples[0].due == 6
    assert scene.store.run(commands.overdue()).by_queue["q"] in (5, 6)
    return {}


def upkeep(scene: Scene) -> dict[str, Any]:
    scene.clock.advance(11)
    scene.store.run(commands.upkeep())
    return claim(scene)


def detach(scene: Scene) -> dict[str, Any]:
    return {id: _detach_and_end(scene, id) for id in IDS}


def fork(scene: Scene) -> dict[str, Any]:
    return {id: _fork(scene, id) for id in IDS}


def _fork(scene: Scene, id: str) -> str:
    try:
        return str(scene.store.run(commands.fork(id, f"{id}-fork", from_start=True)).created)
    except errors.HoldfastError as error:
        return type(error).__name__


def list_stalled(scene: Scene) -> dict[str, Any]:
    scene.clock.advance(14)
    scene.store.run(commands.renew("node/other", [], executors=[]))
    scene.clock.advance(LEASE - 14)
    return {fields["id"]: fields["stalled"] for fields in scene.store.run(commands.list_jobs(stalled=True)).jobs}


def _detach_and_end(scene: Scene, id: str) -> str:
    try:
        scene.store.run(commands.detach(Lease(ONE, id, 1), f"detached/{id}.0"))
    except errors.HoldfastError as error:
        return type(error).__name__
    return scene.store.run(commands.finish(f"detached/{id}.0", [Finish(id, 1, Succeed(b"done"))])).answers[0]


VERBS: dict[str, tuple[Callable[[Scene], None], Callable[[Scene], dict[str, Any]]]] = {
    "claim": (waiting, claim),
    "claim one by one": (waiting, claim_one_by_one),
    "finish": (running, finish),
    "finish and claim": (running, finish_and_claim),
    "lose executor": (running, lose_executor),
    "lose worker": (running, lose_worker),
    "renew": (running, renew),
    "leases end": (running, let_leases_end),
    "due": (scheduled, let_them_be_due),
    "prune": (ended, let_them_be_old),
    "cancel waiting": (waiting, by_id(commands.cancel)),
    "cancel running": (running, by_id(commands.cancel)),
    "cancel scheduled": (scheduled, by_id(commands.cancel)),
    "fail": (waiting, by_id(commands.fail)),
    "fail running": (running, by_id(commands.fail)),
    "release": (running, by_id(commands.release)),
    "move": (waiting, by_id(commands.move, queue="r")),
    "retry": (failed, by_id(commands.retry)),
    "retry from the start": (failed, by_id(commands.retry, from_start=True)),
    "fork": (running, fork),
    "list stalled": (running, list_stalled),
    "delete": (ended, by_id(commands.delete)),
    "act": (waiting, act),
    "get": (running, get),
    "list": (waiting, list_all),
    "load": (waiting, load),
    "load of due": (scheduled_with_deadlines, load_of_due),
    "upkeep": (scheduled, upkeep),
    "detach": (running, detach),
}


@pytest.mark.parametrize("place", [0, 3, 5])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
@pytest.mark.parametrize("verb", VERBS)
def test_a_damaged_record_affects_only_its_own_job(
    scenes: Callable[[], Scene], verb: str, damage: Callable[[Scene, str], None], place: int
) -> None:
    prepare, run = VERBS[verb]
    whole, scene, id = scenes(), scenes(), IDS[place]
    prepare(whole)
    wanted = run(whole)

    prepare(scene)
    before = scene.client.dump(scene.record(id))
    damage(scene, id)
    found = run(scene)

    assert {other: found[other] for other in found if other != id} == {o: wanted[o] for o in wanted if o != id}
    damaged = scene.client.dump(scene.record(id))
    scene.pass_time(3)
    assert scene.client.dump(scene.record(id)) == damaged, "something was done to the damaged job"
    if damage is gone:
        scene.reach_everything()
        assert id not in scene.check().jobs
    else:
        scene.client.restore(scene.record(id), 0, before, replace=True)
        scene.pass_time()
        assert id in scene.check().jobs or verb == "prune"


def test_a_job_that_a_newer_release_wrote_is_reported_and_left_alone(address: Address, scenes: Any) -> None:
    scene = scenes()
    waiting(scene)
    newer(scene, "a2")
    gone(scene, "a4")
    app = Holdfast(address.url, namespace=scene.base.split("{")[1].split("}")[0])

    found = app.get("a2")
    assert (found.state, found.unreadable) == ("unreadable", "a newer release wrote its record: upgrade this one")
    listed = {each.id: each.state for each in app.list(queue="q")}
    assert listed == {**dict.fromkeys(IDS, "waiting"), "a2": "unreadable", "a4": "unreadable"}
    assert app.cancel_many(["a1"]) == ["cancelled"]
    answers = app.cancel_many(["a1", "a2", "a4"])
    assert [type(answer) for answer in answers] == [errors.WrongState, JobIsNewer, errors.JobNotFound]
    with pytest.raises(
        JobIsNewer, match="job a2 was written by a newer release: upgrade this one; nothing was changed"
    ):
        app.delete("a2")
    with pytest.raises(JobUnreadable, match="job a2 cannot be read: a newer release wrote its record"):
        found.result(timeout=5)
    app.close()


def test_five_hundred_newer_jobs_at_the_head_of_a_queue_delay_nothing_behind_them(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    ids = [f"n{number}" for number in range(500)]
    put(scene.store, *ids)
    put(scene.store, *IDS)
    for id in ids:
        newer(scene, id)

    assert [id for _ in range(6) for id in take(scene.store, TWO)] == IDS
    claimed = scene.store.run(commands.claim(TWO, ask()))
    assert (claimed.jobs, claimed.wait) == ([], 5000)


def test_five_hundred_due_timers_of_newer_jobs_delay_nothing_behind_them(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    ids = [f"n{number}" for number in range(500)]
    put(scene.store, *ids, delay=1000)
    put(scene.store, *IDS, delay=2000)
    for id in ids:
        newer(scene, id)
    scene.clock.advance(3)

    assert [id for _ in range(6) for id in take(scene.store, TWO)] == IDS
    claimed = scene.store.run(commands.claim(TWO, ask()))
    assert (claimed.jobs, claimed.wait) == ([], 5000)  # and not 1: nothing can be done about them


def test_due_timers_without_records_are_removed_and_time_goes_on(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    ids = [f"n{number}" for number in range(120)]
    put(scene.store, *ids, delay=1000)
    put(scene.store, *IDS, delay=2000)
    for id in ids:
        gone(scene, id)
    scene.clock.advance(3)

    assert [id for _ in range(7) for id in take(scene.store, TWO)] == IDS
    scene.pass_time(60)
    assert not set(ids) & set(scene.check().timers)


@pytest.mark.parametrize("state", ["succeeded", "cancelled", "scheduled", "running", "failed", "blocked", "throttled"])
def test_a_job_in_the_waiting_index_is_claimed_only_if_its_record_is_waiting(
    scenes: Callable[[], Scene], state: str
) -> None:
    scene = scenes()
    store = scene.store
    put(store, "other", "x", limits=["one"] if state == "throttled" else None)
    if state == "throttled":
        store.run(commands.set_limit("one", 1))
    assert take(store, ONE) == ["other"]
    match state:
        case "succeeded" | "failed":
            assert take(store, ONE) == ["x"]
            outcome = Succeed(b"") if state == "succeeded" else Error(b"{}", "E", final=True)
            store.run(commands.finish(ONE, [Finish("x", 1, outcome)]))
        case "cancelled":
            store.run(commands.cancel(["x"]))
        case "running" | "throttled":
            assert take(store, ONE) == (["x"] if state == "running" else [])
        case "scheduled":
            assert take(store, ONE) == ["x"]
            store.run(commands.release(["x"], delay=60_000))
        case "blocked":
            store.run(commands.depend("x", add=["other"]))
    assert job(store, "x")["state"] == state
    attempt = job(store, "x")["attempt"]
    scene.client.zadd(scene.key("q:q:waiting"), {"x": 1})

    assert take(store, TWO) == []
    found = job(store, "x")
    assert (found["state"], found["attempt"]) == (state, attempt)
    scene.check()


def test_a_running_record_without_a_holder_gets_a_lease_and_is_requeued_when_it_expires(
    scenes: Callable[[], Scene],
) -> None:
    scene = scenes()
    put(scene.store, "x")
    take(scene.store, ONE)
    scene.client.zrem(scene.key("timers"), "x")
    scene.client.delete(scene.key(f"x:{ONE}"))
    scene.client.zrem(scene.key("q:q:running"), "x")
    scene.client.zadd(scene.key("q:q:waiting"), {"x": 1})

    assert take(scene.store, TWO) == []
    scene.check()
    scene.pass_time(4)
    assert take(scene.store, TWO) == ["x"]
    assert job(scene.store, "x")["lost_used"] == 1


def test_a_running_job_without_a_timer_is_found(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    put(scene.store, "x")
    take(scene.store, ONE)
    scene.client.zrem(scene.key("timers"), "x")

    scene.pass_time(6)
    assert take(scene.store, TWO) == ["x"]


def test_a_slot_whose_holder_is_gone_is_reassigned(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    scene.store.run(commands.set_limit("one", 1))
    put(scene.store, "x", "y", limits=["one"])
    assert take(scene.store, ONE) == ["x"]
    gone(scene, "x")

    assert take(scene.store, TWO) == ["y"]


def test_a_parked_job_gets_the_slot_of_a_missing_holder_without_another_claim(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    scene.store.run(commands.set_limit("one", 1))
    put(scene.store, "x", "y", limits=["one"])
    assert take(scene.store, ONE, limit=2) == ["x"]
    gone(scene, "x")

    scene.pass_time(3)
    assert take(scene.store, TWO) == ["y"]


def test_missing_jobs_do_not_count_as_running(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    scene.store.run(commands.configure("q", set={"concurrency": 1}))
    put(scene.store, "x", "y")
    assert take(scene.store, ONE, limit=2) == ["x"]
    gone(scene, "x")

    assert take(scene.store, TWO) == ["y"]


@pytest.mark.parametrize("policy", ["block", "cancel", "run"])
@pytest.mark.parametrize("state", ["waiting", "scheduled", "running", "blocked"])
def test_a_missing_dependency_counts_as_cancelled(scenes: Callable[[], Scene], state: str, policy: str) -> None:
    scene = scenes()
    put(scene.store, "other", delay=10**9)
    put(scene.store, "parent", delay=1000 if state == "scheduled" else None)
    if state == "running":
        assert take(scene.store, ONE) == ["parent"]
    if state == "blocked":
        scene.store.run(commands.depend("parent", add=["other"]))
    put(scene.store, "child", after=["parent"], on_failed=policy)
    assert job(scene.store, "child")["state"] == "blocked"
    gone(scene, "parent")

    take(scene.store, TWO)
    scene.pass_time(6)
    wanted = {"block": "blocked", "cancel": "cancelled", "run": "waiting"}[policy]
    found = job(scene.store, "child")
    assert (found["state"], [row[:2] for row in found["after"]]) == (wanted, [[b"parent", b"cancelled"]])


def test_a_job_whose_payload_is_missing_fails_with_a_note(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    put(scene.store, "x", payload=b'["' + b"x" * 100 + b'"]')
    put(scene.store, "y")
    scene.client.delete(scene.key("p:x"))

    assert take(scene.store, ONE, limit=2) == ["y"]
    found = job(scene.store, "x")
    assert (found["state"], found["group"], found.get("payload")) == ("failed", "payload-lost", None)
    scene.client.set(scene.key("p:x"), b'["' + b"x" * 100 + b'"]')
    scene.check()


def test_a_job_whose_checkpoint_is_missing_starts_from_the_beginning(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    put(scene.store, "x")
    take(scene.store, ONE)
    scene.store.run(commands.save(Lease(ONE, "x", 1), b"c" * 100))
    scene.store.run(commands.release(["x"]))
    scene.client.delete(scene.key("c:x"))

    [claimed] = scene.store.run(commands.claim(TWO, ask())).jobs
    assert (claimed.id, claimed.checkpoint) == ("x", b"")


def test_a_call_that_fails_halfway_leaves_consistent_what_it_wrote(scenes: Callable[[], Scene]) -> None:
    """The worker's record has a wrong type, so the claim fails at its end, after the jobs were claimed."""
    scene = scenes()
    waiting(scene)
    scene.client.set(scene.key("w:node/one"), "not a hash")
    request = ask(limit=3)

    with pytest.raises(errors.HoldfastError, match="WRONGTYPE"):
        scene.store.run(commands.claim(ONE, request))
    scene.client.delete(scene.key("w:node/one"))
    scene.store.run(commands.renew("node/one", [], executors=[ONE]))
    assert [take(scene.store, TWO, limit=10)] in ([IDS], [IDS[3:]])
    scene.pass_time(4)
    assert sorted(scene.check().jobs) == IDS


def test_an_outcome_that_cannot_be_written_does_not_affect_the_others(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    running(scene)
    scene.client.set(scene.key("e:a2"), "not a hash")

    items = [Finish(id, 1, Error(b"{}", "E")) for id in IDS]
    answers = scene.store.run(commands.finish(ONE, items)).answers

    assert answers == ["OK", "OK", "DAMAGED", "OK", "OK", "OK"]
    scene.client.delete(scene.key("e:a2"))
    scene.pass_time(4)
    scene.check()
    assert job(scene.store, "a2")["lost_used"] == 1


# A key of another kind than it should be, of one job or one limit: nobody else is concerned


def spoil(scene: Scene, name: str) -> None:
    """Put a text where there should be something else."""
    scene.client.delete(scene.key(name))
    scene.client.set(scene.key(name), "not what it should be")


def work_elsewhere(scene: Scene, times: int = 4) -> None:
    """Jobs of another queue come, run and end, and time passes."""
    for number in range(times):
        scene.clock.advance(1)
        put(scene.store, f"other{number}", queue="elsewhere")
        [claimed] = scene.store.run(commands.claim(TWO, ask("elsewhere"))).jobs
        assert scene.store.run(commands.finish(TWO, [Finish(claimed.id, 1, Succeed(b""))])).answers == ["OK"]
        scene.store.run(commands.renew("node/two", [], executors=[TWO]))
        scene.store.run(commands.upkeep())
    assert scene.store.run(commands.claim(TWO, ask("elsewhere"))).wait > 1


@pytest.mark.parametrize(
    "key", ["a:child", "d:parent", "n:child", "lt:one", "lh:one", "lp:one q", "limits", "fair:q", "expiring"]
)
def test_a_key_of_a_wrong_type_stops_no_other_job(scenes: Callable[[], Scene], key: str) -> None:
    scene = scenes()
    scene.store.run(commands.set_limit("one", 1))
    put(scene.store, "x", "y", limits=["one"])
    assert take(scene.store, ONE, limit=2) == ["x"]
    put(scene.store, "parent")
    put(scene.store, "child", after=["parent"], on_failed="cancel")
    put(scene.store, "sibling", after=["parent"], on_failed="cancel")
    assert take(scene.store, THREE) == ["parent"]
    spoil(scene, key)

    answers = scene.store.run(commands.finish(THREE, [Finish("parent", 1, Error(b"{}", "E", final=True))])).answers
    work_elsewhere(scene)
    assert answers == ["OK"]
    assert job(scene.store, "sibling")["state"] == ("blocked" if key == "d:parent" else "cancelled")


@pytest.mark.parametrize("text", ["C nowhere", "X -inf", "", "C"])
def test_a_damaged_marker_of_unfinished_work_stops_no_call(scenes: Callable[[], Scene], text: str) -> None:
    scene = scenes()
    put(scene.store, "parent", delay=10**6)
    put(scene.store, "child", after=["parent"])
    scene.client.hset(scene.key("resolving"), "parent", text)
    scene.client.hset(scene.key("resolving"), "nosuch", text)
    scene.client.hset(scene.key("meta"), "markers", '{"resolving":1}')

    work_elsewhere(scene)
    assert job(scene.store, "child")["state"] == "blocked"
    scene.check()


@pytest.mark.parametrize("key", ["resolving", "changed"])
def test_unreadable_unfinished_work_does_not_make_executors_spin(scenes: Callable[[], Scene], key: str) -> None:
    scene = scenes()
    scene.store.run(commands.configure(None, set={"check_rate": 0}))  # it would repair the key
    put(scene.store, "x", queue="elsewhere")
    take(scene.store, ONE, "elsewhere")
    spoil(scene, key)
    scene.client.hset(scene.key("meta"), "markers", f'{{"{key}":1}}')

    work_elsewhere(scene)
    step = scene.store.run(commands.upkeep())
    assert (step.after, step.stuck) == (1, 1)


def test_a_schedule_whose_firing_fails_fires_later(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    put(scene.store, "x", queue="fair", share="somebody")  # so that shares are looked for
    scene.store.run(commands.schedule("daily", {"queue": "q", "task": "t"}, b"[]", every=86_400_000))
    spoil(scene, "fair:q")
    scene.clock.advance(DAY)
    assert take(scene.store, ONE) == []
    scene.client.delete(scene.key("fair:q"))

    scene.clock.advance(61)
    assert len(take(scene.store, ONE)) == 1


# What leads to jobs is gone: those who move time on find them all the same


@pytest.mark.parametrize("ends", ["succeeded", "failed", "gone"])
@pytest.mark.parametrize("policy", ["block", "cancel", "run"])
def test_a_blocked_job_is_resolved_although_the_index_of_dependents_is_gone(
    scenes: Callable[[], Scene], policy: str, ends: str
) -> None:
    scene = scenes()
    put(scene.store, "parent")
    put(scene.store, "child", after=["parent"], on_failed=policy)
    assert take(scene.store, ONE) == ["parent"]
    scene.client.delete(scene.key("d:parent"))
    outcome = Succeed(b"") if ends == "succeeded" else Error(b"{}", "E", final=True)
    scene.store.run(commands.finish(ONE, [Finish("parent", 1, outcome)]))
    if ends == "gone":
        gone(scene, "parent")

    scene.pass_time(2)
    wanted = {"block": "blocked", "cancel": "cancelled", "run": "waiting"}[policy]
    assert job(scene.store, "child")["state"] == ("waiting" if ends == "succeeded" else wanted)


@pytest.mark.parametrize("key", ["lp:one q", "lq:one", "lt:one", "lp:often q", "lq:often"])
def test_a_throttled_job_gets_a_slot_although_the_indexes_of_its_limit_are_gone(
    scenes: Callable[[], Scene], key: str
) -> None:
    scene = scenes()
    scene.store.run(commands.set_limit("one", 1))
    scene.store.run(commands.set_limit("often", 1, per=60_000))
    put(scene.store, "x", "y", limits=["one" if "one" in key else "often"])
    assert take(scene.store, ONE, limit=2) == ["x"]
    scene.client.delete(scene.key(key))
    scene.store.run(commands.finish(ONE, [Finish("x", 1, Succeed(b""))]))

    scene.pass_time(7)
    assert take(scene.store, TWO) == ["y"]
    scene.check()


def test_missing_parked_jobs_get_no_slot(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    scene.store.run(commands.set_limit("one", 1))
    lost = [f"y{number}" for number in range(150)]
    put(scene.store, "x", *lost, "z", limits=["one"])
    assert take(scene.store, ONE, limit=200) == ["x"]
    for id in lost:
        gone(scene, id)
    scene.client.zrem(scene.key("q:q:throttled"), *lost)  # so that nothing else finds them before
    scene.store.run(commands.finish(ONE, [Finish("x", 1, Succeed(b""))]))

    assert take(scene.store, TWO) == ["z"]
    scene.check()


@pytest.mark.parametrize("is_checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("policy", ["block", "cancel", "run"])
def test_a_blocked_job_that_lost_its_dependencies_still_waits_for_them(
    scenes: Callable[[], Scene], policy: str, is_checked: bool
) -> None:
    scene = scenes()
    put(scene.store, "parent", delay=10_000)
    put(scene.store, "child", after=["parent"], on_failed=policy)
    scene.client.delete(scene.key("a:child"))
    if not is_checked:
        scene.store.run(commands.configure(None, set={"check_rate": 0}))

    scene.pass_time(2)
    assert job(scene.store, "child")["state"] == "blocked"
    scene.pass_time(10)
    assert take(scene.store, ONE) == ["parent"]
    scene.store.run(commands.finish(ONE, [Finish("parent", 1, Succeed(b""))]))
    assert take(scene.store, ONE) == ["child"]
    scene.check()


@pytest.mark.parametrize("policy", ["block", "cancel", "run"])
def test_the_ends_of_its_dependencies_release_a_job_that_lost_them(scenes: Callable[[], Scene], policy: str) -> None:
    scene = scenes()
    put(scene.store, "first", "second")
    put(scene.store, "child", after=["first", "second"], on_failed=policy)
    scene.client.delete(scene.key("a:child"))  # and nothing has checked the store since

    for id in ("first", "second"):
        assert take(scene.store, ONE) == [id]
        scene.store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b""))]))
    assert take(scene.store, ONE) == ["child"]
    scene.check()


# What executors hold


@pytest.mark.parametrize("marks", [None, "garbage", "7", "0", ""])
def test_the_record_decides_whether_an_attempt_is_renewed_not_the_entry(
    scenes: Callable[[], Scene], marks: str | None
) -> None:
    scene = scenes()
    put(scene.store, "x", "y")
    take(scene.store, limit=2)
    if marks is None:
        scene.client.delete(scene.key(f"x:{ONE}"))
    else:
        scene.client.hset(scene.key(f"x:{ONE}"), "x", marks)

    for _ in range(3):
        scene.clock.advance(14)
        renewed = scene.store.run(commands.renew("node/one", [Lease(ONE, "x", 1), Lease(ONE, "y", 1)], executors=[ONE]))
        assert (renewed.lost, renewed.unreported) == ([], [])
    scene.check()
    assert scene.store.run(commands.finish(ONE, [Finish("x", 1, Succeed(b""))])).answers == ["OK"]


@pytest.mark.parametrize("state", ["succeeded", "waiting", "running elsewhere", "never stored"])
def test_a_hold_that_the_record_contradicts_is_removed(scenes: Callable[[], Scene], state: str) -> None:
    scene = scenes()
    if state != "never stored":
        put(scene.store, "x")
    if state == "succeeded":
        take(scene.store, ONE)
        scene.store.run(commands.finish(ONE, [Finish("x", 1, Succeed(b""))]))
    if state == "running elsewhere":
        take(scene.store, TWO)
    put(scene.store, "y")
    take(scene.store, ONE, limit=2 if state == "waiting" else 1)
    if state == "waiting":
        scene.store.run(commands.release(["x"]))
    scene.client.hset(scene.key(f"x:{ONE}"), "x", "1")

    renewed = scene.store.run(commands.renew("node/one", [Lease(ONE, "y", 1)], executors=[ONE]))
    assert renewed.unreported == []
    assert scene.store.run(commands.renew("node/one", [Lease(ONE, "x", 1)], executors=[])).lost == [Lease(ONE, "x", 1)]
    scene.check()


def test_one_job_that_cannot_be_requeued_does_not_prevent_the_others(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    scene.store.run(commands.set_limit("one", 9))
    put(scene.store, *IDS)
    put(scene.store, "x", limits=["one"])
    assert len(take(scene.store, ONE, limit=7)) == 7
    spoil(scene, "lh:one")

    assert sorted(scene.store.run(commands.requeue_orphaned(executor=ONE))) == [*IDS, "x"]
    assert scene.store.run(commands.requeue_orphaned(executor=ONE)) == []
    assert take(scene.store, TWO, limit=9) == IDS
    scene.client.delete(scene.key("lh:one"))
    scene.pass_time(4)
    assert "x" in take(scene.store, TWO, limit=9)


@pytest.mark.parametrize("verb", [commands.cancel, commands.release, commands.fail])
def test_a_running_job_with_a_damaged_attempt_can_be_cancelled_released_and_failed(
    scenes: Callable[[], Scene], verb: Callable[..., commands.Command[list[str]]]
) -> None:
    scene = scenes()
    put(scene.store, "x")
    take(scene.store)
    scene.client.hset(scene.record("x"), "a1", b"\xff" * 40)

    wanted = {"cancel": "cancelling", "release": "waiting", "fail": "failed"}[verb.__name__]
    assert scene.store.run(verb(["x"])) == [wanted]


@pytest.mark.parametrize("spoilt", ["type", "value", "name"])
def test_damaged_throughput_counts_stop_nothing(scenes: Callable[[], Scene], spoilt: str) -> None:
    scene = scenes()
    put(scene.store, "x")
    if spoilt == "type":
        spoil(scene, "load:q")
    elif spoilt == "value":
        for name in scene.client.hkeys(scene.key("load:q")):
            scene.client.hset(scene.key("load:q"), name, "garbage")
    else:
        scene.client.hset(scene.key("load:q"), "garbage", 1)

    scene.store.run(commands.load())
    put(scene.store, "y")
    scene.clock.advance(20)
    put(scene.store, "z")
    assert take(scene.store, ONE, limit=3) == ["x", "y", "z"]
    assert [row.queue for row in scene.store.run(commands.load()).samples] == ["q"]


def test_the_jobs_of_a_queue_are_found_although_its_name_and_all_timers_are_gone(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    put(scene.store, *[f"x{number}" for number in range(50)], delay=1000)
    scene.client.delete(scene.key("queues"), scene.key("timers"))

    found = set[str]()
    for _ in range(20):
        scene.clock.advance(2)
        found.update(take(scene.store, ONE, limit=50))
    assert len(found) == 50
    scene.store.run(commands.renew("node/one", [], executors=[ONE], queues=["q"]))
    scene.check()


def test_schedules_and_limits_continue_although_all_timers_are_gone(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    scene.store.run(commands.schedule("hourly", {"queue": "s", "task": "t"}, b"[]", every=3_600_000))
    scene.store.run(commands.set_limit("often", 1, per=60_000))
    put(scene.store, "x", "y", limits=["often"])
    assert take(scene.store, ONE, limit=2) == ["x"]
    scene.store.run(commands.finish(ONE, [Finish("x", 1, Succeed(b""))]))
    scene.client.delete(scene.key("timers"))

    scene.pass_time(6)
    assert take(scene.store, TWO) == ["y"]
    assert take(scene.store, TWO, "s") == []
    scene.check()
    scene.clock.advance(3600)
    assert len(take(scene.store, TWO, "s")) == 1


def test_a_damaged_last_claim_is_ignored(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    waiting(scene)
    assert take(scene.store) == ["a0"]
    scene.client.hset(scene.key("w:node/one"), "0", "garbage")

    assert take(scene.store) == ["a1"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Error(b"{}", "E"), Error(b"{}", "E", final=True)),
        (Error(b"{}", "E", final=True), Error(b"{}", "E")),
        (Error(b"{}", "E", final=True), Error(b"{}", "F", final=True)),
    ],
)
def test_a_different_error_is_not_a_repetition(scenes: Callable[[], Scene], first: Error, second: Error) -> None:
    scene = scenes()
    put(scene.store, "x")
    take(scene.store)
    answers = [scene.store.run(commands.finish(ONE, [Finish("x", 1, end)])).answers for end in (first, first, second)]

    assert answers == [["OK"], ["OK"], ["LOST"]]


def test_a_timer_ends_no_lease_of_a_job_that_does_not_run(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    put(scene.store, "x")
    scene.client.zadd(scene.key("timers"), {"x": 1})

    scene.store.run(commands.claim(ONE, ask("nothing")))
    found = job(scene.store, "x")
    assert (found["state"], found["attempt"], found["lost_used"]) == ("waiting", 0, 0)
    scene.check()


def test_a_job_is_not_pruned_just_because_it_is_in_the_index_of_ended_jobs(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    put(scene.store, "x")
    scene.client.zadd(scene.key("q:q:succeeded"), {"x": 1})

    scene.clock.advance(2)
    scene.store.run(commands.claim(ONE, ask("nothing")))
    assert job(scene.store, "x")["state"] == "waiting"
    scene.check()


def test_a_batch_that_fails_halfway_leaves_no_job_without_an_index_entry(scenes: Callable[[], Scene]) -> None:
    scene = scenes()
    scene.client.set(scene.key("fair:q"), "not a hash")

    with pytest.raises(errors.HoldfastError, match="WRONGTYPE"):
        scene.store.run(commands.enqueue([new("a"), new("b", share="acme")]))
    scene.client.delete(scene.key("fair:q"))
    assert take(scene.store, ONE, limit=2) == ["a"]
