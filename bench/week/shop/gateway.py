"""The payment gateway, as the shop calls it."""

from __future__ import annotations

import asyncio

from bench.week.shop.world import world


class ConnectTimeout(Exception):
    """The gateway did not answer."""


class CardDeclined(Exception):
    """The bank declined."""


async def charge(order: str, amount: int, currency: str) -> str:
    """Charge a card and return the receipt."""
    if currency == "USD" and world.gateway_loses_dollars:
        await _ask_bank_abroad(order)
    if world.happens(0.002):
        await asyncio.sleep(5)
        raise ConnectTimeout("POST https://api.gateway.example/v2/charges: no answer within 5 s")
    await asyncio.sleep(world.between(0.2, 1.4))
    if world.happens(0.004):
        raise CardDeclined(f"order {order}: do not honour {amount / 100:.2f} {currency}")
    return f"ch_{world.random.getrandbits(48):012x}"


async def _ask_bank_abroad(order: str) -> None:
    await asyncio.sleep(5)
    raise ConnectTimeout(f"POST https://us.gateway.example/v3/orders/{order}/consent: no answer within 5 s")
