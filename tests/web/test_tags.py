"""Tags, scopes and tracked jobs over REST: counted and listed in pages."""

from __future__ import annotations

from tests.support.varied_store import put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def test_tags_are_counted_in_pages(web: Web) -> None:
    for number in range(3):
        put(web.jobs.store, f"job-{number}", "mail", tags=tuple("abc"[: number + 1]))
    first = web.call("GET", "/tags?limit=2")
    assert first == {"items": [{"tag": "a", "jobs": 3}, {"tag": "b", "jobs": 2}], "next": "2"}
    assert web.call("GET", "/tags?limit=2&cursor=2") == {"items": [{"tag": "c", "jobs": 1}]}
    assert web.call("GET", "/tags?min_count=2&limit=2") == {"items": first["items"]}
    found = web.call("GET", "/tags?tag=c&tag=x")
    assert found == {"items": [{"tag": "c", "jobs": 1}, {"tag": "x", "jobs": 0}]}
    for query in ("cursor=-1", "cursor=1e3", "limit=0", "tag=%20", "min_count=0", "limit=1001"):
        assert refusal(web.get(f"/api/v1/tags?{query}")).status == 422


def test_scopes_are_counted_inside_a_scope(web: Web) -> None:
    for number in range(3):
        put(web.jobs.store, f"job-{number}", "mail", scope=f"/tenant/{number % 2}")
    assert web.call("GET", "/scopes") == {"items": [{"scope": "/tenant", "jobs": 3}]}
    assert web.call("GET", "/scopes?scope=/tenant&limit=1") == {
        "items": [{"scope": "/tenant/0", "jobs": 2}], "next": "1",
    }  # fmt: skip
    assert refusal(web.get("/api/v1/scopes?scope=tenant")).status == 422


def test_tracked_jobs_are_listed_with_those_that_were_deleted_last(web: Web) -> None:
    for id in ("one", "two", "three"):
        put(web.jobs.store, id, "mail")
        web.jobs.track(id)
    web.jobs.cancel("two")
    web.jobs.delete("two")
    first = web.call("GET", "/tracked?limit=1")
    assert [each["id"] for each in first["items"]] == ["three"]
    rest = web.call("GET", f"/tracked?limit=1&cursor={first['next']}")
    assert [(each["id"], each["state"]) for each in rest["items"]] == [("one", "waiting"), ("two", "deleted")]


def test_a_user_sees_the_tracked_jobs_of_his_queues_and_no_counts(serving: Serving) -> None:
    web = serving(auth=user_of)
    for queue in ("mail", "video"):
        put(web.jobs.store, f"in-{queue}", queue, tags=("a",))
        web.jobs.track(f"in-{queue}")
    put(web.jobs.store, "gone", "video")
    web.jobs.track("gone")
    web.jobs.cancel("gone")
    web.jobs.delete("gone")
    found = web.call("GET", "/tracked", **as_user("viewer mail"))
    assert [each["id"] for each in found["items"]] == ["in-mail"]
    for path in ("/tags", "/scopes"):
        assert refusal(web.get(f"/api/v1{path}", **as_user("viewer mail"))).status == 403
