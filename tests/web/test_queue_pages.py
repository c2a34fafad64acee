"""Pages of queues: all of them, and one with its flow, histograms, next jobs, tasks, shares, limits and actions."""

from __future__ import annotations

import re
from itertools import pairwise

from holdfast.store import commands
from holdfast.web.pages.buckets import BOUNDS, log_buckets
from tests.support.varied_store import claim, put
from tests.web.conftest import Serving
from tests.web.moving import ago
from tests.web.serving import Web, as_user, user_of
from tests.web.test_overview import fail, run_one, work

PAGE = {"accept": "text/html"}


def test_queues_are_listed_with_their_numbers(web: Web) -> None:
    assert "No queues yet" in web.get("/queues").text
    work(web.jobs, "mail")
    run_one(web.jobs, "one")
    put(web.jobs.store, "two", "mail")
    put(web.jobs.store, "three", "video")
    web.jobs.pause("video")
    web.call("POST", "/upkeep")
    page = web.get("/queues").text
    assert page.index('href="/queues/mail"') < page.index('href="/queues/video"')
    assert 'action="/api/v1/queues/mail:pause"' in page
    assert 'action="/api/v1/queues/video:resume"' in page
    assert 'href="/jobs?queue=mail&amp;state=waiting"' in page


def test_many_queues_have_pages(web: Web) -> None:
    for number in range(103):
        put(web.jobs.store, f"job-{number}", f"queue-{number:03}")
    first = web.get("/queues").text
    assert first.count('<tr role="row" data-key') == 100
    assert 'href="/queues?cursor=queue-099"' in first
    rest = web.get("/queues?cursor=queue-099").text
    assert rest.count('<tr role="row" data-key') == 3
    assert web.get("/").text.count('data-key="queue-') == 20


def test_a_queue_shows_its_flow_and_who_is_next(web: Web) -> None:
    work(web.jobs, "mail")
    for number in range(4):
        run_one(web.jobs, f"done-{number}")
    fail(web.jobs, "failed", "mail")
    put(web.jobs.store, "second", "mail", share="acme")
    put(web.jobs.store, "first", "mail", priority=-5, limits=("smtp",))
    web.jobs.set_limit("smtp", 3)
    page = web.get("/queues/mail").text
    assert page.index('href="/jobs/first"') < page.index('href="/jobs/second"')
    assert 'action="/api/v1/jobs/second:move"' in page
    assert 'action="/api/v1/jobs/first:move"' not in page  # it is next
    assert page.count("<summary>Show as table</summary>") == 4
    for text in (">acme<", "0 of 3", "task", "log buckets", "queues pause mail", ">4<"):
        assert text in page, text
    assert "Needs attention" not in page


def test_the_button_of_a_waiting_job_makes_it_the_next(web: Web) -> None:
    for id in ("one", "two"):
        put(web.jobs.store, id, "mail")
    web.post("/api/v1/jobs/two:move", data={"priority": "-256", "_next": "/queues/mail"})
    assert [job.id for job in web.jobs.peek("mail", limit=2)] == ["two", "one"]


def test_a_queue_that_is_behind_says_so(web: Web) -> None:
    work(web.jobs, "mail", "video")
    for queue in ("mail", "video"):
        with ago(web.jobs, 900):
            put(web.jobs.store, queue, queue)
    page = web.get("/queues/mail").text
    assert "is behind: its oldest job has waited 15 min" in page
    assert ">Show queue<" not in page
    assert "Needs attention" in page
    assert "<code>video</code>" not in page


def test_a_queue_is_paused_and_resumed_by_forms(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    page = web.get("/queues/mail").text
    assert "1 waiting jobs stay" not in page
    assert "1 waiting job stays in the queue" in page
    answer = web.post("/api/v1/queues/mail:pause", data={"_next": "/queues/mail", "_message": "Queue mail paused."})
    assert answer.headers["location"] == "/queues/mail"
    page = web.get("/queues/mail").text
    assert "Queue mail paused." in page
    assert 'action="/api/v1/queues/mail:resume"' in page


def test_ended_and_failed_jobs_are_deleted_and_retried_by_operations(web: Web) -> None:
    fail(web.jobs, "failed", "mail")
    run_one(web.jobs, "done")
    page = web.get("/queues/mail").text
    assert "Retry 1 failed job?" in page
    assert "Delete 2 ended jobs?" in page
    fields = {"action": "delete", "filter.queue": "mail", "filter.state": ["succeeded", "failed", "cancelled"]}
    answer = web.post("/api/v1/operations", data={**fields, "_next": "made"})
    assert answer.headers["location"].startswith("/operations/")
    for each in web.jobs.operations():
        web.jobs.drive_operation(each.id)
    assert web.jobs.count(queue="mail") == 0
    assert "Forget the queue" in web.get("/queues/mail").text
    assert web.post("/api/v1/queues/mail", data={"_method": "DELETE", "_next": "/queues"}).status_code == 303
    assert web.get("/queues/mail", headers=PAGE).status_code == 404


def test_a_queue_is_shown_to_those_who_may_see_it(serving: Serving) -> None:
    web = serving(auth=user_of)
    for queue in ("mail", "video"):
        put(web.jobs.store, queue, queue, limits=("smtp",))
    assert web.get("/queues/video", headers=PAGE | as_user("viewer mail")["headers"]).status_code == 403
    page = web.get("/queues/mail", **as_user("viewer mail")).text
    assert "video" not in page
    assert "smtp" in page
    assert "/api/v1/queues/mail:pause" not in page.replace("curl", "")
    assert "mail:pause" in web.get("/queues/mail", **as_user("operator mail")).text
    listed = web.get("/queues", **as_user("viewer mail")).text
    assert "/queues/mail" in listed
    assert "video" not in listed


def test_settings_are_those_that_matter_and_those_of_the_queue(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    web.jobs.configure({"grace": "7s"}, queue="mail")
    page = web.get("/queues/mail").text
    assert "of this queue" in page
    assert "grace" in page
    assert "histogram_age" not in page


def test_a_setting_of_zero_is_no_limit_only_where_it_is_none(web: Web) -> None:
    put(web.jobs.store, "a", "mail")
    web.jobs.configure({"keep_succeeded": 0}, queue="mail")
    page = web.get("/queues/mail").text
    assert page.count(">no limit<") == 2  # timeout and concurrency
    assert ">0 s<" in page


def test_the_settings_of_a_queue_can_be_changed_from_its_page(web: Web) -> None:
    put(web.jobs.store, "a", "mail")
    [address] = re.findall(r'href="([^"]*)">Change</a>', web.get("/queues/mail").text)
    assert "Settings" in web.get(address, headers=PAGE).raise_for_status().text


def test_buckets_of_the_store_are_shown_in_buckets_that_double(web: Web) -> None:
    assert all(1.5 <= upper / lower <= 2 for lower, upper in pairwise(BOUNDS[1:]))
    assert log_buckets([]) == []
    with ago(web.jobs, 100):
        put(web.jobs.store, "one", "mail")
    put(web.jobs.store, "two", "mail")
    claim(web.jobs.store, "mail", limit=2)
    histogram = web.call("GET", "/stats?queue=mail")["wait"]["histogram"]
    buckets = log_buckets(histogram)
    assert sum(each.count for each in buckets) == 2
    assert {each["lower"] for each in histogram} == {0.0, 60.0} or len(histogram) == 2
    assert [each.upper for each in buckets][:-1] == [each.lower for each in buckets][1:]
    assert (buckets[-1].lower, buckets[-1].upper) == (60.0, 120.0)


def test_a_busy_queue_names_the_slots_of_its_workers(web: Web) -> None:
    about = '{"pools":[{"queues":{"mail":1},"processes":4,"concurrency":4}]}'
    web.jobs.store.run(
        commands.renew("node/one", [], executors=["node/one.0"], queues=["mail"], about=about, started=[])
    )
    put(web.jobs.store, "one", "mail")
    claim(web.jobs.store, "mail")
    page = web.get("/queues/mail").text
    assert "<b>1<small> of</small> 4</b>" in page
