"""Shapes without axes, that are read at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from markupsafe import Markup

from holdfast.web.pages.charts.svg import draw, line, markup, new_svg
from holdfast.web.pages.formats import number

BAR_STATES = ("running", "waiting", "throttled", "blocked", "scheduled", "failed")  # of jobs that need something
PATTERNED = ("throttled", "blocked")
MIN_SEGMENT, GAP = 3.0, 1.5


def state_bar(counts: Mapping[str, Any], largest: int = 0, *, wide: bool = False) -> Markup:
    """Draw the jobs of a queue by state; `largest` is the number of jobs of the longest bar on the page.

    The length of the bar is the square root of their number, so that 40 jobs remain visible beside 2,000.
    """
    width, height = (1000, 14) if wide else (220, 10)
    shown = {state: counts[state] for state in BAR_STATES if counts.get(state)}
    total = sum(shown.values())
    label = ", ".join(f"{number(count)} {state}" for state, count in shown.items()) or "no jobs"
    svg = new_svg("stack wide" if wide else "stack", width, height, label, preserveAspectRatio="none")
    x, length = 0.0, width * sqrt(total / max(total, largest, 1))
    for (state, count), size in zip(shown.items(), _segments(list(shown.values()), length, width), strict=True):
        pattern = {"class_": f"{state} pat", "fill": f"url(#p-{state})"} if state in PATTERNED else {"class_": state}
        segment = draw(svg, "rect", **pattern, x=x, width=size, height=height)
        draw(segment, "title", f"{number(count)} {state}")
        x += size + GAP
    return markup(svg)


def bar_total(counts: Mapping[str, Any]) -> int:
    """Return the number of jobs that a bar shows."""
    return sum(counts.get(state, 0) for state in BAR_STATES)


def _segments(counts: Sequence[int], length: float, width: float) -> list[float]:
    """Return lengths in the proportion of the counts, but none too small to be seen."""
    gaps = GAP * (len(counts) - 1)
    room = min(max(length - gaps, MIN_SEGMENT * len(counts)), width - gaps)
    return shares(counts, room, MIN_SEGMENT)


def shares(sizes: Sequence[float], room: float, minimum: float) -> list[float]:
    """Divide a room in the proportion of sizes, but give each a minimum."""
    large, rest = set(range(len(sizes))), room
    while large:
        total = sum(sizes[place] for place in large)
        small = {place for place in large if sizes[place] * rest < minimum * total or not total}
        if not small:
            break
        large -= small
        rest -= minimum * len(small)
    total = sum(sizes[place] for place in large)
    return [size * max(rest, 0) / total if place in large else minimum for place, size in enumerate(sizes)]


def sparkline(
    values: Sequence[float], state: str = "", label: str = "", *, bars: bool = False, width: int = 96, height: int = 22
) -> Markup:
    """Draw a line without axes, or bars for what is rare. Without a label, readers do not notice it."""
    if len(values) < 2:
        return Markup("")
    svg = new_svg(f"spark {state}".rstrip(), width, height, label, preserveAspectRatio="none")
    top = max(*values, 0) or 1
    if bars:
        step = width / len(values)
        for place, value in enumerate(values):
            tall = max(value / top * height, 2.0) if value else 1.0
            kind = "bars" if value else "nil"
            draw(svg, "rect", class_=kind, x=place * step, y=height - tall, width=max(step - 1, 0.5), height=tall)
        return markup(svg)
    step = width / (len(values) - 1)
    path = line((place * step, height - 1 - value / top * (height - 3)) for place, value in enumerate(values))
    draw(svg, "path", class_="area", d=f"{path}V{height}H0Z")
    draw(svg, "path", class_="curve", d=path)
    return markup(svg)
