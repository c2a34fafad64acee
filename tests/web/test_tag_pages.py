"""The page of tags, scopes and tracked jobs."""

from __future__ import annotations

import pytest

from tests.support.varied_store import put
from tests.web.acting import act, check_commands, main, page, row_of, rows
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def fill(web: Web) -> None:
    put(web.jobs.store, "a", "mail", tags=("new", "big one"), scope="/acme/west")
    put(web.jobs.store, "b", "mail", tags=("new",), scope="/acme/east")
    put(web.jobs.store, "c", "video", scope="/dunlin")


def test_tags_are_listed_with_their_numbers_of_jobs(web: Web) -> None:
    fill(web)
    found = main(page(web, "/tags"))
    assert [[row[0], row[2]] for row in rows(found)] == [["new", "2"], ["big one", "1"]]
    assert row_of(found, "big one").all("a")[0].attributes["href"] == "/jobs?tag=big+one"
    check_commands(found)


def test_scopes_are_listed_level_by_level(web: Web) -> None:
    fill(web)
    found = main(page(web, "/tags?show=scopes"))
    assert [[row[0], row[2]] for row in rows(found)] == [["/acme", "2"], ["/dunlin", "1"]]
    [inside] = [each for each in row_of(found, "/acme").all("a") if each.text == "scopes inside"]
    inner = main(page(web, inside.attributes["href"]))
    assert sorted(row[0] for row in rows(inner)) == ["/acme/east", "/acme/west"]
    assert inner.one("nav", "crumb").text == "all scopes/acme"
    check_commands(inner)


def test_a_long_list_is_cut_into_pages(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.pages.tags.PAGE", 2)
    for number in range(5):
        put(web.jobs.store, f"j{number}", "mail", tags=(f"t{number}",))
    path, seen = "/tags", []
    while path:
        found = main(page(web, path))
        seen += [row[0] for row in rows(found)]
        path = next((each.attributes["href"] for each in found.all("a") if each.attributes.get("rel") == "next"), "")
    assert sorted(seen) == [f"t{number}" for number in range(5)]


def test_tracked_jobs_are_listed_and_released(web: Web) -> None:
    fill(web)
    web.jobs.track("a", "c")
    web.jobs.cancel("c")
    web.jobs.delete("c")
    found = main(page(web, "/tags?show=tracked"))
    assert {row[0]: row[1] for row in rows(found)} == {"taska": "Waiting", "c": "deleted"}
    act(web, "/tags?show=tracked", "Stop tracking a")
    assert not web.jobs.get("a").tracked
    check_commands(found)


@pytest.mark.parametrize(
    ("query", "words"),
    [("", "Tags are words on jobs"), ("?show=scopes", "to whom a job belongs"), ("?show=tracked", "somebody tracks")],
)
def test_an_empty_list_says_what_would_be_here(web: Web, query: str, words: str) -> None:
    found = main(page(web, f"/tags{query}"))
    assert words in found.text
    check_commands(found)


def test_who_sees_some_queues_sees_their_tracked_jobs_alone(serving: Serving) -> None:
    web = serving(auth=user_of)
    fill(web)
    web.jobs.track("a", "c")
    found = main(page(web, "/tags", "viewer mail"))
    assert [row[0] for row in rows(found)] == ["taska"]
    assert found.all("form") == []
    assert web.get("/tags?show=scopes", headers={"x-user": "viewer mail"}).status_code == 403
