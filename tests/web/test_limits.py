"""Limits over REST: listed with their holders, set, reset, removed; slots released."""

from __future__ import annotations

import pytest

from holdfast.store import commands
from holdfast.web.paths import encode_name
from tests.support.varied_store import claim, put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def test_a_limit_is_set_changed_and_removed(web: Web) -> None:
    found = web.call("PUT", "/limits/api", json={"slots": 5, "per": "1s"})
    assert (found["slots"], found["per_seconds"], found["changed"], found["overrides"]) == (5, 1, True, False)
    assert not web.call("PUT", "/limits/api", json={"slots": 5, "per": 1})["changed"]
    brief = web.call("PUT", "/limits/api", json={"slots": 2, "ttl": "1h"})
    assert (brief["per_seconds"], brief["expires_at"] is not None) == (None, True)
    [limit] = web.jobs.limits()
    assert (limit.slots, limit.per) == (2, 0)
    assert web.call("DELETE", "/limits/api") is None
    assert web.jobs.limits() == []


def test_a_declared_limit_can_be_returned_to(web: Web) -> None:
    web.jobs.store.run(commands.declare_limit("api", 5, per=0, revision=1))
    assert web.call("PUT", "/limits/api", json={"slots": 2})["overrides"]
    assert [each["source"] for each in web.call("GET", "/limits")["items"]] == ["overridden"]
    found = web.call("POST", "/limits/api:reset")
    assert (found["slots"], found["changed"], found["overrides"]) == (5, True, False)


def test_an_unknown_limit_is_not_found(web: Web) -> None:
    web.jobs.set_limit("api", 1)
    for method, path in (("GET", ""), ("GET", "/keys"), ("GET", "/holders"), ("POST", ":reset"), ("DELETE", "")):
        status, _, detail = refusal(web.client.request(method, f"/api/v1/limits/apy{path}"))
        assert (status, "did you mean api?" in detail) == (404, True)
    assert refusal(web.post("/api/v1/limits/api:reset"))[:2] == (409, "STATE")


@pytest.mark.parametrize("body", [{}, {"slots": 0}, {"slots": 1, "per": "-1s"}, {"slots": 1, "par": 1}, {"slots": 1.5}])
def test_a_limit_that_cannot_be_is_refused(web: Web, body: dict[str, object]) -> None:
    assert refusal(web.client.put("/api/v1/limits/api", json=body)).status == 422
    assert refusal(web.client.put(f"/api/v1/limits/{encode_name('api:acme')}", json={"slots": 1})).status == 422


def test_a_limit_shows_who_uses_it_in_pages(web: Web) -> None:
    store = web.jobs.store
    web.jobs.set_limit("api", 2)
    for number in range(5):
        put(store, f"a{number}", "mail", limits=("api",))
        put(store, f"b{number}", "mail", limits=("api:acme",))
    claim(store, "mail", 10)
    found = web.call("GET", "/limits/api?limit=1")
    assert (found["held"], found["parked"]) == (4, 6)
    assert [[use["key"], use["held"], use["parked"]] for use in found["usage"]] == [[None, 2, 3]]
    assert [job["id"] for job in found["holders"]] == ["a0"]
    acme = f"/limits/{encode_name('api:acme')}"
    assert [job["id"] for job in web.call("GET", acme)["waiting"]] == ["b2", "b3", "b4"]
    assert pages(web, "/limits/api/keys", "key") == [[None], ["acme"], []]
    assert pages(web, "/limits/api/holders", "id") == [["a0"], ["a1"], []]
    assert pages(web, f"{acme}/parked", "id") == [["b2"], ["b3"], ["b4"], []]
    assert refusal(web.get("/api/v1/limits/api/keys?cursor=%20")).status == 422


def pages(web: Web, path: str, field: str) -> list[list[str]]:
    """Return a field of all records, page by page."""
    found, cursor = [], ""
    while True:
        page = web.call("GET", f"{path}?limit=1&cursor={cursor}")
        found.append([each[field] for each in page["items"]])
        if not page.get("next"):
            return found
        cursor = page["next"]


def test_a_slot_is_taken_from_a_job(web: Web) -> None:
    store = web.jobs.store
    web.jobs.set_limit("api", 1)
    for id in ("first", "second"):
        put(store, id, "mail", limits=("api",))
    claim(store, "mail", 2)
    assert web.call("DELETE", "/limits/api/holders/first") == {"limit": "api", "id": "first", "released": True}
    assert [job.id for job in web.jobs.limit_holders("api")] == []
    assert claim(store, "mail", 2, "node/one.1") == ["second"]
    assert refusal(web.client.delete("/api/v1/limits/api/holders/first"))[:2] == (409, "STATE")


def test_limits_concern_all_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    web.jobs.set_limit("api", 1)
    assert web.get("/api/v1/limits", **as_user("viewer")).status_code == 200
    assert refusal(web.get("/api/v1/limits", **as_user("admin mail"))).status == 403
    assert refusal(web.client.put("/api/v1/limits/api", json={"slots": 2}, **as_user("operator"))).status == 403
    assert refusal(web.client.delete("/api/v1/limits/api", **as_user("operator"))).status == 403
