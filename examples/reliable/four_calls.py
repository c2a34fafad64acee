"""The same without tasks or a worker program: `produce 20`, `work good`, `work bad`, `report`."""

import os
import signal
import sys

from holdfast import Holdfast

jobs = Holdfast()


def produce(count: str) -> None:
    items = jobs.items("four")
    for number in range(int(count)):
        items.put(f"Job {number}".encode(), id=f"four-{number}")


def work(name: str) -> None:
    with jobs.items("four") as items:  # a thread renews leases inside the block
        while item := items.claim(wait="3s", lease="1s"):
            mood = item.attempt % 3 if name == "bad" else 0
            if mood == 1:
                os.kill(os.getpid(), signal.SIGKILL)  # while it holds the item
            elif mood == 2:
                item.fail("the bad worker fails again", delay="100ms")
            elif item.complete(f"{name} worker: ".encode() + item.payload):
                print(item.id, "done", flush=True)


def report() -> None:
    for job in jobs.list(queue="four", state="succeeded"):
        done = job.refresh()
        print(done.result().decode(), "| attempts:", ", ".join(attempt.outcome for attempt in done.attempts))
    print(f"{jobs.count(queue='four', state='succeeded')} done, {jobs.count(queue='four', state='pending')} pending")


if __name__ == "__main__":
    {"produce": produce, "work": work, "report": report}[sys.argv[1]](*sys.argv[2:])
