"""The same work in two queues; in `fair` tenants take turns."""

from pathlib import Path

from holdfast import Holdfast

jobs = Holdfast()


@jobs.task(runner="thread")
def work(tenant: str, log: str) -> None:
    with Path(log).open("a") as file:
        file.write(tenant[0])
