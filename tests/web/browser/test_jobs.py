"""Jobs in a browser: filtered, acted on by the thousand with progress, cancelled while they run, and their logs."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast import current_job
from holdfast.store import commands
from tests.support.new_job import NewJob
from tests.web.hostile import fill as fill_hostile
from tests.web.serving import Web

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MANY = 10_000


def keys(page: Page) -> list[str]:
    found: list[str] = page.evaluate("[...document.querySelectorAll('tr[data-key]')].map((row) => row.dataset.key)")
    return found


# Filters


def test_the_list_is_filtered_by_text_chips_and_tabs(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_label("Filter as text").fill("queue:billing state:failed")
    page.get_by_label("Filter as text").press("Enter")
    page.wait_for_url(re.compile(r"q="))
    assert len(keys(page)) == 12
    page.get_by_label("Remove the filter queue billing").click()
    page.wait_for_url(re.compile(r"/jobs\?state=failed$"))
    page.get_by_role("link", name=re.compile("^Running")).click()
    page.wait_for_url(re.compile(r"state=running"))
    assert "training" in keys(page)
    page.get_by_text("+ task").click()
    page.get_by_label("Task", exact=True).fill("ml.train_ranker")
    page.get_by_role("button", name="Add the filter").click()
    page.wait_for_url(re.compile(r"task=ml.train_ranker"))
    assert keys(page) == ["training"]
    assert page.get_by_label("Filter as text").input_value() == "state:running task:ml.train_ranker"


def test_find_leads_to_the_one_match(page: Page) -> None:
    page.goto("/queues")
    page.keyboard.press("/")
    page.keyboard.type("training")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/training$"))


# Many jobs


def put_cancelled(web: Web, count: int) -> None:
    for first in range(0, count, 1000):
        ids = [f"j-{number}" for number in range(first, min(first + 1000, count))]
        web.jobs.store.run(commands.enqueue([NewJob(id=id, payload=b"{}", queue="q", task="t") for id in ids]))
        web.jobs.store.run(commands.cancel(ids))


def test_all_of_ten_thousand_matches_are_retried_with_a_preview_and_progress(tab: Page, web: Web) -> None:
    put_cancelled(web, MANY)
    tab.goto("/jobs?state=cancelled")
    tab.get_by_label("Select all jobs on this page").click()
    tab.get_by_text("Select all 10,000 matches").click()
    tab.get_by_text("All 10,000 matches are selected").wait_for()
    tab.get_by_role("link", name="Retry…").click()
    assert tab.locator("h1").inner_text() == "Retry 10,000 jobs?"
    assert "Checkpoints are kept" in tab.locator("main").inner_text()
    tab.get_by_role("button", name="Retry 10,000 jobs").click()
    tab.wait_for_url(re.compile(r"/operations/\w+"))
    tab.locator("[data-live=state]", has_text="Done").wait_for(timeout=60_000)
    assert "10,000 jobs done" in tab.locator("[data-live=progress]").inner_text()
    tab.locator("code", has_text="operations show").wait_for()  # there is nothing to stop any more
    assert web.jobs.count(state="waiting") == MANY


def test_an_operation_is_stopped_and_goes_on(tab: Page, web: Web) -> None:
    put_cancelled(web, 10)
    operation = web.jobs.retry_all(state="cancelled", wait=False)
    tab.goto(f"/operations/{operation.id}")
    tab.get_by_role("button", name="Stop", exact=True).click()
    tab.locator("[data-live=state]", has_text="Stopped").wait_for()
    tab.get_by_role("button", name="Continue", exact=True).click()
    tab.locator("[data-live=state]", has_text="Done").wait_for()
    assert web.jobs.count(state="waiting") == 10


def test_selected_jobs_are_deleted_after_a_question(tab: Page, web: Web) -> None:
    put_cancelled(web, 5)
    tab.goto("/jobs?state=cancelled")
    for id in ("j-1", "j-3"):
        tab.locator(f'tr[data-key="{id}"] [data-pick]').check()
    bar = tab.locator("[data-picked]")
    assert bar.locator("[data-picked-count]").inner_text() == "2 jobs"
    bar.get_by_text("Delete…").click()
    bar.get_by_role("button", name="Delete the selected jobs").click()
    tab.locator(".toast", has_text="Deleted 2 jobs.").wait_for()
    tab.locator('tr.gone[data-key="j-1"]').wait_for()
    assert sorted(job.id for job in web.jobs.list()) == ["j-0", "j-2", "j-4"]


# A job that runs


@pytest.fixture
def running(web: Web) -> Iterator[threading.Event]:
    """A worker that runs job `long`, which prints a line whenever the event is set, until it is cancelled."""
    more = threading.Event()

    @web.jobs.task(name="train", queue="ml")
    async def train() -> None:
        number = 0
        while True:
            if more.is_set():
                more.clear()
                number += 1
                current_job().log(f"epoch {number}")
                current_job().report(number / 10, f"epoch {number} of 10")
            await asyncio.sleep(0.01)

    web.jobs.enqueue(train.bind().options(id="long"))
    with web.jobs.worker(queues=["ml"]):
        yield more
        if web.jobs.get("long").state == "running":
            web.jobs.cancel("long")


def test_the_log_and_the_progress_of_a_running_job_follow_it(tab: Page, running: threading.Event) -> None:
    tab.goto("/jobs/long")
    tab.locator("[data-live=state]", has_text="Running").wait_for()
    for number in (1, 2):
        running.set()
        tab.locator(".log li", has_text=f"epoch {number}").wait_for()
    tab.locator("[data-live=now]", has_text="20 %").wait_for()
    assert tab.locator("[data-log-state]").inner_text() == "Following"


def test_a_running_job_is_cancelled_with_a_reason(tab: Page, web: Web, running: threading.Event) -> None:
    del running
    tab.goto("/jobs/long")
    tab.locator("[data-live=state]", has_text="Running").wait_for()
    tab.get_by_text("Cancel…", exact=True).click()
    tab.get_by_label("Reason, stored with the job").last.fill("wrong data set")
    tab.get_by_role("button", name="Cancel the job").click()
    tab.locator(".toast", has_text="Cancelled job long").wait_for()
    tab.locator("[data-live=state]", has_text="Cancelled").wait_for()
    tab.locator("[data-live=now]", has_text="wrong data set").wait_for()
    assert web.jobs.get("long").state == "cancelled"


# Hostile strings


def test_a_browser_runs_nothing_that_jobs_contain(browser: Browser, web: Web) -> None:
    ids = fill_hostile(web.jobs, web.jobs.store)
    problems: list[str] = []
    with browser.new_context(base_url=web.url) as context:
        tab = context.new_page()
        tab.on("dialog", lambda dialog: problems.append(dialog.message))
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: None if request.url.startswith(web.url) else problems.append(request.url))
        for path in ("/jobs", "/jobs?state=failed", *(f"/jobs/{id}" for id in [*ids[::6], "f-001", "waits", "large"])):
            tab.goto(path)
            assert (
                tab.evaluate("document.querySelectorAll('main img, main iframe, main script, main base').length") == 0
            )
    assert problems == []
