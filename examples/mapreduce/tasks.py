"""Map: count the words of each chapter. Reduce: add them up, of all chapters or of those that could be read."""

from pathlib import Path

from holdfast import Holdfast, current_job

jobs = Holdfast()
BOOK = Path("book")


@jobs.task(retries=0)
def count(chapter: str) -> int:
    return len((BOOK / chapter).read_text().split())


@jobs.task
def total() -> int:
    return sum(current_job().results(int))  # of the jobs that it waited for, in their order


@jobs.task
def estimate() -> str:
    parts = current_job().dependencies()  # as they ended
    words = [part.result() for part in parts if part.state == "succeeded"]
    return f"about {sum(words) // len(words) * len(parts)} words, judging by {len(words)} of {len(parts)} chapters"
