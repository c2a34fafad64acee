"""What the shell offers when Tab is pressed.

The store is asked only if it runs and answers at once: pressing a key must neither start a server nor be waited for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from holdfast import Holdfast
from holdfast.cli.lookup import WORDS, select
from holdfast.cli.session import Session
from holdfast.cli.text import allowance
from holdfast.errors import HoldfastError
from holdfast.job.job import FINAL, PENDING, STATES, Job
from holdfast.server import server

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PATIENCE = 0.6  # seconds for all that is asked, unless HOLDFAST_COMPLETION_TIMEOUT says something else
MOST = 50  # jobs that are offered
LOOKED_AT = 300  # jobs, for the names of their tasks

_STATES_OF: dict[str, Sequence[str]] = {
    "cancel": PENDING, "wait": PENDING, "move": PENDING, "fail": PENDING, "release": ("running",),
    "stack": ("running",),
    "retry": FINAL, "delete": FINAL,
}  # fmt: skip


def ask(context: click.Context, question: Callable[[Holdfast], Iterable[Any]]) -> list[Any]:
    """Return what a store says in time: all of it, a part, or nothing."""
    heard: list[Any] = []
    session, patience = context.ensure_object(Session), _patience()

    def listen() -> None:
        with suppress(HoldfastError):
            app = _running(session, patience / 2)
            if app is not None:
                for each in question(app):
                    heard.append(each)  # noqa: PERF402 - one by one: time may be over before the last

    thread = threading.Thread(target=listen, daemon=True)  # a name that does not resolve keeps it for long
    thread.start()
    thread.join(patience)
    return list(heard)


def _patience() -> float:
    """Return how many seconds all questions together may take."""
    try:
        return min(max(float(os.environ.get("HOLDFAST_COMPLETION_TIMEOUT", PATIENCE)), 0.01), 60.0)
    except ValueError:
        return PATIENCE


def _running(session: Session, timeout: float) -> Holdfast | None:
    """Return a client of the store, if it is not an embedded server that would have to be started."""
    app = Holdfast(session.url, namespace=session.namespace, timeout=timeout)
    if app.address.home is None:
        return app
    return app if server.status(app.address.home).running else None


def _items(pairs: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, help=words or None) for value, words in pairs if value.startswith(incomplete)]


def complete_queue(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of queues."""
    found = ask(context, lambda app: app.queues())
    return _items(((queue.name, f"{queue.pending} pending") for queue in found), incomplete)


def complete_states(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer states, also after a comma."""
    before, comma, _last = incomplete.rpartition(",")
    return _items(((f"{before}{comma}{word}", "") for word in WORDS if word not in before.split(",")), incomplete)


def complete_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the ids of jobs that changed last, of those that the command is for."""
    states = _STATES_OF.get(context.info_name or "", STATES)
    given = context.params.get("ids") or ()
    jobs: list[Job[Any]] = ask(context, lambda app: select(app, app.queues(), states, newest=True, limit=MOST))
    return _items(((job.id, f"{job.task} {job.state}") for job in jobs if job.id not in given), incomplete)


def complete_worker(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer workers that gave no sign of life."""
    found = ask(context, lambda app: app.workers())
    return _items(((worker.name, "silent") for worker in found if not worker.is_live), incomplete)


def complete_live_worker(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer workers that can be drained."""
    found = ask(context, lambda app: app.workers())
    live = [worker for worker in found if worker.is_live and not worker.is_draining]
    return _items(((worker.name, f"{len(worker.held)} jobs") for worker in live), incomplete)


def complete_node(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer machines that have live workers."""
    found = ask(context, lambda app: app.nodes())
    return _items(((node.name, f"{len(node.workers)} workers") for node in found if node.is_live), incomplete)


def complete_limit(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of limits."""
    found = ask(context, lambda app: app.limits())
    return _items(
        ((limit.name, allowance(limit.slots, limit.per) if limit.is_defined else "not defined") for limit in found),
        incomplete,
    )


def complete_schedule(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of schedules."""
    found = ask(context, lambda app: app.schedules())
    return _items(((schedule.name, schedule.task) for schedule in found), incomplete)


def complete_zone(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer time zones."""
    from zoneinfo import available_timezones

    return _items(((zone, "") for zone in sorted(available_timezones())), incomplete)


def complete_settings(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer settings; to set one, with an equals sign."""
    sign = "=" if context.params.get("action") == "set" else ""
    found = ask(context, lambda app: app.config())
    return _items(((f"{setting.name}{sign}", setting.explanation) for setting in found), incomplete)


def complete_task(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the tasks of the jobs that changed last: the app may take long to import."""
    jobs = ask(context, lambda app: select(app, app.queues(), STATES, newest=True, limit=LOOKED_AT))
    return _items(((task, "") for task in dict.fromkeys(job.task for job in jobs)), incomplete)
