"""The frame of pages: theme, message, user, and where it is mounted."""

from __future__ import annotations

from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def test_a_theme_is_kept_until_the_system_decides_again(web: Web) -> None:
    assert "data-theme=" not in web.get("/queues").text.partition(">")[2].partition("<head>")[0]
    found = web.post("/theme", data={"theme": "dark", "_next": "/queues?x=1"})
    assert (found.status_code, found.headers["location"]) == (303, "/queues?x=1")
    assert "max-age" in found.headers["set-cookie"].lower()
    page = web.get("/queues").text
    assert '<html lang="en" data-theme="dark">' in page
    assert 'aria-label="Light theme"' in page
    assert 'aria-label="Dark theme"' not in page
    web.post("/theme", data={"theme": "system"}, headers={"Origin": web.url})
    assert '<html lang="en">' in web.get("/queues").text


def test_no_page_of_another_site_sets_a_theme_or_leads_elsewhere(web: Web) -> None:
    assert web.post("/theme", data={"theme": "dark"}, headers={"Origin": "https://evil.example"}).status_code == 403
    assert web.post("/theme", data={"theme": "dark", "_next": "//evil.example"}).status_code == 422
    web.client.cookies.set("holdfast-theme", '"><script>')
    assert '<html lang="en">' in web.get("/queues").text


def test_a_theme_is_kept_where_the_application_is_mounted(serving: Serving) -> None:
    web = serving(root_path="/ops")
    assert "path=/ops;" in web.post("/theme", data={"theme": "dark"}).headers["set-cookie"].lower()
    assert 'action="/ops/theme"' in web.get("/queues").text


def test_a_page_that_is_refreshed_leaves_the_message_to_the_page_that_it_is_for(web: Web) -> None:
    web.client.cookies.set("holdfast-message", "Done")
    refreshed = web.get("/queues", headers={"Holdfast-Live": "1"})
    assert "set-cookie" not in refreshed.headers
    assert "Done" not in refreshed.text
    assert "Done" in web.get("/queues").text


def test_the_frame_names_the_user_and_offers_what_the_role_may_do(serving: Serving) -> None:
    web = serving(auth=user_of)
    web.jobs.pause("mail")
    viewer = web.get("/queues", headers={"x-user": "viewer mail"}).text
    assert "<b>tester</b>" in viewer
    assert "queues mail" in viewer
    assert "Resume" not in viewer
    assert "Resume" in web.get("/queues", headers={"x-user": "operator mail"}).text


def test_a_page_of_an_error_tells_nothing_of_the_store_to_strangers(serving: Serving) -> None:
    web = serving(auth=user_of)
    page = web.get("/queues", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert web.jobs.address.display not in page.text
