"""Memory and CPU of jobs over time, and how compactly they are stored."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from holdfast.cli.usage import chart
from holdfast.job.usage import MAX_POINTS, JobUsage, Series, read_usage
from holdfast.worker.linux import boot_time
from holdfast.worker.processes import start_time
from tests.apps import long_app
from tests.support.shells import Shell
from tests.support.workers import Crew, until

APP = "tests.apps.long_app"
MIB = 1 << 20


def usage_of(series: Series) -> JobUsage:
    usage = read_usage(1, series.text())
    assert usage
    return usage


@pytest.mark.parametrize("every", [0.5, 2.0, 3.0, 10.0, 7000.0])
def test_a_month_of_looks_is_kept_in_some_points_and_nothing_of_it_is_lost(every: float) -> None:
    series = Series()
    looks = int(min(30 * 24 * 3600, 50_000 * every) / every)
    for look in range(looks):
        series.add(every, 3 * MIB if look == looks // 2 else MIB, every / 2)

    usage = usage_of(series)

    assert MAX_POINTS // 2 <= len(usage.memory) == len(usage.cpu) <= MAX_POINTS
    assert usage.seconds == pytest.approx(looks * every)
    assert usage.mean_cpu == pytest.approx(0.5)
    assert usage.cpu == pytest.approx([0.5] * len(usage.cpu), abs=0.01)
    assert usage.peak_memory == 3 * MIB
    assert 1 <= sum(memory == 3 * MIB for memory in usage.memory) <= 2
    assert len(series.text()) < 1500


def test_a_series_shows_when_a_job_was_busy() -> None:
    series = Series()
    for busy in (0, 0, 2, 2, 0, 1):
        series.add(2.0, MIB, busy)

    assert usage_of(series).cpu == [0, 0, 1, 1, 0, 0.5]
    assert chart(usage_of(series).cpu) == "▁▁██▁▅"


def test_usage_in_the_format_of_another_release_is_ignored() -> None:
    assert read_usage(1, b"who knows") is None


def test_a_process_is_known_to_have_been_there_before_its_job() -> None:
    before = boot_time()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert before - 0.1 <= start_time(process.pid) <= boot_time() + 0.1
    assert start_time(os.getpid()) < before
    assert start_time(process.pid) == 0


def test_memory_and_cpu_of_a_job_are_kept_and_shown(crew: Crew, shell: Shell, namespace: str) -> None:
    crew.start("--processes", "3", app=APP, HOLDFAST_NAMESPACE=namespace)
    short = shell.client.enqueue(long_app.wait_for_file.bind("/"))
    calls = [long_app.use.bind(64, 5.0), long_app.jobs.tasks["use-process"].bind(1, 6.5)]
    big, small = shell.client.enqueue_many(calls)
    until(lambda: shell.client.get(small.id).is_final)

    usage = until(lambda: shell.client.usage(big.id))

    assert usage.attempt == 1
    assert 60 * MIB < usage.peak_memory < 300 * MIB
    assert 0 < usage.cpu_seconds <= shell.client.get(big.id).decoded_result() + 1
    assert shell.client.usage(short.id) is None
    assert until(lambda: asyncio.run(ausage(shell, small.id))).peak_memory < usage.peak_memory
    shown = shell("show", big.id).out
    assert "usage\tmemory " in shown
    assert "% of a core" in shown
    assert any(bar in shell.on_a_terminal("show", big.id) for bar in "▁▂▃▄▅▆▇█")
    assert shell("show", big.id, "--json").json["usage"]["peak_memory_bytes"] == usage.peak_memory


async def ausage(shell: Shell, id: str) -> JobUsage | None:
    try:
        return await shell.client.ausage(id)
    finally:
        await shell.client.aclose()
