"""`holdfast metrics`: the text that `/metrics` serves."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open

from holdfast.metrics import Collector
from tests.metrics.test_text import read
from tests.support.shells import Shell


def test_the_text_is_that_of_the_collector(shell: Shell) -> None:
    shell.put("mine", queue="mail")
    done = shell("metrics")
    assert (done.code, done.err) == (0, "")
    printed, collected = read(done.out), read(Collector(shell.client).text())
    assert printed.keys() == collected.keys()
    assert printed["holdfast_jobs"] == collected["holdfast_jobs"]


def test_openmetrics_can_be_printed(shell: Shell) -> None:
    shell.put("mine")
    assert "holdfast_jobs" in read(shell("metrics", "--openmetrics").out, parse_open)


def test_without_a_server_it_fails(shell: Shell) -> None:
    done = shell("metrics", "--url", f"unix://{shell.folder}/nowhere.sock")
    assert (done.code, done.out) == (4, "")
