"""What is true at any time of the keys about what jobs have to do with each other: see `invariants.py`.

A job is blocked if and only if one of those that it waits for is not as it must be; each of these knows of it; none
waits for itself. Who runs holds its slots, and nobody else does; who is throttled is parked, and is handed on before a
slot is left over. Schedules and deadlines have their timers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.invariants import Record, Snapshot

AFTER, AWAITED, LIMITED, FAIR, DEADLINE = 64, 128, 256, 512, 1024
LETTER_OF = {"succeeded": "S", "failed": "F", "cancelled": "C"}
PRIORITY_STEP = 2**44
PARTS = {"spec", "batch", "payload", "missed", "backlog", "late", "overlap", "jitter", "revision"}  # of a declaration


def check(snapshot: Snapshot) -> None:
    _check_marks(snapshot)
    _check_lines(snapshot)
    _check_cycles(snapshot)
    _check_holders(snapshot)
    _check_parked(snapshot)
    _check_nobody_is_stranded(snapshot)
    _check_expiry(snapshot)
    _check_shares(snapshot)
    _check_schedules(snapshot)
    assert set(snapshot.others("on")) == set(snapshot.subscriptions), "subscriptions are not those that are listed"
    _check_deadlines(snapshot)
    _check_bridges(snapshot)


def _check_bridges(snapshot: Snapshot) -> None:
    """Each item of a redis-work-queue that is a job names the job, which names the item."""
    for queue, notes in snapshot.others("bridged").items():
        jobs = {name[1:]: item.decode(errors="surrogateescape") for name, item in notes.items() if name[0] == "j"}
        items = {name[1:]: note.decode().split()[0] for name, note in notes.items() if name[0] == "i"}
        assert jobs == {job: item for item, job in items.items()}, f"the items of {queue} and their jobs differ"


# Jobs that wait for others


def _marks(snapshot: Snapshot, record: Record) -> Iterator[tuple[str, str, bool]]:
    """Of each job that one waits for: its id, its letter, and whether it is as it must be."""
    policy = record.fields["b"].decode().split()[1] if "b" in record.fields else "b"
    for id, mark in snapshot.others("a").get(record.id, {}).items():
        found = re.fullmatch(r"\d+(w?)(?:(-)|([SFC])([1-9]\d*)?)", mark.decode())
        assert found, f"{record.id}: {mark!r} of {id}"
        however, letter = found[1], found[2] or found[3]
        yield id, letter, letter == "S" or (letter != "-" and (bool(however) or policy == "r"))


def _is_another(snapshot: Snapshot, record: Record, other: str, letter: str) -> bool:
    """Whether a dependency has ended and is gone, and this job learned its end: no new job with that id concerns it.

    Which of them was created first says nothing, as clocks go back. A job that started again after the dependency was
    deleted is not among its dependents, although others of them may still be resolved. A link that is lost is found by
    the model.
    """
    is_there = other in snapshot.jobs or other in snapshot.resolving
    return is_there and letter != "-" and record.id not in snapshot.others("d").get(other, {})


def _check_marks(snapshot: Snapshot) -> None:
    for id in snapshot.others("a"):
        assert id in snapshot.jobs, f"{id} waits for others and is gone"
        assert snapshot.jobs[id].flags & AFTER, f"{id} has no flag"
    for id, record in snapshot.jobs.items():
        if record.state in LETTER_OF:
            continue
        marks = list(_marks(snapshot, record))
        wrong = [other for other, _, is_right in marks if not is_right]
        assert bool(wrong) == (record.state == "blocked"), f"{id} is {record.state} and waits for {wrong}"
        if "b" in record.fields:
            assert int(record.fields["b"].split()[0]) == len(wrong), f"{id} waits for {len(wrong)}, and says else"
        for other, letter, is_right in marks:
            if is_right or _is_another(snapshot, record, other, letter):
                continue
            if other in snapshot.jobs and other not in snapshot.resolving:
                state = snapshot.jobs[other].state
                assert letter == LETTER_OF.get(state, "-"), f"{id} takes {other} for {letter}, and it is {state}"


def _check_lines(snapshot: Snapshot) -> None:
    """Each job that is waited for knows who waits for it; of those that are gone nobody waits, unless they are told."""
    wanted: dict[str, set[str]] = {}
    for id, record in snapshot.jobs.items():
        if record.state == "blocked":
            for other, letter, is_right in _marks(snapshot, record):
                if is_right or _is_another(snapshot, record, other, letter):
                    continue
                if other in snapshot.jobs or other in snapshot.resolving:
                    wanted.setdefault(other, set()).add(id)
    found = {id: set(line) for id, line in snapshot.others("d").items()}
    for id in {*wanted, *found}:
        assert found.get(id, set()) == wanted.get(id, set()), f"{found.get(id)} wait for {id}, not {wanted.get(id)}"
        assert id not in snapshot.jobs or snapshot.jobs[id].flags & AWAITED, f"{id} does not know that it is awaited"
    assert not snapshot.resolving or "resolving" in snapshot.markers


def _check_cycles(snapshot: Snapshot) -> None:
    waits = {
        id: {
            other
            for other, letter, is_right in _marks(snapshot, record)
            if not is_right and not _is_another(snapshot, record, other, letter)
        }
        for id, record in snapshot.jobs.items()
        if record.state == "blocked"
    }
    while free := [id for id, others in waits.items() if not others & set(waits)]:
        for id in free:
            del waits[id]
    assert not waits, f"they wait for each other: {waits}"


# Limits


def limits_of(record: Record) -> list[str]:
    return record.fields.get("l", b"").decode().split()


def _check_holders(snapshot: Snapshot) -> None:
    """Who holds a slot runs; and who runs holds its slots, unless one was taken from it: the job's notes say so."""
    wanted: dict[str, dict[str, float]] = {}
    for id, record in snapshot.jobs.items():
        assert bool(record.flags & LIMITED) == ("l" in record.fields), f"{id}: limits"
        for full in limits_of(record) if record.state == "running" else []:
            if not _may_be_released(snapshot, id, full):
                wanted.setdefault(full.partition(":")[0], {})[f"{full} {id}"] = 0
    found = snapshot.others("lh")
    for name in {*wanted, *found}:
        missing = wanted.get(name, {}).keys() - found.get(name, {}).keys()
        assert not missing, f"{missing} run, and do not hold their slots"
        for member, score in found.get(name, {}).items():
            full, id = member.split(" ")
            assert score == 0
            assert full.partition(":")[0] == name, f"{member} is with the holders of {name}"
            assert id in snapshot.jobs, f"{member} holds a slot, and is gone"
            is_right = snapshot.jobs[id].state == "running" and full in limits_of(snapshot.jobs[id])
            assert is_right, f"{member} holds a slot, and should not"


def _may_be_released(snapshot: Snapshot, id: str, full: str) -> bool:
    """Old notes are dropped, so a job with the most that were ever kept may have been released."""
    notes = snapshot.notes.get(id, [])
    said = f"its slot of limit {full} was released".encode()
    return len(notes) >= snapshot.least_history or any(note.endswith(b"\0" + said) for note in notes)


def holders(snapshot: Snapshot, full: str) -> set[str]:
    members = snapshot.others("lh").get(full.partition(":")[0], {})
    return {member.partition(" ")[2] for member in members if member.partition(" ")[0] == full}


def _check_parked(snapshot: Snapshot) -> None:
    wanted: dict[str, dict[str, float]] = {}
    for id, record in snapshot.jobs.items():
        if record.state == "throttled":
            full = record.fields["z"].decode()
            assert full in limits_of(record), f"{id} is parked by {full}, and has no part in that"
            place = record.priority * PRIORITY_STEP + record.arrival
            wanted.setdefault(f"{full} {record.queue}", {})[id] = place
    assert snapshot.others("lp") == wanted, f"parked are {snapshot.others('lp')}, not {wanted}"
    queues: dict[str, dict[str, float]] = {}
    names: dict[str, dict[str, float]] = {}
    for full, queue in (where.split(" ") for where in wanted):
        queues.setdefault(full, {})[queue] = 0
        names.setdefault(full.partition(":")[0], {})[full] = 0
    assert snapshot.others("lq") == queues, "the queues in which jobs are parked"
    assert snapshot.others("lt") == names, "the limits by which jobs are parked"
    assert set(snapshot.others("lv")) <= snapshot.changed, "limits are looked at, and nobody knows"
    assert not snapshot.changed or "changed" in snapshot.markers
    assert bool(snapshot.undefined) == ("undefined" in snapshot.markers), "whether there are limits that nobody defined"
    assert snapshot.undefined.isdisjoint(snapshot.limits), "a limit is defined, and noted as undefined"


def _check_nobody_is_stranded(snapshot: Snapshot) -> None:
    for where in snapshot.others("lp"):
        full, queue = where.split(" ")
        name = full.partition(":")[0]
        slots, per = map(int, snapshot.limits.get(name, b"0 0").split()[:2])
        if full in snapshot.others("lv").get(name, {}):
            continue
        if per:
            assert f"%{full}" in snapshot.timers, f"nobody looks after those that are parked by {full}"
            continue
        free = slots - len(holders(snapshot, full)) if slots else 10**6
        near = [id for state in ("waiting", "throttled") for id, _ in snapshot.indexes.get((queue, state), [])]
        ready = sum(full in limits_of(snapshot.jobs[id]) and id not in snapshot.others("lp")[where] for id in near)
        is_cared_for = ready >= free or f"%{full}" in snapshot.timers
        assert is_cared_for, f"{full} has {free} free, and in {queue} {ready} could take them"


def _check_expiry(snapshot: Snapshot) -> None:
    """What applies is what was set, or else what is declared; what was set for some time has a timer, nothing else."""
    timers = {}
    for name, text in snapshot.limits.items():
        match = re.fullmatch(rb"(\d+ \d+) (\d+|-)(?: (\d+ \d+) \d+)?", text)
        assert match, f"{name}: {text!r}"
        assert match[2] != b"-" or match[1] == match[3], f"{name}: {text!r} does not follow its declaration"
        if match[2] not in (b"-", b"0"):
            timers[f"={name}"] = float(match[2])
    found = {name: time for name, time in snapshot.timers.items() if name[0] == "="}
    assert found == timers, f"timers of limits that expire are {found}, not {timers}"


# Shares, schedules, deadlines


def _check_shares(snapshot: Snapshot) -> None:
    for queue, fields in snapshot.others("fair").items():
        assert queue in snapshot.queues, f"shares of queue {queue}, which is not known"
        assert "fair" in snapshot.markers or not any(field[0] == "v" for field in fields)
        assert all(field[0] in "vw" for field in fields), f"{queue}: {fields}"
    for where, ends in snapshot.others("shares").items():
        queue, priority = where.rsplit(":", 1)
        time = snapshot.others("fair").get(queue, {}).get(f"v{priority}")
        assert time, f"shares of {where} are kept without a virtual time"
        assert min(ends.values()) > float(time), f"shares of {where}: {ends} are not ahead of {time}"


def _check_schedules(snapshot: Snapshot) -> None:
    known = snapshot.others("sc")
    assert set(known) == set(snapshot.schedules), "schedules are not those that are listed"
    assert snapshot.refill <= set(known), "times are wanted for what is gone"
    assert not snapshot.refill or "refill" in snapshot.markers
    timers = {}
    for name, fields in known.items():
        parts = {field.removeprefix("default:") for field in fields if field.startswith("default:")}
        assert not parts or "revision" not in fields, f"{name} is declared, and overridden by what is declared"
        assert not parts or PARTS <= parts <= {*PARTS, "every", "offset"}, f"{name}: the declaration has {parts}"
        times = fields["next"] if "every" in fields else fields["times"].partition(b" ")[0]
        if times and fields.get("paused") != b"1":
            timers[f"&{name}"] = float(times)
    found = {name: time for name, time in snapshot.timers.items() if name[0] == "&"}
    assert found == timers, f"timers of schedules are {found}, not {timers}"


def _check_deadlines(snapshot: Snapshot) -> None:
    for timer, time in snapshot.timers.items():
        if timer[0] == "!":
            record = snapshot.jobs.get(timer[1:])
            assert record, f"{timer}: the job is gone"
            assert record.flags & DEADLINE, f"{timer}: the job has none"
            assert float(record.fields["d"]) == time, f"{timer}: another time"
    for id, record in snapshot.jobs.items():
        if record.flags & DEADLINE:
            assert record.state not in LETTER_OF, f"{id} has ended, and has a deadline"
            assert f"!{id}" in snapshot.timers or record.state == "running" or record.attempt, f"{id}: no timer"
