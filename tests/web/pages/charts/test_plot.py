"""Plots over time: axes, buckets, marks, and the table behind."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree.ElementTree import Element

import pytest

from holdfast.web.pages.charts import Mark, Panel, Series, Times, plot
from holdfast.web.pages.charts.plot import HEIGHT, WIDTH
from holdfast.web.pages.charts.svg import round_top
from holdfast.web.pages.formats import duration
from tests.web.pages.charts.parsing import parse_plot, paths, texts

START = datetime(2026, 11, 16, 7, 40, tzinfo=UTC)
TIMES = Times(START, timedelta(minutes=10), 6)


def _drawn(*panels: Panel, times: Times = TIMES, marks: tuple[Mark, ...] = ()) -> tuple[Element, Element]:
    """Return the picture and the table of a plot."""
    return parse_plot(plot("Jobs", times, panels, marks=marks))


def _bars(svg: Element, state: str) -> list[Element]:
    return [each for each in svg.iter("rect") if state in each.attrib["class"].split()]


def test_bars_stand_on_the_axis_and_are_as_high_as_their_values() -> None:
    svg, _ = _drawn(Panel([Series("succeeded", [0, 400, 800, 200, None, 100], "succeeded")]))
    bars = _bars(svg, "succeeded")
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights == pytest.approx([82, 164, 41, 20.5], abs=0.1)
    assert [float(bar.attrib["y"]) + height for bar, height in zip(bars, heights, strict=True)] == pytest.approx(
        [178] * 4, abs=0.1
    )
    assert texts(svg)[:3] == ["0", "400", "800"]


@pytest.mark.parametrize("value", [0.00002, 0.0004, 0.02, 5.0, 2e4, 3e7])
def test_a_log_axis_of_seconds_has_ticks_whatever_the_values_are(value: float) -> None:
    waits = Series("mean wait", [value] * 6)
    svg, _ = _drawn(Panel([waits], kind="lines", log=True, seconds=True, spell=duration))
    assert len([each for each in texts(svg) if re.fullmatch(r"[\d.,]+ (ms|s|min|h|d).*", each)]) >= 2


def test_the_line_to_a_bucket_that_is_still_open_is_dashed() -> None:
    panel = Panel([Series("arriving", [1, 2, 3, 4, 5, 1], "succeeded")], kind="lines")
    curves = [each for each in _drawn(panel)[0].iter("path") if "curve" in each.attrib["class"]]
    assert ["stroke-dasharray" in each.attrib for each in curves] == [False, True]
    closed = _drawn(panel, times=Times(START, timedelta(minutes=10), 6, closed=True))[0]
    assert [each for each in closed.iter("path") if "stroke-dasharray" in each.attrib] == []


def test_the_bucket_that_is_still_open_is_hatched_and_says_so() -> None:
    panel = Panel([Series("failed", [1, 1, 1, 1, 1, 1], "failed")])
    svg, table = _drawn(panel)
    last = _bars(svg, "failed")[-1]
    assert (last.attrib["fill"], last.attrib["class"]) == ("url(#open-failed)", "open failed")
    assert last[0].text == "08:30, still open: 1 failed"
    assert next(table.iter("td")).text == "08:30, still open"
    closed, _ = _drawn(panel, times=Times(START, timedelta(minutes=10), 6, closed=True))
    assert all("fill" not in each.attrib for each in _bars(closed, "failed"))
    assert "now" in texts(svg)
    assert texts(closed)[-1] == "08:40"


def test_panels_have_axes_of_their_own_so_that_few_failures_are_visible_under_many_successes() -> None:
    svg, _ = _drawn(
        Panel([Series("succeeded", [700] * 6, "succeeded")], weight=3), Panel([Series("failed", [6] * 6, "failed")])
    )
    high, low = _bars(svg, "succeeded")[0], _bars(svg, "failed")[0]
    assert float(low.attrib["height"]) > 30
    assert float(high.attrib["y"]) + float(high.attrib["height"]) < float(low.attrib["y"])
    assert texts(svg)[:5] == ["0", "400", "800", "0", "6"]  # a low panel has numbers at its ends only


def test_series_of_a_panel_stand_on_each_other() -> None:
    svg, _ = _drawn(Panel([Series("crashed", [1] * 6, "failed"), Series("cancelled", [3] * 6, "cancelled")]))
    below, above = _bars(svg, "failed")[0], _bars(svg, "cancelled")[0]
    assert float(above.attrib["y"]) + float(above.attrib["height"]) == pytest.approx(float(below.attrib["y"]), abs=0.1)
    assert float(above.attrib["height"]) == pytest.approx(3 * float(below.attrib["height"]), abs=0.2)


def test_a_log_axis_is_marked_and_its_steps_are_equal() -> None:
    panel = Panel([Series("p50", [0.02, 0.2, 2, 20, 50, 50])], "lines", log=True, spell=duration, seconds=True)
    svg, _ = _drawn(panel, times=Times(START, timedelta(minutes=10), 6, closed=True))
    assert "log axis" in texts(svg)
    assert texts(svg)[:5] == ["10 ms", "100 ms", "1 s", "10 s", "1 min"]
    [curve] = paths(svg, "curve")
    heights = [float(y) for y in re.findall(r" ([\d.]+)", curve)]
    steps = [before - after for before, after in pairwise(heights[:4])]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    assert steps[0] > 20


def test_a_line_has_a_gap_where_nothing_is_known() -> None:
    svg, table = _drawn(Panel([Series("p95", [1, 2, None, 3, None, 4])], "lines"))
    assert [path.count("L") for path in paths(svg, "curve")] == [1]
    assert [each.attrib["class"] for each in svg.iter("circle")] == ["point", "point"]
    assert [each.text for each in table.iter("td")][1::2] == ["4", "unknown", "3", "unknown", "2", "1"]


def test_an_area_ends_at_the_axis() -> None:
    svg, _ = _drawn(Panel([Series("waiting", [1, 2, 3, 4, 5, 6], "waiting")], "area"))
    [area] = paths(svg, "area")
    assert area.endswith("V178.0H44.0Z")


def test_names_of_lines_do_not_overlap() -> None:
    panel = Panel([Series("p50", [5.0] * 6), Series("p95", [5.1] * 6), Series("p99", [5.2] * 6)], "lines")
    svg, _ = _drawn(panel)
    names = {each.text: float(each.attrib["y"]) for each in svg.iter("text") if each.attrib.get("class") == "strong"}
    heights = sorted(names.values())
    assert set(names) == {"p50", "p95", "p99"}
    assert all(after - before >= 12 for before, after in pairwise(heights))


def test_times_are_round_and_the_end_is_now() -> None:
    svg, _ = _drawn(Panel([Series("jobs", [1] * 6)]))
    assert texts(svg)[2:] == ["07:40", "07:50", "08:00", "08:10", "08:20", "08:30", "now"]
    days = Times(START, timedelta(days=1), 30)
    svg, _ = _drawn(Panel([Series("jobs", [1] * 30)]), times=days)
    assert texts(svg)[2:] == ["19 Nov", "26 Nov", "3 Dec", "10 Dec", "now"]


def test_a_mark_is_drawn_at_its_time_and_named_if_there_is_room() -> None:
    marks = (Mark(START + timedelta(minutes=30), "r418"), Mark(START + timedelta(minutes=31), "r419"))
    svg, table = _drawn(Panel([Series("jobs", [1] * 6)]), marks=(*marks, Mark(START - timedelta(hours=1), "r417")))
    lines = [each for each in svg.iter("path") if each.attrib["class"] == "mark"]
    assert [each[0].text for each in lines] == ["r419, 08:11", "r418, 08:10"]
    assert lines[1].attrib["d"].startswith("M342.5 ")
    assert [text for text in texts(svg) if text.startswith("r4")] == ["r419"]  # the latest
    assert [each.text for each in table.iter("td")][4] == "08:10, r418, r419"


def test_everything_stays_inside_of_the_picture() -> None:
    panels = [
        Panel([Series("succeeded", [10**9, 1, 0, None, 5, 7], "succeeded")], weight=2),
        Panel([Series("a", [None] * 6), Series("b", [0.0] * 6)], "area", log=True),
    ]
    svg, _ = _drawn(*panels, marks=(Mark(TIMES.end, "r418"),))
    for each in svg.iter():
        if "x" in each.attrib:
            assert 0 <= float(each.attrib["x"]) <= WIDTH
            assert 0 <= float(each.attrib["y"]) <= HEIGHT
            assert float(each.attrib["x"]) + float(each.attrib.get("width", 0)) <= WIDTH


def test_what_others_wrote_stays_text() -> None:
    svg, table = _drawn(
        Panel([Series("<b>\u202e", [1] * 6)]), marks=(Mark(START + timedelta(minutes=30), "</svg><script>"),)
    )
    assert "</svg><script>" in texts(svg)
    assert [each.text for each in table.iter("th")] == ["Time", "<b>\\u202e"]


def test_an_axis_ends_at_a_number_with_a_simple_half() -> None:
    assert [round_top(value) for value in (0, 0.3, 1, 7, 12, 101, 740, 999, 1001)] == [
        1, pytest.approx(0.3), 1, 8, 20, 200, 800, 1000, 2000,
    ]  # fmt: skip
