"""The application: routes, users, errors, forms, and where it is mounted."""

from __future__ import annotations

from holdfast import Holdfast
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def _send() -> None: ...


def put(jobs: Holdfast, queue: str = "mail") -> None:
    send = jobs.tasks.get("send") or jobs.task(name="send")(_send)
    jobs.enqueue(send.bind().options(queue=queue))


def test_a_list_is_what_the_command_line_prints(web: Web) -> None:
    put(web.jobs)
    assert [each["queue"] for each in web.call("GET", "/queues")["items"]] == ["mail"]
    assert web.call("GET", "/queues")["items"][0]["waiting"] == 1


def test_an_action_changes_the_store_and_names_the_user(web: Web) -> None:
    put(web.jobs)
    assert web.call("POST", "/queues/mail:pause") == {"queue": "mail", "paused": True, "changed": True}
    assert web.jobs.queues()[0].paused
    assert [event.who for event in web.jobs.events() if event.type == "paused"] == ["local"]


def test_an_error_is_a_problem(web: Web) -> None:
    put(web.jobs)
    found = web.post("/api/v1/queues/male:pause")
    assert (found.status_code, found.headers["content-type"]) == (404, "application/problem+json")
    assert found.json()["code"] == "NOTFOUND"
    assert "mail" in found.json()["detail"]
    assert web.get("/api/v1/nothing").status_code == 404
    assert web.client.put("/api/v1/queues").headers["allow"] == "GET, HEAD"
    assert web.post("/api/v1/queues/mail:pause?wrong=1").status_code == 422


def test_an_unchanged_list_is_not_sent_again(web: Web) -> None:
    first = web.get("/api/v1/queues")
    assert web.get("/api/v1/queues", headers={"If-None-Match": first.headers["etag"]}).status_code == 304


def test_a_list_can_be_read_as_lines(web: Web) -> None:
    put(web.jobs)
    lines = web.get("/api/v1/queues", headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert lines[0].startswith('{"queue":"mail"')
    assert lines[1:] == ['{"next":null}']


def test_a_form_leads_back_to_its_page_which_shows_its_message_once(web: Web) -> None:
    put(web.jobs)
    form = {"_next": "/queues", "_message": "Paused <mail>"}
    found = web.post("/api/v1/queues/mail:pause", data=form, headers={"Origin": web.url})
    assert (found.status_code, found.headers["location"]) == (303, "/queues")
    assert "Paused &lt;mail&gt;" in web.get("/queues").text
    assert "Paused" not in web.get("/queues").text.replace("paused", "")


def test_a_form_cannot_lead_elsewhere(web: Web) -> None:
    put(web.jobs)
    for target in ("//evil.example", "https://evil.example", "/\\evil.example", "/\tx"):
        assert web.post("/api/v1/queues/mail:pause", data={"_next": target}).status_code == 422


def test_without_auth_only_life_is_shown(serving: Serving) -> None:
    web = serving(auth=None)
    assert web.get("/api/v1/health/live").json() == {"status": "ok"}
    assert web.get("/api/v1/queues").status_code == 403
    assert web.get("/queues").status_code == 403


def test_rights_are_those_of_the_role_and_the_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs)
    put(web.jobs, "video")
    assert web.get("/api/v1/queues").status_code == 401
    assert web.post("/api/v1/queues/mail:pause", headers={"x-user": "viewer"}).status_code == 403
    assert web.post("/api/v1/queues/mail:pause", headers={"x-user": "operator video"}).status_code == 403
    assert web.post("/api/v1/queues/mail:pause", headers={"x-user": "operator mail"}).status_code == 200
    seen = web.get("/api/v1/queues", headers={"x-user": "viewer video"}).json()["items"]
    assert [each["queue"] for each in seen] == ["video"]


def test_links_of_a_mounted_application_begin_where_it_is_mounted(serving: Serving) -> None:
    web = serving(root_path="/ops/jobs")
    put(web.jobs)
    page = web.get("/queues").text
    assert 'href="/ops/jobs/queues"' in page
    assert 'action="/ops/jobs/api/v1/queues/mail:pause"' in page
    assert web.get(page.partition('<link rel="stylesheet" href="/ops/jobs')[2].partition('"')[0]).status_code == 200


def test_pages_load_nothing_from_elsewhere(web: Web) -> None:
    found = web.get("/queues")
    assert found.status_code == 200
    assert "default-src 'none'" in found.headers["content-security-policy"]
    assert found.headers["cache-control"] == "no-store"
