"""When a backlog will be gone, as a bar: to the middle of the simulations, with the range of eight of ten of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from holdfast.web.pages.charts.svg import draw, markup, new_svg
from holdfast.web.pages.formats import duration

WIDTH, HEIGHT = 320, 12
UNKNOWN = ("unknown", "complexity")  # what holds a backlog up, if no forecast can be made


def longest(forecasts: Iterable[Mapping[str, Any]]) -> float:
    """Return the end of the common axis of some forecasts, in seconds."""
    ends = [value for each in forecasts for value in (each["after"], each["latest"]) if value is not None]
    return max(ends, default=0.0)


def forecast_bars(forecast: Mapping[str, Any], top: float) -> Markup:
    """Draw a forecast. `top` is the end of the axis, in seconds; a bar without an end fills it."""
    after, earliest, latest = forecast["after"], forecast["earliest"], forecast["latest"]
    svg = new_svg("forecast", WIDTH, HEIGHT, _label(forecast), preserveAspectRatio="none")
    draw(svg, "rect", class_="void", x=0, y=2, width=WIDTH, height=HEIGHT - 4, rx=2)
    if forecast["held_up_by"] in UNKNOWN:
        return markup(svg)
    if after is None:
        draw(svg, "rect", class_="failed pat", fill="url(#open-failed)", x=0, y=2, width=WIDTH, height=HEIGHT - 4)
        return markup(svg)
    draw(svg, "rect", class_="running", x=0, y=2, width=max(_place(after, top), 2.0), height=HEIGHT - 4, rx=2)
    begin, end = _place(earliest or 0.0, top), WIDTH if latest is None else _place(latest, top)
    draw(svg, "path", class_="range", d=f"M{begin:.1f} 6H{end:.1f}M{begin:.1f} 1V11M{end:.1f} 1V11")
    return markup(svg)


def _label(forecast: Mapping[str, Any]) -> str:
    if forecast["held_up_by"] in UNKNOWN:
        return "unknown"
    return "it does not end within 30 days" if forecast["after"] is None else f"gone in {duration(forecast['after'])}"


def _place(seconds: float, top: float) -> float:
    return min(seconds / top, 1.0) * WIDTH if top > 0 else 0.0
