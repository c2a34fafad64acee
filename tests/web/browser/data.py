"""A store with a believable hour of work, small enough to be made for each test process."""

from __future__ import annotations

import json
from functools import partial

from holdfast import Holdfast, Limit
from holdfast.constants import LOG_BLOCK
from holdfast.store import Store, commands
from holdfast.store.commands import LogBlock
from holdfast.testing import use

WORKER = "gpu-1/0R3x"


class ConnectTimeout(Exception):
    """What a gateway raises in these tests."""


def declare(app: Holdfast) -> None:
    """Declare the tasks of a shop."""

    @app.task(name="mail.send_receipt", queue="mail")
    def send_receipt(order: int, to: str) -> str:
        return f"sent {order} to {to}"

    @app.task(name="billing.charge_card", queue="billing", retries=0)
    def charge_card(order: int) -> None:
        raise ConnectTimeout(f"no answer from pay.example.net in 5 s for order {order}")

    @app.task(name="video.transcode", queue="video", limits=[Limit("encoder", 1)])
    def transcode(name: str) -> None: ...

    @app.task(name="ml.train_ranker", queue="ml-train")
    def train_ranker(dataset: str, seed: int) -> None: ...

    @app.task(name="reports.daily", queue="reports")
    def daily() -> None: ...


def print_text(app: Holdfast, id: str, text: str) -> None:
    """Add to the output of a job's first attempt, as its worker does."""
    whole = app.logs(id).data + text.encode()
    job = app.store.run(commands.get([id]))[0]
    assert job is not None
    first = len(whole) - len(text.encode())
    numbers = range(first // LOG_BLOCK, -(-len(whole) // LOG_BLOCK))
    blocks = [
        LogBlock(id, job["created"], 1, number, whole[number * LOG_BLOCK : (number + 1) * LOG_BLOCK])
        for number in numbers
    ]
    app.store.run(commands.log(blocks))


def fill(app: Holdfast, *, mails: int = 61) -> None:
    """Fill the namespace of an app: jobs in every state, a pause, a limit, schedules, failures."""
    declare(app)
    tasks, url = app.tasks, app.address.url or ""
    with use(app, url, namespace=app.address.namespace) as bench:
        app.enqueue_many(tasks["mail.send_receipt"].bind(order=number, to="ann@example.org") for number in range(5))
        app.enqueue_many(tasks["billing.charge_card"].bind(order=918_000 + number) for number in range(12))
        bench.run_until_empty()
        app.enqueue_many(tasks["mail.send_receipt"].bind(order=number, to="bob@example.org") for number in range(mails))
        app.enqueue_many(
            tasks["mail.send_receipt"].options(delay="3h").bind(order=number, to="c@example.org")
            for number in range(240)
        )
        training = tasks["ml.train_ranker"].options(id="training").bind("s3://sets/clicks", seed=9007199254740993)
        app.enqueue(training)
        app.enqueue_many(tasks["video.transcode"].bind(f"cover-{number}.mov") for number in range(4))
        app.enqueue(tasks["reports.daily"].options(id="report", after=["training"]).bind())
        with app.batch("import", then=tasks["reports.daily"].bind()) as batch:
            batch.enqueue_many(tasks["video.transcode"].options(tags=["trailers"]).bind(f"{name}.mov") for name in "ab")
        app.enqueue(tasks["reports.daily"].options(id="stopped").bind())
        app.cancel_all(queue="reports", state="waiting", reason="month end")
        app.store.run(commands.renew(WORKER, [], executors=[f"{WORKER}.0"], queues=["ml-train", "video"]))
        request = commands.claim_args(["ml-train", "video"], counter=1, limit=3, lease=3_600_000, pid=81442)
        app.store.run(commands.claim(f"{WORKER}.0", request))
        print_text(app, "training", "".join(f"epoch 36  step {step}  loss 0.21{step:02}\n" for step in range(30)))
        app.pause("billing")
        app.schedule("reports.daily", tasks["reports.daily"].bind(), cron="0 6 * * *")
        app.track("training")
        app.enqueue(tasks["video.transcode"].options(tags=["cover"], scope="/acme/west").bind("tail.mov"))
        catalogue = app.batch("catalogue", then=tasks["reports.daily"].bind())
        catalogue.open()
        app.enqueue_many(
            tasks["mail.send_receipt"].options(batch="catalogue").bind(order=number, to="d@example.org")
            for number in range(4)
        )
    send_heartbeats(app)
    spec = json.dumps({"filter": {"types": ["failed"], "queue": "billing"}, "parameter": "event"})
    handler = {"queue": "alerts", "task": "alerts.page"}
    app.store.run(commands.declare_subscription("alerts.page", spec, handler, 1, "now"))


def send_heartbeats(app: Holdfast) -> None:
    """Send heartbeats: of a worker that is live, for a while, and of one that was an hour ago."""
    seconds, _ = app.store.execute("TIME")
    for worker, age, processes in (("gpu-1/0R3x", 0, 4), ("edge-1/0Q11", 3600, 24)):
        pool = {"queues": {"ml-train": 1}, "order": "strict", "processes": processes, "concurrency": 100}
        about = {
            "pid": 4711, "host": worker.partition("/")[0], "version": "0.1.0", "app": "shop", "revision": 418,
            "started": (int(seconds) - 7200) * 1000, "memory": 3 << 30, "cpu_seconds": 5000, "pools": [pool],
            "queues": ["ml-train", "video"], "tasks": ["ml.train_ranker", "video.transcode"],
        }  # fmt: skip
        store = Store(app.address, clock=partial(_ago, int(seconds), age))
        store.run(commands.renew(worker, [], about=json.dumps(about), queues=["ml-train", "video"]))
        store.close()


def _ago(seconds: int, age: int) -> int:
    return (seconds - age) * 1000
