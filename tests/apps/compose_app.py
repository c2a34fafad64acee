"""Tasks that belong together: a map with its reduce, a pipeline, a job that waits for others."""

from __future__ import annotations

from holdfast import Advance, Fail, Holdfast, cron, current_job, every

app = Holdfast()


@app.task
def square(number: int) -> int:
    if number < 0:
        raise Fail("it is below zero")
    return number * number


@app.task
def total() -> int:
    return sum(current_job().results(int))


@app.task
async def atotal() -> int:
    return sum(await current_job().aresults(int))


@app.task(queue="cpu")
def resize(path: str) -> str:
    raise Advance(upload.bind(f"{path}.small"))


@app.task(queue="net")
def upload(path: str) -> str:
    return f"uploaded {path}"


@app.task(queue="net")
def fetch(url: str) -> str:
    raise Advance(resize.bind(url.rpartition("/")[2]))


@app.task
def parent(numbers: list[int]) -> int:
    """It waits for its children without holding a slot: a worker with one process is enough."""
    job = current_job()
    children = [square.options(id=f"{job.id}.{place}").bind(number) for place, number in enumerate(numbers)]
    app.enqueue_many(children)
    job.wait_for(*children)
    return sum(child.result() for child in map(app.get, [child.id for child in children]))


@app.task
def gatherer(numbers: list[int]) -> int:
    return sum(child.decoded_result() for child in current_job().gather(*map(square.bind, numbers)))


@app.task
async def agatherer(numbers: list[int]) -> int:
    return sum(child.decoded_result() for child in await current_job().agather(*map(square.bind, numbers)))


@app.task(schedule=every("1s"))
def tick() -> str:
    return current_job().id


@app.task(schedule=cron("* * * * * *", tz="Europe/Berlin"))
def tock() -> str:
    return current_job().id
