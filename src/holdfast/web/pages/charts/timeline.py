"""The life of one job: its waits and attempts in their order. Long waits are collapsed, and marked by a broken axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from math import floor
from typing import NamedTuple
from xml.etree.ElementTree import Element

from markupsafe import Markup

from holdfast.web.pages.charts.glance import PATTERNED, shares
from holdfast.web.pages.charts.svg import CHARACTER, Point, draw, line, markup, new_svg, runs
from holdfast.web.pages.formats import duration

WIDTH, LEFT = 946, 84
LANE, TALL = 26, 22  # where attempts are, and their height
GAP, MIN_WIDTH, COLLAPSED = 2.0, 4.0, 100.0
SECONDS_BELOW = timedelta(minutes=10)  # stories whose times have seconds
SAVES, FIRST_TRACK, TRACK = 58, 78, 50
MAX_SAVES = 300


class Span(NamedTuple):
    """A part of the time: an attempt, or a wait. `state` gives its colour, for a wait that of the job."""

    start: datetime
    end: datetime
    state: str
    label: str = ""  # of an attempt: "Attempt 3"
    note: str = ""  # "running", say

    @property
    def is_wait(self) -> bool:
        return not self.label


class Moment(NamedTuple):
    """Something that happened: "deploy r416", "lease lost"; or, without a label, a save."""

    at: datetime
    label: str = ""


class Track(NamedTuple):
    """A number over time, below the attempts: each value covers `every`, from `start` on."""

    name: str
    now: str  # "41.2 GiB"
    start: datetime
    every: timedelta
    values: Sequence[float | None]
    limit: float | None = None
    limit_label: str = ""


class Piece(NamedTuple):
    """A span, and where it is drawn."""

    span: Span
    x: float
    width: float
    collapsed: bool

    def x_of(self, time: datetime) -> float:
        length = self.span.end - self.span.start
        return self.x + (self.width * ((time - self.span.start) / length) if length else 0.0)


def timeline(
    label: str,
    spans: Sequence[Span],
    *,
    moments: Iterable[Moment] = (),
    tracks: Sequence[Track] = (),
    collapse: bool = True,
    is_open: bool = False,
) -> Markup:
    """Draw a job's life. With `is_open` it goes on, and the axis ends now."""
    if not spans:
        return Markup("")
    pieces = place(spans, collapse=collapse)
    saves = [each for each in moments if not each.label]
    first_track = FIRST_TRACK if saves else FIRST_TRACK - 20
    height = first_track + TRACK * len(tracks) + 22
    svg = new_svg("chart", WIDTH, height, label)
    for piece in pieces:
        _draw_piece(svg, piece)
    _draw_moments(svg, pieces, [each for each in moments if each.label], is_open=is_open)
    _draw_saves(svg, pieces, saves)
    for number, track in enumerate(tracks):
        _draw_track(svg, pieces, track, first_track + number * TRACK)
    _draw_times(svg, pieces, height - 4)
    return markup(svg)


def place(spans: Sequence[Span], *, collapse: bool = True) -> list[Piece]:
    """Divide the width: to scale, but each span can be seen, and waits longer than a tenth of all are collapsed."""
    total = (spans[-1].end - spans[0].start).total_seconds()
    lengths = [(span.end - span.start).total_seconds() for span in spans]
    collapsed = [collapse and span.is_wait and length > total / 10 for span, length in zip(spans, lengths, strict=True)]
    many = len(spans) > 60
    gap, minimum = (0.0, 1.0) if many else (GAP, MIN_WIDTH)
    fixed = min(COLLAPSED, (WIDTH - LEFT) / 2 / max(sum(collapsed), 1))
    room = WIDTH - LEFT - gap * (len(spans) - 1) - fixed * sum(collapsed)
    scaled = iter(
        shares([length for length, short in zip(lengths, collapsed, strict=True) if not short], room, minimum)
    )
    pieces, x = [], float(LEFT)
    for span, is_collapsed in zip(spans, collapsed, strict=True):
        width = fixed if is_collapsed else next(scaled)
        pieces.append(Piece(span, x, width, is_collapsed))
        x += width + gap
    return pieces


def _draw_piece(svg: Element, piece: Piece) -> None:
    span, x, width = piece.span, piece.x, piece.width
    length = duration(span.end - span.start)
    if piece.collapsed:
        draw(svg, "rect", class_="gap", x=x, y=LANE + 0.5, width=width, height=TALL - 1, rx=2)
        _draw_wait(svg, span.state, x=x, y=LANE + TALL - 3, width=width, height=3)
        if width > len(length) * CHARACTER:
            draw(svg, "text", length, x=x + width / 2, y=LANE + 14, text_anchor="middle")
        return
    if span.is_wait:
        block = _draw_wait(svg, span.state, x=x, y=LANE + 6, width=width, height=10)
        draw(block, "title", f"{span.state} {length}")
        return
    block = draw(svg, "rect", class_=f"seg-run {span.state}", x=x, y=LANE, width=width, height=TALL, rx=2)
    note = f"{length}, {span.note}" if span.note else length
    draw(block, "title", f"{span.label}: {note}")
    label, short = span.label, span.label.rpartition(" ")[2]
    if width > (len(label) + len(note)) * CHARACTER + 28:
        draw(svg, "text", label, class_="on", x=x + 8, y=LANE + 15)
        draw(svg, "text", note, class_="on thin", x=x + width - 8, y=LANE + 15, text_anchor="end")
    elif width > len(label) * CHARACTER + 12:
        draw(svg, "text", label, class_="on", x=x + 8, y=LANE + 15)
    elif width > len(short) * CHARACTER + 6:
        draw(svg, "text", short, class_="on", x=x + width / 2, y=LANE + 15, text_anchor="middle")


def _draw_wait(svg: Element, state: str, **box: float) -> Element:
    if state in PATTERNED:
        return draw(svg, "rect", class_=state, fill=f"url(#p-{state})", **box)
    return draw(svg, "rect", class_=f"fillc {state}", **box)


def _x_of(pieces: Sequence[Piece], time: datetime) -> float:
    for piece in reversed(pieces):
        if piece.span.start <= time:
            return min(piece.x_of(time), piece.x + piece.width)
    return float(LEFT)


def _draw_moments(svg: Element, pieces: Sequence[Piece], moments: Sequence[Moment], *, is_open: bool) -> None:
    free = float(LEFT) - 40
    limit = WIDTH - (4 * CHARACTER if is_open else 0)
    for moment in sorted(moments):
        x = _x_of(pieces, moment.at)
        mark = draw(svg, "path", class_="mark", d=f"M{floor(x) + 0.5} {LANE - 6}V{LANE + TALL}")
        draw(mark, "title", moment.label)
        wide = len(moment.label) * CHARACTER
        start = min(max(x - wide / 2, 0), limit - wide)
        if start > free:
            draw(svg, "text", moment.label, x=start + wide / 2, y=15, text_anchor="middle")
            free = start + wide + 8
    if is_open:
        draw(svg, "text", "now", x=WIDTH, y=15, text_anchor="end")


def _draw_saves(svg: Element, pieces: Sequence[Piece], saves: Sequence[Moment]) -> None:
    if not saves:
        return
    draw(svg, "text", "Saves", x=0, y=SAVES + 8)
    every = -(-len(saves) // MAX_SAVES)
    places = sorted({round(_x_of(pieces, each.at), 1) for each in saves[::every]})
    draw(svg, "path", class_="save", d="".join(f"M{x:.1f} {SAVES}v9" for x in places))


def _draw_track(svg: Element, pieces: Sequence[Piece], track: Track, top: float) -> None:
    base = top + TRACK - 10
    draw(svg, "text", track.name, x=0, y=top + 20)
    draw(svg, "text", track.now, class_="strong", x=0, y=top + 35)
    highest = max([value for value in track.values if value is not None] + [track.limit or 0]) or 1
    if track.limit:
        y = floor(base - track.limit / highest * (TRACK - 20)) + 0.5
        draw(svg, "path", class_="limit", d=f"M{LEFT} {y}H{WIDTH}")
        draw(svg, "text", track.limit_label, x=LEFT, y=y - 4)
    for start, end in _visible(pieces):
        draw(svg, "path", class_="base", d=f"M{start:.1f} {base + 0.5}H{end:.1f}")
    for piece in pieces:
        if piece.collapsed:
            middle = piece.x + piece.width / 2 - 10
            draw(svg, "path", class_="zig", d=f"M{middle:.1f} {base}l5 -4 5 8 5 -8 5 4")
    points = [_point(pieces, track, place, base, highest) for place in range(len(track.values))]
    for run in runs(track.values):
        path = line(points[place] for place in run)
        draw(svg, "path", class_="area", d=f"{path}V{base:.1f}H{points[run[0]][0]:.1f}Z")
        draw(svg, "path", class_="curve", d=path if len(run) > 1 else f"{path}h1")


def _point(pieces: Sequence[Piece], track: Track, place: int, base: float, highest: float) -> Point:
    x = _x_of(pieces, track.start + (place + 0.5) * track.every)
    return x, base - (track.values[place] or 0) / highest * (TRACK - 20)


def _visible(pieces: Sequence[Piece]) -> Iterator[tuple[float, float]]:
    """Yield the parts of the axis between collapsed waits."""
    start = pieces[0].x
    for piece in pieces:
        if piece.collapsed:
            if piece.x > start:
                yield start, piece.x
            start = piece.x + piece.width
    end = pieces[-1].x + pieces[-1].width
    if end > start:
        yield start, end


def _draw_times(svg: Element, pieces: Sequence[Piece], y: float) -> None:
    """Write when spans began, with the day where it is another, and when all ended; the seconds of short stories."""
    last = pieces[-1]
    clock = "%H:%M:%S" if last.span.end - pieces[0].span.start < SECONDS_BELOW else "%H:%M"
    end = f"{last.span.end:{clock}}"
    limit = WIDTH - len(end) * CHARACTER - 10
    free, day = 0.0, None
    for piece in pieces:
        start = piece.span.start
        text = f"{start:{clock}}" if start.date() == day else f"{start:%a {clock}}"
        wide = len(text) * CHARACTER
        if piece.x >= free and piece.x + wide < limit:
            draw(svg, "text", text, x=piece.x, y=y)
            free, day = piece.x + wide + 12, start.date()
    draw(svg, "text", end, x=WIDTH, y=y, text_anchor="end")
