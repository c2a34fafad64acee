"""The text formats, as the parser of Prometheus' client library reads them."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from holdfast import Holdfast
from holdfast.metrics import FAMILIES, OPENMETRICS, PROMETHEUS, Collector, Family
from holdfast.metrics.families import Sample
from holdfast.metrics.text import write
from holdfast.store.commands import TimesReply
from holdfast.testing import Workbench

HOSTILE = [
    'a"b',
    "a\\b",
    'a\\"b',
    "a\nb",
    "a\\nb",
    'x"} 1\nholdfast_jobs{queue="forged"} 7\n#',
    "\x00\x07\x1b[31m",
    "a\rb",
    "\u2028\u202ered",
    "{}=,le",
    " spaces ",
    "ü" * 100,
    "😀",
]


def read(text: str, parser: Any = parse) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return the values of all samples, by name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in parser(text):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in values, f"{sample.name} {labels} occurs twice"
            values[labels] = sample.value
    return found


@pytest.mark.parametrize(("media_type", "parser"), [(PROMETHEUS, parse), (OPENMETRICS, parse_open)])
def test_hostile_names_are_values_of_labels_and_nothing_else(media_type: str, parser: Any) -> None:
    gauge = Family("holdfast_jobs", "gauge", 'Jobs, "quoted" \\ and\nbroken.', ("queue", "task"), lambda _: ())
    times = TimesReply(3, 1500, 0.0, [(0, 1, 1), (512, 1000, 1), (86_400_000, None, 1)])
    histogram = Family("holdfast_wait_seconds", "histogram", "Times.", ("task",), lambda _: ())
    samples = [Sample((name, other), place) for place, name in enumerate(HOSTILE) for other in HOSTILE]
    text = write([(gauge, samples), (histogram, [Sample((name,), times) for name in HOSTILE])], media_type)
    found = read(text, parser)
    assert found["holdfast_jobs"] == {
        (("queue", name), ("task", other)): place for place, name in enumerate(HOSTILE) for other in HOSTILE
    }
    assert {dict(labels)["task"] for labels in found["holdfast_wait_seconds_count"]} == set(HOSTILE)
    assert set(found) == {"holdfast_jobs", *(f"holdfast_wait_seconds_{end}" for end in ("bucket", "count", "sum"))}


def run_some(jobs: Holdfast, bench: Workbench) -> None:
    @jobs.task(name="mail.send", queue="mail", retries=1, backoff="20s")
    def send(number: int) -> None:
        if number == 1:
            raise ValueError("no such address")

    jobs.enqueue_many([send.bind(number) for number in range(4)])
    bench.advance("3s")
    bench.run_until_empty()
    bench.advance("20s")
    bench.run_until_empty()
    jobs.enqueue(send.bind(9))
    bench.advance("7s")


@pytest.mark.parametrize(("media_type", "parser"), [(PROMETHEUS, parse), (OPENMETRICS, parse_open)])
def test_the_text_has_what_the_client_says(jobs: Holdfast, bench: Workbench, media_type: str, parser: Any) -> None:
    run_some(jobs, bench)
    found = read(Collector(jobs).text(media_type), parser)
    queue, task = ("queue", "mail"), ("task", "mail.send")
    assert found["holdfast_jobs"][queue, ("state", "waiting")] == 1
    assert found["holdfast_jobs"][queue, ("state", "failed")] == 1
    assert found["holdfast_oldest_seconds"][queue,] >= 7
    assert found["holdfast_needed"][queue,] == jobs.load("mail")[0].needed
    attempts = {dict(labels)["outcome"]: count for labels, count in found["holdfast_attempts_total"].items()}
    assert attempts == {"completed": 3, "retried": 1, "other": 1}
    assert found["holdfast_failures_total"][queue, task] == 1
    stats = jobs.stats("mail")
    for name, times in (("wait", stats.wait), ("run", stats.run)):
        assert found[f"holdfast_{name}_seconds_count"][queue, task] == times.count
        assert found[f"holdfast_{name}_seconds_sum"][queue, task] == times.total
    below = {dict(labels)["le"]: count for labels, count in found["holdfast_wait_seconds_bucket"].items()}
    assert below["60.0"] == sum(bucket.count for bucket in stats.wait.histogram if (bucket.upper or 61) <= 60)
    assert list(below.values()) == sorted(below.values())
    assert below["+Inf"] == 5
    assert found["holdfast_store_up"][()] == 1
    assert set(found) <= _sample_names()


def _sample_names() -> set[str]:
    ends = {"histogram": ("_bucket", "_sum", "_count")}
    return {f"{family.name}{end}" for family in FAMILIES for end in ends.get(family.kind, ("",))}


def test_the_order_is_always_the_same(jobs: Holdfast, bench: Workbench) -> None:
    run_some(jobs, bench)
    first, second = ([line.rpartition(" ")[0] for line in Collector(jobs).text().splitlines()] for _ in range(2))
    assert first == second


def test_names_keep_to_the_rules_of_prometheus() -> None:
    for family in FAMILIES:
        assert family.name.startswith("holdfast_")
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert family.help.endswith("."), family.name
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
