"""The search of all pages."""

from __future__ import annotations

from holdfast.web.paths import encode_name
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def _location(web: Web, text: str, **headers: str) -> str:
    found = web.get("/find", params={"q": text}, headers=headers)
    assert found.status_code == 303, found.text
    return found.headers["location"]


def put(web: Web, queue: str, id: str) -> None:
    task = web.jobs.tasks.get("mail.send") or web.jobs.task(name="mail.send")(print)
    web.jobs.enqueue(task.bind().options(queue=queue, id=id))


def test_a_name_leads_to_what_has_it(web: Web) -> None:
    put(web, "mail", "a/b:c")
    web.jobs.set_limit("gpu", 2)
    web.jobs.schedule("daily", web.jobs.tasks["mail.send"].bind(), every="1d")
    assert _location(web, " a/b:c ") == f"/jobs/{encode_name('a/b:c')}"
    assert _location(web, "mail") == "/queues/mail"
    assert _location(web, "gpu") == "/limits/gpu"
    assert _location(web, "daily") == "/schedules/daily"
    assert _location(web, "mail.send") == "/jobs?task=mail.send"
    assert _location(web, "") == "/jobs"


def test_a_part_of_a_name_lists_what_has_it(web: Web) -> None:
    put(web, "mail-fast", "one")
    page = web.get("/find", params={"q": "MAIL"}).text
    assert '<a href="/queues/mail-fast">mail-fast</a>' in page
    assert '<a href="/jobs?task=mail.send">mail.send</a>' in page


def test_what_is_not_found_stays_text_and_says_where_to_search(web: Web) -> None:
    page = web.get("/find", params={"q": '"><script>alert(1)</script>\u202e'})
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "Nothing has this name" in page.text
    assert web.get("/find", params={"q": "x" * 501}).status_code == 422


def test_nobody_finds_what_he_may_not_see(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web, "secret", "hidden")
    put(web, "mail", "shown")
    web.jobs.set_limit("secret-limit", 1)
    assert _location(web, "shown", **{"x-user": "viewer mail"}) == "/jobs/shown"
    for text in ("hidden", "secret"):
        page = web.get("/find", params={"q": text}, headers={"x-user": "viewer mail"})
        assert "Nothing has this name" in page.text
