"""Plots, drawn as SVG: geometry in attributes and colour in classes, so they need neither scripts nor inline styles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from holdfast.web.pages.formats import number

BAR_STATES = ("running", "waiting", "throttled", "blocked", "scheduled", "failed")  # of jobs that need something
PATTERNED = ("throttled", "blocked")
MIN_SEGMENT, GAP = 3.0, 1.5


def markup(svg: Element) -> Markup:
    """Return an element as text, with all values escaped."""
    return Markup(tostring(svg, encoding="unicode"))  # noqa: S704


def draw(parent: Element, tag: str, **attributes: Any) -> Element:
    """Add an element. Numbers are rounded to a tenth; `class_` is the class."""
    spelled = {name.rstrip("_").replace("_", "-"): _spell(value) for name, value in attributes.items()}
    return SubElement(parent, tag, spelled)


def _spell(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _plot(kind: str, width: int, height: int, label: str, **more: str) -> Element:
    """Return an empty plot. One without a label repeats what stands beside it, and is hidden from readers."""
    named = {"role": "img", "aria-label": label} if label else {"aria-hidden": "true"}
    return Element("svg", {"class": kind, "viewBox": f"0 0 {width} {height}", **named, **more})


def state_bar(counts: Mapping[str, Any], largest: int = 0, *, wide: bool = False) -> Markup:
    """Draw the jobs of a queue by state; `largest` is the number of jobs of the longest bar on the page.

    The length of the bar is the square root of their number, so that 40 jobs remain visible beside 2,000.
    """
    width, height = (1000, 14) if wide else (220, 10)
    shown = {state: counts[state] for state in BAR_STATES if counts.get(state)}
    total = sum(shown.values())
    label = ", ".join(f"{number(count)} {state}" for state, count in shown.items()) or "no jobs"
    svg = _plot("stack wide" if wide else "stack", width, height, label, preserveAspectRatio="none")
    x, length = 0.0, width * sqrt(total / max(total, largest, 1))
    for (state, count), size in zip(shown.items(), _segments(list(shown.values()), length, width), strict=True):
        pattern = {"class_": f"{state} pat", "fill": f"url(#p-{state})"} if state in PATTERNED else {"class_": state}
        segment = draw(svg, "rect", **pattern, x=x, width=size, height=height)
        draw(segment, "title").text = f"{number(count)} {state}"
        x += size + GAP
    return markup(svg)


def bar_total(counts: Mapping[str, Any]) -> int:
    """Return the number of jobs that a bar shows."""
    return sum(counts.get(state, 0) for state in BAR_STATES)


def _segments(counts: Sequence[int], length: float, width: float) -> list[float]:
    """Return lengths in the proportion of the counts, but none too small to be seen."""
    gaps = GAP * (len(counts) - 1)
    room = min(max(length - gaps, MIN_SEGMENT * len(counts)), width - gaps)
    total = sum(counts)
    large = [count for count in counts if count * room / total >= MIN_SEGMENT]
    rest = room - MIN_SEGMENT * (len(counts) - len(large))
    return [max(count * rest / sum(large), MIN_SEGMENT) if large else MIN_SEGMENT for count in counts]


def sparkline(
    values: Sequence[float], state: str = "", label: str = "", *, width: int = 96, height: int = 22
) -> Markup:
    """Draw a line without axes."""
    if len(values) < 2:
        return Markup("")
    svg = _plot(f"spark {state}".rstrip(), width, height, label, preserveAspectRatio="none")
    top, step = max(*values, 0) or 1, width / (len(values) - 1)
    line = _line([(place * step, height - 1 - value / top * (height - 3)) for place, value in enumerate(values)])
    draw(svg, "path", class_="area", d=f"{line}V{height}H0Z")
    draw(svg, "path", class_="curve", d=line)
    return markup(svg)


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_spell(x)} {_spell(y)}" for x, y in points)
