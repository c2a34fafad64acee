"""Sixty customers buy two pens each, at the same time; there are a hundred."""

from concurrent.futures import ThreadPoolExecutor

from holdfast import Refused
from tasks import jobs, reorder, ship


def buy(_: int) -> str | None:
    """Order two pens, and return the id of the shipping; None if the pens are sold out."""
    try:
        id: str = jobs.call("order", "pen", 2, ship.bind("pen", 2), reorder.bind("pen"))
    except Refused as refusal:
        return None if refusal.reason == "sold_out" else str(refusal)
    return id


for queue in ("shipping", "purchasing"):
    jobs.pause(queue)  # until all customers have ordered
print(f"in stock: {jobs.call('deliver', 'pen', 100)} pens")
with ThreadPoolExecutor(8) as customers:
    orders = [id for id in customers.map(buy, range(60)) if id]
print(f"sold: {len(orders)} times 2, refused: {60 - len(orders)}")
print(f"enqueued: {jobs.count(queue='shipping')} to ship, {jobs.count(queue='purchasing')} to reorder")
print(f"cancelled one: {jobs.call('cancel', 'pen', 2, orders.pop())} pens in stock")
for queue in ("shipping", "purchasing"):
    jobs.resume(queue)
print({jobs.get(id).result(timeout="1m") for id in orders})
(job,) = jobs.list(queue="purchasing")
print(f"after the reorder: {job.result(timeout='1m')} pens in stock")
