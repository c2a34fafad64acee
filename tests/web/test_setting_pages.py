"""The page of settings: of all queues and of one, with bounds and explanations; changed and reset by forms."""

from __future__ import annotations

from tests.support.varied_store import put
from tests.web.acting import act, check_commands, fields_of, form_of, main, page, row_of, rows, send, toast
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def test_every_setting_is_shown_with_its_bounds_and_what_it_controls(web: Web) -> None:
    found = main(page(web, "/settings"))
    shown = [row for place in range(len(found.all("tbody"))) for row in rows(found, place)]
    settings = {each.name: each for each in web.jobs.config()}
    assert len(shown) == len(settings)
    lease = row_of(found, "lease")
    assert settings["lease"].explanation in lease.text
    assert [cell.text for cell in lease.all("td")][1:4] == ["30 s", "30 s", "1 s to 1 h"]
    assert "Others" not in found.text
    assert "changed" not in lease.one("b").text
    check_commands(found)


def test_a_setting_is_changed_and_reset(web: Web) -> None:
    assert toast(act(web, "/settings", "Change lease", value="2m30s")) == "Changed lease"
    assert {each.name: each.value for each in web.jobs.config()}["lease"] == 150_000
    found = page(web, "/settings")
    assert "2 min 30 s changed" in row_of(found, "lease").text
    assert fields_of(form_of(found, "Change lease"))["value"] == "2m30s"
    assert "It is 30 s again, the default." in row_of(found, "lease").text
    act(web, "/settings", "Reset lease")
    assert {each.name: each.source for each in web.jobs.config()}["lease"] == "default"


def test_a_value_out_of_bounds_is_refused_and_explained(web: Web) -> None:
    answer = send(web, "/settings", "Change lease", value="2h")
    assert (answer.status_code, "lease" in answer.text) == (422, True)
    assert send(web, "/settings", "Change retries", value="many").status_code == 422


def test_what_a_form_begins_with_is_what_is_set(web: Web) -> None:
    for each in web.jobs.config():
        act(web, "/settings", f"Change {each.name}")
    assert {each.name: each.value for each in web.jobs.config()} == {
        each.name: each.default for each in web.jobs.config()
    }


def test_a_queue_has_settings_of_its_own(web: Web) -> None:
    put(web.jobs.store, "j", "mail")
    web.jobs.configure({"retries": 9})
    act(web, "/settings?queue=mail", "Change lease", value="1m")
    found = main(page(web, "/settings?queue=mail"))
    assert "changed" in row_of(found, "lease").text
    assert "as for all queues" in row_of(found, "retries").text
    assert not [row for place in range(len(found.all("tbody"))) for row in rows(found, place) if "worker_age" in row[0]]
    check_commands(found)
    assert {each.name: each.value for each in web.jobs.config("mail")}["lease"] == 60_000
    act(web, "/settings?queue=mail", "Reset lease")
    assert {each.name: each.source for each in web.jobs.config("mail")}["lease"] == "default"
    assert web.get("/settings?queue=male").status_code == 404


def test_only_admins_change_settings_and_only_of_their_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs.store, "j", "mail")
    put(web.jobs.store, "k", "video")
    for user in ("viewer", "operator", "admin mail"):
        assert "Change…" not in main(page(web, "/settings", user)).buttons()
    assert "Change…" in main(page(web, "/settings?queue=mail", "admin mail")).buttons()
    assert web.get("/settings?queue=video", headers={"x-user": "admin mail"}).status_code == 403
    options = [each.attributes["value"] for each in main(page(web, "/settings", "viewer mail")).all("option")]
    assert options == ["", "mail"]
