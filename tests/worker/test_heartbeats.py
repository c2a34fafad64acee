"""Heartbeats and stalled jobs with real workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.apps import worker_app as app
from tests.support.workers import Crew, until


def test_a_running_job_shows_each_heartbeat_of_its_worker(crew: Crew) -> None:
    job = crew.put(app.hold, "long")
    worker = crew.start("--processes", "1", "--lease", "2s")
    crew.pids("long", "runs")

    first = until(lambda: crew.get(job).heartbeat_at)
    later = until(lambda: now if (now := crew.get(job).heartbeat_at) and now > first else None)
    assert first < later <= datetime.now(UTC) + timedelta(seconds=5)
    [held] = crew.app.workers()[0].held
    assert held.heartbeat_at is not None
    assert held.heartbeat_at >= later

    worker.send(19)  # SIGSTOP: it is silent, and nobody requeues its job
    stalled = until(lambda: found if (found := crew.app.stalled()).total else None)
    assert stalled.queues == {"default": 1}
    assert [*stalled.workers] == [crew.get(job).worker]
    assert [each.id for each in crew.app.list(stalled=True)] == [job.id]
    assert crew.app.count(stalled=True, queue="default") == 1
    silent = crew.get(job)
    assert silent.stalled
    assert silent.heartbeat_at is not None
    assert silent.heartbeat_at < datetime.now(UTC) - timedelta(seconds=1)
    assert [each.id for each in crew.app.workers()[0].stalled] == [job.id]

    crew.start("--processes", "1", node="other")
    until(lambda: crew.app.stalled().total == 0, what="the job is requeued")
    crew.open("long")
    assert job.result(timeout="30s") == "long"
