"""Shapes without axes: their geometry."""

from __future__ import annotations

import random

from holdfast.web.pages.charts import BAR_STATES, bar_total, sparkline, state_bar
from holdfast.web.pages.charts.glance import GAP, MIN_SEGMENT, shares
from tests.web.pages.charts.parsing import parse


def _rects(counts: dict[str, int], largest: int = 0) -> list[tuple[str, float, float]]:
    """Return class, x and width of the segments of a bar."""
    svg = parse(state_bar(counts, largest))
    return [(each.attrib["class"], float(each.attrib["x"]), float(each.attrib["width"])) for each in svg.iter("rect")]


def test_the_length_of_a_bar_is_the_square_root_of_its_jobs() -> None:
    assert _rects({"waiting": 2000}, 2000) == [("waiting", 0.0, 220.0)]
    assert _rects({"waiting": 500}, 2000) == [("waiting", 0.0, 110.0)]
    assert _rects({"waiting": 20}, 2000) == [("waiting", 0.0, 22.0)]


def test_a_bar_has_its_states_in_order_and_patterns_for_those_that_look_alike() -> None:
    counts = {"failed": 10, "running": 10, "throttled": 10, "blocked": 10, "succeeded": 10_000}
    assert [kind for kind, _, _ in _rects(counts)] == ["running", "throttled pat", "blocked pat", "failed"]
    svg = parse(state_bar(counts))
    assert [each.attrib.get("fill") for each in svg.iter("rect")] == [
        None, "url(#p-throttled)", "url(#p-blocked)", None,
    ]  # fmt: skip
    assert svg.attrib["aria-label"] == "10 running, 10 throttled, 10 blocked, 10 failed"


def test_every_segment_can_be_seen_and_none_leaves_the_bar() -> None:
    chance = random.Random(5)
    for _ in range(300):
        counts = {state: chance.choice((0, 1, 3, 40, 2000, 1_000_000)) for state in BAR_STATES}
        rects = _rects(counts, chance.choice((0, 100, 5_000_000)))
        assert len(rects) == sum(1 for count in counts.values() if count)
        assert all(width >= MIN_SEGMENT for _, _, width in rects)
        ends = [x + width for _, x, width in rects]
        assert all(abs(after[1] - end - GAP) < 0.11 for after, end in zip(rects[1:], ends, strict=False))
        assert not ends or ends[-1] <= 220.6  # rounded


def test_an_empty_bar_says_so() -> None:
    assert _rects({}) == []
    assert parse(state_bar({})).attrib["aria-label"] == "no jobs"
    assert bar_total({"waiting": 2, "failed": 1, "succeeded": 9}) == 3


def test_a_room_is_divided_in_proportion_but_each_gets_a_minimum() -> None:
    assert shares([1, 1, 2], 100, 3) == [25, 25, 50]
    assert shares([0, 0, 50], 100, 3) == [3, 3, 94]
    assert shares([0, 0], 100, 3) == [3, 3]
    assert shares([1, 1000, 1000], 106, 3) == [3, 51.5, 51.5]
    assert shares([], 100, 3) == []


def test_a_sparkline_reaches_from_edge_to_edge() -> None:
    svg = parse(sparkline([0, 5, 10], "failed", "Failures"))
    area, curve = svg.iter("path")
    assert curve.attrib == {"class": "curve", "d": "M0 21L48 11.5L96 2"}
    assert area.attrib["d"] == "M0 21L48 11.5L96 2V22H0Z"
    assert (svg.attrib["class"], svg.attrib["role"]) == ("spark failed", "img")
    assert parse(sparkline([1, 2])).attrib["aria-hidden"] == "true"
    assert sparkline([1]) == ""


def test_bars_of_a_sparkline_show_that_nothing_happened() -> None:
    svg = parse(sparkline([0, 1, 100], bars=True))
    assert [(each.attrib["class"], each.attrib["height"]) for each in svg.iter("rect")] == [
        ("nil", "1"), ("bars", "2"), ("bars", "22"),
    ]  # fmt: skip
