"""Simulated executors and workers of a `World`, and their failures. They use only the commands of the store."""

from __future__ import annotations

from typing import Any

from holdfast.job.outcome import Advanced, Blocked, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import ClaimedJob, Command, Finish, FinishReply, Lease
from tests.model.graph_shapes import LIMITS, QUEUES
from tests.model.graph_watch import FINAL
from tests.model.graph_world import Executor, World


def work(world: World, executor: Executor) -> None:
    """An executor's turn: ask again for a reply that it did not hear; end something; claim."""
    if executor.unheard is not None:
        return executor.hear(executor.unheard, world.say(executor.unheard))
    room = 4 - len(executor.held)
    wants = room > 0 and world.chance.random() < 0.8
    request = executor.request(_queues(world), world.chance.randint(1, room)) if wants else None
    ending = [item_of(world, job, executor) for job in executor.held.values() if world.chance.random() < 0.5]
    if len(executor.held) > 1 and world.chance.random() < 0.1:
        ending = _entangled(world, executor)
    while sum(isinstance(item.outcome, Blocked | Advanced) for item in ending) > 1:  # each could make the other a cycle
        ending.pop()
    if ending:
        return finish(world, executor, ending, request)
    if request:
        return _send(world, executor, commands.claim(executor.name, request))
    return None


def _queues(world: World) -> list[str]:
    return world.chance.sample(QUEUES, world.chance.randint(1, len(QUEUES)))


def finish(world: World, executor: Executor, items: list[Finish], request: dict[str, Any] | None = None) -> None:
    token = new_id() if world.chance.random() < 0.5 else None
    command = commands.finish(executor.name, items, request=request, token=token)
    _send(world, executor, command, [_wanted(world, executor, item) for item in items])


def _wanted(world: World, executor: Executor, item: Finish) -> str:
    """The right answer to an outcome."""
    if not world.watch.holds(executor.name, item.id, item.attempt):
        return "LOST"
    others: tuple[str, ...] = ()
    if isinstance(item.outcome, Blocked):
        others = item.outcome.after
    elif isinstance(item.outcome, Advanced):
        others = tuple(item.outcome.batch.get("after", ()))
    return "CYCLE" if any(world.watch.reaches(id, item.id) for id in others) else "OK"


def _send(world: World, executor: Executor, command: Command[Any], wanted: list[str] | None = None) -> None:
    reply = world.say(command)
    if wanted is not None:
        for item, answer, right in zip(command.args["items"], reply.answers, wanted, strict=True):
            # What an operator did to an attempt may be what its executor says too: then all is well.
            is_lucky = right == "LOST" and item["outcome"] in ("error", "release") and "token" not in command.args
            assert answer == right or (is_lucky and answer == "OK"), f"{item}: {answer}, not {right}"
        _note_completions(world, command, reply)
    if world.has_faults and world.chance.random() < 0.1:
        executor.unheard = command
    else:
        executor.hear(command, reply)


def _note_completions(world: World, command: Command[Any], reply: FinishReply) -> None:
    for item, answer in zip(command.args["items"], reply.answers, strict=True):
        if item["outcome"] == "succeed" and answer == "OK":
            world.watch.completed(item["id"], item["attempt"])


def item_of(world: World, job: ClaimedJob, executor: Executor) -> Finish:
    said = world.chance.random() < 0.7
    return Finish(job.id, job.attempt, _outcome(world, job, executor), created=job.created if said else None)


def _entangled(world: World, executor: Executor) -> list[Finish]:
    """One of two jobs begins to wait for the other, which ends in the same call, before or after that."""
    one, other = world.chance.sample(list(executor.held.values()), 2)
    items = [Finish(one.id, one.attempt, Blocked((other.id,))), Finish(other.id, other.attempt, Succeed(b"1"))]
    return items[:: world.chance.choice([1, -1])]


def _outcome(world: World, job: ClaimedJob, executor: Executor) -> Outcome:
    if not world.has_faults:
        return Succeed(b"1")
    return world.chance.choices(
        [
            Succeed(b"1"),
            Error(b"", "g"),
            Error(b"", "g", final=True),
            Crash(b""),
            Release("", world.chance.choice([0, 500])),
            Snoozed(world.chance.choice([0, 500])),
            Unknown(),
            Cancelled(),
            Blocked(_others(world, job, executor)),
            _advances(world, job, executor),
        ],
        [60, 8, 8, 6, 4, 3, 2, 3, 6, 5],
    )[0]


def _others(world: World, job: ClaimedJob, executor: Executor) -> tuple[str, ...]:
    """Some jobs that have not ended: such as run, at best here, so that they may end in the same call; or any."""
    pending = [
        other for other in world.watch.jobs.values() if other.state not in FINAL and other.id != job.id and other.kept
    ]
    running = [other.id for other in pending if other.state == "running"]
    beside = [other.id for other in pending if other.executor == executor.name]
    found = world.chance.choice([beside, running, [other.id for other in pending]]) or [job.id]
    return tuple(world.chance.sample(found, min(len(found), 3)))


def _advances(world: World, job: ClaimedJob, executor: Executor) -> Outcome:
    batch: dict[str, Any] = {
        "queue": world.chance.choice(QUEUES),
        "delay": world.chance.choice([None, 1000]),
        "retries": 1,
    }
    batch |= {
        "limits": world.chance.choice([None, *map(list, LIMITS)]),
        "deadline": world.chance.choice([None, 60_000]),
    }
    if world.chance.random() < 0.5:
        batch |= {
            "after": list(_others(world, job, executor)),
            "on_failed": world.chance.choice(["block", "cancel", "run"]),
        }
    return Advanced("task", {name: value for name, value in batch.items() if value is not None}, b"[1]")


def renew(world: World, worker: str) -> None:
    """A supervisor's turn: it hears what is lost, what to cancel, and of what it did not know."""
    mine = [executor for executor in world.executors if executor.worker == worker]
    held = [Lease(executor.name, job.id, job.attempt) for executor in mine for job in executor.held.values()]
    told = world.say(commands.renew(worker, held, executors=[executor.name for executor in mine]))
    assert sorted(told.lost) == sorted(each for each in held if not world.watch.holds(*each)), told
    by_name = {executor.name: executor for executor in mine}
    for name, id, attempt in told.lost:
        if by_name[name].held[id].attempt == attempt:
            del by_name[name].held[id]
    _stop(world, by_name, told.cancelled, Cancelled())
    _stop(world, by_name, [each for each in told.unreported if world.chance.random() < 0.5], Release("unknown"))


def _stop(world: World, executors: dict[str, Executor], held: list[Lease], outcome: Outcome) -> None:
    for name, id, attempt in held:
        if executors[name].unheard is None and world.watch.holds(name, id, attempt):
            finish(world, executors[name], [Finish(id, attempt, outcome)])


def pretend(world: World) -> None:
    """An executor says how an attempt of another ended. Nobody hears of it but the watch."""
    executor, running = world.chance.choice(world.executors), world.watch.running()
    others = [job for job in running if job.executor != executor.name]
    if others:
        job = world.chance.choice(others)
        told = world.say(commands.finish(executor.name, [Finish(job.id, job.attempt, Succeed(b"false"))]))
        assert told.answers == ["LOST"], f"{executor.name} ended {job.id} of {job.executor}"


def kill_executor(world: World) -> None:
    executor = world.chance.choice(world.executors)
    world.executors.remove(executor)
    _lose(world, executor=executor.name)
    world.executors.append(Executor(f"{executor.worker}.{next(world.numbers) + 10}"))


def kill_worker(world: World) -> None:
    """Its sibling finds it dead; or its node is gone too, and nobody says so."""
    worker = world.chance.choice(world.executors).worker
    world.executors = [executor for executor in world.executors if executor.worker != worker]
    world.hire()
    if world.chance.random() < 0.6:
        _lose(world, worker=worker)


def _lose(world: World, **whom: str) -> None:
    while world.say(commands.requeue_orphaned(**whom, reason="died")):
        pass


def fall_silent(world: World) -> None:
    worker = world.chance.choice(world.executors).worker
    world.silent ^= {worker}


def tick(world: World) -> None:
    """Time goes on; those who are not silent renew."""
    for worker in sorted({executor.worker for executor in world.executors} - world.silent):
        renew(world, worker)
    world.clock.advance(world.chance.choice([0.05, 0.3, 1, 4, 9]))
