"""Hostile strings in every field that others can write: inert in every page.

A page without parameters is tested by itself; one with parameters needs a line in `PAGES`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest

from holdfast import Holdfast
from holdfast.store.address import Address
from holdfast.store.store import Store
from holdfast.web.paths import encode_name
from holdfast.web.routes import PAGES as ROUTES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.web.hostile import COUNT, MARK, fill, strings, tags_of
from tests.web.hostile_nouns import fill_nouns
from tests.web.reading import Element, read_page
from tests.web.serving import Web, serve

# What templates and plots consist of. Markup of others would add elements or attributes.
_ELEMENTS = """
    html head meta title link script body a header nav main footer div span p b i small code kbd pre h1 h2 h3 ul ol li
    dl dt dd table caption thead tbody tr th td form label input button select textarea datalist option details
    summary dialog section aside figure time progress pre br svg symbol g path circle rect text use defs pattern
"""
ELEMENTS = frozenset(_ELEMENTS.split())
ADDRESSES = ("href", "action", "formaction", "src", "data-log")
FREE = ("value", "data-copy")  # attributes that have texts as they are


class Hostile(NamedTuple):
    """A web server of a store full of hostile strings."""

    web: Web
    ids: list[str]  # of jobs that have them in all of their fields


@pytest.fixture(scope="module")
def hostile(server_url: str) -> Iterator[Hostile]:
    namespace = "t" + secrets.token_hex(6)
    app = Holdfast(server_url, namespace=namespace)
    store = Store(Address.find(server_url, namespace=namespace))
    ids = fill(app, store)
    fill_nouns(app, store, strings())
    with serve(Site(app, lambda _: LOCAL)) as web:
        yield Hostile(web, ids)
    store.close()
    app.close()


def all_of(path: str) -> Callable[[Hostile], Iterator[str]]:
    """Return a function that yields the addresses of all pages of a list."""

    def pages(hostile: Hostile) -> Iterator[str]:
        place = path
        while place:
            yield place
            links = read_page(hostile.web.get(place).text).all("a")
            place = next((each.attributes["href"] for each in links if each.attributes.get("rel") == "next"), "")

    return pages


def queries(_: Hostile) -> Iterator[str]:
    """Yield lists whose query is hostile itself."""
    for place, text in enumerate(strings()[::10]):
        yield f"/jobs?{('q', 'tag', 'group', 'id_prefix', 'worker')[place % 5]}={quote(text)}"


def operations(hostile: Hostile) -> Iterator[str]:
    return (f"/operations/{each['id']}" for each in hostile.web.call("GET", "/operations")["items"])


def failures(hostile: Hostile) -> Iterator[str]:
    return (
        f"/failures/{encode_name(each['name'])}"
        for each in hostile.web.call("GET", "/failures?by=fingerprint")["items"][::20]
    )


def each_of(noun: str, name: str) -> Callable[[Hostile], Iterator[str]]:
    """Return a function that yields the addresses of all pages of a noun."""
    return lambda hostile: (
        f"/{noun}/{encode_name(each[name])}" for each in hostile.web.call("GET", f"/{noun}?limit=1000")["items"]
    )


class Row(NamedTuple):
    """A page: its template, its addresses, and how many of the strings it shows at least."""

    path: str
    addresses: Callable[[Hostile], Iterator[str]]
    shown: int = 0


PAGES = [
    Row("/jobs", all_of("/jobs"), shown=COUNT),
    Row("/jobs", queries),
    Row("/jobs/{id}", lambda hostile: (f"/jobs/{id}" for id in [*hostile.ids, "waits", "r-0", "r-1"]), shown=COUNT),
    Row("/jobs/{id}", lambda _: (f"/jobs/f-{place:03}?lines=all" for place in range(0, COUNT, 20)), shown=20),
    Row("/jobs/{id}/graph", lambda _: iter(["/jobs/waits/graph"])),
    Row("/find", lambda _: (f"/find?q={quote(text)}" for text in strings()[::10])),
    Row("/operations/new", lambda _: (f"/operations/new?action=tag&tag={quote(t)}" for t in tags_of(strings()))),
    Row("/operations/{operation}", operations, shown=1),
    Row("/queues/{queue}", lambda _: (f"/queues/{queue}" for queue in ("f", "h", "r"))),
    Row("/failures/{failure}", failures, shown=1),
    Row("/workers", lambda _: iter(["/workers", "/workers?by=node"]), shown=40),
    Row("/workers/{worker}", each_of("workers", "worker"), shown=200),
    Row("/schedules/{schedule}", each_of("schedules", "schedule"), shown=100),
    Row("/limits/{limit}", lambda _: iter(["/limits/gpu"])),
    Row("/batches/{batch}", lambda _: iter(["/batches/hostile"])),
    Row("/subscriptions", all_of("/subscriptions"), shown=100),
    Row("/tags", lambda _: iter(["/tags"]), shown=100),
    Row("/events", all_of("/events?type=configured&type=cancelled&type=failed"), shown=150),
    Row("/events", lambda _: (f"/events?{('worker', 'tag')[n % 2]}={quote(t)}" for n, t in enumerate(strings()[::10]))),
    Row("/settings", lambda _: iter(["/settings?queue=h"])),
    Row("/planner", lambda _: iter(["/planner?forecast=true&queue=h"])),
]


def test_every_page_with_parameters_is_in_the_table() -> None:
    with_parameters = {route.path for route in ROUTES if route.method == "GET" and route.parameters}
    assert with_parameters <= {row.path for row in PAGES}


@pytest.mark.parametrize("row", PAGES, ids=[f"{row.path}-{place}" for place, row in enumerate(PAGES)])
def test_hostile_strings_are_inert(hostile: Hostile, row: Row) -> None:
    shown: set[int] = set()
    for address in row.addresses(hostile):
        shown |= check(hostile.web, address)
    assert len(shown) >= row.shown


@pytest.mark.parametrize("path", [route.path for route in ROUTES if route.method == "GET" and not route.parameters])
def test_hostile_strings_are_inert_in_pages_without_parameters(hostile: Hostile, path: str) -> None:
    if path != "/operations/new":  # it needs a query
        check(hostile.web, path)


def check(web: Web, address: str) -> set[int]:
    """Check that a page has nothing but what its templates have, and return the marks of the strings that it shows."""
    response = web.get(address, follow_redirects=True)
    assert response.status_code == 200, (address, response.text[:500])
    assert len(response.content) < 3_000_000, address
    page = read_page(response.text)
    problems = [problem for element in page.walk() if element.tag for problem in problems_of(element)]
    assert problems == [], address
    return {int(each) for each in MARK.findall("".join(page.pieces()))}


def problems_of(element: Element) -> Iterator[str]:
    """Yield what an element has that no template has."""
    if element.tag not in ELEMENTS:
        yield f"element {element!r}"
    for name, value in element.attributes.items():
        if name.startswith("on") or name in ("style", "srcdoc", "http-equiv") or not name.replace("-", "").isalnum():
            yield f"attribute {name} of {element!r}"
        if name in ADDRESSES and not (value.startswith(("/", "#")) and not value.startswith("//")):
            yield f"address {value!r} of {element!r}"
        if name not in FREE and has_invisible(value):
            yield f"invisible characters in {name} of {element!r}"
    if element.tag == "script" and (element.children or not element.attributes.get("src", "").startswith("/static/")):
        yield f"script {element.text[:100]!r}"
    if any(has_invisible(each) for each in element.children if isinstance(each, str)):
        yield f"invisible characters in {element!r}"


def has_invisible(text: str) -> bool:
    return not text.isprintable() and not text.replace("\n", "").replace("\t", "").isprintable()
