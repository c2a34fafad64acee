"""Operator actions on the jobs of a `World`, at inconvenient moments."""

from __future__ import annotations

from collections.abc import Callable

from holdfast import errors
from holdfast.names import new_id
from holdfast.store import commands
from tests.model.graph_shapes import QUEUES
from tests.model.graph_world import World


def _some(world: World, *states: str) -> list[str]:
    """One to three jobs, rather of these states; of those that are pending, rather some that are parked."""
    found = [job.id for job in world.watch.jobs.values() if job.state in states] or list(world.watch.jobs)
    if "pending" in states and world.chance.random() < 0.3:
        parked = world.store.run(commands.list_jobs(states=["throttled"], limit=10)).jobs
        found = [record["id"] for record in parked] or found
    return world.chance.sample(found, min(len(found), world.chance.choice([1, 1, 1, 3])))


def cancel(world: World) -> None:
    """With all that waits for them, or without."""
    ids, with_dependents = _some(world, "pending", "blocked", "running"), world.chance.random() < 0.3
    dependents = world.watch.all_dependents(ids) if with_dependents else set()
    world.order(commands.cancel(ids, dependents=with_dependents))
    left = {id for id in dependents if id in world.watch.jobs and world.watch.jobs[id].state != "cancelled"}
    assert not left, f"{left} wait for {ids}, and were not cancelled with them"


def retry(world: World) -> None:
    world.order(commands.retry(_some(world, "failed", "cancelled", "succeeded")))


def retry_failed(world: World) -> None:
    world.order(commands.retry(_some(world, "failed")))


def move(world: World) -> None:
    queue = world.chance.choice([None, *QUEUES])
    priority = world.chance.choice([-3, 0, 7]) if queue is None or world.chance.random() < 0.5 else None
    world.order(commands.move(_some(world, "pending", "blocked", "running"), queue=queue, priority=priority))


def release(world: World) -> None:
    world.order(commands.release(_some(world, "running"), delay=world.chance.choice([None, 1000]), reason="operator"))


def fail(world: World) -> None:
    world.order(commands.fail(_some(world, "running", "pending", "blocked"), reason="operator"))


def rewire(world: World) -> None:
    """Have a job wait for others: the refusals must be right."""
    [id, *_] = _some(world, "pending", "blocked")
    job = world.watch.jobs[id]
    add = [] if world.chance.random() < 0.4 else _some(world, "pending", "blocked", "succeeded", "failed")
    rest = [other for other in job.after if other not in add]
    remove = world.chance.sample(rest, min(len(rest), world.chance.choice([0, 1, 2])))
    policy = world.chance.choice([None, None, "block", "cancel", "run"])
    command = commands.depend(id, add=add, remove=remove, on_failed=policy)
    is_cycle = any(world.watch.reaches(other, id) for other in {*add, *job.after, *job.waits} - set(remove))
    try:
        world.order(command)
    except errors.WrongState:
        assert job.state not in ("pending", "blocked"), f"{id} is {job.state}"
    except errors.DependencyCycle:
        assert is_cycle, f"{id} would not wait for itself by {add}"
    else:
        assert not is_cycle, f"{id} waits for itself by {add}"


def act_on_all(world: World) -> None:
    """The same to all jobs of a queue and some states, a few in each call: none of them is left out."""
    queue, other = world.chance.sample(QUEUES, 2)
    action, states, arguments = world.chance.choice(
        [
            ("retry", ["failed"], {}),
            ("move", ["blocked", "waiting", "scheduled"], {"queue": other}),
            ("release", ["running"], {}),
        ]
    )
    meant = [record for record in world.records() if record["queue"] == queue and record["state"] in states]
    operation = world.say(
        commands.start_operation(new_id(), action, arguments=arguments, queues=[queue], states=states)
    )
    while operation.state == "running":
        operation = world.say(commands.continue_operation(operation.id, operation.steps, limit=7))
    # More, if one that was parked was handed a slot meanwhile, and so came to be meant.
    counts = operation.answers
    assert sum(counts.values()) >= len(meant), f"{action} of {len(meant)} jobs of {queue}: {counts}"


def delete(world: World) -> None:
    world.say(commands.delete(_some(world, "succeeded", "cancelled")))


def resume_one(world: World) -> None:
    queue = min(world.watch.paused)
    world.watch.paused.discard(queue)
    world.say(commands.resume(queue))


def pause(world: World) -> None:
    queue = world.chance.choice(QUEUES)
    if world.watch.paused and world.chance.random() < 0.6:
        resume_one(world)
    else:
        world.watch.paused.add(queue)
        world.say(commands.pause(queue))


def relimit(world: World) -> None:
    if world.chance.random() < 0.3:
        world.set_limit("api", world.chance.choice([0, 2, 5]), 1000)
    else:
        world.set_limit(world.chance.choice(["gpu", "tenant"]), world.chance.choice([0, 1, 2, 4]))


ACTS: dict[Callable[[World], None], int] = {  # how often
    cancel: 3,
    retry: 2,
    retry_failed: 4,
    move: 3,
    release: 2,
    fail: 1,
    rewire: 5,
    delete: 1,
    pause: 1,
    relimit: 2,
    act_on_all: 1,
}
