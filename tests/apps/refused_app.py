"""Tasks that end in ways which the store refuses."""

from __future__ import annotations

from holdfast import Advance, Holdfast, current_job

app = Holdfast()


@app.task
def store_text(text: str) -> int:
    return len(text)


@app.task(retries=5)
def go_on_with_too_much() -> None:
    raise Advance(store_text.bind("x" * 70_000_000))


@app.task(retries=5)
async def go_on_with_too_much_async() -> None:
    raise Advance(store_text.bind("x" * 70_000_000))


@app.task(retries=5)
def go_on_after_nobody() -> None:
    raise Advance(store_text.options(after=["nobody"]).bind("x"))


@app.task(retries=5)
def go_on_after_itself() -> None:
    raise Advance(store_text.options(after=[current_job().id]).bind("x"))


@app.task(retries=5)
def wait_for_itself() -> None:
    current_job().wait_for(current_job().id)


@app.task(retries=5)
async def wait_for_itself_async() -> None:
    await current_job().await_for(current_job().id)
