"""Queues over REST: listed, peeked, paused and forgotten; their load and shares."""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def _send() -> None: ...


def put(jobs: Holdfast, queue: str = "mail", **options: Any) -> str:
    send = jobs.tasks.get("send") or jobs.task(name="send")(_send)
    return jobs.enqueue(send.bind().options(queue=queue, **options)).id


def test_a_queue_is_found_among_many_with_similar_names(web: Web) -> None:
    names = [f"queue-{number:04}" for number in range(1100)]
    for name in (*names, "q", "queue-"):
        web.jobs.pause(name)
    for name in (names[0], names[-1], "q", "queue-"):
        assert web.call("GET", f"/queues/{name}")["queue"] == name
    for name in ("queue-1100", "queue", "p", "z", "=YSBi"):  # the last is `a b`, which no queue can be called
        assert refusal(web.get(f"/api/v1/queues/{name}")).status == 404


def test_queues_are_listed_by_name_in_pages(web: Web) -> None:
    for queue in ("mail", "video", "audio"):
        put(web.jobs, queue)
    first = web.call("GET", "/queues?limit=2")
    assert [each["queue"] for each in first["items"]] == ["audio", "mail"]
    rest = web.call("GET", f"/queues?limit=2&cursor={first['next']}")
    assert ([each["queue"] for each in rest["items"]], "next" in rest) == (["video"], False)
    lines = web.get("/api/v1/queues", headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert (len(lines), lines[-1]) == (4, '{"next":null}')


def test_a_queue_is_shown(web: Web) -> None:
    put(web.jobs)
    assert web.call("GET", "/queues/mail")["waiting"] == 1
    status, code, detail = refusal(web.get("/api/v1/queues/male"))
    assert (status, code, "did you mean mail?" in detail) == (404, "NOTFOUND", True)


def test_the_jobs_that_start_next_are_listed_in_their_order(web: Web) -> None:
    last, first = put(web.jobs, priority=5), put(web.jobs, priority=-5)
    put(web.jobs, delay="1h")
    assert [each["id"] for each in web.call("GET", "/queues/mail:peek")["items"]] == [first, last]
    assert [each["id"] for each in web.call("GET", "/queues/mail:peek?limit=1")["items"]] == [first]
    assert refusal(web.get("/api/v1/queues/mail:peek?limit=0")).status == 422


def test_a_queue_can_be_paused_before_its_first_job(web: Web) -> None:
    assert refusal(web.post("/api/v1/queues/mail:pause")).status == 404
    assert web.call("POST", "/queues/mail:pause?create=true")["changed"]
    assert web.jobs.queues()[0].paused
    assert web.call("POST", "/queues/mail:resume") == {"queue": "mail", "paused": False, "changed": True}
    assert not web.call("POST", "/queues/mail:resume")["changed"]


def test_an_empty_queue_is_forgotten(web: Web) -> None:
    id = put(web.jobs)
    assert refusal(web.client.delete("/api/v1/queues/mail"))[:2] == (409, "STATE")
    web.jobs.cancel(id)
    web.jobs.delete(id)
    assert web.call("DELETE", "/queues/mail") is None
    assert web.jobs.queues() == []
    assert refusal(web.client.delete("/api/v1/queues/mail")).status == 404


def test_a_share_gets_more_turns(web: Web) -> None:
    path = "/queues/mail/shares/acme"
    assert refusal(web.client.put(f"/api/v1{path}", json={"weight": 3})).status == 404
    body = {"queue": "mail", "share": "acme", "weight": 3}
    assert web.call("PUT", f"{path}?create=true", json={"weight": 3}) == {**body, "changed": True}
    assert web.call("PUT", path, json={"weight": 3}) == {**body, "changed": False}
    for wrong in (0, 101, "many"):
        assert refusal(web.client.put(f"/api/v1{path}", json={"weight": wrong})).status == 422


def test_load_says_how_much_concurrency_is_needed(web: Web) -> None:
    put(web.jobs)
    put(web.jobs, "video")
    found = web.call("GET", "/queues/mail/load?target=30s")
    assert (found["queue"], found["waiting"], found["needed"]) == ("mail", 1, 1)
    both = web.call("GET", "/load?target=30")
    assert (both["needed"], both["target_seconds"], len(both["queues"])) == (2, 30, 2)
    assert web.call("GET", "/load?queue=mail")["needed"] == 1
    assert web.call("GET", "/queues/nothing/load")["needed"] == 0
    assert refusal(web.get("/api/v1/load?target=soon")).status == 422


def test_queues_without_rights_are_not_shown(serving: Serving) -> None:
    web = serving(auth=user_of)
    for queue in ("mail", "video"):
        put(web.jobs, queue)
    viewer, operator = as_user("viewer mail"), as_user("operator mail")
    assert [each["queue"] for each in web.call("GET", "/load", **viewer)["queues"]] == ["mail"]
    for path in ("/queues/video", "/queues/video:peek", "/queues/video/load", "/load?queue=mail&queue=video"):
        assert refusal(web.get(f"/api/v1{path}", **viewer)).status == 403
    assert "video" not in refusal(web.post("/api/v1/queues/male:pause", **as_user("operator mal*,mail"))).detail
    for path in ("/queues/mail", "/queues/mail/shares/a"):  # for admins
        method = "PUT" if "shares" in path else "DELETE"
        assert refusal(web.client.request(method, f"/api/v1{path}", json={"weight": 2}, **operator)).status == 403
