"""Send three animals through the pipeline, and print the outcome."""

from tasks import fetch

sent = [fetch.options(id=name).enqueue(name) for name in ("cat", "dog", "emu")]
for job in sent:
    print(f"{job.id}: {job.result(timeout='1m')}")  # one job, one result, with any number of stages
    done = job.refresh()
    print(f"  was {job.task} in {job.queue}, ended as {done.task} in {done.queue}")
    print("  attempts:", ", ".join(attempt.outcome for attempt in done.attempts))
