"""Map: count the words of each chapter. Reduce: add them up, for all chapters or for the readable ones."""

from pathlib import Path

from holdfast import Holdfast, current_job

jobs = Holdfast()
BOOK = Path("book")


@jobs.task(retries=0)
def count(chapter: str) -> int:
    return len((BOOK / chapter).read_text().split())


@jobs.task
def total() -> int:
    return sum(current_job().results(int))  # the results of its dependencies, in order


@jobs.task
def estimate() -> str:
    parts = current_job().dependencies()  # with their outcomes
    words = [part.result() for part in parts if part.state == "succeeded"]
    return f"about {sum(words) // len(words) * len(parts)} words, judging by {len(words)} of {len(parts)} chapters"
