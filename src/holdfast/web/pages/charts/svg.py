"""Elements of SVG and HTML, with all values escaped, and the scales of axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, log10
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from holdfast.text import printable

Point = tuple[float, float]
CHARACTER = 6.2  # width of a character of a label, about


def new_svg(kind: str, width: float, height: float, label: str, **more: str) -> Element:
    """Return an empty plot. One without a label repeats what stands beside it, and is hidden from readers."""
    named = {"role": "img", "aria-label": printable(label)} if label else {"aria-hidden": "true"}
    return Element("svg", {"class": kind, "viewBox": f"0 0 {spell(width)} {spell(height)}", **named, **more})


def draw(parent: Element, tag: str, text: str = "", /, **attributes: Any) -> Element:
    """Add an element. Numbers are rounded to a tenth; `class_` is the class, `text_anchor` is `text-anchor`."""
    spelled = {name.rstrip("_").replace("_", "-"): spell(value) for name, value in attributes.items()}
    element = SubElement(parent, tag, spelled)
    if text:
        element.text = printable(text)
    return element


def spell(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def markup(element: Element) -> Markup:
    """Return an element as text."""
    return Markup(tostring(element, encoding="unicode"))  # noqa: S704 # it is escaped


def line(points: Iterable[Point]) -> str:
    """Return the path through points."""
    return "M" + "L".join(f"{spell(x)} {spell(y)}" for x, y in points)


def runs(values: Sequence[float | None]) -> list[range]:
    """Return the places of known values, as ranges without gaps."""
    found: list[range] = []
    for place, value in enumerate(values):
        if value is None:
            continue
        if found and found[-1].stop == place:
            found[-1] = range(found[-1].start, place + 1)
        else:
            found.append(range(place, place + 1))
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    """Return the numbers behind a plot, closed until somebody asks for them."""
    details = Element("details", {"class": "data"})
    draw(details, "summary", "Show as table")
    inner = draw(draw(details, "div", class_="scroll", tabindex=0, role="group", aria_label="Table"), "table")
    top = draw(draw(inner, "thead"), "tr")
    for name in head:
        draw(top, "th", name, scope="col")
    body = draw(inner, "tbody")
    for row in rows:
        cells = draw(body, "tr")
        for place, value in enumerate(row):
            draw(cells, "td", value, **({"class_": "num"} if place else {}))
    return details


def round_top(value: float) -> float:
    """Return the end of an axis for values up to this: one digit and zeros, and half of it is simple, too."""
    if value <= 0:
        return 1
    size = 10.0 ** floor(log10(value))
    return next(step * size for step in (1, 2, 3, 4, 6, 8, 10) if step * size >= value * 0.999_999)
