"""Operations over REST: act on all jobs that match, with progress, driven by the web process; stop and resume."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.client import operations
from holdfast.errors import StoreUnavailable
from holdfast.web.resources.operations import ARGUMENTS, drive_on
from tests.support.relay import Relay
from tests.support.workers import Crew, until
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of
from tests.web.test_jobs import as_user, ids_in, put


def ended(web: Web, id: str) -> Any:
    """Wait for the end of an operation, and return it."""
    return until(lambda: found if (found := web.call("GET", f"/operations/{id}"))["state"] != "running" else None)


def test_all_jobs_that_match_are_changed_in_the_background(web: Web) -> None:
    put(web.jobs, *(f"m-{number}" for number in range(500)), queue="mail", tags=["old"])
    put(web.jobs, "v", queue="video")
    body = {"action": "cancel", "filter": {"queue": ["mail"], "tag": "old"}, "reason": "wrong text"}
    counted = web.post("/api/v1/operations", json={**body, "dry_run": True})
    assert (counted.status_code, counted.json()) == (200, {"matched": 500, "operation": None})
    started = web.post("/api/v1/operations", json=body)
    assert started.status_code == 202
    found = ended(web, started.json()["operation"]["id"])
    assert started.headers["location"] == f"/api/v1/operations/{found['id']}"
    assert (found["state"], found["counts"], found["who"]) == ("done", {"cancelled": 500}, "local")
    assert web.jobs.get("v").state == "waiting"
    assert ids_in(web.call("GET", "/operations")) == [found["id"]]


def test_a_repeated_start_with_an_idempotency_key_starts_one(web: Web) -> None:
    put(web.jobs, "a")
    body = {"action": "tag", "filter": {"id_prefix": "a"}, "tags": ["x"]}
    for _ in range(2):
        web.call("POST", "/operations", json=body, headers={"Idempotency-Key": "7"})
    assert len(web.call("GET", "/operations")["items"]) == 1


def test_operations_are_listed_in_pages(web: Web) -> None:
    put(web.jobs, "a")
    ids = [web.jobs.tag_all([tag], id_prefix="a").id for tag in ("x", "y", "z")]
    first = web.call("GET", "/operations?limit=2")
    rest = web.call("GET", "/operations", params={"limit": 2, "cursor": first["next"]})
    assert sorted(ids_in(first) + ids_in(rest)) == sorted(ids)  # they may have begun in the same millisecond
    assert "next" not in rest


def test_the_filter_of_an_operation_can_be_sent_again(web: Web) -> None:
    put(web.jobs, "a", queue="mail", tags=["x"])
    filter = {
        "queue": ["mail"], "state": ["waiting"], "tag": "x", "since": "2020-07-01T02:00:00Z",
        "until": "2100-07-01T02:00:00Z",
    }  # fmt: skip
    body = {"action": "tag", "filter": filter, "tags": ["y"]}
    started = web.call("POST", "/operations", json=body)["operation"]
    assert started["filter"] == filter
    again = web.call("POST", "/operations", json={**body, "filter": started["filter"]})["operation"]
    assert ended(web, again["id"])["filter"] == filter


def test_an_operation_is_stopped_and_resumed(web: Web) -> None:
    put(web.jobs, "a", "b")
    id = web.jobs.cancel_all(id_prefix="a", wait=False).id  # nobody drives it: there are no workers
    assert web.call("DELETE", f"/operations/{id}")["state"] == "stopped"
    assert web.jobs.get("a").state == "waiting"
    assert web.post(f"/api/v1/operations/{id}:resume").status_code == 202
    assert ended(web, id)["counts"] == {"cancelled": 1}
    assert web.call("DELETE", f"/operations/{id}")["state"] == "done"
    assert web.get("/api/v1/operations/nothing").status_code == 404


def test_an_operation_is_driven_on_after_an_outage_of_the_store(crew: Crew, relay: Relay) -> None:
    put(crew.app, "a")
    operation = crew.app.cancel_all(id_prefix="a", wait=False)
    away = Holdfast(relay.url, namespace=crew.namespace, timeout="100ms")

    async def drive() -> None:
        relay.cut()
        driving = asyncio.create_task(drive_on(away, operation.id))
        with pytest.raises(StoreUnavailable):
            await away.aoperation(operation.id)
        relay.mend()
        await driving
        await away.aclose()

    asyncio.run(drive())
    assert operation.refresh().counts == {"cancelled": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"action": "cancel", "filter": {}}, "needs a filter"),
        ({"action": "cancel", "filter": {"queue": ["a"]}, "to": "b"}, "cancel has no argument 'to'"),
        ({"action": "move", "filter": {"queue": ["a"]}}, "specify `to`"),
        ({"action": "tag", "filter": {"queue": ["a"]}}, "no tags are given"),
        ({"action": "explode", "filter": {"queue": ["a"]}}, "Invalid enum value"),
        ({"action": "cancel", "filter": {"queues": ["a"]}}, "unknown field"),
    ],
)
def test_what_is_no_operation_is_refused(web: Web, body: Any, reason: str) -> None:
    found = web.post("/api/v1/operations", json=body)
    assert (found.status_code, reason in found.json()["detail"]) == (422, True), found.text


def test_a_form_starts_an_operation(web: Web) -> None:
    put(web.jobs, "a", "b", queue="mail")
    form = {
        "action": "move",
        "filter.queue": "mail",
        "filter.state": "waiting,failed",
        "to": "slow",
        "_next": "/queues",
    }
    assert web.post("/api/v1/operations", data=form).status_code == 303
    until(lambda: web.jobs.count(queue="slow") == 2)


def test_users_of_some_queues_change_only_jobs_of_these(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs, "m", queue="mail")
    put(web.jobs, "v", queue="video")
    body = {"action": "cancel", "filter": {"state": ["pending"]}}
    assert web.post("/api/v1/operations", json=body, **as_user("viewer mail")).status_code == 403
    other = {"action": "cancel", "filter": {"queue": ["video"]}}
    assert web.post("/api/v1/operations", json=other, **as_user("operator mail")).status_code == 403
    away = {"action": "move", "filter": {"queue": ["mail"]}, "to": "video"}
    assert web.post("/api/v1/operations", json=away, **as_user("operator mail")).status_code == 403
    id = web.call("POST", "/operations", json=body, **as_user("operator mai*"))["operation"]["id"]
    assert until(lambda: web.jobs.get("m").state == "cancelled")
    assert web.jobs.get("v").state == "waiting"
    assert ids_in(web.call("GET", "/operations", **as_user("viewer mail"))) == [id]
    assert ids_in(web.call("GET", "/operations", **as_user("viewer video"))) == []
    refused = web.client.delete(f"/api/v1/operations/{id}", headers={"x-user": "operator video"})
    assert refused.status_code == 404


def test_arguments_of_actions_are_those_of_the_client() -> None:
    for action, names in ARGUMENTS.items():
        parameters = inspect.signature(getattr(operations, f"{action}_all")).parameters
        assert {*names} == {*parameters} - {"self", "options"}, action
