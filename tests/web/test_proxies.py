"""Trusted proxies: what is believed, of whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import Invalid
from holdfast.web.security.accounts import Accounts
from holdfast.web.security.proxies import Proxies
from holdfast.web.site import Site
from tests.web.accounts import AuthFile
from tests.web.serving import Web, serve

HOST = {"Host": "jobs.example.org"}


def scope(client: str | None, **headers: str) -> dict[str, Any]:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "scheme": "http", "client": client and (client, 1234), "headers": sent}


def seen(proxies: list[str], client: str | None, **headers: str) -> tuple[str, str | None]:
    """Return the scheme and the client that are believed."""
    found = Proxies(proxies).believed(scope(client, **headers))
    return found["scheme"], found["client"] and found["client"][0]


def test_headers_are_believed_of_trusted_proxies_alone() -> None:
    forwarded = {"x_forwarded_proto": "https", "x_forwarded_for": "203.0.113.9"}
    assert seen(["10.0.0.2"], "10.0.0.2", **forwarded) == ("https", "203.0.113.9")
    assert seen(["10.0.0.0/24"], "10.0.0.9", **forwarded) == ("https", "203.0.113.9")
    assert seen(["10.0.0.2"], "::ffff:10.0.0.2", **forwarded) == ("https", "203.0.113.9")
    assert seen(["10.0.0.2"], "10.0.0.3", **forwarded) == ("http", "10.0.0.3")
    assert seen(["10.0.0.2"], None, **forwarded) == ("http", None)
    assert seen([], "10.0.0.2", **forwarded) == ("http", "10.0.0.2")


@pytest.mark.parametrize(
    ("sent", "client"),
    [
        ("198.51.100.1, 203.0.113.9", "203.0.113.9"),  # the first one was sent by the client
        ("203.0.113.9, 10.0.0.7", "203.0.113.9"),
        ("10.0.0.7, 10.0.0.8", "10.0.0.2"),
        ("2001:db8::1", "2001:db8::1"),
        ("<script>", "10.0.0.2"),
        ("203.0.113.9, nonsense", "10.0.0.2"),
        ("", "10.0.0.2"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(sent: str, client: str) -> None:
    assert seen(["10.0.0.0/24"], "10.0.0.2", x_forwarded_for=sent) == ("http", client)


@pytest.mark.parametrize("sent", ["http, https", "https"])
def test_the_scheme_is_what_the_nearest_proxy_says(sent: str) -> None:
    assert seen(["10.0.0.2"], "10.0.0.2", x_forwarded_proto=sent)[0] == "https"


@pytest.mark.parametrize("address", ["*", "proxy", "0.0.0.0/0", "::/0", "10.0.0.5/8", ""])
def test_proxies_are_named_by_address(address: str) -> None:
    with pytest.raises(Invalid):
        Proxies([address])


@pytest.fixture
def web(jobs: Holdfast, tmp_path: Path) -> Iterator[Web]:
    file = AuthFile(tmp_path)
    file.add_user("ada", "operator", password=None)
    file.add_token("ci", "admin")
    file.path.write_text(
        'hosts = ["jobs.example.org"]\n' + file.path.read_text() + '[proxy]\nuser_header = "X-Forwarded-User"\n'
    )
    proxies = Proxies(["127.0.0.1"])
    accounts = Accounts(file.path, on_loopback=True)
    hosts = frozenset(["jobs.example.org"])
    with serve(Site(jobs, accounts, local_only=True, hosts=hosts, proxies=proxies)) as made:
        yield made


def who(web: Web, user: str, **headers: str) -> Any:
    found = web.get("/api/v1/session", headers={**HOST, "X-Forwarded-User": user, **headers})
    return found.json()["role"] if found.is_success else found.status_code


def test_a_proxy_names_the_user(web: Web) -> None:
    assert who(web, "ada") == "operator"
    assert who(web, "eve") == 403
    assert who(web, "ci") == 403
    assert who(web, "") == 401
    assert who(web, "ada, eve") == 403
    assert who(web, "x" * 201) == 403
    twice = [("Host", "jobs.example.org"), ("X-Forwarded-User", "ada"), ("X-Forwarded-User", "eve")]
    assert web.get("/api/v1/session", headers=twice).status_code == 403


def test_a_token_that_the_proxy_passes_on_is_not_ours(web: Web) -> None:
    """It exempts from nothing: the proxy adds it to forged requests, too."""
    passed = {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."}
    assert who(web, "ada", **passed) == "operator"
    forged = {**HOST, **passed, "X-Forwarded-User": "ada", "Origin": "https://evil.example"}
    assert web.post("/api/v1/queues/mail:pause?create=true", headers=forged).json()["code"] == "ORIGIN"


def test_a_page_whose_name_was_bound_to_this_machine_cannot_play_the_proxy(web: Web) -> None:
    for host in ("evil.example", "evil.example:8420"):
        forged = {"Host": host, "X-Forwarded-Host": "jobs.example.org", "X-Forwarded-User": "ada"}
        assert web.get("/api/v1/session", headers=forged).status_code == 421


def test_the_origin_is_compared_with_what_the_browser_sees(web: Web) -> None:
    headers = {**HOST, "X-Forwarded-User": "ada", "X-Forwarded-Proto": "https"}
    pause = "/api/v1/queues/mail:pause?create=true"
    assert web.post(pause, headers={**headers, "Origin": "https://jobs.example.org"}).status_code == 200
    assert web.post(pause, headers={**headers, "Origin": "http://jobs.example.org"}).json()["code"] == "ORIGIN"


def test_a_role_for_users_without_an_entry(jobs: Holdfast, tmp_path: Path) -> None:
    file = AuthFile(tmp_path)
    file.add_text('hosts = ["jobs.example.org"]\n[proxy]\nuser_header = "X-Forwarded-User"\nrole = "viewer"')
    site = Site(jobs, Accounts(file.path), proxies=Proxies(["127.0.0.1"]))
    with serve(site) as web:
        assert who(web, "anybody") == "viewer"
    with serve(site._replace(proxies=Proxies(["127.0.0.2"]))) as web:
        assert who(web, "anybody") == 401
