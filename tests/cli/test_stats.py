"""`holdfast stats`: descriptions with histograms, lists by queue and task, series."""

from __future__ import annotations

import pytest

from holdfast.cli.stats import ROWS
from holdfast.job.outcome import Error, Succeed
from holdfast.records.statistics import spell
from tests.store.lua.test_state_machine import end, put, take
from tests.support.shells import Shell
from tests.support.statistics_ledger import BOUNDS


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """Three jobs of two queues, one of which failed, at the time of the server."""
    store = shell.client.store
    put(store, "a", queue="mail", task="app.send")
    put(store, "b", queue="mail", task="app.send", retries=0)
    put(store, "c", queue="video", task="encode")
    take(store, "node/one.0", "mail", "video", limit=3)
    end(store, "a", Succeed(b""))
    end(store, "b", Error(b"", "g"))
    end(store, "c", Succeed(b""))
    return shell


def test_a_description_of_all_queues_and_of_one(filled: Shell) -> None:
    every = dict(row[:2] for row in filled("stats").rows)
    assert every["queue"] == "all queues"
    assert (every["ended attempts"], every["failures"], every["retries"]) == ("3", "1, 1 still failed", "0")
    mail = filled("stats", "mail", "--task", "app.send")
    assert "1 times, mean" in dict(row[:2] for row in mail.rows)["run"]
    assert "###" in mail.out
    assert "##########" in filled.on_a_terminal("stats", "mail")


def test_json_has_quantiles_with_bounds_and_the_histogram(filled: Shell) -> None:
    found = filled("stats", "mail", "--json").json
    assert (found["queue"], found["task"], found["ended"], found["failures"]) == ("mail", None, 2, 1)
    assert found["wait"]["count"] == 2
    quantile = found["wait"]["quantiles"]["0.95"]
    assert quantile["lower"] <= quantile["value"] <= quantile["upper"]
    assert sum(bucket["count"] for bucket in found["wait"]["histogram"]) == 2
    assert found["run"]["stdev"] is None


def test_lists_by_queue_and_by_task(filled: Shell) -> None:
    assert [row[0] for row in filled("stats", "--by", "queue").rows] == ["mail", "video"]
    assert [row[0] for row in filled("stats", "mail", "--by", "task").rows] == ["app.send"]
    assert filled("stats", "--by", "queue", "--json").json[1]["runs"] == 1
    refused = filled("stats", "--by", "task")
    assert refused.code == 2
    assert "needs a queue" in refused.err


def test_series(filled: Shell) -> None:
    points = filled("stats", "--series", "minute", "--json").json
    assert (len(points), sum(point["ended"] for point in points)) == (181, 3)
    assert filled("stats", "video", "--series", "hour", "--since", "3h").rows[-1][2] == "1"
    refused = filled("stats", "--series", "hour", "--day", "today")
    assert refused.code == 2
    assert "excludes" in refused.err


def test_days(filled: Shell) -> None:
    assert filled("stats", "--day", "today", "--json").json["ended"] == 3
    assert filled("stats", "--day", "yesterday", "--json").json["ended"] == 0
    assert filled("stats", "--since", "7d", "--json").json["ended"] == 3
    assert filled("stats", "--since", "2020-01-01", "--until", "2020-01-02", "--json").json["ended"] == 0
    refused = filled("stats", "--day", "soon")
    assert refused.code == 2
    assert "2024-07-01" in refused.err
    refused = filled("stats", "--since", "soon")
    assert refused.code == 2
    assert "--since" in refused.err


def test_a_queue_that_does_not_exist_is_not_found(filled: Shell) -> None:
    refused = filled("stats", "mial")
    assert refused.code == 3
    assert "did you mean mail" in refused.err


def test_each_row_of_a_histogram_begins_where_a_bucket_begins() -> None:
    assert {round(start * 1000) for start in ROWS} <= {*BOUNDS}


def test_durations_are_spelled_for_people() -> None:
    given = {0: "0ms", 0.0004: "0.4ms", 0.012: "12ms", 1.5: "1.5s", 83: "1m23s", 7200: "2h"}
    assert {seconds: spell(seconds) for seconds in given} == given
