"""Three stages of one job: fetch (waits for the network), squeeze (keeps a core busy), publish (the network again)."""

import gzip
from pathlib import Path

from holdfast import Advance, Holdfast, current_job

jobs = Holdfast()


@jobs.task(queue="net")
def fetch(name: str) -> str:
    Path(f"{name}.raw").write_text(f"all about {name}\n" * 1000)  # stands for a download
    raise Advance(squeeze.bind(name))  # this job continues as that call, in that queue


@jobs.task(queue="cpu", retries=2, backoff="100ms")
def squeeze(name: str) -> str:
    job = current_job()
    if name == "dog" and job.attempt == 2:
        raise OSError("the disk is tired")  # only this stage is retried
    Path(f"{name}.gz").write_bytes(gzip.compress(Path(f"{name}.raw").read_bytes()))
    raise Advance(publish.bind(name))


@jobs.task(queue="net")
def publish(name: str) -> str:
    Path("site").mkdir(exist_ok=True)
    size = Path(f"{name}.gz").replace(f"site/{name}.gz").stat().st_size
    return f"site/{name}.gz, {size} bytes"
