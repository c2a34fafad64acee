"""The page of events: newest first, filtered, read back by pages, with who did what; live without moving."""

from __future__ import annotations

import pytest

from tests.support.varied_store import claim, put
from tests.web.acting import check_commands, main, page, rows, send
from tests.web.conftest import Serving
from tests.web.reading import Element
from tests.web.serving import Web, user_of


def next_of(shown: Element) -> str:
    return next((each.attributes["href"] for each in shown.all("a") if each.attributes.get("rel") == "next"), "")


def kinds(shown: Element) -> list[str]:
    return [row[0] for row in rows(shown)]


def test_the_latest_events_come_first_with_who_caused_them(web: Web) -> None:
    put(web.jobs.store, "j", "mail")
    claim(web.jobs.store, "mail", executor="node/one.0")
    web.call("POST", "/jobs/j:cancel", json={"reason": "not needed"})
    web.call("POST", "/queues/mail:pause")
    found = main(page(web, "/events"))
    assert kinds(found) == ["Paused", "Cancelling", "Claimed", "Enqueued"]
    paused, cancelling, claimed, _ = rows(found)
    assert paused[1:4] == ["Queue mail", "mail", "local"]
    assert cancelling[1:4] == ["jreason: not needed", "mail", "local"]
    assert claimed[1:4] == ["j", "mail", "node/one.0"]
    assert "No earlier events are kept." in found.text
    check_commands(found)


def test_what_an_event_is_about_leads_there(web: Web) -> None:
    put(web.jobs.store, "a/b", "mail")
    web.call("POST", "/queues/mail:pause")
    web.call("PUT", "/limits/gpu", json={"slots": 1})
    web.call("PUT", "/config/retries", json={"value": 2})
    hrefs = [each.attributes["href"] for each in main(page(web, "/events")).one("tbody").all("a")]
    assert {"/jobs/=YS9i", "/queues/mail", "/limits/gpu", "/events?worker=local"} <= {*hrefs}
    assert "all queues" in main(page(web, "/events")).text


def test_events_are_filtered(web: Web) -> None:
    for number in range(3):
        put(web.jobs.store, f"m{number}", "mail", tags=("red",) if number else ())
    put(web.jobs.store, "v", "video")
    web.jobs.cancel("v")
    assert len(rows(main(page(web, "/events?queue=mail")))) == 3
    assert len(rows(main(page(web, "/events?tag=red")))) == 2
    assert kinds(main(page(web, "/events?job=v"))) == ["Cancelled", "Enqueued"]
    assert kinds(main(page(web, "/events?type=cancelled,paused"))) == ["Cancelled"]
    assert kinds(main(page(web, "/events?type=enqueued&queue=video"))) == ["Enqueued"]
    found = main(page(web, "/events?type=enqueued&queue=video"))
    chosen = {each.attributes["name"]: each.attributes.get("value") for each in found.all("input")}
    assert (chosen["queue"], found.one("select").all("option", "")[2].attributes["value"]) == ("video", "claimed")
    assert send(web, "/events?queue=video", "Filter", queue="mail").url.params["queue"] == "mail"
    wrong = web.get("/events?type=nonsense", headers={"Accept": "text/html"})
    assert (wrong.status_code, "unknown type of event" in wrong.text) == (422, True)


def test_a_kind_of_events_is_a_tab(web: Web) -> None:
    put(web.jobs.store, "j", "mail")
    web.jobs.pause("mail")
    tabs = {each.text: each.attributes["href"] for each in main(page(web, "/events")).one("nav", "tabs").all("a")}
    actions = main(page(web, tabs["Actions"]))
    assert kinds(actions) == ["Paused"]
    assert [each.text for each in actions.one("nav", "tabs").all("a") if "aria-current" in each.attributes] == [
        "Actions"
    ]
    assert (
        "None of the events" in main(page(web, tabs["Problems"])).text
        or "appears here" in main(page(web, tabs["Problems"])).text
    )


def test_pages_lead_back_to_the_first_event(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.pages.events.ROWS", 3)
    for number in range(8):
        put(web.jobs.store, f"j{number}", "mail")
    path, seen = "/events?queue=mail", []
    while path:
        found = main(page(web, path))
        seen += [row[1] for row in rows(found)]
        path = next_of(found)
    assert seen == [f"j{number}" for number in reversed(range(8))]


def test_rare_events_are_found_behind_many_others(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.pages.events.MAX_BATCH", 10)
    put(web.jobs.store, "first", "mail")
    web.jobs.pause("mail")
    for number in range(35):
        put(web.jobs.store, f"j{number}", "mail")
    assert kinds(main(page(web, "/events?type=paused"))) == ["Paused"]
    monkeypatch.setattr("holdfast.web.pages.events.MAX_READS", 2)
    path, pages = "/events?type=paused", []
    while path:
        pages.append(main(page(web, path)))
        path = next_of(pages[-1])
    assert "0 events, back to" in pages[0].text
    assert [kinds(each) if each.all("tbody") else [] for each in pages] == [[], ["Paused"]]


def test_an_open_page_follows_its_filter_and_does_not_strike_out_old_events(web: Web) -> None:
    put(web.jobs.store, "j", "mail")
    found = page(web, "/events?queue=mail&type=enqueued")
    assert found.one("main").attributes["data-events"] == "type=enqueued&queue=mail"
    table = main(found).one("table")
    assert ("data-grows" in table.attributes, table.attributes["data-live"]) == (True, "events")


def test_an_empty_list_says_what_would_be_here(web: Web) -> None:
    found = main(page(web, "/events"))
    assert "About the last 100,000 events are kept" in found.text
    check_commands(found)


def test_a_user_sees_the_events_of_his_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs.store, "m", "mail")
    put(web.jobs.store, "v", "video")
    web.jobs.set_limit("gpu", 1)
    assert [row[1] for row in rows(main(page(web, "/events", "viewer mail")))] == ["m"]
    assert len(rows(main(page(web, "/events", "viewer")))) == 3
