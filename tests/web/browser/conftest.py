"""Fixtures of browser tests: one Chromium and one filled store per module, and a page per test.

Playwright keeps an event loop running in its thread, so other tests of the process must not find it there, and jobs are
run in another thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.web.routes import ROUTES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.web.browser import chromium, components
from tests.web.browser.data import fill
from tests.web.serving import Web, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium.required()
    with chromium.launched() as found:
        yield found


@pytest.fixture(scope="module")
def shop(server_url: str) -> Iterator[Web]:
    """A web server of a store with jobs in every state, and the page of all components."""
    app = Holdfast(server_url, namespace="t" + secrets.token_hex(6))
    with ThreadPoolExecutor(1) as other:
        other.submit(fill, app).result()
    before = ROUTES.routes
    ROUTES.routes = [*before, *components.pages]
    with serve(Site(app, lambda _: LOCAL)) as web:
        yield web
    ROUTES.routes = before
    app.close()


@pytest.fixture
def page(browser: Browser, shop: Web) -> Iterator[Page]:
    """A page of the shop, as an operator on a laptop sees it."""
    with browser.new_context(base_url=shop.url, viewport={"width": 1440, "height": 900}) as context:
        context.set_default_timeout(chromium.PATIENCE)
        opened = context.new_page()
        yield opened
        opened.unroute_all(behavior="ignoreErrors")


@pytest.fixture
def web(server_url: str) -> Iterator[Web]:
    """A web server of an empty store."""
    app = Holdfast(server_url, namespace="t" + secrets.token_hex(6))
    with serve(Site(app, lambda _: LOCAL)) as made:
        yield made
    app.close()


@pytest.fixture
def tab(browser: Browser, web: Web) -> Iterator[Page]:
    """A page of that store."""
    with browser.new_context(base_url=web.url, viewport={"width": 1440, "height": 900}) as context:
        opened = context.new_page()
        yield opened
        opened.unroute_all(behavior="ignoreErrors")
