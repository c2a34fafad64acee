"""The jobs: each does items one after the other, saves where it is, prints, and writes all of that to its ledger.

Each kill charges the job a crash or a lost lease. Here the harness does the killing, so jobs are given the largest
allowance. Errors are not part of the test and are not retried.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from chaos.ledger import Page
from holdfast import Holdfast, LeaseLost, current_job
from holdfast.job.option_table import Runner
from holdfast.running.running_job import RunningJob

LEDGER = "CHAOS_LEDGER"  # names the directory
FIRST = -1  # the number of a step that each attempt asks for at its beginning
PROGRAM_EVERY = 5  # items
BUDGET = 1000  # crashes and lost leases that a job survives: the maximum

jobs = Holdfast(defaults={"crashes": BUDGET, "lost": BUDGET, "retries": 0})


class Plan(msgspec.Struct, frozen=True):
    """The work of one job."""

    items: int
    pause: float  # seconds of work for an item
    step_every: int = 3  # items; a job may have 1,000 steps
    flush_every: int = 0  # items; other saves are not waited for
    loops: bool = False  # by `each`, which saves by itself
    programs: bool = False  # some lines are printed by a subprocess


class Kept(msgspec.Struct, frozen=True):
    """A checkpoint, or a result: the number of items done, and the attempt that reported it."""

    done: int
    by: int


class Run:
    """An attempt at a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.job: RunningJob = current_job()
        self.page = Page(Path(os.environ[LEDGER]) / self.job.id, self.job.attempt)
        found = self._found()
        self.page.write("begin", found.done, found.by)
        self._begin = found.done

    def _found(self) -> Kept:
        if self.plan.loops:
            return Kept(self.job.checkpoint(int, 0), -1)
        return self.job.checkpoint(Kept, Kept(0, 0))

    def left(self) -> Iterator[int]:
        """The items that are left; with `loops` they are saved by the loop."""
        every = range(self.plan.items)
        return self.job.each(every) if self.plan.loops else iter(every[self._begin :])

    def do(self, number: int) -> None:
        self.page.write("item", number)
        self.print(number)

    def print(self, number: int) -> None:
        """Print a line, by one of several ways, and write down that it was."""
        words = f"line {number} of attempt {self.job.attempt}"
        if self.plan.programs and number % PROGRAM_EVERY == 0:
            subprocess.run(["sh", "-c", 'echo "$0"', words], check=True)
        elif number % 3 == 0:
            self.job.log(words)
        else:
            print(words, file=(sys.stdout, sys.stderr)[number % 2], flush=True)
        self.page.write("line", words)

    def has_step(self, number: int) -> bool:
        return number % self.plan.step_every == 0

    def step(self, number: int) -> str:
        """The function of a step that must run once."""
        self.page.write("did", number)
        return f"{number}@{self.job.attempt}"

    def is_flushed(self, done: int) -> bool:
        every = self.plan.flush_every
        return done == self.plan.items or bool(every and done % every == 0)

    def kept(self, done: int) -> Kept:
        self.page.write("save", done)
        return Kept(done, self.job.attempt)

    def end(self) -> Kept:
        self.page.write("end")
        self.page.close()
        return Kept(self.plan.items, self.job.attempt)


def work(plan: Plan) -> Kept:
    run = Run(plan)
    once(run, FIRST)
    for number in run.left():
        time.sleep(plan.pause)  # the work
        run.do(number)
        if run.has_step(number):
            once(run, number)
        if not plan.loops:
            save(run, number + 1)
    return run.end()


def once(run: Run, number: int) -> None:
    run.page.write("step", number, run.job.once(f"step-{number}", run.step, number))


def save(run: Run, done: int) -> None:
    value, progress = run.kept(done), done / run.plan.items
    if not run.is_flushed(done):
        run.job.save(value, progress=progress)
        return
    try:
        run.job.save(value, progress=progress, flush=True)
    except LeaseLost:
        run.page.write("refused", done)
        raise
    run.page.write("kept", done)


async def awork(plan: Plan) -> Kept:
    run = Run(plan)
    await aonce(run, FIRST)
    for number in run.left():
        await asyncio.sleep(plan.pause)  # the work
        run.do(number)
        if run.has_step(number):
            await aonce(run, number)
        if not plan.loops:
            await asave(run, number + 1)
    return run.end()


async def aonce(run: Run, number: int) -> None:
    async def step() -> str:
        return run.step(number)

    run.page.write("step", number, await run.job.aonce(f"step-{number}", step))


async def asave(run: Run, done: int) -> None:
    value, progress = run.kept(done), done / run.plan.items
    if not run.is_flushed(done):
        run.job.save(value, progress=progress)
        return
    try:
        await run.job.asave(value, progress=progress)
    except LeaseLost:
        run.page.write("refused", done)
        raise
    run.page.write("kept", done)


SYNC: tuple[Runner, ...] = ("fork", "spawn", "process", "thread")
TASKS: dict[str, Any] = {"async": jobs.task(name="async")(awork)}
for runner in SYNC:
    TASKS[runner] = jobs.task(name=runner, runner=runner)(work)
    if runner != "thread":
        TASKS[f"exclusive-{runner}"] = jobs.task(name=f"exclusive-{runner}", runner=runner, exclusive=True)(work)
