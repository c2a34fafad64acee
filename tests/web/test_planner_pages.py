"""The page of the planner: a form, forecasts of now and then, and what holds backlogs up."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.web.pages.charts.forecast import forecast_bars, longest
from holdfast.web.pages.planner import gone, held_up_by, range_of
from tests.support.varied_store import put
from tests.web.acting import check_commands, main, page, row_of, rows, send
from tests.web.conftest import Serving
from tests.web.reading import read_page
from tests.web.serving import Web, user_of
from tests.web.test_worker_pages import beat


def forecast(**changes: Any) -> dict[str, Any]:
    found = {"workers": 1, "after": 3000.0, "earliest": 2760.0, "latest": 3240.0, "rate": 1.0}
    return {**found, "held_up_by": "slots", "name": "", "reason": "", **changes}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (forecast(), ("in 50 min", "46 min to 54 min", "all slots are busy")),
        (forecast(latest=None), ("in 50 min", "46 min to more than 30 d", "all slots are busy")),
        (forecast(after=None, held_up_by="paused"), ("never", "", "the queue is paused")),
        (forecast(after=None, held_up_by="limit", name="gpu"), ("not in 30 days", "", "limit gpu is full")),
        (forecast(after=None, held_up_by="unknown"), ("unknown", "", "too little is known")),
        (forecast(after=0.0, held_up_by=""), ("no backlog", "", "")),
        (forecast(held_up_by="new reason"), ("in 50 min", "46 min to 54 min", "new reason")),
    ],
)
def test_a_forecast_is_said_in_words(found: dict[str, Any], words: tuple[str, str, str]) -> None:
    assert (gone(found), range_of(found), held_up_by(found)) == words


def test_bars_are_on_one_scale() -> None:
    short, long, never = forecast(), forecast(after=6000.0, latest=8000.0), forecast(after=None, latest=None)
    top = longest([short, long, never])
    assert top == 8000
    assert 'width="240"' in forecast_bars(long, top)
    assert 'width="120"' in forecast_bars(short, top)
    assert "open-failed" in forecast_bars(never, top)
    assert longest([never]) == 0
    assert "void" in forecast_bars(forecast(after=0.0, earliest=0.0, latest=0.0), 0.0)


def test_nothing_is_simulated_until_somebody_asks(web: Web) -> None:
    found = main(page(web, "/planner"))
    assert "No forecast yet" in found.text
    check_commands(found)


def test_a_plan_compares_now_and_then(web: Web) -> None:
    for number in range(20):
        put(web.jobs.store, f"j{number}", "mail")
    beat(web.jobs, "node/one", "mail")
    answer = send(web, "/planner", "Forecast", queue="mail", workers="+10")
    assert answer.url.params["workers"] == "+10"
    found = main(page(web, str(answer.url)))
    assert "1 worker now, 11 then" in found.text
    [row] = rows(found)
    assert row[1] == "20"
    assert len(row_of(found, "mail").all("svg", "forecast")) == 2
    assert "holdfast plan --workers +10 mail" in found.text
    check_commands(found)


def test_a_plan_needs_rights_on_its_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs.store, "j", "mail")
    put(web.jobs.store, "k", "video")
    assert [each.attributes["value"] for each in main(page(web, "/planner", "viewer mail")).all("option")] == ["mail"]
    for query in ("forecast=true", "forecast=true&queue=video"):
        assert web.get(f"/planner?{query}", headers={"x-user": "viewer mail"}).status_code == 403


def test_what_cannot_be_forecast_is_said_above_the_form(web: Web) -> None:
    put(web.jobs.store, "j", "mail")
    answer = web.get("/planner?forecast=true&workers=many")
    assert (answer.status_code, "workers is" in main(read_page(answer.text)).one("section", "why").text) == (422, True)
    assert "many" in [each.attributes.get("value") for each in read_page(answer.text).all("input")]
