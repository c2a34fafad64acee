"""Mail: receipts, reminders, the weekly digest."""

from __future__ import annotations

import asyncio

from bench.week.shop.world import world
from holdfast import Fail


class UnknownAddress(Exception):
    """The receiving server knows no such address."""


async def send(to: str, template: str) -> str:
    """Send one message."""
    await asyncio.sleep(world.between(0.05, 0.5))
    return _deliver(to, template)


def _deliver(to: str, template: str) -> str:
    if world.mail_is_down:
        raise ConnectionRefusedError(111, "Connection refused", "smtp.example:587")
    if world.happens(0.002):
        raise Fail(f"550 5.1.1 <{to}>: no such address", group="unknown-address") from UnknownAddress(to)
    return f"250 2.0.0 OK: {template} queued as {world.random.getrandbits(40):010X}"


async def digest() -> int:
    """Send the weekly digest to everybody who wants it."""
    send_mail = world.app.tasks["mail.send"]
    readers = world.random.randrange(220, 300)
    with world.app.batch(f"digest-{world.random.getrandbits(24):06x}") as batch:
        batch.enqueue_many(
            [
                send_mail.options(tags=["digest"]).bind(f"reader{number}@example.org", "digest")
                for number in range(readers)
            ]
        )
    await asyncio.sleep(1.2)
    return readers
