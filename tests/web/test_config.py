"""Runtime settings over REST: listed, changed and reset, of all queues or of one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def value_of(web: Web, name: str, queue: str | None = None) -> Any:
    return next(each.value for each in web.jobs.config(queue) if each.name == name)


def test_settings_are_listed_with_their_bounds(web: Web) -> None:
    found = {each["name"]: each for each in web.call("GET", "/config")["items"]}
    assert (found["lease"]["value"], found["lease"]["unit"], found["lease"]["source"]) == (30, "s", "default")


def test_settings_are_changed_together_or_not_at_all(web: Web) -> None:
    found = web.call("PATCH", "/config", json={"lease": "1m", "retries": 5, "keep_failed": 86_400.0})
    assert {each["name"]: each["value"] for each in found["items"]} == {
        "lease": 60, "keep_failed": 86_400, "retries": 5,
    }  # fmt: skip
    assert (value_of(web, "lease"), value_of(web, "retries")) == (60_000, 5)
    wrong = refusal(web.client.patch("/api/v1/config", json={"lease": "2m", "retrys": 3}))
    assert (wrong.status, "did you mean retries?" in wrong.detail) == (422, True)
    assert value_of(web, "lease") == 60_000
    assert web.call("PATCH", "/config", json={"lease": None})["items"][0]["source"] == "default"


def test_the_values_of_a_list_can_be_sent_back(web: Web) -> None:
    web.jobs.configure({"lease": "1500ms", "retries": 5})
    values = {each["name"]: each["value"] for each in web.call("GET", "/config")["items"]}
    assert (values["lease"], values["retries"], values["backoff"]) == (1.5, 5, 20)
    found = web.call("PUT", "/config", json=values)["items"]
    assert {each["name"]: each["value"] for each in found} == values


def test_a_put_resets_what_it_does_not_name(web: Web) -> None:
    web.jobs.configure({"lease": "1m", "retries": 5})
    web.call("PUT", "/config", json={"lease": 45})
    assert (value_of(web, "lease"), value_of(web, "retries")) == (45_000, 3)


def test_one_setting_is_changed_and_reset_by_its_name(web: Web) -> None:
    assert web.call("PUT", "/config/lease", json={"value": "45s"})["value"] == 45
    response = web.post("/api/v1/config/lease", data={"_method": "PUT", "value": "50"})  # a form
    assert (response.status_code, value_of(web, "lease")) == (200, 50_000)
    assert web.post("/api/v1/config/retries", data={"_method": "PUT", "value": "7"}).json()["value"] == 7
    assert web.call("DELETE", "/config/lease") is None
    assert value_of(web, "lease") == 30_000
    status, _, detail = refusal(web.client.put("/api/v1/config/leese", json={"value": 1}))
    assert (status, "did you mean lease?" in detail) == (404, True)


@pytest.mark.parametrize("value", [1e300, "soon", "9" * 5000, -1, True, [1]])
def test_a_value_out_of_bounds_is_refused(web: Web, value: Any) -> None:
    for name in ("lease", "keep_failed"):
        assert refusal(web.client.put(f"/api/v1/config/{name}", json={"value": value})).status == 422


def test_a_queue_has_settings_of_its_own(web: Web) -> None:
    assert refusal(web.get("/api/v1/queues/mail/config")).status == 404
    web.call("PUT", "/queues/mail/config/lease", json={"value": "2m"})
    found = {each["name"]: each["source"] for each in web.call("GET", "/queues/mail/config")["items"]}
    assert (found["lease"], found["retries"]) == ("queue", "default")
    assert (value_of(web, "lease", "mail"), value_of(web, "lease")) == (120_000, 30_000)
    web.call("PATCH", "/queues/mail/config", json={"retries": 9})
    web.call("PUT", "/queues/mail/config", json={"lease": "1m"})
    assert (value_of(web, "lease", "mail"), value_of(web, "retries", "mail")) == (60_000, 3)
    web.call("DELETE", "/queues/mail/config/lease")
    assert value_of(web, "lease", "mail") == 30_000


def test_only_admins_change_settings(serving: Serving) -> None:
    web = serving(auth=user_of)
    assert web.get("/api/v1/config", **as_user("viewer mail")).status_code == 200
    for user in ("operator", "admin mail"):
        assert refusal(web.client.patch("/api/v1/config", json={}, **as_user(user))).status == 403
    assert web.client.patch("/api/v1/queues/mail/config", json={}, **as_user("admin mail")).status_code == 200
    assert refusal(web.client.patch("/api/v1/queues/video/config", json={}, **as_user("admin mail"))).status == 403


def test_a_form_cannot_stand_for_an_object_of_names(web: Web) -> None:
    assert refusal(web.post("/api/v1/config", data={"_method": "PATCH", "lease": "1m"})).status == 415
