"""List the next times of the report, and run one now."""

import time
from datetime import datetime
from zoneinfo import ZoneInfo

from tasks import jobs

BERLIN = ZoneInfo("Europe/Berlin")

while not jobs.schedules():  # a worker declares it at its start
    time.sleep(0.1)
schedule = jobs.get_schedule("nightly")
print("the next ten:", *(f"{moment.astimezone(BERLIN):%d.%m. %H:%M}" for moment in schedule.next(10)))
print("when the clock jumps from two to three:")
for moment in schedule.next(3, after=datetime(2027, 3, 27, tzinfo=BERLIN)):
    print("  ", f"{moment.astimezone(BERLIN):%a %d.%m. %H:%M %Z}")

job = jobs.get(jobs.trigger("nightly"))
print("now:", job.result(timeout="1m"))

jobs.pause_schedule("nightly")
print("paused, the next ten:", jobs.get_schedule("nightly").next(10))
jobs.resume_schedule("nightly")
