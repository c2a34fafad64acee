"""Tasks that compute reports; one of them enqueues a task of another module."""

from holdfast import current_job
from shop.app import jobs
from shop.mail import welcome


@jobs.task(name="reports.count")
def count(addresses: list[str]) -> int:
    job = current_job()
    for number, address in enumerate(addresses):
        welcome.options(id=f"{job.id}.{number}").enqueue(address)  # with an id, so that a repeated attempt adds none
    return len(addresses)
