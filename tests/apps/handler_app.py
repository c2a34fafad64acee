"""Handlers of events: each writes what it gets into the ledger."""

from __future__ import annotations

import os

from holdfast import Event, Holdfast, current_job

app = Holdfast()


def note(*words: str) -> None:
    with open(os.environ["LEDGER"], "a") as file:
        file.write(" ".join(words) + "\n")


@app.task(queue="work", retries=0)
def refuse(number: int) -> None:
    raise ValueError(number)


@app.on("failed", queue="work")
@app.task(name="alert", queue="handlers")
def alert(event: Event) -> None:
    for job, detail in zip(event.jobs, event.details, strict=True):
        note("alert", job, detail["group"], current_job().id)


@app.on("failed", "succeeded", queue="handlers", name="of-handlers")
@app.task(name="never", queue="handlers", retries=0)
def never(event: Event) -> None:
    note("never", event.type, *event.jobs)


@app.on("failed", queue="work")
@app.task(name="clumsy", queue="handlers", retries=0)
async def clumsy(event: Event) -> None:
    note("clumsy", *event.jobs)
    raise ValueError("a handler that fails")
