"""Webhooks: tell other systems what has happened; two calls at once to each."""

from __future__ import annotations

import asyncio

from bench.week.shop.world import world
from holdfast import current_job

SLOW = "erp.slowpoke.example"
HOSTS = ("hooks.acme.example", "api.borealis.example", SLOW)


class BadStatus(Exception):
    """The answer was not 2xx."""


async def deliver(host: str, event: str, order: str) -> int:
    """Deliver an event."""
    is_slow = host == SLOW and world.customer_is_slow
    await asyncio.sleep(world.between(110, 170) if is_slow else world.between(0.1, 0.9))
    return _check(host, f"{event} {order}", 503 if world.happens(0.3 if is_slow else 0.005) else 200)


def _check(host: str, body: str, status: int) -> int:
    current_job().log(f"POST https://{host}/events {body}: {status}")
    if status != 200:
        raise BadStatus(f"POST https://{host}/events: {status} Service Unavailable")
    return status
