"""The page of the doctor: what the server guarantees, in words, and the findings, the worst first."""

from __future__ import annotations

from holdfast.doctor import LEVELS
from holdfast.web.pages.doctor import SHAPES, VERDICTS, guarantees
from tests.web.acting import check_commands, main, page, rows
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def test_every_level_has_a_verdict_and_a_shape() -> None:
    assert VERDICTS.keys() == SHAPES.keys() == {*LEVELS}


def test_findings_are_listed_with_the_worst_first(web: Web) -> None:
    findings = web.call("GET", "/doctor")["items"]
    found = main(page(web, "/doctor"))
    assert [row[1] for row in rows(found)] == [each["code"] for each in findings]
    why = found.one("section", "why")
    assert why.one("h2").text == VERDICTS[findings[0]["level"]].title
    assert [(each.one("dt").text, each.one("dd").text) for each in why.one("dl").all("div")] == guarantees(findings)
    assert {"A power cut", "Full memory"} <= {each.one("dt").text for each in why.one("dl").all("div")}
    check_commands(found)


def test_it_is_for_operators(serving: Serving) -> None:
    web = serving(auth=user_of)
    assert web.get("/doctor", headers={"x-user": "viewer"}).status_code == 403
    assert "Doctor" not in page(web, "/tags", "viewer").one("details", "more").text
    assert "Doctor" in page(web, "/doctor", "operator mail").one("details", "more").text
