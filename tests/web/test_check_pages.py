"""The page of the consistency check: by parts without scripts, its findings, and the repair after a question."""

from __future__ import annotations

import httpx
import pytest

from tests.support.varied_store import put
from tests.web.acting import check_commands, fields_of, form_of, main, page, read, rows
from tests.web.conftest import Serving
from tests.web.reading import Element
from tests.web.serving import Web, user_of
from tests.web.test_checks import damage


def post(web: Web, user: str = "", **fields: str) -> httpx.Response:
    headers = {"Origin": web.url, "Accept": "text/html", **({"x-user": user} if user else {})}
    return web.post("/check", data=fields, headers=headers)


def run(web: Web, **fields: str) -> tuple[Element, int]:
    """Check until the end, as a browser without scripts does; return the last page, and the number of parts."""
    found, parts = read(post(web, **fields)), 1
    while [each for each in found.all("form") if "data-continue" in each.attributes]:
        found, parts = read(post(web, **fields_of(form_of(found, "Continue")))), parts + 1
    return found, parts


def test_a_check_runs_in_parts_and_ends_with_a_report(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.pages.check.SECONDS", 1e-9)
    for number in range(300):
        put(web.jobs.store, f"job-{number}", "mail", tags=("a",))
    found, parts = run(web)
    assert parts > 1
    assert f"All {web.jobs.check().keys:,} keys fit together." in main(found).text
    assert "Memory by kind of key" in main(found).text


def test_damage_is_found_and_repaired_after_a_question(web: Web) -> None:
    damage(web.jobs, 20)
    found, _ = run(web)
    assert "damage" in main(found).one("section", "why").text
    assert rows(main(found))
    assert "It cannot be undone." in main(found).one("details", "menu").text
    check_commands(found)
    repaired, _ = run(web, **fields_of(form_of(found, "Check and repair")))
    assert "Everything that was found is repaired." in main(repaired).text
    assert web.jobs.check().findings == []
    assert len(web.jobs.peek("mail", limit=100)) == 20


def test_the_page_shows_what_upkeep_has_found(web: Web) -> None:
    found = main(page(web, "/check"))
    assert "What upkeep has found on its own" in found.text
    assert "Check all keys now" in found.buttons()
    check_commands(found)


def test_operators_check_and_admins_repair(serving: Serving) -> None:
    web = serving(auth=user_of)
    damage(web.jobs, 5)
    assert web.get("/check", headers={"x-user": "viewer"}).status_code == 403
    assert web.get("/check", headers={"x-user": "admin mail"}).status_code == 403
    assert "Repair…" not in read(post(web, "operator")).buttons()
    assert post(web, "operator", repair="true").status_code == 403
    assert web.jobs.check().findings
    assert post(web, "admin", cursor="nonsense").status_code == 422
    other = web.post("/check", headers={"x-user": "admin", "Origin": "http://evil.example"})
    assert other.status_code == 403
