"""The overview: what needs attention, in sentences; key figures, plots, queues, short lists; rights."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.job.failure import Failure, encode
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish
from holdfast.web.pages.charts import Times
from holdfast.web.pages.periods import PERIODS, Buckets
from holdfast.web.pages.sentences import parted
from tests.support.varied_store import ONE, WORKER, claim, put
from tests.web.conftest import Serving
from tests.web.moving import ago
from tests.web.reading import read_page
from tests.web.serving import Web, as_user, refusal, user_of

HOUR, DAY = 3600, 86_400


def work(jobs: Holdfast, *queues: str) -> None:
    """Let a worker be live that serves queues."""
    jobs.store.run(commands.renew(WORKER, [], executors=[ONE], queues=list(queues)))


def run_one(jobs: Holdfast, id: str, queue: str = "mail") -> None:
    put(jobs.store, id, queue)
    claim(jobs.store, queue)
    jobs.store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b"1"))]))


def fail(jobs: Holdfast, id: str, queue: str = "billing", **more: Any) -> None:
    put(jobs.store, id, queue)
    claim(jobs.store, queue)
    found = {"type": "shop.Timeout", "message": "no answer", "group": "Timeout", "fingerprint": "f" * 16} | more
    error = Error(encode(Failure(**found)), found["group"], final=True)
    jobs.store.run(commands.finish(ONE, [Finish(id, 1, error)], revision=418))


def matters(web: Web, **options: Any) -> dict[str, dict[str, Any]]:
    """Return what needs attention by code, except of the server, as that depends on its settings."""
    return {
        each["code"]: each for each in web.call("GET", "/attention", **options)["items"] if each["code"] != "server"
    }


# What needs attention


def test_nothing_needs_attention_where_all_is_well(web: Web) -> None:
    assert matters(web) == {}
    work(web.jobs, "mail")
    run_one(web.jobs, "one")
    put(web.jobs.store, "two", "mail")
    assert matters(web) == {}


def test_an_error_that_is_new_and_goes_on_needs_attention(web: Web) -> None:
    for number in range(3):
        with ago(web.jobs, 1800 - number):
            fail(web.jobs, f"job-{number}")
    found = matters(web)["failing"]
    assert (found["level"], found["text"]) == ("danger", "task has failed with Timeout since release 418")
    assert (found["detail"], found["name"]) == ("3 jobs in 30 min", "f" * 16)
    assert found["facts"] == {
        "task": "task", "error": "Timeout", "type": "shop.Timeout", "revision": 418, "jobs": 3,
    }  # fmt: skip
    assert found["command"] == f"holdfast failures show {'f' * 16}"


@pytest.mark.parametrize(("began", "last", "count"), [(2 * DAY, 60, 9), (5 * HOUR, 2 * HOUR, 9), (60, 30, 2)])
def test_old_past_and_rare_errors_do_not(web: Web, began: int, last: int, count: int) -> None:
    for number in range(count):
        with ago(web.jobs, began if number == 0 else last):
            fail(web.jobs, f"job-{number}")
    assert "failing" not in matters(web)


def test_a_queue_that_no_worker_serves_needs_attention(web: Web) -> None:
    with ago(web.jobs, 90):
        put(web.jobs.store, "one", "mail")
    found = matters(web)["unserved"]
    assert found["text"] == "Queue mail has no live worker"
    assert found["detail"].startswith("1 job waiting, the oldest for 1 min 3")
    assert found["command"] == "holdfast work --queues mail APP"


def test_a_queue_whose_oldest_job_waits_longer_than_usual_is_behind(web: Web) -> None:
    work(web.jobs, "mail", "video")
    for queue, usual in (("mail", 1), ("video", 500)):
        for number in range(3):
            with ago(web.jobs, 2 * DAY + usual):
                put(web.jobs.store, f"{queue}-{number}", queue)
            with ago(web.jobs, 2 * DAY):
                claim(web.jobs.store, queue)
        with ago(web.jobs, 400):
            put(web.jobs.store, f"{queue}-late", queue)
    [found] = [each for each in web.call("GET", "/attention")["items"] if each["code"] == "behind"]
    assert (found["queue"], found["level"]) == ("mail", "warning")
    assert found["text"].startswith("Queue mail is behind: its oldest job has waited 6 min 4")
    assert "; up to 1" in found["text"]
    assert found["text"].endswith(" s is usual")
    assert found["facts"]["running"] == 3


def test_a_queue_of_which_nothing_is_known_is_behind_after_minutes(web: Web) -> None:
    work(web.jobs, "mail", "video")
    for queue, seconds in (("mail", 200), ("video", 400)):
        with ago(web.jobs, seconds):
            put(web.jobs.store, queue, queue)
    found = matters(web)
    assert set(found) == {"behind"}
    assert found["behind"]["name"] == "video"
    assert "is usual" not in found["behind"]["text"]


def test_a_paused_queue_says_who_paused_it_and_when(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs.store, "one", "mail")
    operator = as_user("operator")
    assert set(matters(web, **operator)) == {"unserved"}
    web.call("POST", "/queues/mail:pause", **operator)
    found = matters(web, **operator)["paused"]
    assert found["text"].startswith("Queue mail is paused since ")
    assert found["text"].endswith(" by tester")
    assert (found["level"], found["detail"], found["facts"]["by"]) == ("note", "1 job waiting", "tester")
    assert datetime.now(UTC) - datetime.fromisoformat(found["since"]) < timedelta(minutes=1)
    web.call("POST", "/queues/mail:resume", **operator)
    assert "paused" not in matters(web, **operator)


def test_silent_workers_need_attention(web: Web) -> None:
    with ago(web.jobs, 300):
        work(web.jobs, "mail")
        put(web.jobs.store, "one", "mail")
        claim(web.jobs.store, "mail")
        web.jobs.store.run(commands.renew("node/idle", [], executors=["node/idle.0"], queues=["mail"]))
    found = [each for each in web.call("GET", "/attention")["items"] if each["code"] == "silent"]
    assert found[0]["text"].startswith(f"Worker {WORKER} has been silent since ")
    assert [(each["name"], each["level"]) for each in found] == [(WORKER, "danger"), ("node/idle", "warning")]
    assert [each["detail"] for each in found] == ["It holds 1 job that nobody has requeued yet", "It holds no jobs"]


def test_many_matters_of_a_kind_are_counted(web: Web) -> None:
    for number in range(8):
        put(web.jobs.store, f"job-{number}", f"queue-{number}")
    found = [each for each in web.call("GET", "/attention")["items"] if each["code"] == "unserved"]
    assert [each["kind"] for each in found] == ["queue"] * 5 + ["all"]
    assert (found[-1]["text"], found[-1]["name"]) == ("3 more queues have no live worker", "queue")
    page = web.get("/").text
    assert "3 more queues have no live worker" in page
    assert 'href="/queues">Show all' in page


def test_matters_are_those_of_the_queues_that_a_user_may_see(serving: Serving) -> None:
    web = serving(auth=user_of)
    for number in range(3):
        fail(web.jobs, f"mail-{number}", "mail")
        fail(web.jobs, f"video-{number}", "video", fingerprint="e" * 16, type="Secret")
    for queue in ("mail", "video"):
        put(web.jobs.store, f"{queue}-waits", queue)
        web.jobs.pause(queue)
    found = web.call("GET", "/attention", **as_user("viewer mail"))["items"]
    assert {(each["code"], each["name"]) for each in found} == {("failing", "f" * 16), ("paused", "mail")}
    assert not any("video" in str(each) or "Secret" in str(each) for each in found)
    page = web.get("/", **as_user("viewer mail")).text
    assert "video" not in page
    assert "Secret" not in page
    assert "server" not in {each["code"] for each in web.call("GET", "/attention", **as_user("viewer"))["items"]}


# The page


def test_the_overview_of_an_empty_store_says_that_all_is_well(web: Web) -> None:
    for period in ("", *(f"?period={each.name}" for each in PERIODS)):
        page = web.get(f"/{period}").text
        assert "No queues yet" in page
        assert "No failed jobs" in page
    assert refusal(web.get("/?period=1y", headers={"accept": "application/json"})).status == 422


def test_the_overview_shows_figures_queues_and_short_lists(web: Web) -> None:
    work(web.jobs, "mail", "billing")
    for number in range(3):
        run_one(web.jobs, f"done-{number}")
        fail(web.jobs, f"failed-{number}")
    put(web.jobs.store, "running", "mail")
    claim(web.jobs.store, "mail")
    put(web.jobs.store, "waiting", "mail")
    web.jobs.schedule("hourly", web.jobs.task(name="report")(lambda: None).bind(), every="1h")
    page = web.get("/").text
    assert '<span>Failed, last hour</span><b class="bad">3</b>' in page
    assert "Every hour" in page
    for path in ("/queues/mail", "/queues/billing", f"/failures/{'f' * 16}", "/jobs/running", "/schedules/hourly"):
        assert f'href="{path}"' in page, path
    assert page.count('role="img"') >= 4
    assert "still open" in page
    assert page.count("<summary>Show as table</summary>") == 2


def test_sentences_have_a_button_that_acts(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    web.jobs.pause("mail")
    assert 'action="/api/v1/queues/mail:resume"' in web.get("/").text
    answer = web.post("/api/v1/queues/mail:resume", data={"_next": "/", "_message": "Queue mail resumed."})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    page = web.get("/").text
    assert "Queue mail resumed." in page
    assert "is paused" not in page


def test_a_viewer_gets_no_buttons(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs.store, "one", "mail")
    web.jobs.pause("mail")
    page = web.get("/", **as_user("viewer")).text
    assert "Show queue" in page
    assert "/api/v1/queues" not in page


# Its parts


def test_points_are_added_up_in_buckets_of_which_the_last_is_open() -> None:
    start = datetime(2024, 7, 1, tzinfo=UTC)
    times = Times(start=start, step=timedelta(minutes=3), count=2)
    point = {"arrivals": 2, "ended": 4, "failures": 1, "retries": 1, "waits": 2, "wait": 3.0, "runs": 2, "run": None}
    minutes = [start + timedelta(minutes=number) for number in (-1, 0, 2, 3, 6)]
    buckets = Buckets(times).add([{**point, "time": time} for time in minutes])
    assert (buckets["ended"], buckets.succeeded, buckets.wait, buckets.run) == ([8, 4], [4, 2], [3.0, 3.0], [0.0, 0.0])
    assert buckets.per_minute("arrivals") == [4 / 3, 2 / 3]
    for period in PERIODS:
        shown = period.times(datetime(2024, 7, 1, 12, 34, 56, tzinfo=UTC))
        assert shown.end - shown.step <= datetime(2024, 7, 1, 12, 34, 56, tzinfo=UTC) < shown.end
        assert shown.end - shown.start == period.length


def test_names_in_sentences_are_set_apart() -> None:
    assert parted("Queue mail is behind", ["mail"]) == [("Queue ", False), ("mail", True), (" is behind", False)]
    assert parted("Queue is is behind", ["is"])[1] == ("is", True)
    assert parted("a (b", ["(b", ""]) == [("a ", False), ("(b", True)]
    assert parted("nothing", []) == [("nothing", False)]


def test_jobs_that_ended_a_moment_ago_count_as_ended_per_minute(web: Web) -> None:
    for number in range(12):
        run_one(web.jobs, f"done-{number}")
    shown = read_page(web.get("/").text)
    figure = next(each for each in shown.all("a") if "Ended per minute" in each.text)
    assert 2 <= float(figure.one("b").text) <= 2.4  # of the last five minutes, and of the one that has begun


def test_a_sentence_ends_with_one_full_stop(web: Web) -> None:
    items = web.call("GET", "/attention")["items"]
    assert [each["text"] for each in items if each["code"] == "server"]  # the server of tests writes nothing to disk
    assert not [each["text"] for each in items if each["text"].endswith(".")]


def test_pages_that_a_user_may_not_see_are_not_linked(serving: Serving) -> None:
    web = serving(auth=user_of)
    links = {
        user: {
            each.attributes["href"]
            for each in read_page(web.get("/", **as_user(user)).text).one("header", "top").all("a")
        }
        for user in ("viewer", "viewer mail")
    }
    assert links["viewer"] - links["viewer mail"] >= {"/limits", "/batches"}
    for link in links["viewer mail"]:
        assert web.get(link, **as_user("viewer mail")).status_code == 200, link
