"""Draw results as SVG, without a library."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape
from itertools import starmap
from typing import NamedTuple

from bench.figures import Figure
from bench.measures import BY_NAME as MEASURES
from bench.measures import DEPTHS
from bench.results import Cell, Results
from bench.roster import BY_NAME as PEERS
from bench.roster import OURS, Peer
from bench.table import number, times, words_of

PANELS = (
    ("enqueue", "rate"),
    ("bulk", "rate"),
    ("drain", "rate"),
    ("two", "rate"),
    ("latency", "p50"),
    ("latency", "p99"),
    ("sync", "rate"),
    ("per-job", "rate"),
    ("memory", "memory"),
    ("cost", "commands"),
    ("cost", "trips"),
    ("recovery", "seconds"),
    ("enqueue@1ms", "rate"),
    ("drain@1ms", "rate"),
    ("enqueue@aof", "rate"),
    ("drain@aof", "rate"),
)
MAIN = (
    ("enqueue", "rate"),
    ("bulk", "rate"),
    ("drain", "rate"),
    ("latency", "p50"),
    ("sync", "rate"),
    ("memory", "memory"),
)
WIDTH, LEFT, BAR, GAP, TOP, ASIDE = 520, 135, 15, 4, 40, 110
COLOURS = {"ours": "#1f6feb", "recovers": "#7d93ab", "loses": "#d8b08c", "limit": "#d5d9de"}
CLIP = 6  # times the middle one: a bar that is longer is cut


def draw(results: Results, panels: Sequence[tuple[str, str]] = PANELS) -> str:
    """All panels, and that of the backlog; or some."""
    bars = [_bars(results, *panel) for panel in panels]
    drawn = [panel for panel in (*bars, _backlog(results) if panels is PANELS else None) if panel]
    rows = [drawn[place : place + 2] for place in range(0, len(drawn), 2)]
    parts, y = [_head(results)], 64
    for row in rows:
        for column, (body, _) in enumerate(row):
            parts.append(f'<g transform="translate({column * (WIDTH + 30) + 20},{y})">{body}</g>')
        y += max(height for _, height in row) + 24
    foot = _foot(results)
    parts += [_text(20, y + 14 + 16 * place, line, "s") for place, line in enumerate(foot)]
    width, height = 2 * WIDTH + 70, y + 14 + 16 * len(foot)
    style = "text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-weight:600;font-size:14px}.s{fill:#57606a}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>Holdfast beside its peers</title><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _head(results: Results) -> str:
    about = results.about
    words = f"{about['when']} · {about['machine']} · {about['server']} · medians of up to {about['rounds']} rounds"
    legend, x = "", 20
    for name, label in (
        ("ours", "Holdfast"),
        ("recovers", "recovers the work of a killed worker, by its documents"),
        ("loses", "loses it, or leaves it stuck"),
        ("limit", "a bare loop: the limit"),
    ):
        legend += f'<rect x="{x}" y="38" width="12" height="12" fill="{COLOURS[name]}"/>'
        legend += _text(x + 17, 48, label)
        x += 36 + int(6.5 * len(label))
    legend += _text(x, 48, "(2 x): Holdfast is twice as good", "s")
    return _text(20, 22, words, "s") + legend


def _foot(results: Results) -> list[str]:
    """Noise, and versions: of each peer the first one, which is its own."""
    loads = [row.load for row in results.rows if row.noise]
    words = f"other load while it was measured: {sum(loads) / max(1, len(loads)):.1%} of the machine"
    lines = [f"{words}; ~: no round had less than a tenth. Holdfast at {results.about['commit']}."]
    taking = {row.peer for row in results.rows}
    own = {name: next(iter(found.items()), ("", "")) for name, found in results.about["versions"].items()}
    listed = dict.fromkeys(f"{package} {version}" for name, (package, version) in own.items() if name in taking)
    return [*lines, *textwrap.wrap(" · ".join(listed), 170)]


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _bars(results: Results, name: str, key: str) -> tuple[str, int] | None:
    measure = MEASURES[name]
    figure = next(each for each in measure.figures if each.key == key)
    found = [(peer, cell) for peer in PEERS.values() if (cell := results.cell(name, peer.name, key))]
    if len(found) < 2:
        return None
    found.sort(key=lambda pair: pair[1].median, reverse=figure.is_higher_better)
    values = sorted(cell.median for _, cell in found)
    most = values[-1] if figure.is_higher_better else min(values[-1], CLIP * values[len(values) // 2])
    ours = results.cell(name, OURS.name, key)
    scale = Scale(figure, ours, most)
    lines = [_bar(place, peer, cell, scale) for place, (peer, cell) in enumerate(found)]
    words = "more is better" if figure.is_higher_better else "less is better"
    title = _text(0, 14, measure.title, "t") + _text(0, 30, f"{words_of(figure)}; {words}", "s")
    return title + "".join(lines), TOP + len(found) * (BAR + GAP)


class Scale(NamedTuple):
    """The scale of a panel: a value of `most` fills it."""

    figure: Figure
    ours: Cell | None
    most: float


def _bar(place: int, peer: Peer, cell: Cell, scale: Scale) -> str:
    figure, ours, most = scale
    y = TOP + place * (BAR + GAP)
    room = WIDTH - LEFT - ASIDE
    length = max(1.0, min(1.0, cell.median / most if most else 0.0) * room)
    colour = COLOURS["ours" if peer is OURS else peer.keeps]
    label = ("> " if cell.is_capped else "~" if cell.is_noisy else "") + number(cell.median, figure.digits)
    if ours is not None and peer is not OURS:
        label += f"  ({times(ours, cell, figure)})"
    bar = f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>'
    if cell.median > most:
        bar += f'<path d="M{LEFT + room - 14} {y - 1}l-5 {BAR + 2}h5l5 -{BAR + 2}z" fill="#fff"/>'
    name = _text(LEFT - 6, y + 12, peer.name, anchor="end")
    return name + bar + _text(LEFT + length + 5, y + 12, label)


def _backlog(results: Results) -> tuple[str, int] | None:
    """Lines: server time of each verb by the number of waiting jobs."""
    series = {}
    for verb in ("enqueue", "claim", "finish"):
        cells = [results.cell("backlog", OURS.name, f"{verb}, {int(depth):,} waiting") for depth in DEPTHS]
        line = [(int(depth), cell.median) for depth, cell in zip(DEPTHS, cells, strict=True) if cell]
        if line:
            series[verb] = line
    points = [point for line in series.values() for point in line]
    if not points:
        return None
    height, width = 200, WIDTH - LEFT - ASIDE
    most = max(value for _, value in points) * 1.1
    first, last = math.log10(min(x for x, _ in points)), math.log10(max(x for x, _ in points))

    def place(x: int, value: float) -> tuple[float, float]:
        return LEFT + (math.log10(x) - first) / max(0.1, last - first) * width, TOP + height * (1 - value / most)

    parts = [
        _text(0, 14, "Holdfast: server time by number of waiting jobs", "t"),
        _text(0, 30, "µs per job, 100 jobs a call; less is better", "s"),
        f'<path d="M{LEFT} {TOP}v{height}h{width}" stroke="#8c959f" fill="none"/>',
    ]
    depths = sorted({x for x, _ in points})
    parts += [_text(place(depth, 0)[0], TOP + height + 16, f"{depth:,}", anchor="middle") for depth in depths]
    ticks = (most / 2.2, most / 1.1)
    parts += [_text(LEFT - 6, place(depths[0], each)[1] + 4, number(each, 0), anchor="end") for each in ticks]
    for (verb, line), colour in zip(series.items(), ("#1f6feb", "#bf8700", "#1a7f37"), strict=False):
        parts.append(_line(list(starmap(place, line)), f"{verb} {number(line[-1][1], 1)}", colour))
    return "".join(parts), TOP + height + 24


def _line(points: Sequence[tuple[float, float]], label: str, colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>' + _text(
        points[-1][0] + 6, points[-1][1] + 4, label
    )
