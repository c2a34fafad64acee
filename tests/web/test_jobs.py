"""Jobs over REST: enqueued, listed, counted, shown, exported, deleted; and actions on them."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from holdfast import Holdfast
from holdfast.names import PROGRAM_TASK
from holdfast.web.paths import encode_name
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def _resize(path: str, width: int = 100) -> None: ...


def put(jobs: Holdfast, *ids: str, **options: Any) -> None:
    resize = jobs.tasks.get("resize") or jobs.task(name="resize")(_resize)
    jobs.enqueue_many([resize.bind("a.png").options(id=id, **options) for id in ids])


def ids_in(found: Any) -> list[str]:
    return [each["id"] for each in found["items"]]


def as_user(user: str) -> dict[str, dict[str, str]]:
    return {"headers": {"x-user": user}}


# Enqueue


def test_a_job_of_an_unknown_task_is_enqueued_with_its_options(web: Web) -> None:
    body = {
        "task": "mail.send", "arguments": {"to": "ada"}, "queue": "mail", "priority": -3, "delay": "1h",
        "retries": {"max": 5, "waits": ["1s", 10]}, "tags": ["new"], "fields": {"ticket": "7"}, "deadline": "2h",
    }  # fmt: skip
    response = web.post("/api/v1/jobs", json=body)
    assert response.status_code == 201
    job = web.jobs.get(response.json()["id"])
    assert response.headers["location"] == f"/api/v1/jobs/{job.id}"
    assert (job.task, job.arguments, job.queue, job.priority, job.state) == (
        "mail.send", {"to": "ada"}, "mail", -3, "scheduled",
    )  # fmt: skip
    assert (job.retries, job.tags, job.fields) == (5, ("new",), {"ticket": "7"})


def test_a_task_that_the_app_knows_checks_the_arguments_and_has_its_options(web: Web) -> None:
    web.jobs.task(name="resize", queue="images", retries=9)(_resize)
    found = web.call("POST", "/jobs", json={"task": "resize", "arguments": {"path": "a.png"}})
    job = web.jobs.get(found["id"])
    assert (job.queue, job.retries) == ("images", 9)
    wrong = web.post("/api/v1/jobs", json={"task": "resize", "arguments": {"path": 7}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "INVALID")
    assert web.post("/api/v1/jobs", json={"task": "resize", "arguments": {"path": "a"}, "timout": 3}).status_code == 422


def test_a_put_can_be_repeated(web: Web) -> None:
    path = f"/api/v1/jobs/{encode_name('import/7')}"
    first, again = (web.client.put(path, json={"task": "t"}) for _ in range(2))
    assert (first.status_code, first.json()) == (201, {"id": "import/7", "created": True})
    assert (again.status_code, again.json()) == (200, {"id": "import/7", "created": False})


def test_a_post_with_an_idempotency_key_can_be_repeated(web: Web) -> None:
    headers = {"Idempotency-Key": "order-7"}
    found = [web.call("POST", "/jobs", json={"task": "t"}, headers=headers) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert web.jobs.count() == 1
    other = web.call("POST", "/jobs", json={"task": "other"}, headers=headers)
    assert other["id"] != found[0]["id"]
    put(web.jobs, "a")
    for _ in range(2):
        web.call("POST", "/jobs/a/notes", json={"text": "once"}, headers=headers)
    assert [note.text for note in web.jobs.get("a").notes] == ["once"]


def test_many_jobs_are_stored_together_or_not_at_all(web: Web) -> None:
    lines = [msgspec.json.encode({"task": "t", "id": f"j-{number}", "tags": ["a", "b"]}) for number in range(1000)]
    headers = {"Content-Type": "application/x-ndjson"}
    found = web.call("POST", "/jobs:batch", content=b"\n".join(lines), headers=headers)
    assert [each["created"] for each in found["items"]] == [True] * 1000
    assert web.jobs.count(tag="a") == 1000
    wrong = web.post("/api/v1/jobs:batch", content=b'{"task": "t"}\n{"task": "t", "priority": 999}', headers=headers)
    assert (wrong.status_code, "line 2" in wrong.json()["detail"]) == (422, True)
    assert web.post("/api/v1/jobs:batch", json=[{"task": "t"}, {"task": "a b"}]).status_code == 422
    assert web.post("/api/v1/jobs:batch", json=[{"task": "t"}] * 1001).status_code == 422
    assert web.jobs.count() == 1000


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_a_list_that_is_too_long_is_refused_before_it_takes_memory(web: Web, kind: str) -> None:
    parts = [b"{}"] * 50_000
    body = b"[" + b",".join(parts) + b"]" if kind == "application/json" else b"\n".join(parts)
    tracemalloc.start()
    found = web.post("/api/v1/jobs:batch", content=body, headers={"Content-Type": kind})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.status_code, found.json()["code"]) == (422, "INVALID")
    assert peak < 8 << 20  # the jobs themselves would take 20 MiB
    assert web.jobs.count() == 0


def test_only_admins_have_programs_run(serving: Serving) -> None:
    web = serving(auth=user_of)
    body = {"program": ["echo", "hello"], "env": {"A": "b"}}
    assert web.post("/api/v1/jobs", json=body, **as_user("operator")).status_code == 403
    assert web.post("/api/v1/jobs", json=body, **as_user("admin")).status_code == 201
    both = {**body, "task": "t"}
    assert web.post("/api/v1/jobs", json=both, **as_user("admin")).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "place"),
    [
        ("POST", "/jobs", "{}"), ("PUT", "/jobs/new", "{}"), ("POST", "/jobs:batch", "[{}]"),
        ("PUT", "/batches/new", '{"then": {}}'), ("PUT", "/batches/new", '{"on_failure": {}}'),
    ],
)  # fmt: skip
def test_a_program_cannot_be_enqueued_as_a_task(serving: Serving, method: str, path: str, place: str) -> None:
    web = serving(auth=user_of)
    task = json.dumps({"task": PROGRAM_TASK, "arguments": {"arguments": ["echo", "hello"]}})
    for user, status in (("operator", 403), ("admin", 422)):
        headers = {"x-user": user}
        found = web.client.request(method, f"/api/v1{path}", content=place.replace("{}", task), headers=headers)
        assert found.status_code == status, found.text
    assert web.jobs.count() == 0


# List, count, show, delete


def test_jobs_are_listed_by_filters_in_pages(web: Web) -> None:
    put(web.jobs, *(f"m-{number}" for number in range(5)), queue="mail", tags=["new"])
    put(web.jobs, "v-1", queue="video")
    assert ids_in(web.call("GET", "/jobs?queue=mail&newest=false&limit=3")) == ["m-0", "m-1", "m-2"]
    first = web.call("GET", "/jobs?tag=new&limit=3")
    rest = web.call("GET", "/jobs", params={"tag": "new", "limit": 3, "cursor": first["next"]})
    assert ids_in(first) + ids_in(rest) == [f"m-{number}" for number in reversed(range(5))]
    assert "next" not in rest
    assert ids_in(web.call("GET", "/jobs?queue=mail,video&state=pending&id_prefix=v")) == ["v-1"]
    assert web.call("GET", "/jobs:count?queue=mail") == {"count": 5}
    assert web.call("GET", "/jobs:count?since=1h&state=failed") == {"count": 0}
    assert web.get("/api/v1/jobs?since=yesterday").status_code == 422
    assert web.get("/api/v1/jobs?state=queued").json()["detail"].endswith("did you mean waiting?")


def test_a_list_says_how_many_were_looked_at_and_matched(web: Web) -> None:
    put(web.jobs, *(f"j-{number}" for number in range(5)), tags=["new"])
    found = web.call("GET", "/jobs?tag=new&limit=2")
    assert (found["looked_at"], found["matched"]) == (2, 5)
    assert "matched" not in web.call("GET", "/jobs?task=resize&limit=2")


def test_a_list_may_have_some_fields_only(web: Web) -> None:
    put(web.jobs, "a", tags=["x"])
    assert web.call("GET", "/jobs?fields=id,queue")["items"] == [{"id": "a", "queue": "default"}]
    assert web.call("GET", "/jobs?fields=id&fields=tags")["items"] == [{"id": "a", "tags": ["x"]}]
    assert web.get("/api/v1/jobs?fields=nothing").status_code == 422


def test_several_jobs_are_shown_by_their_ids(web: Web) -> None:
    put(web.jobs, "a", "b/c")
    found = web.call("GET", "/jobs:show", params={"id": ["b/c", "nothing", "a"]})
    assert ids_in(found) == ["b/c", "a"]
    assert found["items"][1] == {**web.call("GET", "/jobs/a"), "usage": None}
    assert web.get("/api/v1/jobs:show").status_code == 422


def test_a_job_is_shown_with_why_it_is_not_running(web: Web) -> None:
    put(web.jobs, "a/b:c")
    found = web.call("GET", f"/jobs/{encode_name('a/b:c')}")
    assert found["arguments"] == {"path": "a.png"}
    assert found["explanation"]["code"] == "no-worker"
    assert web.get("/api/v1/jobs/nothing").json()["code"] == "NOTFOUND"


def test_an_ended_job_is_deleted(web: Web) -> None:
    put(web.jobs, "a")
    assert web.client.delete("/api/v1/jobs/a").json()["code"] == "STATE"
    web.jobs.cancel("a")
    assert web.client.delete("/api/v1/jobs/a").status_code == 204
    assert web.jobs.count() == 0


# Export


def export(web: Web, path: str, **query: str) -> Iterator[Any]:
    """Read an export, line by line."""
    headers = {"Accept": "application/x-ndjson"}
    with httpx.stream("GET", f"{web.url}/api/v1{path}", params=query, headers=headers, timeout=60) as response:
        yield from map(json.loads, response.iter_lines())


@pytest.mark.parametrize("path", ["/jobs", "/jobs:export"])
def test_an_export_that_breaks_is_resumed(web: Web, path: str) -> None:
    ids = [f"j-{number:03}" for number in range(250)]
    put(web.jobs, *ids)
    seen, cursor = list[str](), None
    for line in export(web, path, newest="false") if path == "/jobs" else export(web, path):
        if "next" in line:
            cursor = line["next"]
            break
        seen.append(line["id"])
    assert cursor
    rest = list(
        export(web, path, cursor=cursor, newest="false") if path == "/jobs" else export(web, path, cursor=cursor)
    )
    assert rest[-1] == {"next": None}
    assert seen + [line["id"] for line in rest if "id" in line] == ids


def test_an_export_takes_the_same_memory_for_any_number_of_jobs(web: Web) -> None:
    resize = web.jobs.task(name="resize")(_resize)
    web.jobs.enqueue_many(resize.bind(f"{number}".ljust(10_000)) for number in range(500))  # 5 MB
    peaks = []
    for cursor in ("s,default,waiting,,", "s,default,waiting,,"):  # once to warm up
        tracemalloc.start()
        assert sum("id" in line for line in export(web, "/jobs:export", cursor=cursor)) == 500
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 3 << 20


# Actions


def test_actions_change_a_job(web: Web) -> None:
    put(web.jobs, "a", "b")
    assert web.call("POST", "/jobs/a:move", json={"queue": "slow", "priority": 5}) == {"id": "a", "state": "waiting"}
    assert web.call("PUT", "/jobs/a/after/b") == {"id": "a", "state": "blocked"}
    assert web.post("/api/v1/jobs/b:cancel", json={"unless_awaited": True}).json()["code"] == "BLOCKED"
    assert web.client.put("/api/v1/jobs/b/after/a").json()["code"] == "CYCLE"
    assert web.call("DELETE", "/jobs/a/after/b") == {"id": "a", "state": "waiting"}
    assert web.call("POST", "/jobs/a:depend", json={"add": ["b"], "on_failed": "run"})["state"] == "blocked"
    assert web.call("POST", "/jobs/b:fail", json={"group": "given-up", "reason": "bad"})["state"] == "failed"
    assert web.call("POST", "/jobs/a:cancel", json={"reason": "wrong"}) == {"id": "a", "state": "cancelled"}
    assert web.call("POST", "/jobs/a:retry") == {"id": "a", "state": "waiting"}
    assert web.post("/api/v1/jobs/a:retry").json()["code"] == "STATE"
    assert web.post("/api/v1/jobs/a:release").json()["code"] == "STATE"
    assert web.post("/api/v1/jobs/a:stack").json()["code"] == "STATE"
    assert web.post("/api/v1/jobs/a:move").status_code == 422


def test_notes_fields_and_tags_are_added_and_removed(web: Web) -> None:
    put(web.jobs, "a")
    assert web.call("POST", "/jobs/a/notes", json={"text": "seen"}) == {"id": "a", "note": "seen"}
    assert web.call("PATCH", "/jobs/a/fields", json={"ticket": "7", "owner": "ada"})["fields"]["ticket"] == "7"
    assert web.call("PATCH", "/jobs/a/fields", json={"ticket": None})["fields"] == {"owner": "ada"}
    assert web.call("POST", "/jobs/a/fields", data={"name": "x", "text": "y"})["fields"] == {"owner": "ada", "x": "y"}
    assert web.call("PUT", f"/jobs/a/tags/{encode_name('big one/2')}") == {"id": "a", "done": "tagged"}
    assert web.call("POST", "/jobs/a:tag", json={"tags": ["big one/2"]})["done"] == "unchanged"
    assert web.jobs.get("a").tags == ("big one/2",)
    assert web.call("DELETE", f"/jobs/a/tags/{encode_name('big one/2')}")["done"] == "untagged"
    assert web.call("POST", "/jobs/a:track")["done"] == "tracked"
    assert web.jobs.get("a").tracked
    assert web.call("POST", "/jobs/a:untrack")["done"] == "untracked"
    assert web.call("POST", "/jobs/a:untag", json={"tags": ["no"]})["done"] == "unchanged"


def test_a_job_is_forked_with_other_options(web: Web) -> None:
    put(web.jobs, "a")
    assert web.post("/api/v1/jobs/a:fork").json()["code"] == "STATE"
    found = web.post("/api/v1/jobs/a:fork", json={"from_start": True, "id": "b", "queue": "large"})
    assert (found.status_code, found.json()["forked_from"]) == (201, "a")
    assert web.jobs.get("b").queue == "large"
    assert web.post("/api/v1/jobs/a:fork", json={"from_start": True, "id": "b"}).status_code == 200


def test_several_jobs_are_changed_and_refusals_are_told(web: Web) -> None:
    put(web.jobs, "a", "b")
    found = web.call("POST", "/jobs:cancel", json={"ids": ["a", "b", "c"]})["items"]
    assert [(each["id"], each["state"], each["code"]) for each in found] == [
        ("a", "cancelled", None), ("b", "cancelled", None), ("c", None, "NOTFOUND"),
    ]  # fmt: skip
    assert web.call("POST", "/jobs:retry", json={"ids": ["a"], "to": "late"})["items"][0]["state"] == "waiting"
    assert web.call("POST", "/jobs:tag", json={"ids": ["a", "b"], "tags": ["x"]})["items"][1]["state"] == "tagged"
    assert web.call("POST", "/jobs:untag", json={"ids": ["a"], "tags": ["x"]})["items"][0]["state"] == "untagged"
    found = web.call("POST", "/jobs:delete", json={"ids": ["a", "b"]})["items"]
    assert [each["code"] or each["state"] for each in found] == ["STATE", "deleted"]


def test_a_job_is_cancelled_with_all_that_wait_for_it(web: Web) -> None:
    put(web.jobs, "a")
    put(web.jobs, "b", after="a")
    found = web.call("POST", "/jobs/a:cancel-tree", json={"reason": "wrong"})["items"]
    assert {each["id"]: each["state"] for each in found} == {"a": "cancelled", "b": "cancelled"}


# Rights


def test_users_of_some_queues_see_and_change_only_jobs_of_these(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs, "m", queue="mail-1")
    put(web.jobs, "v", queue="video")
    viewer, operator = as_user("viewer mail-*"), as_user("operator mail-*")
    assert ids_in(web.call("GET", "/jobs", **viewer)) == ["m"]
    assert web.call("GET", "/jobs:count", **viewer) == {"count": 1}
    assert ids_in(web.call("GET", "/jobs:export", **viewer)) == ["m"]
    assert web.call("GET", "/jobs", **as_user("viewer other"))["items"] == []
    assert web.get("/api/v1/jobs?queue=video", **viewer).status_code == 403
    assert web.get("/api/v1/jobs/v", **viewer).status_code == 404
    assert web.get("/api/v1/jobs/m", **viewer).status_code == 200
    assert web.post("/api/v1/jobs/m:cancel", **viewer).status_code == 403
    assert web.post("/api/v1/jobs/v:cancel", **operator).status_code == 404
    for path, body, status in (
        ("/jobs/m:move", {"queue": "video"}, 403),
        ("/jobs/m:retry", {"to": "video"}, 403),
        ("/jobs/m:fork", {"from_start": True, "queue": "video"}, 403),
        ("/jobs/m:depend", {"add": ["v"]}, 404),
        ("/jobs/m:cancel-tree", {}, 403),
        ("/jobs/v:untrack", {}, 403),
        ("/jobs", {"task": "t", "queue": "video"}, 403),
        ("/jobs", {"task": "t"}, 403),
        ("/jobs", {"task": "t", "queue": "mail-2", "id": "m", "on_exists": "replace"}, 403),
        ("/jobs", {"task": "t", "queue": "mail-2"}, 201),
    ):
        assert web.post(f"/api/v1{path}", json=body, **operator).status_code == status, (path, body)
    found = web.call("POST", "/jobs:cancel", json={"ids": ["v", "m", "x"]}, **operator)["items"]
    assert [each["state"] or each["code"] for each in found] == ["NOTFOUND", "cancelled", "NOTFOUND"]
    assert web.jobs.get("v").state == "waiting"
