"""Pages of failures: by fingerprint with trends, and one error with its beginning, whom it affects, and actions."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.store import commands
from holdfast.web.paths import encode_name
from tests.support.varied_store import put
from tests.web.conftest import Serving
from tests.web.moving import ago
from tests.web.serving import Web, as_user, user_of
from tests.web.test_overview import fail

PRINT = "f" * 16
PAGE = {"accept": "text/html"}
TRACE = 'Traceback (most recent call last):\n  File "a.py"\nshop.Timeout: no answer'


def deploy(web: Web, revision: int, seconds_ago: float) -> None:
    """Let a worker of a release be live that started some time ago."""
    started = round((datetime.now(UTC).timestamp() - seconds_ago) * 1000)
    about = msgspec.json.encode({"revision": revision, "started": started}).decode()
    name = f"node/r{revision}"
    web.jobs.store.run(commands.renew(name, [], executors=[f"{name}.0"], queues=["billing"], about=about))


def test_failures_are_listed_by_fingerprint(web: Web) -> None:
    assert "No failed jobs" in web.get("/failures").text
    with ago(web.jobs, 3 * 86_400):
        fail(web.jobs, "old", fingerprint="a" * 16, type="shop.OldError", place="shop.pay:charge")
    for number in range(3):
        fail(web.jobs, f"new-{number}", "mail", traceback=TRACE)
    page = web.get("/failures").text
    assert page.index("Timeout</span>") < page.index("OldError</span>")
    assert page.count('class="badge new"') == 1
    assert "<code>shop.pay:charge</code>" in page
    assert "r418" in page
    assert 'aria-label="shop.Timeout: 3 failed in the last two days"' in page
    assert 'aria-label="shop.OldError: 0 failed in the last two days"' in page
    assert "shop.OldError: 1 failed in the last 30 days" in web.get("/failures?period=30d").text
    assert "Retry 3 jobs?" in page
    assert f"delete --all --state failed --fingerprint {PRINT}" in page
    of_queue = web.get("/failures?queue=mail").text
    assert "OldError" not in of_queue
    assert '<input type="hidden" name="filter.queue" value="mail">' in of_queue


def test_what_a_task_failed_on_purpose_is_titled_by_what_it_said(web: Web) -> None:
    fail(web.jobs, "a", type="holdfast.Fail", message="order 71303: do not honour")
    for address in ("/failures", "/"):
        assert '<span title="holdfast.Fail">order 71303: do not honour</span>' in web.get(address).text
    assert web.get("/failures").text.count("do not honour") == 1


def test_failures_have_pages_by_cursor(web: Web) -> None:
    for number in range(27):
        fail(web.jobs, f"job-{number}", fingerprint=f"{number:016}")
    first = web.get("/failures").text
    assert first.count('data-key="0000') == 25
    address = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    rest = web.get(address).text
    assert rest.count('data-key="0000') == 2
    assert "First page" in rest


def test_an_error_says_when_it_began_whom_it_affects_and_why_it_is_final(web: Web) -> None:
    deploy(web, 418, 130)
    for number in range(4):
        with ago(web.jobs, 30 - number):
            fail(web.jobs, f"job-{number}", ("billing", "mail")[number == 3], traceback=TRACE, place="shop.pay:charge")
    page = web.get(f"/failures/{PRINT}").text
    assert "after the first worker of" in page
    assert "1 min 4" in page or "1 min 3" in page
    assert 'href="/queues/billing">billing</a> 3' in page
    assert "shop.Timeout: no answer" in page
    assert 'this is that of <a class="mono" href="/jobs/job-' in page
    assert ">r418<" in page  # the deploy, in the plot
    assert "Delete 4 jobs…" in page
    assert "declared final" in page or "retried" in page
    assert page.index("/jobs/job-3") < page.index("/jobs/job-2")
    assert "did not succeed" in page


def test_a_group_a_task_and_a_queue_have_pages(web: Web) -> None:
    fail(web.jobs, "one")
    for name in ("Timeout", PRINT):
        assert "Delete 1 job…" in web.get(f"/failures/{name}").text
    assert web.get("/failures/nothing", headers=PAGE).status_code == 404


@pytest.mark.parametrize(("action", "state"), [("retry", "waiting"), ("delete", None)])
def test_all_jobs_of_an_error_are_retried_or_deleted(web: Web, action: str, state: str | None) -> None:
    for number in range(3):
        fail(web.jobs, f"job-{number}")
    fail(web.jobs, "other", fingerprint="a" * 16)
    fields = {"action": action, "filter.fingerprint": PRINT, "filter.state": "failed", "_next": "made"}
    page = web.get(f"/failures/{PRINT}").text
    for name, value in fields.items():
        assert f'name="{name}" value="{value}"' in page
    answer = web.post("/api/v1/operations", data=fields)
    assert answer.status_code == 303
    for each in web.jobs.operations():
        web.jobs.drive_operation(each.id)
    assert web.jobs.count(state="failed") == 1
    assert web.jobs.count(state="waiting") == (3 if state else 0)
    assert "No job is failed now" in web.get(f"/failures/{PRINT}").text


def test_users_with_rights_on_some_queues_see_the_failures_of_these(serving: Serving) -> None:
    web = serving(auth=user_of)
    fail(web.jobs, "mine", "mail")
    fail(web.jobs, "theirs", "video")
    fail(web.jobs, "secret", "video", fingerprint="e" * 16, type="Secret")
    viewer = as_user("viewer mail")
    page = web.get("/failures", **viewer).text
    assert "Timeout" in page
    assert "Secret" not in page
    assert "video" not in page
    assert "no answer" not in page  # a message is data
    page = web.get(f"/failures/{PRINT}", **viewer).text
    assert "/jobs/mine" in page
    assert "theirs" not in page
    assert "video" not in page
    assert "/api/v1/operations" not in page
    refused = web.get(f"/failures/{'e' * 16}", headers=PAGE | viewer["headers"])
    assert refused.status_code == 404
    assert web.get("/failures?queue=video", headers=PAGE | viewer["headers"]).status_code == 403


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "a\u202eb", "x" * 500)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_inert(web: Web, text: str) -> None:
    """What tasks and their errors say, on every page that shows it."""
    for number in range(3):
        fail(web.jobs, f"job-{number}", type=text, message=text, traceback=text, place=text, group=text, notes=(text,))
    put(web.jobs.store, "one", "billing")
    for path in ("/", "/failures", f"/failures/{PRINT}", "/failures?queue=billing", "/queues/billing", "/queues"):
        answer = web.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text
        assert "\u202e" not in answer.text
        assert "49" not in answer.text.partition("<main")[2].partition("7 * 7")[0][-40:]
    group = web.call("GET", "/failures")["items"][0]["name"]
    assert web.get(f"/failures/{encode_name(group)}").status_code == 200
