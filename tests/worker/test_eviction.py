"""What a worker does when its server starts to evict jobs, and when the keeper of its server dies."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import Holdfast
from holdfast.server import keeper, server
from holdfast.worker.supervisor import store_watch
from tests.apps import worker_app as app
from tests.doctor.test_doctor import keepers
from tests.support.servers import running_server
from tests.support.workers import Crew, Worker, new_crew, until

# A worker that looks at its server all the time, not once a minute.
ALL_THE_TIME = """
import runpy, sys
from holdfast.worker.supervisor import store_watch
store_watch.CHECK_INTERVAL = 0.05
sys.argv[:] = sys.argv[3:]
runpy.run_module("holdfast", run_name="__main__")
"""


@pytest.fixture
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
def crew(url: str, tmp_path: Path) -> Iterator[Crew]:
    with new_crew(url, tmp_path) as crew:
        yield crew


def set_policy(url: str, policy: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory-policy", policy)


def wait_for_looks(url: str, count: int = 5) -> None:
    """Wait until a worker has looked at its server so many times."""
    with redis.Redis.from_url(url) as client:

        def looks() -> int:
            stats: Any = client.info("commandstats")
            return int(stats["cmdstat_info"]["calls"])

        before, asked = looks(), 0

        def has_looked() -> bool:
            nonlocal asked
            asked += 1
            return looks() - asked >= before + count

        until(has_looked, what=f"{count} looks at the server")


def start(crew: Crew, *options: str) -> Worker:
    return crew.start(*options, before=[sys.executable, "-c", ALL_THE_TIME])


@pytest.mark.parametrize("policy", ["allkeys-random", "allkeys-lru"])
def test_a_worker_claims_nothing_while_its_server_evicts_jobs(crew: Crew, url: str, policy: str) -> None:
    worker = start(crew)
    running = crew.put(app.hold, "before")
    crew.pids("before", "runs")

    set_policy(url, policy)
    until(lambda: "This worker claims nothing until that is fixed." in worker.log)
    jobs = [crew.put(app.hold, f"job-{number}") for number in range(3)]
    for number in range(3):
        crew.open(f"job-{number}")
    crew.open("before")
    assert crew.ended(running).state == "succeeded"
    wait_for_looks(url)
    assert [crew.said(f"job-{number}", "runs") for number in range(3)] == [[], [], []]
    assert f"eviction: A full server evicts keys of jobs ({policy}): they are lost. Set maxmemory-policy" in worker.log

    set_policy(url, "noeviction")
    assert [crew.ended(job).state for job in jobs] == ["succeeded"] * 3
    assert worker.log.count("the server no longer evicts jobs; this worker claims again") == 1
    assert {crew.get(job).crashes_used + crew.get(job).lost_used for job in jobs} == {0}
    assert worker.stop() == 0


def test_an_executor_that_is_idle_gives_back_what_its_waiting_claim_brings(crew: Crew, url: str) -> None:
    """A claim that waits in the store cannot be recalled."""
    worker = start(crew)
    assert crew.ended(crew.put(app.say, "first")).state == "succeeded"
    set_policy(url, "allkeys-lru")
    until(lambda: "This worker claims nothing" in worker.log)
    jobs = [crew.put(app.hold, f"job-{number}") for number in range(3)]
    for number in range(3):
        crew.open(f"job-{number}")
    wait_for_looks(url, 10)

    assert [crew.said(f"job-{number}", "runs") for number in range(3)] == [[], [], []]
    until(lambda: crew.app.count(state="waiting") == 3)
    set_policy(url, "noeviction")
    assert [crew.ended(job).state for job in jobs] == ["succeeded"] * 3


def test_an_executor_that_is_started_meanwhile_claims_nothing_either(crew: Crew, url: str) -> None:
    worker = start(crew)
    until(lambda: " is ready" in worker.log)
    set_policy(url, "allkeys-lru")
    until(lambda: "This worker claims nothing" in worker.log)
    first = worker.executor
    crew.kill(first)
    until(lambda: "died" in worker.log and worker.executor != first)
    job = crew.put(app.hold, "job")
    crew.open("job")
    wait_for_looks(url, 40)
    assert crew.said("job", "runs") == []

    set_policy(url, "noeviction")
    assert crew.ended(job).state == "succeeded"


def test_a_worker_that_accepts_data_loss_logs_it_and_continues(crew: Crew, url: str) -> None:
    worker = start(crew, "--accept-data-loss")
    until(lambda: " is ready" in worker.log)
    wait_for_looks(url)
    set_policy(url, "allkeys-lru")
    until(lambda: "This worker continues because of --accept-data-loss." in worker.log)
    job = crew.put(app.hold, "job")
    crew.open("job")

    assert crew.ended(job).state == "succeeded"
    assert worker.stop() == 0


def test_a_worker_logs_how_many_keys_were_evicted(crew: Crew, url: str) -> None:
    worker = start(crew)
    until(lambda: " is ready" in worker.log)
    wait_for_looks(url)
    with redis.Redis.from_url(url) as client:
        used: Any = client.info("memory")
        client.config_set("maxmemory-policy", "volatile-ttl")
        client.config_set("maxmemory", used["used_memory"] + (1 << 20))
        for number in range(64):
            client.set(f"cache:{number}", b"x" * (1 << 16), ex=1000)
        client.config_set("maxmemory", 0)

    until(lambda: "keys since the last check: jobs may be missing; run holdfast doctor" in worker.log)
    assert "claims nothing" not in worker.log  # keys that expire are no jobs
    assert worker.stop() == 0


def test_a_worker_inside_a_program_claims_nothing_while_its_server_evicts_jobs(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_watch, "CHECK_INTERVAL", 0.05)
    caplog.set_level(logging.WARNING)
    jobs, ran = Holdfast(url), threading.Event()

    @jobs.task(name="run")
    def run() -> None:
        ran.set()

    with jobs.worker():
        run.enqueue().result(timeout="40s")
        ran.clear()
        set_policy(url, "allkeys-lfu")
        until(lambda: "This worker claims nothing" in caplog.text)
        job = run.enqueue()
        wait_for_looks(url)
        assert not ran.is_set()

        set_policy(url, "noeviction")
        job.result(timeout="40s")
    assert ran.is_set()
    jobs.close()


def test_a_worker_has_a_keeper_replaced_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "h"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setattr(store_watch, "CHECK_INTERVAL", 0.05)
    jobs = Holdfast()
    try:
        with jobs.worker():
            (first,) = until(lambda: keepers(home))
            until(lambda: keeper.has_keeper(str(home)))
            os.kill(first, signal.SIGKILL)
            until(lambda: keepers(home) not in ([], [first]))
            until(lambda: keeper.has_keeper(str(home)))
        jobs.close()
    finally:
        server.stop(home)
