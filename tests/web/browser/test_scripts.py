"""What scripts add to pages: they keep them current without moving anything, and save time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.web.pages import formats
from tests.web.browser import chromium
from tests.web.browser.data import print_text
from tests.web.serving import Web

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

# Functions of modules of the page, which tests call.
AGES = """async (module) => {
    const { ageText } = await import(module);
    const now = Date.UTC(2026, 10, 16, 10, 42, 18);
    return SECONDS.map((each) => [ageText("ago", now - each * 1000, now), ageText("span", now - each * 1000, now),
        ageText("due", now - each * 1000, now)]);
}"""
SECONDS = (0, 0.4, 1, 38, 59.9, 60, 119, 3_599, 3_600, 7_199, 86_399, 86_400, 300_000, -1, -5, -61, -90_000)


@pytest.fixture
def queues(page: Page, shop: Web) -> Iterator[Page]:
    """The page of queues, with the queues as they were."""
    page.goto("/queues")
    yield page
    for each in shop.jobs.queues():
        if each.paused != (each.name == "billing"):
            (shop.jobs.resume if each.paused else shop.jobs.pause)(each.name)


def cell(page: Page, queue: str, title: str) -> str:
    return page.locator(f'tr[data-key="{queue}"] td[data-label="{title}"]').inner_text()


def wait_for_cell(page: Page, queue: str, title: str, text: str) -> None:
    page.locator(f'tr[data-key="{queue}"] td[data-label="{title}"]', has_text=re.compile(f"^{text}$")).wait_for()


def keys(page: Page) -> list[str]:
    found: list[str] = page.evaluate("[...document.querySelectorAll('tr[data-key]')].map((row) => row.dataset.key)")
    return found


def send(shop: Web, queue: str, count: int = 1) -> None:
    task = shop.jobs.tasks["mail.send_receipt"].options(queue=queue)
    shop.jobs.enqueue_many(task.bind(order=number, to="x@example.org") for number in range(count))


# Live pages


def test_numbers_follow_the_store_and_rows_stay_where_they_are(queues: Page, shop: Web) -> None:
    before = keys(queues)
    waiting = int(cell(queues, "mail", "Waiting"))
    row = queues.locator('tr[data-key="mail"]').element_handle()
    send(shop, "mail", 3)
    send(shop, "aaa-new")
    wait_for_cell(queues, "mail", "Waiting", str(waiting + 3))
    assert keys(queues) == before
    assert row.evaluate("(row) => row.isConnected")
    news = queues.locator(".news a")
    assert news.inner_text() == "1 queue changed. Show it"
    news.click()
    queues.locator('tr[data-key="aaa-new"]').wait_for()
    assert queues.locator(".news").count() == 0


def test_nothing_moves_when_news_come(queues: Page, shop: Web) -> None:
    place = "document.querySelector('tr[data-key=mail]').getBoundingClientRect().top"
    before = queues.evaluate(place)
    send(shop, f"zzz-{shop.url[-5:]}")
    queues.locator(".news a").wait_for()
    assert queues.evaluate(place) == before


def test_focus_selection_scroll_and_open_menus_survive_a_refresh(page: Page) -> None:
    page.goto("/components")
    page.set_viewport_size({"width": 1000, "height": 500})
    page.evaluate("""() => {
        scrollTo(0, 700);
        document.querySelector("[name=q][data-filter]").value = "typed";
        document.querySelector("[name=q][data-filter]").focus({ preventScroll: true });
        document.querySelector("details.data").open = true;
        getSelection().selectAllChildren(document.querySelector("tr[data-key] .sub"));
        document.querySelector("tr[data-key] [data-pick]").click();
    }""")
    looks = """() => [scrollY, document.activeElement.name, document.querySelector("[name=q][data-filter]").value,
        document.querySelector("details.data").open, getSelection().toString(),
        document.querySelector("tr[data-key] [data-pick]").checked]"""
    before = page.evaluate(looks)
    refresh(page)
    assert page.evaluate(looks) == before
    assert before[1:] == ["q", "typed", True, "0R5dQw1xTzLm7PkA", True]


def refresh(page: Page) -> None:
    """Refresh the page, as it does when the tab is looked at again."""
    page.evaluate("""() => {
        const refreshed = new Promise((done) => document.addEventListener("holdfast:refreshed", done, { once: true }));
        document.dispatchEvent(new Event("visibilitychange"));
        return refreshed.then(() => null);
    }""")


def test_a_row_that_is_gone_stays_and_is_marked(page: Page) -> None:
    page.goto("/components")

    def without_first(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=response.text().replace("0R5dQw1xTzLm7PkA", "0R5dQw1xTzLm7PkZ"))

    page.route("**/components", without_first)
    refresh(page)
    assert keys(page)[0] == "0R5dQw1xTzLm7PkA"
    assert page.locator("tr.gone").get_attribute("data-key") == "0R5dQw1xTzLm7PkA"
    assert page.locator(".news a").inner_text() == "2 jobs changed. Show them"


def test_a_hidden_tab_asks_for_nothing_and_catches_up_when_it_is_seen(queues: Page, shop: Web) -> None:
    queues.clock.install()
    queues.reload()
    set_visibility(queues, "hidden")
    assert queues.locator("[data-live-state]").inner_text() == "Paused"
    asked: list[str] = []
    queues.on("request", lambda request: asked.append(request.url))
    waiting = int(cell(queues, "mail", "Waiting"))
    send(shop, "mail", 2)
    queues.clock.run_for("10:00")
    assert asked == []
    set_visibility(queues, "visible")
    wait_for_cell(queues, "mail", "Waiting", str(waiting + 2))


def set_visibility(page: Page, state: str) -> None:
    page.evaluate(
        """(state) => {
        Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
        Object.defineProperty(document, "hidden", { value: state === "hidden", configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }""",
        state,
    )


def test_a_server_that_is_away_is_reported_and_found_again(queues: Page, shop: Web) -> None:
    queues.route("**/*", lambda route: route.abort())
    queues.locator("[data-live-state]", has_text="Not connected").wait_for()
    queues.unroute("**/*")
    waiting = int(cell(queues, "mail", "Waiting"))
    send(shop, "mail")
    wait_for_cell(queues, "mail", "Waiting", str(waiting + 1))
    assert queues.locator("[data-live-state]").inner_text() == "Live"


def test_ages_are_written_as_the_server_writes_them(page: Page) -> None:
    page.goto("/queues")
    found = page.evaluate(AGES.replace("SECONDS", str(list(SECONDS))), module_of(page, "ages.js"))
    now = datetime(2026, 11, 16, 10, 42, 18, tzinfo=UTC)
    times = [now - timedelta(seconds=each) for each in SECONDS]
    assert found == [[formats.ago(time, now), formats.span(time, now), formats.due(time, now)] for time in times]


def module_of(page: Page, name: str) -> str:
    """Return the address of a module of the page."""
    return str(page.evaluate("document.querySelector('script[type=module]').src")).replace("app.js", name)


# Actions


def test_an_action_is_done_in_place_and_confirmed(queues: Page, shop: Web) -> None:
    button = queues.get_by_role("button", name="Pause queue mail")
    button.focus()
    queues.evaluate("window.same = true")
    queues.keyboard.press("Enter")
    queues.locator(".toast", has_text="Queue mail paused.").wait_for()
    queues.get_by_role("button", name="Resume queue mail").wait_for()
    assert queues.locator('tr[data-key="mail"] .badge').inner_text() == "paused"
    assert queues.evaluate("window.same") is True
    assert queues.evaluate("document.activeElement.getAttribute('aria-label')") == "Resume queue mail"
    assert {each.name: each.paused for each in shop.jobs.queues()}["mail"]


def test_an_action_that_fails_says_why_until_it_is_closed(queues: Page) -> None:
    queues.evaluate("""() => {
        const form = document.querySelector("tr[data-key=mail] form");
        form.action = "/api/v1/queues/male:pause";
        form.querySelector("button").click();
    }""")
    toast = queues.get_by_role("alert")
    assert "NOTFOUND, 404" in toast.inner_text()
    assert "mail" in toast.inner_text()
    toast.get_by_role("button", name="Close the message").click()
    assert toast.count() == 0


def test_an_action_works_without_scripts(browser: Browser, shop: Web) -> None:
    with browser.new_context(base_url=shop.url, java_script_enabled=False) as context:
        context.set_default_timeout(chromium.PATIENCE)
        page = context.new_page()
        page.goto("/queues")
        page.get_by_role("button", name="Pause queue video").click()
        assert page.url == f"{shop.url}/queues"
        assert page.locator(".toast").inner_text() == "Queue video paused."
        page.get_by_role("button", name="Resume queue video").click()
        assert page.locator(".toast").inner_text() == "Queue video resumed."


def test_a_menu_closes_by_escape_and_by_a_click_elsewhere(page: Page) -> None:
    page.goto("/components")
    summary = page.locator("summary", has_text="Cancel…")
    summary.click()
    assert page.get_by_role("heading", name="Cancel this job?").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("heading", name="Cancel this job?").is_visible()
    assert summary.evaluate("(each) => each === document.activeElement")
    summary.click()
    page.get_by_role("heading", name="Components").click()
    assert not page.get_by_role("heading", name="Cancel this job?").is_visible()


# Copying


@pytest.mark.parametrize("host", ["127.0.0.1", "holdfast.test"])
def test_a_command_can_be_copied_also_over_plain_http(browser: Browser, shop: Web, host: str) -> None:
    url = shop.url.replace("127.0.0.1", host)
    with browser.new_context(base_url=url) as context:
        context.set_default_timeout(chromium.PATIENCE)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=shop.url)
        page = context.new_page()
        page.goto("/components")
        assert page.evaluate("isSecureContext") is (host == "127.0.0.1")
        page.get_by_role("button", name=re.compile("Copy: holdfast .*show training")).click()
        page.locator("[data-copied]").wait_for()
        page.locator("[data-filter]").fill("")
        page.keyboard.press("Control+V")
        assert (
            page.locator("[data-filter]").input_value()
            == f"holdfast --namespace {shop.jobs.address.namespace} show training"
        )


# Keyboard


def test_keys_lead_to_pages_to_the_search_and_to_their_own_list(queues: Page) -> None:
    queues.keyboard.press("/")
    assert queues.evaluate("document.activeElement.name") == "q"
    queues.keyboard.type("q?")
    assert queues.locator("[data-find]").input_value() == "q?"
    queues.keyboard.press("Escape")
    queues.keyboard.press("?")
    assert queues.get_by_role("heading", name="Keyboard").is_visible()
    queues.keyboard.press("j")
    assert queues.url.endswith("/queues")  # the list has the keyboard
    queues.keyboard.press("Escape")
    assert not queues.get_by_role("heading", name="Keyboard").is_visible()
    queues.keyboard.press("Control+j")
    with queues.expect_navigation(url="**/jobs"):
        queues.keyboard.press("j")


def test_the_list_of_keys_opens_without_scripts(browser: Browser, shop: Web) -> None:
    with browser.new_context(base_url=shop.url, java_script_enabled=False) as context:
        context.set_default_timeout(chromium.PATIENCE)
        page = context.new_page()
        page.goto("/queues")
        page.get_by_role("link", name="Keyboard").click()
        assert page.get_by_role("heading", name="Keyboard").is_visible()
        page.get_by_role("link", name="Close").click()
        assert not page.get_by_role("heading", name="Keyboard").is_visible()


# Picking rows


def test_rows_are_picked_one_by_one_in_ranges_and_all(page: Page) -> None:
    page.goto("/components")
    boxes, bar = page.locator("[data-pick]"), page.locator("[data-picked]")
    assert not bar.is_visible()
    top = "document.querySelector('tr[data-key]').getBoundingClientRect().top + scrollY"
    before = page.evaluate(top)
    boxes.nth(1).click()
    assert bar.inner_text().startswith("With 1 job:")
    assert page.evaluate(top) == before
    boxes.nth(4).click(modifiers=["Shift"])
    assert bar.inner_text().startswith("With 4 jobs:")
    assert page.locator("tr.on").count() == 4
    assert page.evaluate("document.querySelector('[data-pick-all]').indeterminate")
    page.locator("h1").click()
    page.keyboard.press("x")
    assert page.locator("tr.on").count() == 6
    page.keyboard.press("x")
    assert not bar.is_visible()


# Theme


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
def test_the_theme_is_switched_and_kept(browser: Browser, shop: Web, scripts: bool) -> None:
    with browser.new_context(base_url=shop.url, color_scheme="light", java_script_enabled=scripts) as context:
        context.set_default_timeout(chromium.PATIENCE)
        page = context.new_page()
        page.goto("/queues?x=")
        light = "rgb(246, 247, 248)"
        assert background(page) == light
        page.get_by_role("button", name="Dark theme").click()
        page.get_by_role("button", name="Light theme").wait_for()
        assert background(page) != light
        assert page.url == f"{shop.url}/queues?x="
        page.goto("/queues")
        assert background(page) != light
        page.get_by_role("button", name="Light theme").click()
        page.get_by_role("button", name="Dark theme").wait_for()
        assert background(page) == light


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))


# Logs


def lines(page: Page) -> list[str]:
    return page.locator(".log li").all_text_contents()


def wait_for_line(page: Page, text: str) -> None:
    page.locator(".log li", has_text=re.compile(f"^{re.escape(text)}$")).last.wait_for(state="attached")


def is_at_end(page: Page) -> bool:
    return bool(
        page.locator(".log").evaluate("(list) => list.scrollHeight - list.scrollTop - list.clientHeight < 24"),
    )


def numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(count))


@pytest.fixture
def log(page: Page) -> Page:
    """The page of components, once it follows the log of its job."""
    page.goto("/components")
    page.locator("[data-log-state]", has_text="Following").wait_for()
    return page


def test_a_log_appends_while_its_end_is_in_view_and_counts_lines_otherwise(log: Page, shop: Web) -> None:
    before, more = lines(log), log.locator(".morelines")
    assert is_at_end(log)
    print_text(shop.jobs, "training", numbered(100) + "half")
    wait_for_line(log, "line 99")
    assert lines(log) == [*before, *(f"line {number}" for number in range(100)), "half"]
    assert is_at_end(log)
    assert not more.is_visible()
    log.locator(".log").evaluate("(list) => { list.scrollTop = 0; }")
    print_text(shop.jobs, "training", " a line\n" + numbered(11))
    more.get_by_text("12 new lines").wait_for()
    assert log.locator(".log").evaluate("(list) => list.scrollTop") == 0
    assert "half a line" in lines(log)
    more.click()
    assert is_at_end(log)
    assert not more.is_visible()


def test_a_log_is_resumed_where_it_was(log: Page, shop: Web) -> None:
    before = lines(log)
    set_visibility(log, "hidden")
    assert log.locator("[data-log-state]").inner_text() == "Paused"
    print_text(shop.jobs, "training", "while away\n")
    set_visibility(log, "visible")
    wait_for_line(log, "while away")
    assert lines(log) == [*before, "while away"]


def test_what_a_job_prints_stays_text(log: Page, shop: Web) -> None:
    print_text(shop.jobs, "training", "\x1b]0;title\x07<b>bold</b>\u202e\ttab\x85\U000e0041\n")
    wait_for_line(log, "\\x1b]0;title\\x07<b>bold</b>\\u202e\ttab\\x85\\U000e0041")
    written = lines(log)[-1]
    log.reload()
    assert lines(log)[-1] == written  # the server writes it so, too


def test_a_log_shows_what_a_terminal_would(log: Page, shop: Web) -> None:
    """Progress bars write a line again and again, and end it much later; colours are left out."""
    before = lines(log)
    print_text(shop.jobs, "training", "\r 10 %\r 20 %")
    wait_for_line(log, " 20 %")
    assert lines(log) == [*before, " 20 %"]
    print_text(shop.jobs, "training", "\r 30 %\r")
    wait_for_line(log, " 30 %")
    print_text(shop.jobs, "training", "\r100 %\r\n\x1b[1;31mred\x1b[0m and\r\n")
    wait_for_line(log, "red and")
    assert lines(log) == [*before, "100 %", "red and"]


def test_a_log_without_a_position_begins_with_what_the_page_has_and_is_bounded(page: Page, shop: Web) -> None:
    page.route("**/components", without_position)
    page.goto("/components")
    print_text(shop.jobs, "training", numbered(6000) + "the end\n")
    wait_for_line(page, "the end")
    assert len(lines(page)) <= 5000
    assert is_at_end(page)


def without_position(route: Route) -> None:
    response = route.fetch()
    route.fulfill(response=response, body=re.sub('data-log-at="[^"]*"', "", response.text()))
