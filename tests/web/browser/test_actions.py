"""Actions and outages as somebody sees them who operates: what a page shows afterwards is how it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from holdfast.store import commands
from holdfast.web.security.users import LOCAL, User
from holdfast.web.site import Site
from tests.support.new_job import NewJob
from tests.web.serving import Web, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def put(web: Web, *ids: str, queue: str = "q") -> None:
    web.jobs.store.run(commands.enqueue([NewJob(id=id, payload=b"{}", queue=queue, task="t") for id in ids]))


# What is shown afterwards


def test_the_page_of_a_queue_shows_that_it_was_paused(tab: Page, web: Web) -> None:
    put(web, "a")
    tab.goto("/queues/q")
    tab.get_by_text("Pause…", exact=True).click()
    tab.get_by_role("button", name="Pause the queue").click()
    tab.locator(".toast", has_text="Queue q paused.").wait_for()
    tab.locator(".head .badge", has_text="paused").wait_for()
    tab.get_by_role("button", name="Resume", exact=True).first.click()
    tab.locator(".head .badge", has_text="active").wait_for()
    assert not web.jobs.queues()[0].paused


def test_the_page_of_a_queue_shows_that_somebody_else_paused_it(tab: Page, web: Web) -> None:
    put(web, "a")
    tab.goto("/queues/q")
    web.jobs.pause("q")
    tab.locator(".head .badge", has_text="paused").wait_for()


def test_an_action_outside_of_live_parts_loads_the_page_again(tab: Page, web: Web) -> None:
    web.jobs.set_limit("gpu", 3)
    tab.goto("/limits/gpu")
    tab.get_by_text("Change the limit").first.click()
    tab.locator("#change [name=slots]").fill("5")
    tab.locator("#change button.primary").click()
    tab.locator(".toast", has_text="Changed limit gpu").wait_for()
    assert "5 at once" in tab.locator(".head").inner_text()


def test_a_refused_action_keeps_what_was_typed(tab: Page, web: Web) -> None:
    tab.goto("/limits")
    tab.get_by_text("New limit").click()
    tab.locator("#new [name=limit]").fill("gpu")
    tab.locator("#new [name=slots]").fill("3")
    tab.locator("#new [name=per]").fill("1 fortnight")
    tab.locator("#new button.primary").click()
    tab.get_by_role("alert").wait_for()
    assert tab.locator("#new [name=limit]").input_value() == "gpu"
    tab.locator("#new [name=per]").fill("2s")
    tab.locator("#new button.primary").click()
    tab.locator(".toast", has_text="Defined the limit").wait_for()
    assert web.jobs.limits()[0].slots == 3


def test_a_form_is_empty_again_after_its_action(tab: Page, web: Web) -> None:
    put(web, "a")
    tab.goto("/jobs/a")
    for tag in ("one", "two"):
        tab.get_by_placeholder("New tag").fill(tag)
        tab.get_by_placeholder("New tag").press("Enter")
        tab.locator("[data-live=marks]", has_text=tag).wait_for()
        assert tab.get_by_placeholder("New tag").input_value() == ""
        tab.locator("[name=tags]:focus").wait_for()
    assert sorted(web.jobs.get("a").tags) == ["one", "two"]


@pytest.mark.parametrize("leads", ["elsewhere", "here"])
def test_a_form_that_is_sent_twice_acts_once(tab: Page, web: Web, leads: str) -> None:
    put(web, "a")
    web.jobs.cancel("a")
    path = ":fork" if leads == "elsewhere" else "/notes"
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    tab.goto("/jobs/a")
    form = tab.locator(f'form[action$="{path}"]')
    if leads == "here":
        form.locator("[name=text]").evaluate("(field) => { field.value = 'seen'; }")
    form.evaluate("(form) => { form.requestSubmit(); form.requestSubmit(); }")
    tab.locator(".toast", has_text=re.compile("This is the new job|The note was added")).wait_for()
    assert len(sent) == 1


# What is no longer so


def test_a_page_says_that_its_job_was_deleted(tab: Page, web: Web) -> None:
    put(web, "a")
    web.jobs.cancel("a")
    tab.goto("/jobs/a")
    top = "document.querySelector('h1').getBoundingClientRect().top"
    before = tab.evaluate(top)
    web.jobs.delete("a")
    away = tab.locator("[data-away] a")
    away.wait_for()
    assert re.fullmatch(r"This no longer exists\. This is how it was at \d\d:\d\d:\d\d\.", away.inner_text())
    assert tab.evaluate(top) == before


def test_a_page_says_that_nobody_is_signed_in_any_more(browser: Browser, web: Web) -> None:
    users: list[User | None] = [LOCAL]
    put(web, "a")
    with serve(Site(web.jobs, lambda _: users[0])) as other, browser.new_context(base_url=other.url) as context:
        tab = context.new_page()
        tab.goto("/jobs/a")
        users[0] = None
        tab.get_by_role("button", name="Track", exact=True).click()
        assert "sign in" in tab.get_by_role("alert").inner_text()
        assert tab.get_by_role("alert").get_by_role("link", name="Sign in").get_attribute("href") == tab.url
        tab.locator("[data-away] a", has_text="You are no longer signed in").wait_for()
        users[0] = LOCAL
        tab.locator("[data-away]").wait_for(state="detached")
        assert tab.locator("[data-live-state]").inner_text() == "Live"
