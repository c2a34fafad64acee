"""Imports: the catalogues of suppliers, a batch of parts for each."""

from __future__ import annotations

import asyncio

from bench.week.shop.world import world
from holdfast import Fail

SUPPLIERS = ("acme", "borealis", "cobalt", "dunlin", "erlang-foods")


async def catalog() -> int:
    """Fetch the catalogue of a supplier, and load its parts."""
    supplier = world.random.choice(SUPPLIERS)
    await asyncio.sleep(world.between(1, 4))
    parts = world.random.randrange(5, 14)
    load, publish = world.app.tasks["imports.load_part"], world.app.tasks["imports.publish"]
    with world.app.batch(f"catalogue-{world.random.getrandbits(24):06x}", on_success=publish.bind(supplier)) as batch:
        batch.enqueue_many([load.options(share=supplier).bind(supplier, part) for part in range(parts)])
    return parts


async def load_part(supplier: str, part: int) -> int:
    """Load one part of a catalogue."""
    await asyncio.sleep(world.between(2, 9))
    return _check(supplier, part, rows=world.random.randrange(900, 1100))


def _check(supplier: str, part: int, rows: int) -> int:
    if world.happens(0.004):
        raise Fail(f"{supplier}: part {part}, row {rows // 2}: price is 'n/a'", group="bad-row")
    return rows


async def publish(supplier: str) -> str:
    """Publish a catalogue whose parts are all loaded."""
    await asyncio.sleep(world.between(0.5, 1.5))
    return f"{supplier} published"
