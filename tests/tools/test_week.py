"""The week of a shop that `make web` shows: made by running jobs, so the store is consistent, and alive."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
from bench.week import Week, fill_week

from holdfast import Holdfast
from holdfast.testing.environment import running_server
from tests.support.store_check import nothing_found


@pytest.fixture(scope="module")
def shop() -> Iterator[Holdfast]:
    with running_server() as url:
        app = Holdfast(url, namespace="shop")
        yield app
        app.close()


@pytest.fixture(scope="module")
def week(shop: Holdfast) -> Iterator[Week]:
    """The last hour of the week: what goes wrong now."""
    with fill_week(shop, days=0.05, scale=0.2) as made:
        yield made


def test_all_states_occur_and_something_is_wrong(week: Week) -> None:
    app = week.app
    counts = {state: sum(queue.counts[state] for queue in app.queues()) for state in app.queues()[0].counts}
    assert not [state for state, count in counts.items() if not count and state != "cancelled"], counts
    failures = list(app.failures(by="fingerprint"))
    assert failures[0].type.endswith("ConnectTimeout")
    assert failures[0].revision == 418


def test_running_jobs_have_progress_a_checkpoint_and_a_log(week: Week) -> None:
    job = next(job for job in week.app.list(state="running", task="video.transcode") if job.progress)
    assert job.progress is not None
    assert job.progress.done
    assert job.progress.seconds_left or job.progress.fraction == 1
    assert "ffmpeg" in week.app.logs(job.id).text


def test_workers_are_live(week: Week) -> None:
    week.beat()
    assert {worker.node for worker in week.app.workers() if worker.is_live} >= {"rack1-a", "rack1-b", "edge-1", "gpu-2"}


def test_the_store_is_consistent(week: Week) -> None:
    nothing_found(week.app.store)


def test_the_shop_goes_on(week: Week) -> None:
    ended, watching = threading.Event(), Holdfast(week.app.url, namespace="shop")
    events = watching.subscribe(types="succeeded")

    def wait_for_an_end() -> None:
        next(events)
        ended.set()

    watcher = threading.Thread(target=wait_for_an_end)
    watcher.start()
    week.live(ended)
    watcher.join()
    watching.close()


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_make_web_shows_it_and_leaves_nothing_behind(ended_by: int) -> None:
    line = [sys.executable, "-m", "bench.week", "--port", "0", "--days", "0.01", "--scale", "0.1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as shop:
        assert shop.stdout is not None
        printed = "".join(islice(shop.stdout, 4))
        address = re.findall(r"http://127\.0\.0\.1:\d+/", printed)[0]
        page = httpx.get(address, trust_env=False).text
        shop.send_signal(ended_by)
    assert shop.returncode == 130
    assert "<title>Overview" in page
    assert not Path(re.findall(r"unix://(.+)/server\.sock", printed)[0]).exists()
