"""Three tasks with a bug that only a crash shows, each with a twin that has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast import Holdfast, current_job

jobs = Holdfast("redis://127.0.0.1:1", namespace="production")


def append(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as file:
        file.write(f"{line}\n")


def append_once(ledger: str, line: str) -> None:
    """Append as a payment provider charges: a repetition is recognised by its key."""
    if line not in Path(ledger).read_text().splitlines():
        append(ledger, line)


# An effect before its save


@jobs.task
def bill(ledger: str, customers: list[str]) -> int:
    job = current_job()
    for number in range(job.checkpoint(int, default=0), len(customers)):
        append(ledger, customers[number])  # a crash now repeats it
        job.save(number + 1)
    return len(customers)


@jobs.task
def bill_by_key(ledger: str, customers: list[str]) -> int:
    job = current_job()
    for number in range(job.checkpoint(int, default=0), len(customers)):
        append_once(ledger, customers[number])
        job.save(number + 1)
    return len(customers)


# A loop that skips


def open_orders(folder: str, after: str | None = None) -> Iterator[Path]:
    for path in sorted(Path(folder).glob("*.open")):
        if after is None or path.stem > after:
            yield path


@jobs.task
def ship(folder: str) -> None:
    for order in current_job().each(open_orders(folder)):  # counts orders, of which fewer are open later
        order.rename(order.with_suffix(".shipped"))


@jobs.task
def ship_by_name(folder: str) -> None:
    job = current_job()
    for order in job.each(lambda last: open_orders(folder, last), key=lambda order: order.stem):
        order.rename(order.with_suffix(".shipped"))


# A step done twice


@jobs.task
def order(ledger: str, number: int) -> str:
    job = current_job()
    job.once(f"charge-{job.attempt}", append_once, ledger, f"charge {number} {job.id}.{job.attempt}")
    job.once("mail", append_once, ledger, f"mail {number}")
    return f"order {number}"


@jobs.task
def order_once(ledger: str, number: int) -> str:
    job = current_job()
    job.once("charge", append_once, ledger, f"charge {number} {job.id}")
    job.once("mail", append_once, ledger, f"mail {number}")
    return f"order {number}"
