"""A report every night at half past two in Berlin, even when the clocks change."""

from datetime import UTC, datetime
from pathlib import Path

from holdfast import Holdfast, cron, current_job

jobs = Holdfast()


@jobs.task(name="nightly", schedule=cron("30 2 * * *", tz="Europe/Berlin", missed="one", overlap="skip"))
def nightly() -> str:
    job = current_job()
    counts = {state: jobs.count(state=state) for state in ("succeeded", "failed", "pending")}
    text = f"{job.id}, written at {datetime.now(UTC):%H:%M} UTC: " + ", ".join(
        f"{n} {what}" for what, n in counts.items()
    )
    with Path("report.txt").open("a") as file:
        file.write(text + "\n")
    return text
