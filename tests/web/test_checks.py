"""Checks over REST: the doctor, the consistency of the store by parts, its memory, the history of upkeep."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.client.checks import UnfinishedCheck
from tests.support.varied_store import put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def damage(jobs: Holdfast, number: int) -> None:
    """Store jobs whose queue does not list them."""
    for each in range(number):
        put(jobs.store, f"job-{each}", "mail")
    for key in jobs.store.execute("KEYS", "*"):
        if b"mail" in key and jobs.store.execute("TYPE", key) == b"zset":
            jobs.store.execute("DEL", key)


def check(web: Web, **body: Any) -> list[dict[str, Any]]:
    """Return the answers to all parts of a check."""
    answers = [web.call("POST", "/check", json=body)]
    while answers[-1]["next"]:
        answers.append(web.call("POST", "/check", json={**body, "cursor": answers[-1]["next"]}))
    return answers


def test_a_healthy_store_is_found_healthy_in_parts(web: Web) -> None:
    for number in range(300):
        put(web.jobs.store, f"job-{number}", "mail", tags=("a",))
    parts = check(web, seconds=1e-9)
    whole = web.jobs.check()
    assert len(parts) > 1
    assert all(part["is_healthy"] for part in parts)
    assert (parts[-1]["keys"], parts[-1]["entries"]) == (whole.keys, whole.entries)
    assert [part["keys"] for part in parts] == sorted(part["keys"] for part in parts)


def test_what_is_found_is_reported_and_then_repaired(web: Web) -> None:
    damage(web.jobs, 200)
    found = check(web, seconds=1e-9)
    assert len(found) > 1
    assert not found[-1]["is_healthy"]
    assert sum(each["count"] for each in found[-1]["findings"]) >= 200
    repaired = check(web, repair=True, seconds=1e-9)[-1]
    assert (repaired["is_healthy"], sum(each["repaired"] for each in repaired["findings"]) >= 200) == (True, True)
    assert web.jobs.check().findings == []
    assert len(web.jobs.peek("mail", limit=300)) == 200


def test_memory_is_measured_in_parts(web: Web) -> None:
    for number in range(300):
        put(web.jobs.store, f"job-{number}", "mail")
    found = web.call("GET", "/memory?seconds=0.000000001")
    while found["next"]:
        found = web.call("GET", "/memory", params={"cursor": found["next"]})
    assert sum(each["keys"] for each in found["memory"]) == sum(each.keys for each in web.jobs.memory())


def forged(**fields: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(UnfinishedCheck(**fields))).decode()


@pytest.mark.parametrize(
    "cursor", ["", "nonsense", "e30=", forged(repair=True), forged(only_memory=True), forged(position=b"\x91\xc1")]
)
def test_another_cursor_is_refused(web: Web, cursor: str) -> None:
    status = 200 if cursor == "" else 422
    assert web.post("/api/v1/check", json={"cursor": cursor or None}).status_code == status
    if cursor:
        assert refusal(web.get("/api/v1/memory", params={"cursor": forged(repair=True)})).status == 422


def test_the_doctor_begins_with_the_worst(web: Web) -> None:
    levels = [each["level"] for each in web.call("GET", "/doctor")["items"]]
    order = ("danger", "warning", "unknown", "note", "ok")
    assert levels == sorted(levels, key=order.index)


def test_upkeep_has_a_history(web: Web) -> None:
    assert web.call("GET", "/check/history") == {"passes": 0, "began_at": None, "finished_at": None, "findings": []}


def test_only_admins_repair(serving: Serving) -> None:
    web = serving(auth=user_of)
    for user, repair in (("viewer", False), ("operator", True), ("admin mail", False)):
        assert refusal(web.post("/api/v1/check", json={"repair": repair}, **as_user(user))).status == 403
    body = {"cursor": forged(repair=True), "repair": False}
    assert refusal(web.post("/api/v1/check", json=body, **as_user("operator"))).status == 422
    assert web.post("/api/v1/check", json={}, **as_user("operator")).status_code == 200
    assert web.post("/api/v1/check", json={"repair": True}, **as_user("admin")).status_code == 200
    for path in ("/doctor", "/memory"):
        assert refusal(web.get(f"/api/v1{path}", **as_user("viewer"))).status == 403
