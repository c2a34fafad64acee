"""A shop: the tasks of a believable app, and the world that they meet."""

from __future__ import annotations

from bench.week.shop import billing, imports, mail, ml, reports, search, video, webhooks
from bench.week.shop.world import world
from holdfast import Holdfast, Limit, cron, every
from holdfast.task.registration import declare_limits

GATEWAY, SMTP, GPU, WEBHOOK = (
    Limit("gateway", 40),
    Limit("smtp", 30, per="1s"),
    Limit("gpu", 4),
    Limit("webhook", 2),
)


def declare(app: Holdfast) -> None:
    """Declare the tasks of the shop on an app."""
    world.app = app
    declare_limits(app, (GATEWAY, SMTP, GPU, WEBHOOK))
    task = app.task
    task(name="billing.charge_card", queue="billing", retries=3, backoff="30s", limits=GATEWAY)(billing.charge_card)
    task(name="billing.invoice", queue="billing", retries=2, backoff="1m")(billing.invoice)
    task(name="billing.settle", queue="billing", schedule=cron("45 * * * *", overlap="skip"), tags=["finance"])(
        billing.settle
    )
    task(name="mail.send", queue="mail", retries=6, backoff="1m", limits=SMTP)(mail.send)
    task(name="mail.digest", queue="mail", schedule=cron("0 7 * * mon", tz="America/New_York", jitter="30m"))(
        mail.digest
    )
    task(name="video.transcode", queue="video", retries=2, backoff="1m", timeout="2h")(video.transcode)
    task(name="thumbnails.make", queue="thumbnails")(video.make_thumbnail)
    task(name="search.refresh", queue="search", schedule=every("10m", overlap="skip"))(search.refresh)
    task(name="search.reindex", queue="search", schedule=cron("30 1 * * *"), tags=["nightly"])(search.reindex)
    task(name="imports.catalog", queue="imports", schedule=cron("*/20 * * * *", overlap="skip"))(imports.catalog)
    task(name="imports.load_part", queue="imports", retries=2)(imports.load_part)
    task(name="imports.publish", queue="imports")(imports.publish)
    task(name="ml.train_ranker", queue="ml-train", limits=GPU, timeout="3d", lost=10, tags=["ranker"])(ml.train_ranker)
    task(name="ml.evaluate", queue="ml-train", limits=GPU)(ml.evaluate)
    task(name="ml.publish", queue="ml-train")(ml.publish)
    task(name="reports.daily", queue="reports", schedule=cron("0 12 * * mon-fri", tz="Europe/Berlin"))(reports.daily)
    task(name="reports.month_end", queue="reports", schedule=cron("30 23 28 * *", tz="Europe/Berlin"))(
        reports.month_end
    )
    task(name="reports.export", queue="reports", retries=2)(reports.export)
    task(name="webhooks.deliver", queue="webhooks", retries=5, backoff="30s", deadline="6h")(webhooks.deliver)
