"""Every route against every role, strangers, forged requests and DNS rebinding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web import Application
from holdfast.web.api import read_form
from holdfast.web.problems import Problem
from holdfast.web.resource import ResourceRoute, Stream
from holdfast.web.security.accounts import Accounts
from holdfast.web.security.users import LOCAL
from holdfast.web.serve import make_server, make_site
from holdfast.web.site import Site
from tests.web.accounts import PASSWORD, AuthFile, bearer
from tests.web.every_route import (
    CANARY,
    JOB,
    SAFE,
    AnyRoute,
    ask,
    every_route,
    is_page,
    needs,
    put_canary,
    scope_of,
    unsafe_routes,
)
from tests.web.serving import Web, serve

NO_RIGHTS = (401, 403)


@pytest.fixture
def file(tmp_path: Path) -> AuthFile:
    return AuthFile(tmp_path)


@pytest.fixture
def served(jobs: Holdfast, file: AuthFile) -> Iterator[Web]:
    """A server on loopback with users and tokens."""
    put_canary(jobs)
    file.add_user("ada", "admin")
    with serve(Site(jobs, Accounts(file.path, on_loopback=True), local_only=True)) as web:
        yield web


def without_data(route: AnyRoute) -> bool:
    """Return whether users without the right to data of jobs may use a route."""
    reply = route.handler.reply if isinstance(route, ResourceRoute) else None
    return not (isinstance(reply, Stream) and reply.has_data)


@pytest.mark.parametrize("who", ["nobody", "wrong token", "expired token", "revoked token", "foreign token"])
def test_nobody_may_use_more_than_public_routes(served: Web, file: AuthFile, who: str) -> None:
    file.add_token("valid", "admin")
    headers: Mapping[str, str] = {
        "nobody": {},
        "wrong token": bearer("hft_wrong"),
        "expired token": file.add_token("expired", "admin", days=-1),
        "revoked token": bearer("hft_" + "A" * 43),
        "foreign token": bearer("eyJhbGciOiJIUzI1NiJ9.e30.c2ln"),
    }[who]

    answers = {route: ask(served, route, headers) for route in every_route()}

    for route, (status, text) in answers.items():
        assert (status == 401) == needs(route, "viewer"), route
        assert CANARY not in text, route


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_a_role_may_use_the_routes_that_it_is_declared_for(served: Web, file: AuthFile, role: str) -> None:
    headers = file.add_token("token", role, sees_data=True)

    answers = {route: ask(served, route, headers)[0] for route in every_route()}

    order = ("public", "viewer", "operator", "admin")
    for route, status in answers.items():
        allowed = order.index(route.role) <= order.index(role)
        assert (status not in NO_RIGHTS) == allowed or route.handler.__name__ == "sign_in", (route, status)
        assert status != 500, route


def test_a_viewer_without_the_right_to_data_gets_no_stream_of_it(served: Web, file: AuthFile) -> None:
    headers = file.add_token("token", "viewer")

    answers = {route: ask(served, route, headers)[0] for route in every_route() if not needs(route, "operator")}

    assert all((status not in NO_RIGHTS) == without_data(route) or is_page(route) for route, status in answers.items()
               if route.handler.__name__ != "sign_in")  # fmt: skip


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_rights_on_other_queues_are_none_on_this_one(served: Web, file: AuthFile, role: str) -> None:
    headers = file.add_token("token", role, queues=["other", "*-mail", "!mail"], sees_data=True)

    answers = {route: ask(served, route, headers) for route in every_route()}

    expected = {"queue": (403,), "all": (403,), "job": (403, 404)}
    for route, (status, text) in answers.items():
        assert status in expected.get(scope_of(route) or "", (status,)), (route, status)
        assert CANARY not in text, route
        assert status != 500, route


def test_a_token_with_a_scope_is_for_nothing_else(served: Web, file: AuthFile) -> None:
    headers = file.add_token("prometheus", "admin", scope="metrics")

    answers = {route: ask(served, route, headers)[0] for route in every_route() if needs(route, "viewer")}

    for route, status in answers.items():
        is_metric = route.path.removeprefix("/api/v1") in ("/metrics", "/autoscale/{queue}")
        assert (status == 403) != is_metric, route


# Pages of other sites

FORGED = (
    {"Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "OURS"},
    {"Sec-Fetch-Site": "cross-site", "Authorization": "Bearer anything"},
    {"Origin": "https://evil.example", "Authorization": "Bearer anything"},
    {"Origin": "https://evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"},
)


def routes_for(headers: Mapping[str, str]) -> list[AnyRoute]:
    """Return all routes for the usual forged requests, and one for the unusual ones: all pass the same check."""
    return unsafe_routes()[: None if headers in FORGED[:2] else 1]


def signed_in(web: Web) -> Mapping[str, str]:
    """Sign in, and return the cookie."""
    found = web.post("/api/v1/session", json={"name": "ada", "password": PASSWORD})
    assert found.status_code == 200
    web.client.cookies.clear()
    return {"Cookie": found.headers["set-cookie"].partition(";")[0]}


def test_a_page_of_another_site_changes_nothing(served: Web) -> None:
    cookie = signed_in(served)
    for headers in FORGED:
        forged = {name: served.url if value == "OURS" else value for name, value in headers.items()}
        for route in routes_for(headers):
            status, text = ask(served, route, {**cookie, **forged})
            assert (status, "page of another site" in text) == (403, True), (route, headers)


def test_a_page_of_another_site_changes_nothing_where_nobody_signs_in(jobs: Holdfast) -> None:
    put_canary(jobs)
    with serve(Site(jobs, lambda _: LOCAL, local_only=True)) as web:
        for headers in FORGED:
            forged = {name: web.url if value == "OURS" else value for name, value in headers.items()}
            for route in routes_for(headers):
                status, text = ask(web, route, forged)
                assert (status, "page of another site" in text) == (403, True), (route, headers)


def test_a_page_of_another_site_loads_nothing(served: Web) -> None:
    cookie = signed_in(served)
    for mode, target in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")):
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": target, **cookie}
        for route in every_route()[: None if mode == "no-cors" else 3]:
            assert ask(served, route, headers)[0] == 403, (route, mode)


def test_the_same_requests_from_our_own_pages_are_allowed(served: Web) -> None:
    cookie = signed_in(served)
    ours = ({"Origin": served.url}, {"Sec-Fetch-Site": "same-origin"})
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for route in every_route():
        if route.handler.__name__ in ("sign_in", "sign_out"):
            continue
        for headers in (link,) if route.method in SAFE else ours:
            status, text = ask(served, route, {**cookie, **headers})
            assert status not in NO_RIGHTS, (route, text)


FOREIGN_HOSTS = (
    *("evil.example", "evil.example:8420", "localhost.evil.example", "127.0.0.1.evil.example", "localhost."),
    *("evil@localhost", "localhost/evil", "localhost:", "0.0.0.0", "10.0.0.1", "[::2]", "", "127.1"),  # noqa: S104
)
OUR_HOSTS = ("localhost", "localhost:1", "LOCALHOST:8420", "127.0.0.1", "127.9.9.9:80", "[::1]:8420")


def test_a_name_that_was_bound_to_this_machine_is_refused(jobs: Holdfast) -> None:
    put_canary(jobs)
    with serve(Site(jobs, lambda _: LOCAL, local_only=True)) as web:
        for route in every_route():
            status, text = ask(web, route, {"Host": FOREIGN_HOSTS[0]})
            assert (status, CANARY in text) == (421, False), route
        for host in FOREIGN_HOSTS:
            assert web.get("/api/v1/queues", headers={"Host": host}).status_code == 421, host
            assert web.get("/static/x/app.css", headers={"Host": host}).status_code == 421, host
        for host in OUR_HOSTS:
            assert web.get("/api/v1/queues", headers={"Host": host}).status_code == 200, host


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"])
def test_where_nobody_signs_in_a_proxy_lets_nobody_in(jobs: Holdfast, header: str) -> None:
    """Proxies and tunnels may send Host as it is expected here."""
    with serve(make_site(jobs, "127.0.0.1")) as web:
        assert web.get("/api/v1/queues").status_code == 200
        for path in ("/api/v1/queues", "/", "/static/x/app.css", "/api/v1/health/live"):
            found = web.get(path, headers={header: "203.0.113.7"})
            assert (found.status_code, found.json()["code"]) == (403, "PROXIED"), path


def test_a_form_has_up_to_2000_fields() -> None:
    """The fields of a form are read before anybody is asked who sends it."""
    fields = read_form("&".join(f"a{number}=1" for number in range(2000)).encode())
    assert len(fields) == 2000
    assert read_form(b"a=1&b=&a=2") == {"a": ["1", "2"], "b": ""}
    with pytest.raises(Problem, match="cannot be read"):
        read_form(b"a=1&" * 2001)


def test_the_server_bounds_the_headers_of_requests(jobs: Holdfast) -> None:
    config = make_server(Application(Site(jobs))).config
    assert (config.http, config.ws, config.h11_max_incomplete_event_size) == ("h11", "none", 64 << 10)


def test_no_answer_is_without_the_headers_that_browsers_obey(served: Web, file: AuthFile) -> None:
    """Whatever a job has stored, browsers take it for nothing else than it is said to be, and keep nothing."""
    html = b"<script>alert(1)</script>"
    served.jobs.items("raw").put(html, id="item")
    headers = file.add_token("token", "admin")
    wanted = {
        "/": 200, "/queues": 200, "/api/v1/queues": 200, "/api/v1/nothing": 404, "/nothing": 404, "/metrics": 200,
        "/api/v1/jobs/item/payload": 200, "/api/v1/jobs/item": 200, "/api/v1/jobs:cancel": 405,
        "/find?q=state:failed": 303, "/api/v1/jobs/item/attempts/latest/log": 200,
        "/static/x/app.css": 200, "/static/x/nothing": 404,
    }  # fmt: skip
    for path, status in wanted.items():
        found = served.get(path, headers={**headers, "Accept": "text/html"})
        check_headers(found, status, path)
        assert html in found.content or not path.endswith("payload"), path
    check_headers(served.get("/api/v1/queues", headers={**headers, "Host": "evil.example"}), 421, "host")
    check_headers(served.get("/api/v1/queues"), 401, "nobody")
    tag = served.get("/api/v1/queues", headers=headers).headers["etag"]
    check_headers(served.get("/api/v1/queues", headers={**headers, "If-None-Match": tag}), 304, "tag")
    with served.client.stream("GET", "/api/v1/events", headers={**headers, "Accept": "text/event-stream"}) as found:
        check_headers(found, 200, "events")


def test_the_answer_to_head_has_an_end_and_reads_one_page(served: Web, file: AuthFile) -> None:
    headers = file.add_token("token", "admin")
    for accept in ("application/x-ndjson", "text/event-stream"):
        for path in ("jobs:export", "jobs", "events", f"jobs/{JOB}/attempts/latest/log?follow=true"):
            found = served.client.head(f"/api/v1/{path}", headers={**headers, "Accept": accept})
            assert (found.status_code, found.content) == (200, b""), path


def check_headers(found: httpx.Response, status: int, what: str) -> None:
    headers = found.headers
    assert found.status_code == status, what
    assert "default-src 'none'" in headers["content-security-policy"], what
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY"), what
    assert headers["cross-origin-resource-policy"] == "same-origin", what
    assert headers["cache-control"] == ("no-cache" if what == "/static/x/app.css" else "no-store"), what
    if status == 200:
        kind = headers["content-type"].partition(";")[0]
        assert (kind == "text/html") == (what in ("/", "/queues")), what


def test_what_a_query_repeats_is_bounded(served: Web, file: AuthFile) -> None:
    headers = file.add_token("token", "admin")
    many = "&".join(f"queue=q{number}" for number in range(1001))
    for path in ("load", "jobs", "jobs:count", "plan", "stats/series/queues"):
        assert served.get(f"/api/v1/{path}?{many}", headers=headers).status_code == 422, path
    ids = "&".join([f"id={JOB}"] * 100)
    assert len(served.get(f"/api/v1/jobs:show?{ids}", headers=headers).json()["items"]) == 1
    assert served.get(f"/api/v1/jobs:show?{ids}&id=x", headers=headers).status_code == 422
