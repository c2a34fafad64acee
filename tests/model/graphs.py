"""Random graphs of jobs in a world that mistreats them: what must be so at any time, and in the end.

    world = World(store, clock, client, random.Random(seed))
    world.enqueue(plan("layers", world.chance))
    mistreat(world, 500)
    drain(world)
    check(world)

`graph_shapes` makes the jobs, `graph_work` and `graph_operators` do things to them, `graph_watch` looks at each call.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast.job.job import STATES
from holdfast.store import commands
from tests.model import invariants
from tests.model.graph_operators import ACTS
from tests.model.graph_shapes import QUEUES, SIZE
from tests.model.graph_watch import FINAL, Seen
from tests.model.graph_work import fall_silent, finish, item_of, kill_executor, kill_worker, pretend, renew, tick, work
from tests.model.graph_world import Executor, World

PATIENCE = 3000  # rounds of a drain
EVENTS = {
    tick: 12,
    kill_executor: 2,
    kill_worker: 1,
    fall_silent: 2,
    pretend: 2,
    World.repeat_order: 3,
    **ACTS,
}  # how often


def mistreat(world: World, steps: int, *, check_every: int = 120) -> None:
    """Have executors work, and anything happen to them and their jobs."""
    for step in range(steps):
        if world.chance.random() < 0.6:
            work(world, world.chance.choice(world.executors))
        else:
            world.chance.choices(list(EVENTS), list(EVENTS.values()))[0](world)
        if step % check_every == 0:
            check(world)


def check(world: World) -> None:
    """All keys fit together, all jobs are as the watch thinks, and lists and counts agree."""
    invariants.check(world.client, world.namespace)
    records = list(world.records())
    twice = [id for id, number in Counter(record["id"] for record in records).items() if number > 1]
    assert not twice, f"{twice} are in two lists"
    world.watch.compare(records)
    assert _dependents(world) == world.watch.dependents()
    for record in world.store.run(commands.get(list(world.watch.jobs))):
        assert record is not None
        world.watch.compare_after(record)
    for name, _, _, counts in world.store.run(commands.queues()).queues:
        here = [record["state"] for record in records if record["queue"] == name]
        assert counts == {state: here.count(state) for state in STATES}, name


def _dependents(world: World) -> dict[str, set[str]]:
    """The sets of those that wait for a job, by job."""
    base = f"hf:{{{world.namespace}}}:d:"
    keys = list(world.client.scan_iter(f"{base}*", count=10_000))
    return {key.decode().removeprefix(base): {id.decode() for id in world.client.zrange(key, 0, -1)} for key in keys}


def explain(world: World, record: dict[str, Any]) -> str:
    """Why a job has not ended, after all that could be claimed was; fails if nothing explains it."""
    job = world.watch.jobs[record["id"]]
    match record["state"]:
        case "running":
            assert any(job.id in executor.held for executor in world.executors), f"nobody runs {job.id}"
            return f"runs on {job.executor}"
        case "waiting":
            assert _is_closed(world, job.queue), f"{job.id} waits, and nothing explains why"
            return f"its queue {job.queue} is full or paused"
        case "throttled":
            return _explain_throttled(world, record, job)
        case "blocked":
            return _explain_blocked(world, job)
    raise AssertionError(f"{job.id} is {record['state']}, and nothing explains why")


def _is_closed(world: World, queue: str) -> bool:
    """Whether no more jobs of a queue may start: it is paused, or so many run that no more may."""
    running = sum(other.queue == queue for other in world.watch.running())
    return queue in world.watch.paused or running >= world.watch.concurrency.get(queue, SIZE)


def _explain_throttled(world: World, record: dict[str, Any], job: Seen) -> str:
    full = record["throttled_by"]
    slots, _ = world.watch.limits[full.partition(":")[0]]
    holders = [other.id for other in world.watch.running() if full in other.limits]
    assert full in job.limits
    is_excused = len(holders) >= slots or _is_closed(world, job.queue)
    assert is_excused, f"{job.id} is throttled by {full}, of which {holders} have slots"
    return f"{full} has no free slot: {holders}"


def _explain_blocked(world: World, job: Seen) -> str:
    assert job.missing, f"{job.id} is blocked by nothing"
    for id in job.missing:
        letter = job.after.get(id, job.waits.get(id))
        if letter == "-":
            assert world.watch.jobs[id].state not in FINAL, f"{job.id} was not told of {id}"
        else:
            # One that was cancelled with what it waits for, and retried by a user, waits again.
            assert job.policy == "block" or (job.policy == "cancel" and job.retries), f"{job.id}: {job}"
    return f"waits for {job.missing}"


def roots(world: World, id: str) -> set[str]:
    """Those at which a blocked job's waiting begins. One that is not kept is gone once it was cancelled."""
    job = world.watch.jobs.get(id)
    if job is None or job.state != "blocked":
        return {id}
    return {root for other in job.missing for root in roots(world, other)}


def drain(world: World, busy: tuple[Executor, ...] = ()) -> None:
    """Let everybody work, without faults, until nothing is left to claim and no timer to come."""
    world.has_faults = False
    world.silent.clear()
    free = [executor for executor in world.executors if executor not in busy]
    for _ in range(PATIENCE):
        for worker in sorted({executor.worker for executor in world.executors}):
            renew(world, worker)
        got = [_work_off(world, executor) for executor in free]
        if not any(got) and not _advance_to_the_next_timer(world, busy):
            return
    raise AssertionError("it does not come to an end")


def _work_off(world: World, executor: Executor) -> bool:
    if executor.unheard is not None:
        executor.hear(executor.unheard, world.say(executor.unheard))
    ending = [item_of(world, job, executor) for job in executor.held.values()]
    finish(world, executor, ending, executor.request(QUEUES, 20))
    return bool(ending or executor.held)


def _advance_to_the_next_timer(world: World, busy: tuple[Executor, ...]) -> bool:
    held = {id for executor in busy for id in executor.held}
    timers = world.client.zrange(f"hf:{{{world.namespace}}}:timers", 0, -1, withscores=True)
    due = [when for id, when in timers if id.decode() not in held]
    if due:
        # Those that hold something for ever renew at the latest when a quarter of a lease is over.
        world.clock.now = max(world.clock.now + 1, min(int(min(due)), world.clock.now + 7_000))
    return bool(due)


def succeed_all(world: World) -> None:
    """Retry what has failed or was cancelled, until everything has succeeded."""
    for _ in range(SIZE):
        left = [job.id for job in world.watch.jobs.values() if job.state in ("failed", "cancelled")]
        if left:
            answers = world.say(commands.retry(left))
            _cut_cycles(world, [id for id, answer in zip(left, answers, strict=True) if answer == "CYCLE"])
        elif not _forget_gone(world):
            break
        drain(world)
    states = {job.state for job in world.watch.jobs.values()}
    assert states <= {"succeeded"}, states


def _cut_cycles(world: World, ids: list[str]) -> None:
    """Those that cannot be retried, because what they would wait for waits for them, are waited for no more."""
    for id in ids:
        assert any(world.watch.reaches(other, id) for other in world.watch.jobs[id].after), f"{id} is no cycle"
        for other in sorted(world.watch.dependents().get(id, ())):
            _let_go(world, other, [id])


def _let_go(world: World, id: str, others: list[str]) -> None:
    """Have a job not wait for others, nor for any that waits for it by now: all its links are looked at anew."""
    job = world.watch.jobs[id]
    back = [other for other in (*job.after, *job.waits) if other not in others and world.watch.reaches(other, id)]
    world.say(commands.depend(id, remove=[*others, *back]))


def _forget_gone(world: World) -> bool:
    """Have no job wait for one that is gone: it was cancelled and not kept, so nobody can retry it."""
    gone = {
        record["id"]: [id.decode() for id, *_ in record["after"] if id.decode() not in world.watch.jobs]
        for record in world.store.run(commands.get(list(world.watch.jobs)))
        if record and record["state"] == "blocked"
    }
    for id, others in gone.items():
        if others:
            _let_go(world, id, others)
    return any(gone.values())


def delete_all(world: World) -> list[str]:
    """Delete all jobs. Returns what is left: the names of keys."""
    ids = list(world.watch.jobs)
    assert set(world.say(commands.delete(ids))) <= {"OK"}
    for _ in range(10):  # what is known of shares goes with time
        tick(world)
        world.clock.advance(2)
    base = f"hf:{{{world.namespace}}}:"
    keys = [key.decode() for key in world.client.scan_iter(f"{base}*", count=10_000)]
    shares = [field.decode() for key in keys if key.startswith(f"{base}fair:") for field in world.client.hkeys(key)]
    return sorted([key.removeprefix(base) for key in keys] + [field for field in shares if field.startswith("k")])
