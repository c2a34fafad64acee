"""Plots over time: bars, lines and areas, each panel with an axis of its own, above the same times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element

import msgspec
from markupsafe import Markup

from holdfast.web.pages.charts.svg import CHARACTER, Point, draw, line, markup, new_svg, round_top, runs, table
from holdfast.web.pages.formats import number

WIDTH, HEIGHT = 640, 200
TOP, BOTTOM, BETWEEN = 14, 22, 14  # room for marks, for times, and between panels
MAX_TIMES = 7
STEPS = [timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080)]
# Ticks of an axis of seconds; other axes have powers of ten.
SECONDS = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 36_000, 86_400, 864_000, 8_640_000)


class Times(msgspec.Struct, frozen=True):
    """The buckets of a plot. The last one is still open unless `closed`."""

    start: datetime
    step: timedelta
    count: int
    closed: bool = False

    @property
    def end(self) -> datetime:
        return self.start + self.count * self.step


class Series(NamedTuple):
    """A number for each bucket; None is unknown, and drawn as a gap. `state` gives the colour."""

    name: str
    values: Sequence[float | None]
    state: str = ""


class Panel(NamedTuple):
    """Series with a common axis. Bars of several series stand on each other. `weight` is its share of the height."""

    series: Sequence[Series]
    kind: Literal["bars", "lines", "area"] = "bars"
    log: bool = False
    spell: Callable[[float | None], str] = number
    weight: int = 1
    seconds: bool = False  # the ticks of a log axis are those of durations


class Mark(NamedTuple):
    """Something that happened: a deploy, say."""

    at: datetime
    label: str


class Axis(NamedTuple):
    """Where a panel is, and which values are at its ends."""

    left: float
    right: float
    top: float
    bottom: float
    least: float
    most: float
    log: bool

    def y(self, value: float) -> float:
        if self.log:
            share = log10(max(value, self.least) / self.least) / (log10(self.most / self.least) or 1)
        else:
            share = (value - self.least) / (self.most - self.least)
        return self.bottom - share * (self.bottom - self.top)


def plot(label: str, times: Times, panels: Sequence[Panel], *, marks: Sequence[Mark] = ()) -> Markup:
    """Draw panels above each other, with the table of their numbers behind."""
    svg = new_svg("chart lg", WIDTH, HEIGHT, label)
    ranges = [_range(panel) for panel in panels]
    highest = max(panel.weight for panel in panels)
    ticks = [_ticks(panel, *found, is_low=panel.weight < highest) for panel, found in zip(panels, ranges, strict=True)]
    widest = max(len(panel.spell(tick)) for panel, some in zip(panels, ticks, strict=True) for tick in some)
    left = max(44.0, 16 + widest * CHARACTER)
    named = any(panel.kind != "bars" and len(panel.series) > 1 for panel in panels)
    right = WIDTH - (8 + CHARACTER * max(len(each.name) for panel in panels for each in panel.series) if named else 0.0)
    room = HEIGHT - TOP - BOTTOM - BETWEEN * (len(panels) - 1)
    weights = sum(panel.weight for panel in panels)
    top = float(TOP)
    for panel, (least, most), some in zip(panels, ranges, ticks, strict=True):
        height = room * panel.weight / weights
        axis = Axis(left, right, top, top + height, least, most, panel.log)
        _draw_axis(svg, panel, axis, some, is_last=panel is panels[-1])
        (_draw_bars if panel.kind == "bars" else _draw_lines)(svg, panel, axis, times)
        top += height + BETWEEN
    if any(panel.log for panel in panels):
        draw(svg, "text", "log axis", x=left, y=10)
    _draw_times(svg, times, left, right)
    _draw_marks(svg, times, marks, (left, right), free=left + 60 if any(panel.log for panel in panels) else left - 20)
    return markup(svg) + markup(_table(times, panels, marks))


def _range(panel: Panel) -> tuple[float, float]:
    """Return the values at the ends of an axis."""
    if panel.kind == "bars":
        columns = zip(*(each.values for each in panel.series), strict=True)
        known = [sum(value or 0 for value in column) for column in columns]
    else:
        known = [value for each in panel.series for value in each.values if value is not None]
    if not panel.log:
        return 0.0, round_top(max(known, default=0))
    positive = [max(value, SECONDS[0]) if panel.seconds else value for value in known if value > 0] or [1.0]
    least, most = 10.0 ** floor(log10(min(positive))), 10.0 ** ceil(log10(max(positive)))
    return least, most if most > least else least * 10


def _ticks(panel: Panel, least: float, most: float, *, is_low: bool) -> list[float]:
    if not panel.log:
        return [0.0, most] if is_low or most in (1, 2) else [0.0, most / 2, most]
    powers = SECONDS if panel.seconds else tuple(10.0**power for power in range(-9, 16))
    found = [power for power in powers if least * 0.999 <= power <= most * 1.001]
    return found[:: ceil(len(found) / 6)] if found else [least, most]


def _draw_axis(svg: Element, panel: Panel, axis: Axis, ticks: Sequence[float], *, is_last: bool) -> None:
    """Draw lines at the ticks. On a phone, where text is larger, those in between and between panels have no number."""
    for place, tick in enumerate(ticks):
        y = axis.y(tick)
        is_base = tick == axis.least
        draw(svg, "path", class_="base" if is_base else "grid", d=f"M{axis.left:.0f} {y + 0.5:.1f}H{axis.right:.0f}")
        kind = {"class_": "alt"} if 0 < place < len(ticks) - 1 or (is_base and not is_last) else {}
        draw(svg, "text", panel.spell(tick), **kind, x=axis.left - 8, y=y + 4, text_anchor="end")


def _draw_bars(svg: Element, panel: Panel, axis: Axis, times: Times) -> None:
    step = (axis.right - axis.left) / times.count
    for place in range(times.count):
        is_open = place == times.count - 1 and not times.closed
        base = axis.bottom
        for series in panel.series:
            value = series.values[place]
            if not value:
                continue
            tall = max(axis.bottom - axis.y(value), 1.0)
            kind = f"bars{' calm' if series.state == 'succeeded' else ''} {series.state}".rstrip()
            look = {"class_": f"open {series.state}".rstrip(), "fill": f"url(#open-{series.state or 'plain'})"}
            x, wide = axis.left + place * step, max(step - min(1.5, step / 4), 0.5)
            bar = draw(
                svg, "rect", **(look if is_open else {"class_": kind}), x=x, y=base - tall, width=wide, height=tall
            )
            when = f"{_spell_time(times.start + place * times.step, times)}{', still open' if is_open else ''}"
            draw(bar, "title", f"{when}: {panel.spell(value)} {series.name}")
            base -= tall


def _draw_lines(svg: Element, panel: Panel, axis: Axis, times: Times) -> None:
    step = (axis.right - axis.left) / max(times.count - 1, 1)
    labels: list[float] = []
    for series in panel.series:
        shade = series.state or ("" if series is panel.series[-1] else "thin")
        points = [(axis.left + place * step, axis.y(value or 0)) for place, value in enumerate(series.values)]
        for run in runs(series.values):
            path = line(points[place] for place in run)
            if panel.kind == "area":
                start = points[run[0]][0]
                draw(svg, "path", class_=f"area {shade}".rstrip(), d=f"{path}V{axis.bottom:.1f}H{start:.1f}Z")
            if len(run) > 1:
                is_open = run[-1] == times.count - 1 and not times.closed
                _draw_curve(svg, f"curve {shade}".rstrip(), [points[place] for place in run], is_open=is_open)
            else:
                x, y = points[run[0]]
                draw(svg, "circle", class_=f"point {series.state}".rstrip(), cx=x, cy=y, r=2)
        if len(panel.series) > 1 and (
            known := [place for place, value in enumerate(series.values) if value is not None]
        ):
            y = points[known[-1]][1] + 4
            while any(abs(y - other) < 14 for other in labels):
                y -= 1
            labels.append(y)
            draw(svg, "text", series.name, class_="strong", x=axis.right + 6, y=y)


def _draw_curve(svg: Element, kind: str, points: Sequence[Point], *, is_open: bool) -> None:
    """Draw a line; its end is dashed if the last bucket is still open."""
    whole = points[:-1] if is_open else points
    if len(whole) > 1:
        draw(svg, "path", class_=kind, d=line(whole))
    if is_open:
        draw(svg, "path", class_=kind, d=line(points[-2:]), stroke_dasharray="3 3")


def _draw_times(svg: Element, times: Times, left: float, right: float) -> None:
    """Write times under the plot, at round ones, and "now" at the end of what is still open."""
    span, width = times.end - times.start, right - left
    step = next((each for each in STEPS if span / each <= MAX_TIMES), STEPS[-1])
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    at = epoch + ceil((times.start - epoch) / step) * step
    place = 0
    while at < times.end:
        x = left + (at - times.start) / span * width
        if x < right - 44:
            kind = {"class_": "alt"} if place % 2 else {}
            anchor = "start" if x - left < 12 else "middle"
            draw(svg, "text", _spell_time(at, times), **kind, x=x, y=HEIGHT - 4, text_anchor=anchor)
        at, place = at + step, place + 1
    end = _spell_time(times.end, times) if times.closed else "now"
    draw(svg, "text", end, x=right, y=HEIGHT - 4, text_anchor="end")


def _spell_time(time: datetime, times: Times) -> str:
    span = times.end - times.start
    if span > timedelta(days=8):
        return f"{time.day} {time:%b}"
    return f"{time:%a %H:%M}" if span > timedelta(hours=26) else f"{time:%H:%M}"


def _draw_marks(svg: Element, times: Times, marks: Sequence[Mark], ends: Point, free: float) -> None:
    """Draw a line at each mark, and a flag with its label where there is room, from `free` on: the latest first."""
    left, right = ends
    taken = float(WIDTH)
    for mark in sorted(marks, reverse=True):
        if not times.start <= mark.at <= times.end:
            continue
        x = left + (mark.at - times.start) / (times.end - times.start) * (right - left)
        at = draw(svg, "path", class_="mark", d=f"M{floor(x) + 0.5} {TOP}V{HEIGHT - BOTTOM}")
        draw(at, "title", f"{mark.label}, {_spell_time(mark.at, times)}")
        wide = len(mark.label) * CHARACTER + 14
        start = min(x - wide / 2, WIDTH - wide)
        if start > free and start + wide <= taken:
            draw(svg, "rect", class_="flag", x=start, y=1, width=wide, height=16, rx=3)
            draw(svg, "text", mark.label, class_="soft", x=start + wide / 2, y=12.5, text_anchor="middle")
            taken = start - 2


def _table(times: Times, panels: Sequence[Panel], marks: Sequence[Mark]) -> Element:
    """Return the numbers, latest first, as people ask for those of now."""
    columns = [(series, panel.spell) for panel in panels for series in panel.series]
    rows = []
    for place in reversed(range(times.count)):
        begin = times.start + place * times.step
        words = [_spell_time(begin, times)]
        if place == times.count - 1 and not times.closed:
            words.append("still open")
        words += [mark.label for mark in marks if begin <= mark.at < begin + times.step]
        rows.append([", ".join(words), *(spell(series.values[place]) for series, spell in columns)])
    return table(["Time", *(series.name for series, _ in columns)], rows)
