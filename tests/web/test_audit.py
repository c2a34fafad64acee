"""The audit log: a line for each request that changed something, or was refused."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.web import Application
from holdfast.web.resource import Listed
from holdfast.web.security.accounts import Accounts
from holdfast.web.security.audit import MAX_TEXT, count_of
from holdfast.web.site import Site
from tests.support.relay import Relay
from tests.web.accounts import AuthFile
from tests.web.conftest import Serving
from tests.web.every_route import JOB, ask, put_canary, unsafe_routes
from tests.web.serving import serve, user_of


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """Return the lines of the audit log so far, and forget them."""
    caplog.set_level(logging.INFO, "holdfast.web.audit")

    def read() -> list[dict[str, Any]]:
        found = [each.getMessage() for each in caplog.records if each.name == "holdfast.web.audit"]
        caplog.clear()
        assert all(line.isascii() and line.isprintable() for line in found)
        return [json.loads(line) for line in found]

    return read


def test_an_action_is_logged_and_the_store_knows_who(serving: Serving, lines: Any) -> None:
    web = serving(auth=user_of)
    web.post("/api/v1/queues/mail:pause?create=true", headers={"x-user": "operator"})
    assert lines() == [
        {
            "who": "tester", "role": "operator", "client": "127.0.0.1", "action": "pause_queue",
            "on": {"queue": "mail"}, "query": "create=true", "status": 200, "count": 1,
        }
    ]  # fmt: skip
    assert [event.who for event in web.jobs.events() if event.type == "paused"] == ["tester"]
    web.post("/api/v1/queues/mail:pause", headers={"x-user": "operator"})
    assert [each["count"] for each in lines()] == [0]


def test_reading_and_mistakes_are_not_logged(serving: Serving, lines: Any) -> None:
    web = serving(auth=user_of)
    web.get("/api/v1/queues", headers={"x-user": "viewer"})
    web.get("/api/v1/queues")
    web.post("/api/v1/queues/nothing:pause", headers={"x-user": "operator"})
    web.post("/api/v1/nothing", headers={"x-user": "operator"})
    assert lines() == []


def test_refusals_are_logged_with_their_reason(serving: Serving, lines: Any) -> None:
    web = serving(auth=user_of)
    path = "/api/v1/queues/mail:pause"
    web.post(path)
    web.post(path, headers={"x-user": "viewer"})
    web.post(path, headers={"x-user": "operator other"})
    web.post(path, headers={"x-user": "operator", "Origin": "https://evil.example"})
    assert [(each["who"], each["status"], each["code"]) for each in lines()] == [
        ("nobody", 401, "UNAUTHENTICATED"), ("tester", 403, "FORBIDDEN"), ("tester", 403, "FORBIDDEN"),
        ("tester", 403, "ORIGIN"),
    ]  # fmt: skip


def test_a_read_is_logged_if_a_user_has_no_rights(serving: Serving, lines: Any) -> None:
    web = serving(auth=user_of)
    for path in ("/api/v1/queues/mail", "/queues/mail", "/metrics", "/api/v1/queues"):
        web.get(path, headers={"x-user": "viewer other"})
        web.get(path, headers={"Sec-Fetch-Site": "cross-site", "Accept": "text/html"})
        web.get(path)
    assert [(each["who"], each["action"], each["on"], each["status"]) for each in lines()] == [
        ("tester", "show_queue", {"queue": "mail"}, 403), ("tester", "queue_page", {"queue": "mail"}, 403)
    ]  # fmt: skip


def test_a_line_cannot_be_forged(serving: Serving, lines: Any) -> None:
    web = serving(auth=user_of)
    web.post("/api/v1/queues/=" + "YQpXQVJOSU5HIHsid2hvIjogImV2ZSJ9" + ":pause", headers={"x-user": "viewer"})
    web.post("/api/v1/queues/mail:pause?x=%0Aeve\u202e" + "y" * 5000, headers={"x-user": "viewer"})
    first, second = lines()
    assert first["on"] == {"queue": 'a\nWARNING {"who": "eve"}'}
    assert len(second["query"]) == MAX_TEXT


def test_no_request_is_so_malformed_that_it_is_not_logged(jobs: Holdfast, lines: Any) -> None:
    """A server that mounts the application may pass on what uvicorn refuses."""
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/queues/mail:pause", "query_string": b"x=\xff",
        "headers": [(b"host", b"[::1"), (b"x-user", b"viewer")], "scheme": "http", "server": ("localhost", 80),
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Application(Site(jobs, user_of))(scope, receive, send))
    [line] = lines()
    assert (sent[0]["status"], line["status"], line["query"]) == (403, 403, "x=\xff")


def test_every_refused_request_that_would_change_something_is_logged(jobs: Holdfast, lines: Any) -> None:
    with serve(Site(jobs, user_of)) as web:
        for route in unsafe_routes():
            if route.role == "public":
                continue
            ask(web, route)
            assert [each["action"] for each in lines()] == [route.name]


def test_an_action_on_several_jobs_is_done_by_the_user_whatever_the_client_accepts(jobs: Holdfast, lines: Any) -> None:
    put_canary(jobs)
    with serve(Site(jobs, user_of)) as web:
        headers = {"x-user": "operator", "Accept": "application/x-ndjson"}
        web.post("/api/v1/jobs:cancel", json={"ids": [JOB, "nothing"]}, headers=headers)
    assert [(each["action"], each["count"]) for each in lines()] == [("cancel_jobs", 1)]
    assert [event.who for event in jobs.events() if event.type == "cancelled"] == ["tester"]


def test_an_action_cannot_pass_unseen_behind_a_wrong_form(serving: Serving, lines: Any) -> None:
    web = serving(auth=user_of)
    headers = {"x-user": "operator", "Accept": "text/html", "Origin": web.url}
    for target in ("//evil.example", "https://evil.example", "/a b", "made elsewhere"):
        web.post("/api/v1/queues/mail:pause?create=true", data={"_next": target}, headers=headers)
        web.post("/api/v1/jobs", data={"task": "t", "_next": ["/", target]}, headers=headers)
    assert (web.jobs.queues(), web.jobs.count(), lines()) == ([], 0, [])


def test_a_request_that_failed_in_the_server_may_have_changed_something(
    relay: Relay, namespace: str, lines: Any
) -> None:
    app = Holdfast(relay.url, namespace=namespace, timeout="100ms")
    with serve(Site(app, user_of)) as web:
        relay.cut()
        found = web.post("/api/v1/queues/mail:pause?create=true", headers={"x-user": "operator"})
        relay.mend()
    app.close()
    assert found.status_code == 503
    assert [(each["action"], each["who"], each["status"], each["code"]) for each in lines()] == [
        ("pause_queue", "tester", 503, "UNAVAILABLE")
    ]


BODIES_WITH_NAMES: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("POST", "/jobs", {"task": "t", "id": "a"}, {"job": "a"}),
    ("POST", "/jobs:batch", [{"task": "t", "id": "b"}, {"task": "t", "id": "c"}], {"jobs": "b c", "count": 2}),
    ("POST", "/queues/mail/items", {"text": "x", "id": "i"}, {"job": "i"}),
    ("POST", "/queues/mail/items:batch", {"items": [{"text": "x", "id": "k"}]}, {"jobs": "k", "count": 1}),
    ("POST", "/queues/mail/items:claim", {}, {"job": "i"}),
    ("POST", f"/jobs/{JOB}:fork", {"id": "f", "from_start": True}, {"job": "f"}),
    ("POST", "/limits", {"limit": "api", "slots": 1}, {"limit": "api"}),
    ("POST", "/schedules", {"schedule": "s", "task": "t", "every": "1h"}, {"schedule": "s"}),
    ("PATCH", "/config", {"lease": "20s", "retries": 2}, {"settings": "lease retries"}),
    ("PUT", "/queues/mail/config", {"lease": "20s"}, {"settings": "lease"}),
]


def test_what_a_body_names_is_logged(jobs: Holdfast, lines: Any) -> None:
    put_canary(jobs)
    jobs.cancel(JOB)
    with serve(Site(jobs, user_of)) as web:
        for method, path, body, named in BODIES_WITH_NAMES:
            web.call(method, path, json=body, headers={"x-user": "admin"})
            [line] = lines()
            assert {name: line.get(name) for name in named} == named, path
        token = web.call("POST", "/queues/mail/items:claim", json={}, headers={"x-user": "admin"})["token"]
        for end in ("renew", "complete"):
            web.call("POST", f"/items:{end}", json={"token": token}, headers={"x-user": "admin"})
        found = lines()
        assert [each["job"] for each in found] == ["k", "k", "k"]
        assert token not in json.dumps(found)


def test_an_operation_is_logged_with_its_filter(jobs: Holdfast, lines: Any) -> None:
    with serve(Site(jobs, user_of)) as web:
        body = {"action": "cancel", "filter": {"queue": ["mail"]}}
        started = web.post("/api/v1/operations", json=body, headers={"x-user": "operator"}).json()
        web.post("/api/v1/operations", json={**body, "dry_run": True}, headers={"x-user": "operator"})
    first, second = lines()
    assert (first["does"], first["filter"]) == ("cancel", "queue=mail")
    assert first["operation"] == started["operation"]["id"]
    assert (second["filter"], second["count"]) == ("queue=mail", 0)


def test_signing_in_and_out_is_logged(jobs: Holdfast, tmp_path: Any, lines: Any) -> None:
    file = AuthFile(tmp_path)
    file.add_user("ada", "operator")
    with serve(Site(jobs, Accounts(file.path, on_loopback=True))) as web:
        headers = {"Origin": web.url}
        web.post("/api/v1/session", json={"name": "ada", "password": "wrong"}, headers=headers)
        web.post("/api/v1/session", json={"name": "ada", "password": "correct horse battery"}, headers=headers)
        web.client.delete("/api/v1/session", headers=headers)
    found = lines()
    assert [(each["action"], each["who"], each["status"]) for each in found] == [
        ("sign_in", "nobody", 401), ("sign_in", "ada", 200), ("sign_out", "ada", 204),
    ]  # fmt: skip
    assert found[0]["name"] == "ada"
    assert "wrong" not in json.dumps(found)


@pytest.mark.parametrize(
    ("reply", "count"),
    [
        ({"changed": True}, 1), ({"changed": False}, 0), ({"id": "x"}, 1), ({"count": 7}, 7), ({"jobs": 7}, 7),
        (Listed(items=[{}, {"code": "NOTFOUND"}]), 1), (None, 1),
    ],
)  # fmt: skip
def test_how_many_things_were_changed(reply: Any, count: int) -> None:
    assert count_of(reply) == count
