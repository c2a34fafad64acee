"""Refreshes of open pages: those who look at the same page with the same rights share them, until something is done."""

from __future__ import annotations

import pytest

from holdfast.web import User
from holdfast.web.pages import page
from holdfast.web.security.users import Scope
from tests.support.varied_store import put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, user_of

REFRESH = {"Holdfast-Live": "1", "Accept": "text/html"}


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let answers be shared for as long as a test takes."""
    monkeypatch.setattr(page, "LIVE_FOR", 3600.0)


def refreshed(web: Web, path: str = "/queues", user: str = "", **headers: str) -> str:
    mine = as_user(user)["headers"] if user else {}
    response = web.get(path, headers={**REFRESH, **mine, **headers}, follow_redirects=False)
    assert response.status_code in (200, 303), response.text
    return response.text


def test_refreshes_of_a_page_are_shared_and_the_page_itself_is_not(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    before = refreshed(web)
    put(web.jobs.store, "two", "video")
    assert refreshed(web) == before
    assert "video" in web.get("/queues", headers={"Accept": "text/html"}).text
    assert "video" in refreshed(web, "/queues?cursor=mail")  # another page


def test_whoever_acts_sees_it_at_once(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    assert "Resume queue mail" not in refreshed(web)
    web.call("POST", "/queues/mail:pause")
    assert "Resume queue mail" in refreshed(web)


def test_users_and_themes_and_hosts_have_refreshes_of_their_own(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs.store, "one", "mail")
    put(web.jobs.store, "two", "video")
    assert "video" in refreshed(web, user="operator")
    assert "video" not in refreshed(web, user="operator mail")
    assert "Pause queue mail" in refreshed(web, user="operator mail")
    assert "Pause queue mail" not in refreshed(web, user="viewer mail")
    assert "other.example" in refreshed(web, "/jobs/one", user="operator", Host="other.example")
    assert "other.example" not in refreshed(web, "/jobs/one", user="operator")
    web.client.cookies.set("holdfast-theme", "dark")
    assert 'data-theme="dark"' in refreshed(web, user="operator")


def test_those_with_the_same_rights_share_refreshes_which_name_nobody(serving: Serving) -> None:
    def authenticate(scope: Scope) -> User:
        name = dict(scope["headers"])[b"x-name"].decode()
        return User(name, "viewer" if name == "eve" else "operator")

    web = serving(auth=authenticate)
    put(web.jobs.store, "one", "mail")
    of_ada = refreshed(web, **{"x-name": "ada"})
    assert "Pause queue mail" in of_ada
    assert ">ada<" not in of_ada
    put(web.jobs.store, "two", "video")
    assert refreshed(web, **{"x-name": "bob"}) == of_ada
    of_eve = refreshed(web, **{"x-name": "eve"})
    assert "video" in of_eve
    assert "Pause queue" not in of_eve
    assert ">bob<" in web.get("/queues", headers={"Accept": "text/html", "x-name": "bob"}).text


def test_a_refresh_may_lead_elsewhere(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    for _ in range(2):
        response = web.get("/find?q=one", headers=REFRESH, follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (303, "/jobs/one")
