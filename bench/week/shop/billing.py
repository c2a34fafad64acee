"""Billing: charge cards, write invoices, settle the day's accounts."""

from __future__ import annotations

import asyncio

from bench.week.shop import gateway
from bench.week.shop.world import world
from holdfast import Fail, current_job

TAX = {"DE": 19, "FR": 20, "NL": 21, "US": 0}


async def charge_card(order: str, amount: int, currency: str = "EUR") -> str:
    """Charge the card of an order, once."""
    job = current_job()
    job.log(f"order {order}: charging {amount / 100:.2f} {currency}")
    try:
        receipt = await gateway.charge(order, amount, currency)
    except gateway.CardDeclined as error:
        job.log(str(error))
        raise Fail(str(error), group="card-declined") from error
    job.attach({"receipt": receipt})
    return receipt


async def invoice(order: str, country: str) -> str:
    """Write the invoice of an order."""
    await asyncio.sleep(world.between(0.6, 3.5))
    customer = {"name": "", "country": country}
    if not (world.loses_tax_numbers and country in ("FR", "NL")):
        customer["tax_number"] = f"{country}-{order[-4:]}"
    return _lay_out(order, customer)


def _lay_out(order: str, customer: dict[str, str]) -> str:
    rate = TAX[customer["country"]]
    return f"invoices/{order}-{customer['tax_number']}-{rate}.pdf"


async def settle() -> str:
    """Settle the payments of the last hour."""
    count = 0
    async for _ in current_job().aeach(range(4)):
        await asyncio.sleep(world.between(0.6, 1.4))
        count += world.random.randrange(150, 400)
    return f"{count:,} settled"
