"""One job to which everything happens, on real workers, and how its story is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

from holdfast import Job
from holdfast.store.caller import caller_name
from tests.apps import story_app
from tests.support.workers import ROOT, Crew, Worker, until

ME = caller_name()
STORY = """
created      task tests.apps.story_app.deliver in queue mail, priority 2
dependency   job address succeeded
unblocked    job letter succeeded
due
throttled    limit round was full, 2 times
moved        from mail to express, by {me}
priority     from 2 to -5, by {me}
unthrottled  limit round
claimed      attempt 1, in queue express*, by one/*
started      attempt 1: process *
crash        attempt 1, after *: Crash: the job's process was killed; signal SIGKILL*
claimed      attempt 2, in queue express*, by one/*
lost         attempt 2, after *: lease ended
claimed      attempt 3, in queue express*, by two/*
started      attempt 3: process *
released     attempt 3, after *: yielded
claimed      attempt 4, in queue express*, by three/*
started      attempt 4: process *
snoozed      attempt 4, after *
due
claimed      attempt 5, in queue express*, by three/*
started      attempt 5: process *
error        attempt 5, after *: holdfast.Fail: no such street
failed
noted        ann asked for another street, by {me}
retried      by {me}
claimed      attempt 6, in queue express*, by three/*
started      attempt 6: process *
reported     attempt 6: letter 17 is in the box
succeeded    attempt 6, after *
"""


def test_the_story_of_a_job_tells_everything_that_happened_to_it(crew: Crew) -> None:
    app = crew.app
    app.set_limit("round", 1)
    one = _start(crew, "one")
    holder = _put(crew, "holder", story_app.hold.options(limits=["round"], queue="mail").bind("holder"))
    crew.pids("holder", "runs")
    _put(crew, "address", story_app.find.bind("address"))
    _put(crew, "letter", story_app.find.bind("letter"))
    deliver = story_app.deliver.options(
        after=["address", "letter"], delay="500ms", limits=["round"], queue="mail", priority=2, lost=3
    )
    job = _put(crew, "letter-17", deliver.bind(17))
    for name in ("address", "letter"):  # a delay, and two dependencies
        crew.open(name)
        app.result(app.get(name), timeout="30s")

    until(lambda: crew.get(job).throttled_by)  # a limit
    app.move("letter-17", queue="express", priority=-5)  # a move, and another priority
    until(lambda: [parked.times for parked in crew.get(job).parked] == [2])
    crew.open("holder")

    crew.pids("deliver", "runs", 2)  # the first process crashed
    crew.ended(holder)
    one.kill()
    two = _start(crew, "two")
    crew.pids("deliver", "runs", 3)  # the lease was lost
    assert two.stop() == 0  # it hands the job over
    _start(crew, "three")
    assert crew.ended(job).state == "failed"  # it was snoozed before
    app.note("letter-17", "ann asked for another street")
    job.retry()
    assert job.result(timeout="30s") == "delivered"

    ended, shown = crew.get(job), _show(crew, job)
    print(shown)
    _compare(shown, STORY.format(me=ME))
    assert [entry.at for entry in ended.history] == sorted(entry.at for entry in ended.history)
    assert [attempt.queue for attempt in ended.attempts] == ["express"] * 6
    assert ended.updated_at >= ended.since
    assert ended.to_dict()["history"][0]["text"].startswith("task tests.apps.story_app.deliver in queue mail")


def _start(crew: Crew, node: str) -> Worker:
    options = ("--queues", "default,mail,express", "--processes", "4", "--lease", "1s")
    return crew.start(*options, node=node, app="tests.apps.story_app")


def _put(crew: Crew, id: str, call: Any) -> Job[Any]:
    return crew.app.enqueue(call.options(id=id))


def _show(crew: Crew, job: Job[Any]) -> str:
    env = os.environ | {"HOLDFAST_URL": crew.url, "HOLDFAST_NAMESPACE": crew.namespace}
    line = [sys.executable, "-m", "holdfast", "show", job.id]
    return subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def _compare(shown: str, story: str) -> None:
    """Compare what is shown with a story in which `*` stands for any text; tracebacks are left out."""
    lines = shown.partition("\nhistory\t\n")[2].splitlines()
    told = [line.partition("\t")[2] for line in lines if re.match(r"\d{4}-\d\d-\d\dT\S+Z\t", line)]
    wanted = story.strip().splitlines()
    assert len(told) == len(wanted), "\n".join(told)
    for line, pattern in zip(told, wanted, strict=True):
        assert re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), line), f"{line!r} is not {pattern!r}"
