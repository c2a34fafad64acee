"""Every page, in five viewports, light and dark, with and without scripts: sound, accessible, all of it from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

from tests.web.browser import chromium
from tests.web.browser.data import send_heartbeats
from tests.web.browser.pages import EXAMPLES, Example, page_paths
from tests.web.serving import Web

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Test = TypeVar("Test", bound=Callable[..., None])
Theme = Literal["light", "dark"]

VIEWPORTS = ((1920, 1080), (1440, 900), (1024, 768), (768, 1024), (360, 740))
CHECKED = (1440, 360)  # widths at which axe looks: a table, and cards


def test_every_page_has_an_example() -> None:
    assert {example.path for example in EXAMPLES} - {"/components"} == page_paths()


@contextmanager
def opened(browser: Browser, web: Web, theme: Theme, **options: Any) -> Iterator[Page]:
    """Open a tab, and afterwards check that it reported no error and asked nobody else for anything."""
    problems: list[str] = []
    send_heartbeats(web.jobs)
    with browser.new_context(base_url=web.url, color_scheme=theme, **options) as context:
        context.set_default_timeout(chromium.PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(web.url) else problems.append(request.url))
        yield page
    assert problems == []


def look(page: Page, url: str) -> Iterator[int]:
    """Open a page and yield each width that it was checked at."""
    response = page.goto(url)
    assert response is not None
    assert response.status == 200, page.locator("main").inner_text()[:600]
    for width, height in VIEWPORTS:
        page.set_viewport_size({"width": width, "height": height})
        assert overflowing(page) == [], f"wider than {width} px"
        yield width


def each_page(test: Test) -> Test:
    """Run a test for each page, light and dark."""
    of_themes = pytest.mark.parametrize("theme", ["light", "dark"])
    of_pages = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
    found: Test = of_themes(of_pages(test))
    return found


@each_page
def test_a_page_is_sound(browser: Browser, shop: Web, example: Example, theme: Theme) -> None:
    with opened(browser, shop, theme) as page:
        for width in look(page, example.url(shop.jobs)):
            if width in CHECKED:
                assert violations(page) == []


@each_page
def test_a_page_is_sound_without_scripts(browser: Browser, shop: Web, example: Example, theme: Theme) -> None:
    with opened(browser, shop, theme, java_script_enabled=False) as page:
        assert [*look(page, example.url(shop.jobs))] == [width for width, _ in VIEWPORTS]
    with opened(browser, shop, theme) as page:  # axe is a script: here, those of the page are empty
        page.route("**/app.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
        for width in look(page, example.url(shop.jobs)):
            if width in CHECKED:
                assert violations(page) == []


def overflowing(page: Page) -> list[str]:
    """Return what reaches beyond the right edge of the page, or of its panel, outside of boxes that scroll."""
    found: list[str] = page.evaluate("""() => {
        const wide = document.documentElement.clientWidth;
        const clips = (each) => getComputedStyle(each).overflowX !== "visible";
        const scrolls = (each, end) => each && each !== end && (clips(each) || scrolls(each.parentElement, end));
        const beyond = (box, end) => [...box.querySelectorAll("*")].filter((each) =>
            each.getBoundingClientRect().right > end + 1 && !scrolls(each.parentElement, box)
            && !each.closest(".sr, .menu, .news, .defs, svg *"));
        const panels = [...document.querySelectorAll(".panel")].filter((each) => !clips(each));
        return [
            ...(document.documentElement.scrollWidth > wide ? beyond(document.body, wide) : []),
            ...panels.flatMap((each) => beyond(each, each.getBoundingClientRect().right)),
        ].map((each) => each.outerHTML.slice(0, 120));
    }""")
    return found


def violations(page: Page) -> list[str]:
    """Return what axe objects to."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]
