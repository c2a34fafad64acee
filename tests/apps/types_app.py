"""The app of the tests of types: a web application of FastAPI that passes its request models on to tasks."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, Field

from holdfast import Advance, Holdfast, Retry, current_job

jobs = Holdfast(defaults={"retries": 1, "backoff": 0})


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


jobs.type(Money, encode=lambda money: money.cents, decode=Money)


class Line(BaseModel):
    product: str
    price: Decimal = Field(gt=0)
    count: int = 1


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


class Invoice(BaseModel):
    kind: Literal["invoice"] = "invoice"
    address: str


class Order(BaseModel):
    lines: list[Line]
    payment: Annotated[Card | Invoice, Field(discriminator="kind")]


class Receipt(BaseModel):
    total: Decimal
    paid_by: str
    steps: int = 1


@attrs.frozen
class Label:
    path: Path
    weight: np.float64
    price: Money


@jobs.task
def settle(order: Order) -> Receipt:
    """Settle an order, in two attempts: the first saves its receipt, and the second reads it."""
    job = current_job()
    total = job.once("total", add_up, order)
    receipt = job.checkpoint(Receipt, default=total)
    if receipt is total:
        job.save(Receipt(total=total.total, paid_by=order.payment.kind), flush=True)
        raise Retry("with the receipt")
    return receipt.model_copy(update={"steps": receipt.steps + 1})


def add_up(order: Order) -> Receipt:
    return Receipt(total=sum((each.price * each.count for each in order.lines), Decimal()), paid_by="nobody")


@jobs.task
def print_label(label: Label) -> Label:
    return attrs.evolve(label, weight=np.float64(label.weight * 2), price=Money(label.price.cents + 1))


@jobs.task
def begin(order: Order) -> Any:
    raise Advance(settle.bind(order))


@jobs.task
def collect() -> Decimal:
    return sum((each.total for each in current_job().results(Receipt)), Decimal())


def make_web(client: Holdfast) -> FastAPI:
    """Return a web application that enqueues with this client."""

    web = FastAPI()

    @web.post("/orders")
    async def place(order: Order) -> dict[str, str]:
        job = await client.aenqueue(settle.bind(order))
        return {"job": job.id}

    return web
