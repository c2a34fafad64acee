"""Jobs and what they wait for: a column for each level, from left to right, and a curve for each dependency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from markupsafe import Markup

from holdfast.web.pages.charts.svg import draw, markup, new_svg
from holdfast.web.pages.formats import cut
from holdfast.web.paths import encode_name

WIDTH, HEIGHT = 190, 40  # of a node
COLUMN, ROW = 250, 52  # from node to node
MARGIN = 6
LETTERS = 26  # of a line
SWEEPS = 4


class Addresses(Protocol):
    """Makes addresses below the path where the application is mounted."""

    def url(self, path: str) -> str: ...


def network(addresses: Addresses, id: str, nodes: Sequence[Any], edges: Sequence[Any]) -> Markup:
    """Draw the jobs of a graph; the one that it is about stands out."""
    rows = _rows(nodes, edges)
    levels = sorted({node.level for node in nodes})
    tall = max((row for row, _ in rows.values()), default=0) + 1
    size = (MARGIN * 2 + (len(levels) - 1) * COLUMN + WIDTH, MARGIN * 2 + (tall - 1) * ROW + HEIGHT)
    label = f"Dependencies of job {id}. The same as a table follows."
    svg = new_svg("network", *size, label, role="group")
    svg.attrib |= {"width": str(size[0]), "height": str(size[1])}
    places = {
        node.id: (
            MARGIN + levels.index(node.level) * COLUMN,
            MARGIN + rows[node.id][0] * ROW + rows[node.id][1] * ROW / 2,
        )
        for node in nodes
    }
    for edge in edges:
        _draw_edge(svg, places[edge.on], places[edge.job], edge.state)
    for node in nodes:
        _draw_node(svg, addresses, node, *places[node.id], is_center=node.id == id)
    return markup(svg)


def _rows(nodes: Sequence[Any], edges: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """Return the row of each node, and whether it is half a row lower: columns are centred, and few curves cross."""
    columns: dict[int, list[str]] = defaultdict(list)
    for node in nodes:
        columns[node.level].append(node.id)
    near: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        near[edge.on].append(edge.job)
        near[edge.job].append(edge.on)
    for _ in range(SWEEPS):
        where = {id: (place + 0.5) / len(column) for column in columns.values() for place, id in enumerate(column)}
        for column in columns.values():
            column.sort(key=lambda id: _mean([where[other] for other in near[id]]) if near[id] else where[id])
            where |= {each: (place + 0.5) / len(column) for place, each in enumerate(column)}
    tallest = max(map(len, columns.values()), default=0)
    return {
        id: ((tallest - len(column)) // 2 + place, (tallest - len(column)) % 2)
        for column in columns.values()
        for place, id in enumerate(column)
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _draw_edge(svg: Any, start: tuple[float, float], end: tuple[float, float], state: str) -> None:
    x, y = start[0] + WIDTH, start[1] + HEIGHT / 2
    to_x, to_y = end[0], end[1] + HEIGHT / 2
    bend = max(abs(to_x - x) / 2, 30)
    path = f"M{x:.1f} {y:.1f}C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    draw(svg, "path", class_=f"edge {state}", d=path)


def _draw_node(svg: Any, addresses: Addresses, node: Any, x: float, y: float, *, is_center: bool) -> None:
    where = addresses.url(f"/jobs/{encode_name(node.id)}")
    group = draw(svg, "a" if node.task else "g", class_=f"node {node.state}{' center' if is_center else ''}")
    if node.task:
        group.set("href", where)
        group.set("aria-label", f"{node.task} {node.id}, {node.state}")
    draw(group, "rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=6)
    draw(group, "rect", class_="fillc side", x=x, y=y, width=4, height=HEIGHT, rx=2)
    draw(group, "text", cut(node.task or "deleted", LETTERS), class_="strong", x=x + 14, y=y + 17)
    draw(group, "text", f"{node.state}, {cut(node.id, LETTERS - len(node.state) - 2)}", x=x + 14, y=y + 32)
    draw(group, "title", f"{node.task or 'deleted'} {node.id}, {node.state}")
