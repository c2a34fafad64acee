"""The life of a job: what is to scale, and what is collapsed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree.ElementTree import Element

import pytest

from holdfast.web.pages.charts import Moment, Span, Track, timeline
from holdfast.web.pages.charts.timeline import COLLAPSED, GAP, LEFT, MIN_WIDTH, WIDTH, place
from tests.web.pages.charts.parsing import parse, paths, texts

START = datetime(2026, 11, 14, 22, 3, tzinfo=UTC)


def _spans(*parts: tuple[float, str, str]) -> list[Span]:
    """Return spans one after the other: minutes, state, and the name of an attempt."""
    found, at = [], START
    for minutes, state, label in parts:
        found.append(Span(at, at + timedelta(minutes=minutes), state, label))
        at = found[-1].end
    return found


STORY = _spans(
    (0.05, "waiting", ""), (372, "running", "Attempt 1"), (691, "throttled", ""), (124, "running", "Attempt 2")
)


def _svg(spans: list[Span] = STORY, **options: object) -> Element:
    return parse(timeline("Timeline", spans, **options))  # type: ignore[arg-type]


def test_attempts_are_to_scale_and_long_waits_have_a_fixed_width() -> None:
    pieces = place(STORY)
    widths = [piece.width for piece in pieces]
    assert widths[0] == MIN_WIDTH
    assert widths[2] == COLLAPSED
    assert widths[1] == pytest.approx(3 * widths[3])
    assert pieces[0].x == LEFT
    assert pieces[-1].x + widths[-1] == pytest.approx(WIDTH)
    assert all(one.x + one.width + GAP == pytest.approx(other.x) for one, other in pairwise(pieces))


def test_all_is_to_scale_if_asked() -> None:
    pieces = place(STORY, collapse=False)
    assert not any(piece.collapsed for piece in pieces)
    assert pieces[2].width / pieces[1].width == pytest.approx(691 / 372)


def test_a_job_of_a_thousand_attempts_fits() -> None:
    spans = _spans(*[(1, "running", f"Attempt {number}") for number in range(1000)])
    pieces = place(spans)
    assert pieces[-1].x + pieces[-1].width <= WIDTH + 1000 * MIN_WIDTH
    assert min(piece.width for piece in pieces) > 0
    assert len(list(_svg(spans).iter("rect"))) == 1000


def test_a_collapsed_wait_says_how_long_it_was_and_breaks_the_axis() -> None:
    track = Track("Memory", "41 GiB", STORY[3].start, timedelta(minutes=62), [10, 20], 40, "limit 48 GiB")
    svg = _svg(tracks=[track])
    assert {"11 h 31 min", "Memory", "41 GiB", "limit 48 GiB"} <= set(texts(svg))
    assert [len(paths(svg, kind)) for kind in ("zig", "base")] == [1, 2]
    [curve], [area] = paths(svg, "curve"), paths(svg, "area")
    assert area.startswith(curve)
    first = float(curve[1:].partition(" ")[0])
    last = place(STORY)[3]
    assert first == pytest.approx(last.x + last.width / 4, abs=0.1)  # the middle of the first point


def test_attempts_are_named_as_far_as_there_is_room() -> None:
    spans = _spans((100, "running", "Attempt 1"), (10, "running", "Attempt 2"), (2, "running", "Attempt 3"))
    assert texts(_svg(spans))[:4] == ["Attempt 1", "1 h 40 min", "Attempt 2", "3"]


def test_moments_are_where_they_happened_and_saves_are_ticks() -> None:
    moments = [Moment(STORY[2].start, "lease lost"), Moment(STORY[1].start + timedelta(minutes=186))]
    svg = _svg(moments=moments, is_open=True)
    pieces = place(STORY)
    [mark], [save] = paths(svg, "mark"), paths(svg, "save")
    assert float(mark[1:].partition(" ")[0]) == pytest.approx(pieces[2].x, abs=1)
    assert float(save[1:].partition(" ")[0]) == pytest.approx(pieces[1].x + pieces[1].width / 2, abs=0.1)
    assert {"lease lost", "now"} <= set(texts(svg))


def test_the_day_is_written_where_it_changes() -> None:
    svg = _svg(_spans((60, "running", "Attempt 1"), (60, "running", "Attempt 2"), (600, "running", "Attempt 3")))
    height = float(svg.attrib["viewBox"].split()[3])
    times = [each.text for each in svg.iter("text") if float(each.attrib["y"]) == height - 4]
    assert times == ["Sat 22:03", "23:03", "Sun 00:03", "10:03"]


def test_a_job_without_a_story_has_no_picture() -> None:
    assert timeline("Timeline", []) == ""
    assert _svg(_spans((0, "waiting", ""))).tag == "svg"


def test_times_of_a_short_story_have_seconds() -> None:
    found = texts(_svg(_spans((0.1, "waiting", ""), (0.5, "running", "Attempt 1"), (0.4, "running", "Attempt 2"))))
    assert [each for each in found if each.count(":") == 2] == ["Sat 22:03:00", "22:03:06", "22:03:36", "22:04:00"]
