"""A store with a believable hour of work, small enough to be made for each test process."""

from __future__ import annotations

from holdfast import Holdfast, Limit
from holdfast.store import commands
from holdfast.testing import use


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
        app.enqueue(tasks["reports.daily"].options(id="stopped").bind())
        app.cancel("stopped")
        request = commands.claim_args(["ml-train", "video"], counter=1, limit=3)
        app.store.run(commands.claim("gpu-1/0R3x.0", request))
        app.pause("billing")
        app.schedule("reports.daily", tasks["reports.daily"].bind(), cron="0 6 * * *")
