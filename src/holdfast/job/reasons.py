"""The text of each reason why a job is not running: one function per code of docs/protocol.md.

The only place where this text is made; the client, errors and the command line show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.job import failure
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.names import PROGRAM_TASK
from holdfast.text import did_you_mean, pluralize, printable
from holdfast.units import DAY, SECOND, humanize, utc

Row = dict[str, Any]  # the facts of a job, as the store returns them
Facts = dict[str, Any]  # those of a reason

MAX_ERROR = 300  # characters of an error
MAX_NAMES = 5  # jobs, queues or workers
_ENDED = {"succeeded": "it has succeeded", "cancelled": "it was cancelled"}


class Words(NamedTuple):
    """A reason in words: the command that would help, and when it ends, as far as that is known (0: unknown)."""

    text: str
    hint: str = ""
    until: int = 0


def describe(code: str, row: Row, facts: Facts) -> Words:
    """Describe a reason, in one line. One that only a newer release knows is named by its code."""
    known = TEXTS.get(code)
    words = known(row, facts) if known else Words(f"the store says: {code}; upgrade this client to know more")
    return words._replace(text=printable(words.text))


def error_text(data: bytes) -> str:
    """Return an error, as its executor encoded it, as one line of text."""
    found = failure.restore(data, "", None, of=("", 0))
    return printable(f"{found.type}: {found.message}"[:MAX_ERROR])


def _span(ms: int) -> str:
    return humanize(round(ms / SECOND) * SECOND if ms >= SECOND else max(ms, 0))


def _when(row: Row, at: int) -> str:
    """Return when something will be: how long until then, and the time."""
    time = utc(at)
    day = f"{time:%Y-%m-%d} " if at - row["now"] >= DAY else ""
    return f"in {_span(at - row['now'])}, at {day}{time:%H:%M:%S} UTC"


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:MAX_NAMES])}{' ...' if len(names) > MAX_NAMES else ''}"


def _ahead(facts: Facts) -> str:
    return f"{pluralize(facts['ahead'], 'job')} {'is' if facts['ahead'] == 1 else 'are'} ahead of it"


# Delays


def _attempt(facts: Facts) -> str:
    """Return how the last attempt ended; empty if there was none."""
    if "outcome" not in facts:
        return ""
    why = error_text(facts["error"]) if facts["error"] else facts["reason"]
    return f"attempt {facts['attempt']} ended as {facts['outcome']}{f': {why}' if why else ''}"


def _delayed(row: Row, facts: Facts) -> Words:
    when, before = _when(row, facts["due"]), _attempt(facts)
    return Words(f"{before}; the next one is due {when}" if before else f"it is due {when}", until=facts["due"])


def _retrying(row: Row, facts: Facts) -> Words:
    retry = f"retry {facts['retry']} of {facts['retries']}" if facts["retry"] else "the next one"
    text = f"{_attempt(facts)}; {retry} is due {_when(row, facts['due'])}"
    return Words(text, f"holdfast show {row['id']}", facts["due"])


def _unknown_to_last(row: Row, facts: Facts) -> Words:
    lacks = "does not run programs" if row["task"] == PROGRAM_TASK else f"does not know task {row['task']}"
    text = f"its last worker {lacks}; the next attempt is due {_when(row, facts['due'])}"
    return Words(text, _work(row), facts["due"])


def _alone(row: Row, facts: Facts) -> Words:
    why = "it must run alone, as it may have killed an executor, and its last worker cannot run it so"
    return Words(f"{why}; the next attempt is due {_when(row, facts['due'])}", _work(row), facts["due"])


# Other jobs, and the gate


def _blocked(row: Row, facts: Facts) -> Words:
    by, count = facts["by"], facts["count"]
    if not by:
        return Words(f"it waits for {pluralize(count, 'job')} that the store has lost", f"holdfast cancel {row['id']}")
    shown = ", ".join(f"{id} ({state})" for id, state in by[:MAX_NAMES])
    more = count - min(len(by), MAX_NAMES)
    others = f" and {more:,} more" if more > 0 else ""
    first, state = by[0]
    hint = f"holdfast why {first}"
    if state in ("failed", "cancelled"):
        hint = f"holdfast retry {first}"
    elif state in ("deleted", "damaged"):
        hint = f"holdfast depend {row['id']} --not-on {first}"
    return Words(f"it waits for {shown}{others}", hint)


def _paused(row: Row, _: Facts) -> Words:
    return Words(f"queue {row['queue']} is paused", f"holdfast queues resume {row['queue']}")


def _concurrency(row: Row, facts: Facts) -> Words:
    most = f"queue {row['queue']} runs at most {pluralize(facts['slots'], 'job')} at once"
    full = f"those are {_some(facts['holders'])}" if not facts["free"] else f"{_ahead(facts)}, and fill it"
    return Words(f"{most}: {full}", f"holdfast config set concurrency={facts['slots'] + 1} -Q {row['queue']}")


def _limit(row: Row, facts: Facts) -> Words:
    limit, slots, per, free = (facts[name] for name in ("limit", "slots", "per", "free"))
    hint = f"holdfast limits show {limit}"
    if not slots:
        return Words(f"limit {limit} is no longer defined, so the next claims let it start")
    if free:
        return Words(f"limit {limit} has {pluralize(free, 'free slot')}, which other jobs are offered first", hint)
    full = f"limit {limit} has no free slot: "
    if per:
        at = f"; the next one may start {_when(row, facts['next'])}" if facts["next"] > row["now"] else ""
        return Words(f"{full}it lets {pluralize(slots, 'job')} start in {humanize(per)}{at}", hint, facts["next"])
    return Words(
        f"{full}its {pluralize(slots, 'slot')} {'is' if slots == 1 else 'are'} held by {_some(facts['holders'])}", hint
    )


def _deadline(_: Row, __: Facts) -> Words:
    return Words("its deadline has passed: it fails as soon as a worker claims jobs")


def _payload_lost(_: Row, __: Facts) -> Words:
    return Words(
        "its payload is missing from the store: it fails when it is claimed; enqueue it again", "holdfast fsck"
    )


# Workers


def _work(row: Row) -> str:
    queues = "" if row["queue"] == DEFAULT_QUEUE else f" --queues {row['queue']}"
    return f"holdfast work APP{queues}{' --allow-exec' if row['task'] == PROGRAM_TASK else ''}"


def _no_worker(row: Row, facts: Facts) -> Words:
    home = facts.get("home")
    elsewhere = f" on the embedded server in {home}; a worker of another directory uses another server" if home else ""
    return Words(f"no worker is running{elsewhere}", _work(row))


def _unserved(row: Row, facts: Facts) -> Words:
    served = [str(name) for name in facts["served"]]
    meant = did_you_mean(row["queue"], served) or (f"; they serve {_some(served)}" if served else "")
    return Words(f"no live worker serves queue {row['queue']}{meant}", _work(row))


def _draining(row: Row, facts: Facts) -> Words:
    count = facts["workers"]
    whose = (
        f"the worker of queue {row['queue']} is" if count == 1 else f"all {count} workers of queue {row['queue']} are"
    )
    return Words(f"{whose} draining: no more jobs are claimed", _work(row))


def _unknown_task(row: Row, facts: Facts) -> Words:
    text = f"no live worker of queue {row['queue']} knows task {row['task']}"
    meant = did_you_mean(row["task"], facts["tasks"]) or (f"; these were asked: {_some(facts['names'])}")
    return Words(f"{text}{meant}", _work(row))


def _no_exec(row: Row, _: Facts) -> Words:
    return Words(f"no live worker of queue {row['queue']} runs programs", _work(row))


def _busy(row: Row, facts: Facts) -> Words:
    who = "the worker" if facts["workers"] == 1 else f"the {facts['workers']} workers"
    held = f"all slots of {who} of queue {row['queue']} are busy with {pluralize(facts['held'], 'job')}"
    return Words(f"{held}, and {_ahead(facts) if facts['ahead'] else 'it is next'}", f"holdfast load {row['queue']}")


def _ready(row: Row, facts: Facts) -> Words:
    next = f"it is next in queue {row['queue']}"
    return Words(f"it is about to start: {_ahead(facts) if facts['ahead'] else next}")


def _item(row: Row, facts: Facts) -> Words:
    ahead = f"; {_ahead(facts)}" if facts["ahead"] else ""
    return Words(f"it waits until a program claims items of queue {row['queue']}{ahead}")


# Running and ended jobs


def _running(row: Row, facts: Facts) -> Words:
    executor, ends = facts["executor"], facts["lease_ends"]
    if facts["cancelling"]:
        return Words(f"{executor} is stopping it: it is being cancelled", f"holdfast show {row['id']}")
    if facts["heartbeat"] and not facts["live"]:
        silent = f"its worker sent its last heartbeat {_span(row['now'] - facts['heartbeat'])} ago"
        return Words(
            f"{silent}; unless it comes back, the job is requeued {_when(row, ends)}", "holdfast workers", ends
        )
    lease = f"its lease ends {_when(row, ends)}, unless it is renewed"
    return Words(f"{executor} holds it since {_span(row['now'] - facts['claimed'])}; {lease}", until=ends)


def _lease_ended(row: Row, facts: Facts) -> Words:
    ago = _span(row["now"] - facts["lease_ends"])
    return Words(
        f"the lease of {facts['executor']} ended {ago} ago: the next claim of any worker requeues it", _work(row)
    )


def _ended(row: Row, facts: Facts) -> Words:
    if row["state"] == "failed":
        return Words(f"it has failed in group {facts['group']}", f"holdfast retry {row['id']}")
    return Words(_ENDED[row["state"]])


TEXTS: dict[str, Callable[[Row, Facts], Words]] = {
    "not-due": _delayed,
    "retrying": _retrying,
    "unknown-to-last": _unknown_to_last,
    "alone": _alone,
    "deadline": _deadline,
    "blocked": _blocked,
    "paused": _paused,
    "concurrency": _concurrency,
    "limit": _limit,
    "payload-lost": _payload_lost,
    "no-worker": _no_worker,
    "unserved": _unserved,
    "draining": _draining,
    "unknown-task": _unknown_task,
    "no-exec": _no_exec,
    "busy": _busy,
    "ready": _ready,
    "item": _item,
    "running": _running,
    "lease-ended": _lease_ended,
    "ended": _ended,
}
