"""Store jobs, and print the outcome of each."""

import sys

from tasks import jobs, label

stored = [label.enqueue(f"Job {number}") for number in range(int(sys.argv[1]))]
for job in stored:
    result = job.result(timeout="1m")
    print(result, "| attempts:", ", ".join(attempt.outcome for attempt in job.refresh().attempts), flush=True)
print(f"{len(stored)} stored, {jobs.count(state='succeeded')} done, {jobs.count(state='pending')} pending")
