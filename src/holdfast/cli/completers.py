"""Completion of names and ids when Tab is pressed.

Queries the store only if it is already running, with a short timeout: Tab must neither start a server nor hang.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from holdfast import Holdfast
from holdfast.cli.client import Client
from holdfast.cli.selection import select_jobs
from holdfast.client.finding import STATE_NAMES
from holdfast.errors import HoldfastError
from holdfast.job.job import FINAL, PENDING, STATES, Job
from holdfast.records.formatting import capacity
from holdfast.server import server
from holdfast.text import pluralize

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TIMEOUT = 0.6  # seconds for all requests together; HOLDFAST_COMPLETION_TIMEOUT overrides it
MAX_JOBS = 50  # that are offered
MAX_NAMES = 1000  # tags, or parts of a scope, that are looked at
MAX_TASK_JOBS = 300  # jobs whose tasks are offered

_STATES_OF_COMMAND: dict[str, Sequence[str]] = {
    "cancel": PENDING, "wait": PENDING, "move": PENDING, "fail": PENDING, "release": ("running",),
    "stack": ("running",), "retry": FINAL, "delete": FINAL,
}  # fmt: skip


def query(context: click.Context, request: Callable[[Holdfast], Iterable[Any]]) -> list[Any]:
    """Return what the store replies in time: all of it, a part, or nothing."""
    replies: list[Any] = []
    client, timeout = context.ensure_object(Client), _timeout()

    def run() -> None:
        with suppress(HoldfastError):
            app = _running_app(client, timeout / 2)
            if app is not None:
                for each in request(app):
                    replies.append(each)  # noqa: PERF402 - one by one: time may be over before the last

    thread = threading.Thread(target=run, daemon=True)  # resolving a host name may block it for long
    thread.start()
    thread.join(timeout)
    return list(replies)


def _timeout() -> float:
    try:
        return min(max(float(os.environ.get("HOLDFAST_COMPLETION_TIMEOUT", TIMEOUT)), 0.01), 60.0)
    except ValueError:
        return TIMEOUT


def _running_app(client: Client, timeout: float) -> Holdfast | None:
    """Return an app, unless its embedded server would have to be started."""
    app = Holdfast(client.url, namespace=client.namespace, timeout=timeout)
    if app.address.home is None:
        return app
    return app if server.status(app.address.home).running else None


def _items(pairs: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, help=help or None) for value, help in pairs if value.startswith(incomplete)]


def complete_queue(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer queues."""
    found = query(context, lambda app: app.queues())
    return _items(((queue.name, f"{queue.pending} pending") for queue in found), incomplete)


def complete_states(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer states, also after a comma."""
    before, comma, _last = incomplete.rpartition(",")
    return _items(((f"{before}{comma}{name}", "") for name in STATE_NAMES if name not in before.split(",")), incomplete)


def complete_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer recent jobs in states that the command applies to."""
    states = _STATES_OF_COMMAND.get(context.info_name or "", STATES)
    given = context.params.get("ids") or ()
    jobs: list[Job[Any]] = query(
        context, lambda app: select_jobs(app, app.queues(), states, newest=True, limit=MAX_JOBS)
    )
    return _items(((job.id, f"{job.task} {job.state}") for job in jobs if job.id not in given), incomplete)


def complete_silent_worker(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer workers that can be forgotten."""
    found = query(context, lambda app: app.workers())
    return _items(((worker.name, "silent") for worker in found if not worker.is_live), incomplete)


def complete_live_worker(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer workers that can be drained."""
    found = query(context, lambda app: app.workers())
    live = [worker for worker in found if worker.is_live and not worker.is_draining]
    return _items(((worker.name, pluralize(len(worker.held), "job")) for worker in live), incomplete)


def complete_node(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer nodes that have live workers."""
    found = query(context, lambda app: app.nodes())
    return _items(((node.name, pluralize(len(node.workers), "worker")) for node in found if node.is_live), incomplete)


def complete_operation(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer operations that the command applies to."""
    wanted = {"stop": ("running",), "resume": ("stopped",)}.get(context.info_name or "", ("running", "stopped", "done"))
    found = query(context, lambda app: app.operations())
    return _items(((each.id, f"{each.action} {each.state}") for each in found if each.state in wanted), incomplete)


def complete_limit(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer limits."""
    found = query(context, lambda app: app.limits())
    return _items(
        ((limit.name, capacity(limit.slots, limit.per) if limit.is_defined else "not defined") for limit in found),
        incomplete,
    )


def complete_batch(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the newest batches; to `close` and `enqueue`, open ones, and to `delete`, those that are done."""
    state: Any = {"close": "open", "enqueue": "open", "delete": "done"}.get(context.info_name or "")
    found = query(context, lambda app: app.batches(state=state, limit=MAX_JOBS))
    return _items(((batch.name, f"{batch.state}, {batch.pending} pending") for batch in found), incomplete)


def complete_schedule(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer schedules."""
    found = query(context, lambda app: app.schedules())
    return _items(((schedule.name, schedule.task) for schedule in found), incomplete)


def complete_group(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer groups of failed jobs."""
    found = query(context, lambda app: app.failures(limit=MAX_JOBS))
    return _items(((group.name, pluralize(group.count, "failed job")) for group in found), incomplete)


def complete_fingerprint(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer fingerprints of failed jobs."""
    found = query(context, lambda app: app.failures(by="fingerprint", limit=MAX_JOBS))
    return _items(((error.name, f"{error.type} {error.place}".strip()) for error in found), incomplete)


def complete_tag(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the most used tags."""
    found = query(context, lambda app: app.tags(limit=MAX_NAMES).items())
    return _items(((tag, pluralize(jobs, "job")) for tag, jobs in found), incomplete)


def complete_scope(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the scopes of the next level."""
    within = incomplete.rpartition("/")[0]
    found = query(context, lambda app: app.scopes(within or None, limit=MAX_NAMES).items())
    return _items(((scope, pluralize(jobs, "job")) for scope, jobs in found), incomplete)


def complete_subscription(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer subscriptions."""
    found = query(context, lambda app: app.subscriptions())
    return _items(((subscription.name, subscription.task) for subscription in found), incomplete)


def complete_event_type(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer types of events."""
    from holdfast.events.types import TYPES

    return _items(((each.name, each.meaning) for each in TYPES), incomplete)


def complete_zone(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer time zones."""
    from zoneinfo import available_timezones

    return _items(((zone, "") for zone in sorted(available_timezones())), incomplete)


def complete_settings(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer settings; for `config set` with an equals sign."""
    sign = "=" if context.info_name == "set" else ""
    found = query(context, lambda app: app.config())
    return _items(((f"{setting.name}{sign}", setting.explanation) for setting in found), incomplete)


def complete_task(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the tasks of recent jobs: importing the app could take long."""
    jobs = query(context, lambda app: select_jobs(app, app.queues(), STATES, newest=True, limit=MAX_TASK_JOBS))
    return _items(((task, "") for task in dict.fromkeys(job.task for job in jobs)), incomplete)
