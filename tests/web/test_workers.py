"""Workers over REST: listed with their jobs, drained, deregistered; machines; stalled jobs."""

from __future__ import annotations

import json
from typing import Any

from holdfast import Holdfast
from holdfast.store import Store, commands
from holdfast.web.paths import encode_name
from tests.support.varied_store import claim, put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of

ABOUT = {"pid": 7, "app": "tasks", "memory": 3_000_000, "cpu_seconds": 1.5, "tasks": ["secret.task"]}
ONE, DEAD = encode_name("node/one"), encode_name("other/dead")


def send_heartbeat(jobs: Holdfast, worker: str, *queues: str, age: int = 0, **more: Any) -> None:
    """Send a heartbeat of a worker, `age` seconds ago."""
    seconds, _ = jobs.store.execute("TIME")
    store = Store(jobs.address, clock=lambda: (int(seconds) - age) * 1000)
    store.run(commands.renew(worker, [], about=json.dumps({**ABOUT, "queues": queues, **more}), queues=queues))
    store.close()


def test_workers_are_listed_by_name_with_the_jobs_that_they_hold(web: Web) -> None:
    send_heartbeat(web.jobs, "node/one", "mail", "video")
    send_heartbeat(web.jobs, "node/two", "mail")
    put(web.jobs.store, "sent", "mail")
    claim(web.jobs.store, "mail")
    first = web.call("GET", "/workers?limit=1")
    [worker] = first["items"]
    assert (worker["worker"], worker["live"], worker["pid"], worker["memory_bytes"]) == ("node/one", True, 7, 3_000_000)
    assert [(job["id"], job["queue"]) for job in worker["jobs"]] == [("sent", "mail")]
    rest = web.call("GET", f"/workers?cursor={first['next']}")
    assert [each["worker"] for each in rest["items"]] == ["node/two"]
    assert [each["worker"] for each in web.call("GET", "/workers?idle=true")["items"]] == ["node/two"]
    assert [each["worker"] for each in web.call("GET", "/workers?queue=video")["items"]] == ["node/one"]
    assert web.call("GET", f"/workers/{ONE}")["worker"] == "node/one"
    [node] = web.call("GET", "/nodes")["items"]
    assert (node["node"], sorted(node["workers"]), node["jobs"]) == ("node", ["node/one", "node/two"], 1)


def test_workers_are_counted_with_their_slots_and_releases(serving: Serving) -> None:
    web = serving(auth=user_of)
    for worker, age, more in (
        ("a/one", 0, {"revision": 7, "pools": [{"processes": 4, "concurrency": 100}]}),
        (
            "a/two",
            0,
            {"revision": 8, "draining": True, "in_process": ["task"], "pools": [{"processes": 1, "concurrency": 9}]},
        ),
        ("b/odd", 0, {"revision": "x", "pools": "many"}),
        ("b/silent", 3600, {"revision": 8}),
    ):
        send_heartbeat(web.jobs, worker, "mail", age=age, **more)
    for number in range(3):
        put(web.jobs.store, f"job-{number}", "mail")
    claim(web.jobs.store, "mail", 2, executor="a/two.0")
    claim(web.jobs.store, "mail", 1, executor="a/one.0")
    found = web.call("GET", "/workers:summary", **as_user("viewer"))
    assert [found[name] for name in ("workers", "nodes", "live", "draining", "jobs", "stalled")] == [4, 2, 3, 1, 3, 0]
    assert found["slots"] == 4 + 1 + 9  # two jobs in one process: one of them is a coroutine
    assert [(each["revision"], each["live"]) for each in found["releases"]] == [(7, 1), (8, 1)]
    assert web.call("GET", "/workers:summary?node=a", **as_user("viewer"))["workers"] == 2
    of_video = web.call("GET", "/workers:summary?queue=video", **as_user("viewer"))
    assert (of_video["workers"], of_video["slots"], of_video["releases"]) == (0, None, [])
    assert web.call("GET", "/workers:summary", **as_user("viewer video"))["workers"] == 0
    silent = web.call("GET", "/workers?silent=true", **as_user("viewer"))["items"]
    assert [each["worker"] for each in silent] == ["b/silent"]


def test_stalled_jobs_are_counted_by_worker(web: Web) -> None:
    seconds, _ = web.jobs.store.execute("TIME")
    past = Store(web.jobs.address, clock=lambda: (int(seconds) - 90) * 1000)
    put(past, "lost", "video")
    claim(past, "video", executor="node/two.0")
    for worker, queue in (("node/one", "mail"), ("node/two", "video")):
        past.run(commands.renew(worker, [], queues=[queue]))
    past.close()
    assert web.call("GET", "/workers:summary")["stalled"] == 1
    assert web.call("GET", "/workers:summary?queue=mail")["stalled"] == 0


def test_a_worker_is_told_to_drain(web: Web) -> None:
    for name in ("node/one", "node/two"):
        send_heartbeat(web.jobs, name, "mail")
    assert web.call("POST", f"/workers/{ONE}:drain") == {"worker": "node/one", "state": "draining", "jobs": 0}
    inbox = web.jobs.store.run(commands.renew("node/one", [], queues=["mail"])).inbox_key
    assert web.jobs.store.execute("LPOP", inbox).split()[::2] == [b"drain", b"local"]
    found = web.call("POST", "/nodes/node:drain")["items"]
    assert sorted(each["worker"] for each in found) == ["node/one", "node/two"]
    assert "did you mean node?" in refusal(web.post("/api/v1/nodes/nod:drain")).detail
    assert refusal(web.post(f"/api/v1/workers/{DEAD}:drain")).status == 404


def test_a_dead_worker_is_deregistered_and_a_live_one_is_not(web: Web) -> None:
    send_heartbeat(web.jobs, "node/one", "mail")
    send_heartbeat(web.jobs, "other/dead", "mail", age=3600)
    assert not web.call("GET", f"/workers/{DEAD}")["live"]
    assert web.call("DELETE", f"/workers/{DEAD}") is None
    assert refusal(web.client.delete(f"/api/v1/workers/{ONE}"))[:2] == (409, "STATE")
    assert [worker.name for worker in web.jobs.workers()] == ["node/one"]


def test_stalled_jobs_are_counted(web: Web) -> None:
    seconds, _ = web.jobs.store.execute("TIME")
    past = Store(web.jobs.address, clock=lambda: (int(seconds) - 90) * 1000)
    put(past, "lost", "video")
    claim(past, "video", executor="node/two.0")
    past.close()
    assert web.call("GET", "/stalled") == {"total": 1, "queues": {"video": 1}, "workers": {"node/two": 1}}


def test_a_user_sees_the_parts_of_workers_that_concern_his_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    send_heartbeat(web.jobs, "node/one", "mail", "video")
    send_heartbeat(web.jobs, "node/two", "video")
    for queue in ("mail", "video"):
        put(web.jobs.store, f"of-{queue}", queue)
        claim(web.jobs.store, queue)
    viewer = as_user("viewer mail")
    [worker] = web.call("GET", "/workers", **viewer)["items"]
    assert (worker["worker"], worker["queues"], worker["queue_patterns"]) == ("node/one", ["mail"], ["mail"])
    assert [job["id"] for job in worker["jobs"]] == ["of-mail"]
    assert "secret" not in json.dumps(worker)
    [node] = web.call("GET", "/nodes", **viewer)["items"]
    assert (node["workers"], node["jobs"]) == (["node/one"], 1)
    two = encode_name("node/two")
    assert refusal(web.get(f"/api/v1/workers/{two}", **viewer)).status == 404
    assert refusal(web.post(f"/api/v1/workers/{ONE}:drain", **as_user("operator mail"))).status == 403
    assert refusal(web.post("/api/v1/nodes/node:drain", **as_user("operator mail,video"))).status == 403
    assert web.post(f"/api/v1/workers/{ONE}:drain", **as_user("operator mail,video")).status_code == 200
    assert refusal(web.get("/api/v1/stalled", **viewer)).status == 403
