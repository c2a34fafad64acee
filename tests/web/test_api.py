"""Rules that all requests of the API share: parameters, bodies, what is accepted, HEAD, and lists as lines."""

from __future__ import annotations

from contextlib import closing

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.api import SLICE
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.support.relay import Relay
from tests.web.serving import Web, refusal, serve
from tests.web.test_jobs import put

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"


# Parameters


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/info?x=1"),
        ("GET", "/jobs/a/result?wait=3"),
        ("POST", "/jobs/a:track?force=1"),
        ("GET", "/health/live?x="),
    ],
)
def test_an_unknown_parameter_is_refused_also_where_there_are_none(web: Web, method: str, path: str) -> None:
    put(web.jobs, "a")
    found = refusal(web.client.request(method, f"/api/v1{path}"))
    assert (found.status, found.code, found.detail[:18]) == (422, "INVALID", "unknown parameter ")


@pytest.mark.parametrize(("time", "what"), [("2024-07-01T02:00:00", "without a time zone"), ("soon", "must be a")])
def test_a_time_that_cannot_be_read_is_refused_in_terms_of_the_request(web: Web, time: str, what: str) -> None:
    for response in (
        web.get(f"/api/v1/jobs?since={time}"),
        web.post("/api/v1/jobs", json={"task": "t", "at": time}),
        web.post("/api/v1/operations", json={"action": "cancel", "filter": {"until": time}}),
    ):
        found = refusal(response)
        assert (found.status, what in found.detail, "2024-07-01T02:00" in found.detail) == (422, True, True)
        assert "datetime" not in found.detail


@pytest.mark.parametrize("path", ["/queues?limit=", "/load?target=", "/jobs?stalled=null", "/jobs/a/log?attempt=null"])
def test_an_empty_parameter_is_not_taken_for_none(web: Web, path: str) -> None:
    put(web.jobs, "a")
    assert refusal(web.get(f"/api/v1{path}")).code == "INVALID"


def test_an_empty_cursor_is_that_of_the_first_page(web: Web) -> None:
    """Loops begin with it."""
    put(web.jobs, "a")
    assert web.call("GET", "/jobs?cursor=") == web.call("GET", "/jobs")
    assert web.call("GET", "/failures?cursor=") == {"items": []}


@pytest.mark.parametrize("name", ["queue", "state", "task", "tag", "scope", "batch", "worker", "since", "id_prefix"])
def test_an_empty_filter_does_not_select_all_jobs(web: Web, name: str) -> None:
    """A program whose variable is empty must not delete everything."""
    put(web.jobs, "a")
    value = [""] if name in ("queue", "state") else ""
    for response in (
        web.get("/api/v1/jobs", params={name: ""}),
        web.get("/api/v1/jobs:count", params={name: ""}),
        web.get("/api/v1/jobs:export", params={name: ""}, headers={"Accept": NDJSON}),
        web.post("/api/v1/operations", json={"action": "cancel", "filter": {"id_prefix": "a", name: value}}),
    ):
        assert refusal(response).code == "INVALID"
    assert web.jobs.get("a").state == "waiting"


@pytest.mark.parametrize("name", ["queue", "state"])
def test_an_empty_list_of_names_matches_no_job(web: Web, name: str) -> None:
    put(web.jobs, "a")
    body = {"action": "cancel", "filter": {"id_prefix": "a", name: []}, "dry_run": True}
    assert web.call("POST", "/operations", json=body)["matched"] == 0


# Bodies


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b'{"task": "t", "arguments": {"a": "\xff"}}', "not UTF-8"),
        (b'{"task": "t", "arguments": {"a": "\\ud800"}}', "not valid JSON"),
        (b'{"task": "t", "arguments": {"a": NaN}}', "not valid JSON: invalid character (byte 33)"),
        (b'{"task": "t", "arguments": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "not valid JSON"),
        (b'{"task": "t",', "not valid JSON: "),
    ],
)
def test_a_body_that_is_not_json_is_refused_with_the_place(web: Web, body: bytes, what: str) -> None:
    found = refusal(web.post("/api/v1/jobs", content=body))
    assert (found.status, found.code, what in found.detail) == (400, "INVALID", True), found.detail
    assert web.jobs.count() == 0


def test_an_unknown_field_is_refused_with_those_that_are_known(web: Web) -> None:
    found = refusal(web.post("/api/v1/limits", json={"name": "api", "slots": 3}))
    assert (found.status, found.detail) == (
        422, "body: Object contains unknown field `name`; known: slots, per, ttl, limit",
    )  # fmt: skip
    assert "known: task, arguments, " in refusal(web.post("/api/v1/jobs", json={"tsk": "t"})).detail
    inner = refusal(web.post("/api/v1/operations", json={"action": "cancel", "filter": {"queues": ["a"]}}))
    assert inner.detail == "body: Object contains unknown field `queues` - at `$.filter`"


def test_numbers_of_arguments_are_stored_and_shown_exactly(web: Web) -> None:
    body = '{"task": "t", "id": "a", "arguments": {"n":123456789012345678901234567890,"x":0.10000000000000000555}}'
    assert web.post("/api/v1/jobs", content=body).status_code == 201
    assert web.call("GET", "/jobs/a/stored")["arguments"] == body.partition('"arguments": ')[2].removesuffix("}")
    assert '"n":123456789012345678901234567890' in web.get("/api/v1/jobs/a").text


def test_an_empty_id_is_not_taken_for_none(web: Web) -> None:
    put(web.jobs, "a")
    web.jobs.cancel("a")
    for path, body in (
        ("/jobs", {"task": "t", "id": ""}),
        ("/queues/q/items", {"text": "x", "id": ""}),
        ("/queues/q/items:batch", {"items": [{"text": "x", "id": ""}]}),
        ("/jobs/a:fork", {"from_start": True, "id": ""}),
    ):
        assert web.post(f"/api/v1{path}", json=body).status_code == 422, path
    assert web.jobs.count() == 1


def test_the_line_whose_job_is_too_big_is_named(web: Web) -> None:
    lines = b'{"task": "t"}\n{"task": "t", "arguments": {"a": "' + b"x" * (1 << 20) + b'"}}'
    found = refusal(web.post("/api/v1/jobs:batch", content=lines, headers={"Content-Type": NDJSON}))
    assert (found.status, found.code, found.detail[:7]) == (413, "TOOBIG", "job 2: ")


def test_a_compressed_body_is_refused(web: Web) -> None:
    found = refusal(web.post("/api/v1/jobs", content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}))
    assert (found.status, found.code, "gzip" in found.detail) == (415, "ENCODING", True)


# What is accepted


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (NDJSON, NDJSON),
        (NDJSON.upper(), NDJSON),
        (f"{NDJSON}, */*", NDJSON),
        (f"{NDJSON};q=0.9, application/json;q=0.5", NDJSON),
        (f"{NDJSON};q=0, */*", "application/json"),
        (f"application/json, {NDJSON}, {EVENTS}", "application/json"),  # clients that list all of the specification
        (f"{NDJSON}, {EVENTS}", NDJSON),
        ("application/xml", "application/json"),
        (f"{NDJSON};q=x", "application/json"),
    ],
)
@pytest.mark.parametrize("path", ["/jobs", "/events"])
def test_the_media_type_is_the_one_that_is_preferred(web: Web, path: str, accept: str, media_type: str) -> None:
    put(web.jobs, "a")
    response = web.get(f"/api/v1{path}", headers={"Accept": accept})
    assert (response.status_code, response.headers["content-type"]) == (200, media_type)


# HEAD


@pytest.mark.parametrize(
    ("path", "accept", "media_type"),
    [
        ("/jobs", "*/*", "application/json"),
        ("/jobs:export", NDJSON, NDJSON),
        ("/events", EVENTS, EVENTS),
        ("/jobs/a/payload", "*/*", "application/octet-stream"),
        ("/jobs/a/attempts/latest/log?follow=true", "*/*", "text/plain; charset=utf-8"),
    ],
)
def test_the_answer_to_head_has_the_headers_and_ends(web: Web, path: str, accept: str, media_type: str) -> None:
    put(web.jobs, "a")  # nobody runs it: its log would be followed for ever
    for _ in range(2):  # the connection is free for the next request
        response = web.client.head(f"/api/v1{path}", headers={"Accept": accept})
        assert (response.status_code, response.content) == (200, b"")
        assert response.headers["content-type"].partition("; charset")[0] == media_type.partition("; charset")[0]


# While the store is away


def test_a_probe_is_not_kept_waiting_for_the_store(relay: Relay, namespace: str) -> None:
    with (
        closing(Holdfast(relay.url, namespace=namespace, timeout="1m")) as app,
        serve(Site(app, lambda _: LOCAL)) as web,
    ):
        assert web.call("GET", "/health/ready") == {"status": "ok"}
        relay.cut()
        response = web.get("/api/v1/health/ready")
        relay.mend()
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert refusal(response).code == "UNAVAILABLE"
        assert web.call("GET", "/health/ready") == {"status": "ok"}


# Lists as lines


def test_an_error_in_the_first_slice_of_a_list_has_its_own_status(web: Web) -> None:
    found = refusal(web.get("/api/v1/jobs?cursor=nonsense", headers={"Accept": NDJSON}))
    assert (found.status, found.code) == (422, "INVALID")


def test_the_error_that_ends_a_list_is_its_last_line(relay: Relay, namespace: str) -> None:
    with closing(Holdfast(relay.url, namespace=namespace, timeout="200ms")) as app:
        put(app, *(f"j-{number:04}" for number in range(20 * SLICE)))
        with serve(Site(app, lambda _: LOCAL)) as web:
            lines = []
            with httpx.stream("GET", f"{web.url}/api/v1/jobs", headers={"Accept": NDJSON}, timeout=60) as response:
                for line in response.iter_lines():
                    lines.append(line)
                    if len(lines) == 1:
                        relay.cut()
        assert response.status_code == 200
        assert '"problem":' in lines[-1]
        assert '"code":"UNAVAILABLE"' in lines[-1]
        assert lines[-2].startswith('{"next":"')
