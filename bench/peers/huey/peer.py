"""Huey on Redis, with two threads: a task leaves the list when it is taken."""

import common
from huey import RedisHuey

huey = RedisHuey("bench", url=common.URL)
TASKS = {name: huey.task()(getattr(common, name)) for name in ("count", "stamp", "stay")}
WORK = ["-m", "huey.bin.huey_consumer", "peer.huey", "-q", "--workers", "2"]


async def send(kind: str, value: int) -> None:
    TASKS[kind](value)


async def bulk(numbers) -> None:
    """It has no call for many: this is its own `map`."""
    TASKS["count"].map(numbers)


if __name__ == "__main__":
    common.serve(send, bulk, {"one": WORK})
