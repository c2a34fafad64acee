"""Signing in and out: passwords, cookies, sessions, limits of attempts, the file that changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.security import passwords
from holdfast.web.security.accounts import Accounts
from holdfast.web.security.proxies import Proxies
from holdfast.web.security.sessions import MAX_SIGNED_OUT, Sessions
from holdfast.web.site import Site
from tests.web.accounts import PASSWORD, AuthFile, quick_password
from tests.web.serving import Web, serve

HTTPS = {"X-Forwarded-Proto": "https"}
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Accept": "text/html"}


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuthFile:
    monkeypatch.setattr(passwords, "LOG2N", 4)  # what is computed if there is no such user
    passwords.any_password.cache_clear()
    made = AuthFile(tmp_path)
    made.add_user("ada", "operator", queues=["mail"])
    return made


Start = Callable[..., Web]


@pytest.fixture
def start(jobs: Holdfast, file: AuthFile, clock: Clock) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(
            *, on_loopback: bool = True, insecure: bool = False, proxies: Sequence[str] = (), root: str = ""
        ) -> Web:
            accounts = Accounts(file.path, on_loopback=on_loopback, insecure_http=insecure, now=clock)
            site = Site(jobs, accounts, local_only=on_loopback and not proxies, proxies=Proxies(proxies))
            return stack.enter_context(serve(site, root))

        yield start


def sign_in(
    web: Web, name: str = "ada", password: str = PASSWORD, headers: Mapping[str, str] = MappingProxyType({})
) -> httpx.Response:
    sent = {"Sec-Fetch-Site": "same-origin", **headers}
    return web.post("/api/v1/session", json={"name": name, "password": password}, headers=sent)


def test_who_signs_in_has_the_rights_of_the_user_until_signing_out(start: Start) -> None:
    web = start()
    assert web.get("/api/v1/session").status_code == 401
    identity = {"name": "ada", "role": "operator", "queues": ["mail"], "sees_data": True}
    assert sign_in(web).json() == identity
    assert web.get("/api/v1/session").json() == identity
    cookie = dict(web.client.cookies)

    assert web.client.delete("/api/v1/session", headers={"Origin": web.url}).status_code == 204
    assert dict(web.client.cookies) == {}
    web.client.cookies.update(cookie)  # of somebody who has copied it
    assert web.get("/api/v1/session").status_code == 401


def test_the_page_to_sign_in_leads_to_the_page_that_was_wanted(start: Start) -> None:
    web = start(root="/ops")
    page = web.get("/queues?since=1h", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["www-authenticate"]) == (401, "Bearer")
    assert 'name="_next" value="/ops/queues?since=1h"' in page.text
    assert web.jobs.address.namespace not in page.text

    form = {"name": "ada", "password": "wrong password", "_next": "/ops/queues?since=1h"}
    headers = {"Accept": "text/html", "Origin": web.url}
    again = web.post("/api/v1/session", data=form, headers=headers)
    assert again.status_code == 401
    assert "The name or the password is wrong." in again.text
    assert 'name="_next" value="/ops/queues?since=1h"' in again.text
    assert 'value="ada"' in again.text
    assert "wrong password" not in again.text

    found = web.post("/api/v1/session", data={**form, "password": PASSWORD}, headers=headers)
    assert (found.status_code, found.headers["location"]) == (303, "/ops/queues?since=1h")
    headers["Cookie"] = found.headers["set-cookie"].partition(";")[0]  # the proxy's path is not ours
    assert "Sign out" in web.get("/queues", headers=headers).text

    out = {"_method": "DELETE", "_next": "/ops/sign-in"}
    assert web.post("/api/v1/session", data=out, headers=headers).headers["location"] == "/ops/sign-in"
    assert web.get("/queues", headers=headers).status_code == 401


def test_a_wrong_name_and_a_wrong_password_cannot_be_told_apart(start: Start, file: AuthFile) -> None:
    file.add_user("proxied", password=None)
    web = start()
    answers = [sign_in(web, name, password) for name, password in (("ada", "no"), ("eve", PASSWORD), ("proxied", "x"))]
    assert {(each.status_code, each.text) for each in answers} == {(401, answers[0].text)}


def test_attempts_are_limited(start: Start) -> None:
    web = start()
    for _ in range(5):
        assert sign_in(web).status_code == 200  # those that succeed do not count
    web.client.cookies.clear()
    for _ in range(10):
        assert sign_in(web, password="no").status_code == 401  # noqa: S106
    refused = sign_in(web)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 31
    form = {"name": "ada", "password": PASSWORD}
    assert (
        "Too many attempts"
        in web.post("/api/v1/session", data=form, headers={"Accept": "text/html"} | {"Origin": web.url}).text
    )


def test_a_session_ends_when_it_expires(start: Start, clock: Clock, file: AuthFile) -> None:
    file.add_text('session = "1h"')
    web = start()
    sign_in(web)
    clock.now += 3599
    assert web.get("/api/v1/session").status_code == 200
    clock.now += 2
    assert web.get("/api/v1/session").status_code == 401


def test_a_session_outlives_the_server_and_ends_with_the_password(start: Start, file: AuthFile) -> None:
    first = start()
    sign_in(first)
    web = start()
    for name, value in first.client.cookies.items():
        web.client.cookies.set(name.replace(str(first.client.base_url.port), str(web.client.base_url.port)), value)
    assert web.get("/api/v1/session").json()["role"] == "operator"
    file.add_user("ada", "viewer")
    assert web.get("/api/v1/session").json()["role"] == "viewer"
    file.add_user("ada", "viewer", password=quick_password("another password"))
    assert web.get("/api/v1/session").status_code == 401


def test_a_cookie_that_was_changed_is_nothing(start: Start) -> None:
    web = start()
    sign_in(web)
    [(name, value)] = web.client.cookies.items()
    id, expires, user, signature = value.split(".")
    web.client.cookies.clear()
    changed = (
        f"{id}.{int(expires) + 1}.{user}.{signature}", f"{id}.{expires}.ZXZl.{signature}", f"{id}.{expires}.{user}.",
        f"x{value}", f"{value}x", f"{id}.0{expires}.{user}.{signature}", f"{id}.{expires}.{user}={signature}",
        "...", "é",
        f"{id}.{'9' * 5000}.{user}.{signature}",
    )  # fmt: skip
    for each in changed:
        cookie = f"{name}={each}".encode()
        assert web.get("/api/v1/session", headers={b"Cookie": cookie}).status_code == 401, each
    assert web.get("/api/v1/session", headers={"Cookie": f"{name}={value}"}).status_code == 200


def test_the_cookie_is_for_this_host_alone(start: Start) -> None:
    web = start(proxies=["127.0.0.1"], root="/ops/jobs")
    cookie = sign_in(web, headers=HTTPS).headers["set-cookie"]
    name, *parts = cookie.split("; ")
    assert name.startswith("__Host-holdfast-ops-jobs=")
    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(parts)
    assert "Domain" not in cookie
    web = start(root="/ops")
    assert sign_in(web).headers["set-cookie"].startswith(f"holdfast-{web.client.base_url.port}-ops=")


def test_over_plain_http_there_are_tokens_and_nobody_signs_in(start: Start, file: AuthFile) -> None:
    token = file.add_token("ci")
    web = start(on_loopback=False)
    assert sign_in(web).json()["code"] == "INSECURE"
    assert sign_in(web, headers=HTTPS).json()["code"] == "INSECURE"  # nobody trusts this proxy
    assert "Passwords are accepted only over https" in web.get("/sign-in").text
    assert "<form" not in web.get("/sign-in").text
    assert web.get("/api/v1/session", headers=token).status_code == 200


def test_a_session_of_https_is_nothing_over_http(start: Start) -> None:
    web = start(on_loopback=False, proxies=["127.0.0.1"])
    cookie = sign_in(web, headers=HTTPS).headers["set-cookie"].partition(";")[0]
    web.client.cookies.clear()
    assert web.get("/api/v1/session", headers={"Cookie": cookie, **HTTPS}).status_code == 200
    for headers in (
        {},
        {"X-Forwarded-Proto": "http"},
        {"X-Forwarded-Proto": "wss"},
        {"X-Forwarded-Proto": "https, http"},
    ):
        assert web.get("/api/v1/session", headers={"Cookie": cookie, **headers}).status_code == 401


def test_insecure_http_has_to_be_chosen(start: Start) -> None:
    web = start(on_loopback=False, insecure=True)
    assert sign_in(web).status_code == 200


def test_a_token_comes_before_a_session(start: Start, file: AuthFile) -> None:
    token = file.add_token("ci", "viewer")
    web = start()
    sign_in(web)
    assert web.get("/api/v1/session", headers=token).json()["name"] == "ci"
    assert web.get("/api/v1/session", headers={"Authorization": "Bearer hft_wrong"}).status_code == 401
    twice = [*token.items(), *token.items()]
    assert web.get("/api/v1/session", headers=twice).status_code == 401


def test_somebody_who_follows_a_link_from_another_site_is_still_signed_in(start: Start) -> None:
    """Browsers send no SameSite=Strict cookie with such a link: the page loads itself once more."""
    web = start()
    foreign = web.get("/queues", headers={**LINK, "Sec-Fetch-Site": "cross-site"})
    assert (foreign.status_code, foreign.headers["refresh"]) == (401, "0")
    assert "refresh" not in web.get("/queues", headers={**LINK, "Sec-Fetch-Site": "same-origin"}).headers


def test_a_file_that_cannot_be_read_lets_nobody_in(start: Start, file: AuthFile) -> None:
    web = start()
    sign_in(web)
    file.path.chmod(0o644)
    assert web.get("/api/v1/session").json()["code"] == "USERS"
    file.path.chmod(0o600)
    assert web.get("/api/v1/session").status_code == 200
    file.path.write_text("[users.ada]\nrole = 'king'\n")
    assert (web.get("/api/v1/session").status_code, web.get("/queues").status_code) == (503, 503)
    file.path.unlink()
    assert web.get("/api/v1/session").status_code == 503
    assert web.get("/api/v1/health/live").status_code == 200


def test_strangers_are_not_told_what_is_wrong_inside(namespace: str) -> None:
    app = Holdfast("redis://:secret@127.0.0.1:1/0", namespace=namespace, timeout="100ms")
    with serve(Site(app, lambda _: None)) as web:
        found = web.get("/api/v1/health/ready")
    assert found.status_code == 503
    assert found.json()["detail"] == "this cannot be answered now"


def test_nobody_revives_the_ended_session_of_another_by_ending_many() -> None:
    sessions = Sessions(lambda: 0.0)
    ended = sessions.new("ada", b"key", "stored", 60)
    sessions.sign_out(ended)
    mine = [sessions.new("eve", b"key", "stored", 120) for _ in range(MAX_SIGNED_OUT + 1)]
    for each in mine:
        sessions.sign_out(each)
    assert not sessions.is_valid(ended, b"key", "stored")
    assert sum(not sessions.is_valid(each, b"key", "stored") for each in mine) == MAX_SIGNED_OUT
