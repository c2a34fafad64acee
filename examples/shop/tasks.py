"""A shop whose stock and jobs change in one step, by functions in shop.lua."""

from pathlib import Path

from holdfast import Holdfast

jobs = Holdfast(extend=Path(__file__).with_name("shop.lua"))


@jobs.task(queue="shipping", runner="thread")
def ship(article: str, count: int) -> str:
    return f"shipped {count} {article}"


@jobs.task(queue="purchasing", runner="thread", unique="reorder")
def reorder(article: str) -> int:
    stock: int = jobs.call("deliver", article, 100)
    return stock
