"""docs/web.md: its queries can be read, its keys and pages are those of the dashboard, and its pictures are there."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.web.pages.job_query import ORDER, parse
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.docs.screenshots import FOLDER, PICTURES
from tests.web.serving import serve

PAGE = Path(__file__).parents[2] / "docs" / "web.md"
TEXT = PAGE.read_text()
MAX_BYTES = 1_500_000  # of all pictures


@pytest.fixture
def overview(server_url: str, namespace: str) -> Iterator[str]:
    """A page of the dashboard."""
    with closing(Holdfast(server_url, namespace=namespace)) as app, serve(Site(app, lambda _: LOCAL)) as web:
        yield web.get("/").text


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table that has this in its head."""
    table = re.search(rf"^\| {title} \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table, title
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def test_every_query_can_be_read_and_almost_every_filter_is_shown() -> None:
    used: set[str] = set()
    for query, _ in rows("query"):
        used |= parse(query.strip("`")).filters.keys()
    assert set(ORDER) - used == {"fingerprint"}


def test_the_keys_are_those_of_the_dashboard(overview: str) -> None:
    keys = re.findall(r"<dt><kbd>(.)</kbd></dt><dd>([^<]+)</dd>", overview)
    assert [(key.strip("`"), meaning) for key, meaning in rows("key")] == keys


def test_the_pages_are_those_of_the_menu(overview: str) -> None:
    menus = "".join(re.findall(r'<nav [^>]*aria-label="(?:Main|More)">.*?</nav>', overview, re.DOTALL))
    names = re.findall(r">([A-Z][a-z]+)</a>", menus)
    assert len(names) == 16
    assert sorted(row[0] for row in rows("page")) == sorted(names)


def test_every_picture_is_shown_described_and_compact() -> None:
    shown = [*re.findall(r"!\[([^\]]+)\]\(images/([\w-]+)\.png\)", TEXT)]
    shown += [(text, name) for name, text in re.findall(r'<img src="images/([\w-]+)\.png" [^>]*alt="([^"]+)"', TEXT)]
    assert sorted(name for _, name in shown) == sorted(PICTURES)
    sizes = {path.stem: path.stat().st_size for path in FOLDER.glob("*.png")}
    assert sizes.keys() == PICTURES.keys()
    assert sum(sizes.values()) < MAX_BYTES
    for name, picture in PICTURES.items():
        width, height = struct.unpack(">II", (FOLDER / f"{name}.png").read_bytes()[16:24])
        assert (width, height <= picture.height * picture.scale) == (picture.width * picture.scale, True)
