"""How often: a bar for each bucket. Buckets grow, so the axis is a log axis, and labelled as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, log
from xml.etree.ElementTree import Element

import msgspec
from markupsafe import Markup

from holdfast.web.pages.charts.svg import CHARACTER, draw, markup, new_svg, table
from holdfast.web.pages.formats import duration, number

WIDTH, HEIGHT = 440, 150
LEFT, RIGHT, TOP, BOTTOM = 8, 8, 26, 24
MAX_BARS = 14


class Bucket(msgspec.Struct, frozen=True):
    """How many values are at least `lower` and below `upper`; an `upper` of None has no end."""

    lower: float
    upper: float | None
    count: int


def histogram(
    label: str,
    buckets: Sequence[Bucket],
    *,
    state: str = "",
    marks: Sequence[tuple[float, str]] = (),
    spell: Callable[[float | None], str] = duration,
    noun: str = "jobs",
) -> Markup:
    """Draw buckets, with marks such as (40.0, "p50 40 s"), and the table of their numbers behind."""
    shown = _merged(_trimmed(buckets))
    svg = new_svg("chart md", WIDTH, HEIGHT, label)
    base = HEIGHT - BOTTOM
    step = (WIDTH - LEFT - RIGHT) / max(len(shown), 1)
    top = max((bucket.count for bucket in shown), default=0) or 1
    free = -100.0
    for place, bucket in enumerate(shown):
        x, tall = LEFT + place * step, bucket.count / top * (base - TOP)
        if bucket.count:
            tall = max(tall, 1.5)
        bar = draw(svg, "rect", class_=f"bars {state}".rstrip(), x=x + 1, y=base - tall, width=step - 2, height=tall)
        what = noun.removesuffix("s") if bucket.count == 1 else noun
        draw(bar, "title", f"{_bounds(bucket, spell)}: {number(bucket.count)} {what}")
        text = spell(bucket.lower)
        wide = len(text) * CHARACTER
        start = x if place == 0 else x - wide / 2
        if start > free:
            draw(svg, "text", text, x=x, y=HEIGHT - 8, text_anchor="start" if place == 0 else "middle")
            free = start + wide + 10
    draw(svg, "path", class_="base", d=f"M{LEFT} {base + 0.5}H{WIDTH - RIGHT}")
    _draw_marks(svg, shown, marks, step)
    rows = [(_bounds(bucket, spell), number(bucket.count)) for bucket in shown]
    return markup(svg) + markup(table([label, noun.capitalize()], rows))


def _trimmed(buckets: Sequence[Bucket]) -> list[Bucket]:
    """Return the buckets from the first to the last that has values."""
    used = [place for place, bucket in enumerate(buckets) if bucket.count]
    return list(buckets[used[0] : used[-1] + 1]) if used else list(buckets[:1])


def _merged(buckets: list[Bucket]) -> list[Bucket]:
    """Join neighbours until there are few enough to be seen."""
    while len(buckets) > MAX_BARS:
        pairs = [buckets[place : place + 2] for place in range(0, len(buckets), 2)]
        buckets = [Bucket(pair[0].lower, pair[-1].upper, sum(each.count for each in pair)) for pair in pairs]
    return buckets


def _bounds(bucket: Bucket, spell: Callable[[float | None], str]) -> str:
    if bucket.upper is None:
        return f"{spell(bucket.lower)} or more"
    return f"{spell(bucket.lower)} to {spell(bucket.upper)}" if bucket.lower else f"below {spell(bucket.upper)}"


def _draw_marks(svg: Element, shown: Sequence[Bucket], marks: Sequence[tuple[float, str]], step: float) -> None:
    """Draw a line at each mark; the text of the first is on its left and that of the others on their right.

    A text for which there is no room at the right end of the axis is on the left of its mark, or left of that end.
    """
    free = 0.0
    for value, text in sorted(marks):
        x = _place(shown, value, step)
        if x is None:
            continue
        draw(svg, "path", class_="mark", d=f"M{floor(x) + 0.5} {TOP - 6}V{HEIGHT - BOTTOM}")
        wide = len(text) * CHARACTER
        is_left = not free and x > wide
        start = max(min(x - wide if is_left else max(x, free), WIDTH - RIGHT - wide), 0.0)
        if start >= free:
            draw(svg, "text", text, class_="strong", x=start, y=TOP - 11, text_anchor="start")
            free = start + wide + 8


def _place(shown: Sequence[Bucket], value: float, step: float) -> float | None:
    """Return where a value lies on the axis, in the logarithm inside of its bucket."""
    for place, bucket in enumerate(shown):
        if bucket.lower <= value and (bucket.upper is None or value < bucket.upper):
            share = 0.5
            if bucket.upper is not None and bucket.lower > 0:
                share = log(value / bucket.lower) / log(bucket.upper / bucket.lower)
            return LEFT + (place + share) * step
    return None
