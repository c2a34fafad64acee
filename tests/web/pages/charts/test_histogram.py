"""Histograms: bars of buckets that grow."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import pytest

from holdfast.web.pages.charts import Bucket, histogram
from holdfast.web.pages.charts.histogram import WIDTH
from holdfast.web.pages.charts.svg import CHARACTER
from tests.web.pages.charts.parsing import parse_plot, paths

BUCKETS = [
    Bucket(0, 0.001, 0), Bucket(1, 10, 20), Bucket(10, 100, 40), Bucket(100, 1000, 1), Bucket(1000, None, 0),
]  # fmt: skip


def _drawn(buckets: list[Bucket], **options: object) -> tuple[Element, Element]:
    return parse_plot(histogram("Wait", buckets, **options))  # type: ignore[arg-type]


def test_bars_are_as_high_as_their_counts_and_empty_ends_are_left_out() -> None:
    svg, table = _drawn(BUCKETS, state="waiting")
    bars = list(svg.iter("rect"))
    assert [float(bar.attrib["height"]) for bar in bars] == pytest.approx([50, 100, 2.5])
    assert [bar[0].text for bar in bars] == [
        "1 s to 10 s: 20 jobs", "10 s to 1 min 40 s: 40 jobs", "1 min 40 s to 16 min 40 s: 1 job",
    ]  # fmt: skip
    assert [each.text for each in table.iter("td")] == [
        "1 s to 10 s", "20", "10 s to 1 min 40 s", "40", "1 min 40 s to 16 min 40 s", "1",
    ]  # fmt: skip


def test_a_mark_lies_in_its_bucket_in_proportion_of_the_logarithm() -> None:
    svg, _ = _drawn(BUCKETS, marks=[(31.62, "p50"), (1e9, "beyond")])
    [mark] = paths(svg, "mark")
    assert mark.startswith("M219.5 ")  # the middle of the second of three bars


def test_every_mark_is_named_inside_of_the_picture() -> None:
    svg, _ = _drawn(BUCKETS, marks=[(11, "p50 11 s"), (900, "p95 15 min"), (990, "p99 16 min 30 s")])
    assert len(paths(svg, "mark")) == 3
    names = [each for each in svg.iter("text") if each.attrib.get("class") == "strong"]
    assert [each.text for each in names] == ["p50 11 s", "p95 15 min"]  # the third would cover the second
    assert all(float(each.attrib["x"]) + len(each.text or "") * CHARACTER <= WIDTH for each in names)


def test_many_buckets_are_joined_and_none_is_lost() -> None:
    buckets = [Bucket(2.0**place, 2.0 ** (place + 1), place + 1) for place in range(40)]
    svg, table = _drawn(buckets)
    assert len(list(svg.iter("rect"))) == 10
    assert sum(int(each.text or 0) for each in list(table.iter("td"))[1::2]) == sum(range(41))


def test_nothing_is_an_empty_plot() -> None:
    svg, _ = _drawn([Bucket(0, 1, 0)])
    assert [each.attrib["height"] for each in svg.iter("rect")] == ["0"]
    assert [each[0].text for each in svg.iter("rect")] == ["below 1 s: 0 jobs"]
    assert _drawn([])[0].tag == "svg"
