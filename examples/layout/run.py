"""A program that enqueues. It imports only the tasks that it needs."""

from shop.app import jobs
from shop.reports import count

job = count.enqueue(["ann@example.org", "bob@example.org"])
print(job.result(timeout="60s"), "mails")
for child in (jobs.get(f"{job.id}.{number}") for number in range(2)):
    print(f"{child.task} in queue {child.queue}: {child.result(timeout='60s')}")
