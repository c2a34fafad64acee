"""Reports, for the shop and for its customers."""

from __future__ import annotations

import asyncio

from bench.week.shop.world import world
from holdfast import Snooze, current_job


async def daily() -> str:
    """Write the report of the day."""
    job = current_job()
    async for chapter in job.aeach(["orders", "refunds", "stock", "traffic"]):
        await asyncio.sleep(world.between(6, 14))
        job.log(f"chapter {chapter} written")
    return "reports/daily.pdf"


async def month_end() -> str:
    """Close the books of the month."""
    await asyncio.sleep(world.between(300, 420))
    return "reports/month.pdf"


async def export(customer: str, year: int) -> str:
    """Export all orders of a customer."""
    job = current_job()
    if job.attempt == 1 and world.happens(0.1):
        raise Snooze("2m")  # the data of today is not complete yet
    async for month in job.aeach(range(1, 13)):
        await asyncio.sleep(world.between(1, 6))
        job.report(month / 12, f"{year}-{month:02d}")
    return f"exports/{customer}-{year}.csv"
