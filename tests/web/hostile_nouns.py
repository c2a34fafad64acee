"""Hostile strings in what is not a job: reports of workers, arguments of schedules, conditions of events, names of
callers.
"""

from __future__ import annotations

import msgspec

from holdfast import Holdfast
from holdfast.store import acting_as, commands
from holdfast.store.commands.command import Command
from holdfast.store.store import Store
from tests.web.hostile import tags_of

WORKERS, SCHEDULES, SUBSCRIPTIONS = 40, 25, 100  # how many have strings


def fill_nouns(app: Holdfast, store: Store, texts: list[str]) -> None:
    """Store the strings wherever others can write them besides jobs."""
    for place in range(WORKERS):
        _beat(store, f"node-{place % 7}/w{place}", texts[place * 5 : place * 5 + 5])
    for place in range(SCHEDULES):
        _schedule(store, f"s{place:02}", texts[place * 4 : place * 4 + 4])
    for place, text in enumerate(texts[:SUBSCRIPTIONS]):
        spec = _json({"filter": {"tag": text, "worker": text}, "parameter": "event"})
        store.run(commands.declare_subscription(f"sub{place}", spec, {"queue": "mail", "task": "t"}, 1, "now"))
    store.run(Command("schedule", {"name": "odd", "spec": texts[0], "batch": _BATCH, "every": 60_000}, bool, (b"{}",)))
    for place, text in enumerate(texts):
        with acting_as(text):
            app.configure({"retries": place % 9})
    app.set_limit("gpu", 3)
    app.batch("hostile").open()


_BATCH = {"queue": "mail", "task": "t"}


def _beat(store: Store, worker: str, texts: list[str]) -> None:
    first, second, third, fourth, fifth = texts
    about = {
        "app": first, "host": second, "version": third, "tasks": [fourth, *texts], "queues": [fourth, fifth],
        "executors": [{"name": fifth, "jobs": first, "memory": second}, {"name": [first], "jobs": {third: third}}],
        "pools": [{"queues": {first: 1}, "order": second, "processes": third}, first], "revision": fourth,
        "in_process": [fifth], "started": "soon", "memory": first, "pid": second, "draining": third,
    }  # fmt: skip
    store.run(commands.renew(worker, [], about=_json(about), queues=["mail"]))


def _schedule(store: Store, name: str, texts: list[str]) -> None:
    arguments = _json({text: text for text in texts}).encode()
    batch = {**_BATCH, "tags": list(tags_of(texts)), "fields": {"f": texts[0]}}
    spec = _json({"kind": "every", "interval": 60_000, "offset": 0})
    store.run(commands.schedule(name, batch, arguments, spec=spec, every=60_000, offset=0))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
