"""Plots as trees of elements."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring


def parse(text: str) -> Element:
    """Return the element that a text is, which must be well-formed XML."""
    return fromstring(text)  # noqa: S314 # we wrote it


def parse_plot(text: str) -> tuple[Element, Element]:
    """Return the picture of a plot, and the table behind it."""
    picture, table = parse(f"<p>{text}</p>")
    return picture, table


def texts(picture: Element) -> list[str]:
    return [each.text or "" for each in picture.iter("text")]


def paths(picture: Element, kind: str) -> list[str]:
    """Return the paths of a class."""
    return [each.attrib["d"] for each in picture.iter("path") if kind in each.attrib["class"].split()]
