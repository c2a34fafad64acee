"""Items over REST: put, claimed with a token, renewed, completed, failed and released."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def claim(web: Web, queue: str = "scans", **body: Any) -> Any:
    return web.call("POST", f"/queues/{queue}/items:claim", json=body)


def test_an_item_is_put_claimed_and_completed_once(web: Web) -> None:
    response = web.post("/api/v1/queues/scans/items", json={"text": "page 1", "id": "scan-1", "tags": ["a"]})
    assert (response.status_code, response.json()) == (201, {"id": "scan-1", "created": True})
    again = web.post("/api/v1/queues/scans/items", json={"text": "page 1", "id": "scan-1"})
    assert (again.status_code, again.json()["created"]) == (200, False)
    item = claim(web, lease="1m")
    assert (item["id"], item["payload"], item["attempt"], item["lease_seconds"]) == ("scan-1", "page 1", 1, 60)
    assert claim(web) is None
    body = {"token": item["token"], "text": "done"}
    assert web.call("POST", "/items:renew", json={**body, "text": "half"}) == {"id": "scan-1", "cancelled": False}
    assert web.call("POST", "/items:complete", json=body) == {"id": "scan-1", "ended": "completed"}
    assert refusal(web.post("/api/v1/items:complete", json=body))[:2] == (409, "LOST")
    job = web.jobs.get("scan-1")
    assert (job.state, job.tags) == ("succeeded", ("a",))


def test_bytes_that_are_not_text_are_in_base64(web: Web) -> None:
    web.call("POST", "/queues/scans/items", json={"base64": "//4="})
    item = claim(web)
    assert item["payload"] == {"base64": "//4="}
    web.call("POST", "/items:renew", json={"token": item["token"], "base64": "AA=="})
    web.call("POST", "/items:release", json={"token": item["token"]})
    assert claim(web)["data"] == "\0"
    assert refusal(web.post("/api/v1/queues/scans/items", json={"text": "a", "base64": "AA=="})).status == 422


def test_an_item_that_fails_is_retried_unless_that_is_final(web: Web) -> None:
    web.call("POST", "/queues/scans/items", json={"text": "torn", "retries": 1})
    first = claim(web)
    assert web.call("POST", "/items:fail", json={"token": first["token"], "reason": "torn", "delay": 0})["ended"]
    second = claim(web)
    assert second["attempt"] == 2
    web.call("POST", "/items:fail", json={"token": second["token"], "reason": "torn", "final": True})
    assert web.jobs.get(first["id"]).state == "failed"


def test_several_items_are_put_together(web: Web) -> None:
    body = {"items": [{"text": "a", "id": "a"}, {"base64": "/w=="}, {}], "priority": 3}
    found = web.call("POST", "/queues/scans/items:batch", json=body)["items"]
    assert [each["created"] for each in found] == [True] * 3
    assert {job.priority for job in web.jobs.list(queue="scans")} == {3}
    for wrong in ([], [{"text": "a"}] * 1001, [{"text": "a", "id": "a b"}]):
        assert refusal(web.post("/api/v1/queues/scans/items:batch", json={"items": wrong})).status == 422
    assert web.jobs.count(queue="scans") == 3


def test_a_put_with_an_idempotency_key_can_be_repeated(web: Web) -> None:
    for path, body in (("items", {"text": "a"}), ("items:batch", {"items": [{"text": "a"}, {"text": "b"}]})):
        first, again = (
            web.call("POST", f"/queues/scans/{path}", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)
        )
        ids = [[each["id"] for each in found.get("items", [found])] for found in (first, again)]
        assert ids[0] == ids[1]
    assert web.jobs.count(queue="scans") == 3


@pytest.mark.parametrize(
    "body", [{"wait": "31s"}, {"wait": "soon"}, {"lease": "1ms"}, {"lease": "2h"}, {"wait": -1}, {"unknown": 1}]
)
def test_a_claim_that_cannot_be_is_refused(web: Web, body: dict[str, Any]) -> None:
    assert refusal(web.post("/api/v1/queues/scans/items:claim", json=body)).status == 422


def test_items_of_other_queues_are_out_of_reach(serving: Serving) -> None:
    web = serving(auth=user_of)
    web.jobs.items("scans").put(b"a")
    mine, others, viewer = as_user("operator scans"), as_user("operator mail"), as_user("viewer")
    item = web.call("POST", "/queues/scans/items:claim", json={}, **mine)
    for action in ("renew", "complete", "release"):
        assert refusal(web.post(f"/api/v1/items:{action}", json={"token": item["token"]}, **others)).status == 403
    for path in ("items", "items:claim", "items:batch"):
        body = {"items": [{"text": "a"}]} if path == "items:batch" else {}
        for user in (others, viewer):
            assert refusal(web.post(f"/api/v1/queues/scans/{path}", json=body, **user)).status == 403
    assert refusal(web.post("/api/v1/items:renew", json={"token": item["token"][:-3]}, **mine)).status == 422
    assert web.post("/api/v1/items:release", json={"token": item["token"]}, **mine).status_code == 200
