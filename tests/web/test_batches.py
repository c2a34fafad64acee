"""Batches, tags, scopes, tracked and next jobs over REST."""

from __future__ import annotations

from tests.web.conftest import Serving
from tests.web.serving import Web, user_of
from tests.web.test_jobs import as_user, ids_in, put


def test_a_batch_is_opened_filled_closed_and_done(web: Web) -> None:
    last = {"task": "report", "arguments": {"day": "monday"}, "queue": "reports"}
    opened = web.client.put("/api/v1/batches/import-7", json={"then": last, "keep": "1h"})
    assert (opened.status_code, opened.json()) == (201, {"batch": "import-7", "created": True})
    assert web.client.put("/api/v1/batches/import-7").json()["created"] is False
    for id in "ab":
        web.call("PUT", f"/jobs/{id}", json={"task": "load", "batch": "import-7"})
    found = web.call("GET", "/batches/import-7")
    assert (found["state"], found["pending"], found["callbacks"][0]["task"]) == ("open", 2, "report")
    assert ids_in(web.call("GET", "/jobs?batch=import-7&newest=false")) == ["a", "b"]
    assert web.call("POST", "/batches/import-7:close") == {"batch": "import-7", "state": "closed", "changed": True}
    assert web.get("/api/v1/batches/import-7", headers={"Prefer": "wait=0"}).json()["state"] == "closed"
    assert web.client.delete("/api/v1/batches/import-7").json()["code"] == "STATE"
    cancelled = web.call("POST", "/batches/import-7:cancel", json={"reason": "wrong file"})
    assert cancelled == {"batch": "import-7", "state": "done", "cancelled": 2, "cancelling": 0}
    waited = web.get("/api/v1/batches/import-7", headers={"Prefer": "wait=30"})
    assert (waited.json()["state"], waited.headers["preference-applied"]) == ("done", "wait=30")
    assert web.call("GET", "/jobs?queue=reports")["items"][0]["task"] == "report"
    assert web.client.delete("/api/v1/batches/import-7").status_code == 204
    assert web.get("/api/v1/batches/import-7").status_code == 404


def test_batches_are_listed_in_pages(web: Web) -> None:
    for number in range(5):
        web.jobs.batch(f"b-{number}").open()
    web.jobs.batch("b-3").close()
    first = web.call("GET", "/batches?limit=3")
    rest = web.call("GET", "/batches", params={"limit": 3, "cursor": first["next"]})
    assert [each["batch"] for each in (*first["items"], *rest["items"])] == [f"b-{n}" for n in (4, 3, 2, 1, 0)]
    assert [each["batch"] for each in web.call("GET", "/batches?state=done")["items"]] == ["b-3"]
    assert web.get("/api/v1/batches?cursor=x").status_code == 422


def test_jobs_are_counted_by_tags_and_scopes(web: Web) -> None:
    put(web.jobs, "a", "b", tags=["new", "big one"], scope="/tenant/7")
    put(web.jobs, "c", tags=["new"], scope="/tenant/8")
    assert web.call("GET", "/tags")["items"] == [{"tag": "new", "jobs": 3}, {"tag": "big one", "jobs": 2}]
    assert web.call("GET", "/tags?tag=none&tag=new")["items"] == [{"tag": "none", "jobs": 0}, {"tag": "new", "jobs": 3}]
    assert web.call("GET", "/scopes")["items"] == [{"scope": "/tenant", "jobs": 3}]
    assert web.call("GET", "/scopes?scope=/tenant&min_count=2")["items"] == [{"scope": "/tenant/7", "jobs": 2}]
    assert web.get("/api/v1/scopes?scope=tenant").status_code == 422


def test_tracked_and_next_jobs_are_listed(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs, "later", "gone", queue="mail", priority=5)
    put(web.jobs, "first", queue="mail")
    put(web.jobs, "v", queue="video")
    web.jobs.track("first", "v", "gone")
    web.jobs.cancel("gone")
    web.jobs.delete("gone")
    found = web.call("GET", "/tracked", **as_user("viewer"))["items"]
    assert {each["id"]: each["state"] for each in found} == {"v": "waiting", "first": "waiting", "gone": "deleted"}
    assert ids_in(web.call("GET", "/tracked", **as_user("viewer mail"))) == ["first"]
    assert ids_in(web.call("GET", "/queues/mail:peek", **as_user("viewer mail"))) == ["first", "later"]
    assert web.call("GET", "/stalled", **as_user("viewer")) == {"total": 0, "queues": {}, "workers": {}}
    for path in ("/queues/video:peek", "/tags", "/scopes", "/batches", "/stalled"):
        assert web.get(f"/api/v1{path}", **as_user("viewer mail")).status_code == 403
