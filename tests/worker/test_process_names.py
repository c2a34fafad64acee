"""The names that `ps`, `top` and `pgrep` show for the processes of a worker."""

from __future__ import annotations

from pathlib import Path

from tests.apps import worker_app as app
from tests.support.workers import Crew, until


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_each_process_of_a_worker_has_its_own_name(crew: Crew) -> None:
    worker = crew.start("--processes", "1")
    job = crew.app.enqueue(app.hold.options(id="invoice-2026-0001").bind("held"))
    (pid,) = crew.pids("held", "runs")

    names = [name(pid) for pid in (worker.pid, worker.executor, worker.zygote, pid)]

    assert names == ["hf:supervisor", "hf:exec-1", "hf:zygote", "hf:invoice-2026"]
    crew.open("held")
    crew.ended(job)


def test_a_reused_process_is_named_after_its_current_job_and_idle_after_it(crew: Crew) -> None:
    crew.start("--processes", "1", "--runner", "process")

    assert [_names_of_job(crew, id) for id in ("one", "two")] == [["hf:one", "hf:idle"], ["hf:two", "hf:idle"]]


def _names_of_job(crew: Crew, id: str) -> list[str]:
    """Run a job. Returns the names of its process while the job runs, and once it has ended."""
    job = crew.app.enqueue(app.hold.options(id=id).bind(id))
    (pid,) = crew.pids(id, "runs")
    running = name(pid)
    crew.open(id)
    crew.ended(job)
    until(lambda: name(pid) != running)
    return [running, name(pid)]
