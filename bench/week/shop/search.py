"""Search: keep the index fresh, and rebuild it at night."""

from __future__ import annotations

import asyncio

from bench.week.shop.world import world
from holdfast import current_job


async def refresh() -> int:
    """Index what has changed."""
    await asyncio.sleep(world.between(1.2, 3.6))
    return world.random.randrange(0, 90)


async def reindex(index: str = "products", shards: int = 90) -> int:
    """Rebuild an index, shard by shard."""
    job, rows = current_job(), 0
    async for shard in job.aeach(range(shards)):
        await asyncio.sleep(world.between(30, 70))
        rows += 41_250
        job.count(rows=41_250)
        job.log(f"{index}: shard {shard + 1}/{shards} written, {world.between(88, 131):.0f} MB")
    return rows
