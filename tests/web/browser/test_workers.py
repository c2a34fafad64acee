"""Jobs that real `holdfast work` processes run, seen and acted on in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.apps import fork_app
from tests.apps import worker_app as app
from tests.support.workers import Crew, until
from tests.web.serving import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def tab(browser: Browser, crew: Crew) -> Iterator[Page]:
    """A page of a site whose jobs are run by the workers of a crew."""
    with serve(Site(crew.app, lambda _: LOCAL)) as web, browser.new_context(base_url=web.url) as context:
        opened = context.new_page()
        yield opened
        opened.unroute_all(behavior="ignoreErrors")


def state(tab: Page, word: str) -> None:
    tab.locator("[data-live=state]", has_text=word).wait_for()


def test_a_schedule_is_triggered_and_the_job_that_it_made_runs(tab: Page, crew: Crew) -> None:
    crew.start()
    crew.app.schedule("nightly", app.say.bind("fired"), cron="0 3 1 1 *")
    tab.goto("/schedules/nightly")
    tab.get_by_role("button", name="Run schedule nightly now").click()
    tab.locator(".toast", has_text="Enqueued a job of schedule nightly").wait_for()
    tab.get_by_role("link", name=re.compile("nightly@")).click()
    state(tab, "Succeeded")
    assert crew.said("fired") == [[]]


def test_a_paused_queue_starts_nothing_until_it_is_resumed(tab: Page, crew: Crew) -> None:
    crew.put(app.say, "before")
    crew.start()
    until(lambda: crew.said("before"))
    tab.goto("/queues/default")
    tab.get_by_text("Pause…", exact=True).click()
    tab.get_by_role("button", name="Pause the queue").click()
    tab.locator(".head .badge", has_text="paused").wait_for()
    job = crew.put(app.say, "after")
    tab.goto(f"/jobs/{job.id}")
    tab.get_by_role("heading", name="Queue default is paused.").wait_for()
    assert not crew.said("after")
    tab.get_by_role("button", name="Resume the queue").click()
    state(tab, "Succeeded")
    assert crew.said("after") == [[]]


def test_the_stack_of_a_running_job_is_shown(tab: Page, crew: Crew) -> None:
    crew.start()
    job = crew.put(app.hold, "gate")
    crew.pids("gate", "runs")
    tab.goto(f"/jobs/{job.id}")
    tab.get_by_text("Stack…", exact=True).click()
    tab.get_by_role("button", name="Show the stack").click()
    tab.locator("main", has_text="worker_app.py").wait_for()
    assert "in wait_for" in tab.locator("main").inner_text()
    crew.open("gate")
    crew.ended(job)


def test_a_job_that_is_killed_again_and_again_tells_its_story_and_is_retried(tab: Page, crew: Crew) -> None:
    crew.start()
    job = crew.app.enqueue(app.hold.options(crashes=1).bind("gate"))
    tab.goto(f"/jobs/{job.id}")
    for attempt in (1, 2):
        crew.kill(crew.pids("gate", "runs", attempt)[-1])
    tab.get_by_role("heading", name="Failed: attempt 2 crashed.").wait_for()
    assert "It may outlive 1 crash; this was one more." in tab.locator("[data-live=now]").inner_text()
    crew.open("gate")
    tab.get_by_role("button", name="Retry", exact=True).click()
    state(tab, "Succeeded")
    tab.reload()
    story = tab.locator("[data-live=story]").inner_text()
    assert story.count("crashed") == 2
    assert "Retried" in story
    assert tab.locator("[data-live=attempts] tr[data-key]").count() == 3


def test_a_job_goes_on_from_its_checkpoint_after_a_retry(tab: Page, crew: Crew) -> None:
    crew.start("--queues", "forks", app="tests.apps.fork_app")
    job = crew.app.enqueue(fork_app.steps.options(retries=0).bind("walk", "raised"))
    tab.goto(f"/jobs/{job.id}")
    button = tab.get_by_role("button", name="Retry from the checkpoint")
    button.wait_for()
    crew.open("fixed")
    button.click()
    state(tab, "Succeeded")
    assert [int(step) for (step,) in crew.said("walk", "begins")] == [1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10]
    tab.reload()
    assert tab.locator("section", has_text="Result").last.inner_text().split()[-2:] == ['"from', '7"']


def test_a_worker_that_is_drained_exits(tab: Page, crew: Crew) -> None:
    worker = crew.start()
    until(lambda: [each for each in crew.app.workers() if each.is_live])
    tab.goto("/workers")
    tab.get_by_text("Drain…", exact=True).first.click()
    tab.get_by_role("button", name="Drain the worker").click()
    tab.locator(".toast", has_text="Draining").wait_for()
    assert worker.wait() == 0
    until(lambda: not crew.app.workers())
    tab.goto("/workers")
    tab.get_by_text("No workers").wait_for()


def test_a_deploy_appears_in_the_plots_once_a_worker_of_a_new_revision_starts(tab: Page, crew: Crew) -> None:
    tab.goto("/")
    marks = tab.locator("[data-live=plot-ended] text", has_text="r418")
    assert marks.count() == 0
    crew.start(HOLDFAST_REVISION="418")
    marks.wait_for(state="attached")
