"""Users with rights on some queues learn nothing about jobs of others, and change nothing there, whatever they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.items.token import read_token
from tests.support.varied_store import claim, put
from tests.web.conftest import Serving
from tests.web.every_route import SAFE, ask, every_route
from tests.web.serving import Refusal, Web, as_user, refusal, user_of
from tests.web.test_failures import PRINT, fail
from tests.web.test_workers import send_heartbeat

MAIL, ALL = as_user("operator mail"), as_user("admin")


def _work(word: str = "x") -> None: ...


@pytest.fixture
def web(serving: Serving, jobs: Holdfast) -> Web:
    """A server with a job in `mail`, and others in `foreign`."""
    work = jobs.task(name="shared.task")(_work)
    batch = jobs.batch("foreign-batch")
    batch.open()
    jobs.enqueue(work.bind("foreign").options(queue="foreign", id="taken", unique="key", tags=["foreign"]))
    jobs.enqueue(work.bind("foreign").options(queue="foreign", id="member", batch=batch))
    jobs.enqueue(work.bind().options(queue="mail", id="mine"))
    return serving(auth=user_of)


def job(**options: Any) -> Mapping[str, Any]:
    return {"task": "shared.task", "queue": "mail", **options}


TAKEN = "the id or the unique key of a job is taken"
WAYS_TO_NAME_A_JOB = [
    ("POST", "/jobs", job(id="taken")),
    ("POST", "/jobs", job(id="taken", task="other")),
    ("POST", "/jobs", job(id="taken", on_exists="error")),
    ("POST", "/jobs", job(unique="key")),
    ("POST", "/jobs", job(unique="key", task="other")),
    ("POST", "/jobs", job(unique="key", on_exists="error")),
    ("PUT", "/jobs/taken", job()),
    ("PUT", "/jobs/taken", job(task="other")),
    ("POST", "/jobs:batch", [job(id="taken")]),
    ("POST", "/jobs:batch", [job(unique="key")]),
    ("POST", "/queues/mail/items", {"text": "x", "id": "taken"}),
    ("POST", "/queues/mail/items", {"text": "x", "unique": "key"}),
    ("POST", "/queues/mail/items:batch", {"items": [{"text": "x", "id": "taken"}]}),
    ("POST", "/jobs/mine:fork", {"id": "taken", "from_start": True}),
]


@pytest.mark.parametrize(("method", "path", "body"), WAYS_TO_NAME_A_JOB)
def test_of_a_job_that_exists_in_another_queue_one_learns_only_that_its_id_is_taken(
    web: Web, method: str, path: str, body: Any
) -> None:
    before = web.jobs.get("taken")
    found = web.client.request(method, f"/api/v1{path}", json=body, **MAIL)
    assert refusal(found) == Refusal(409, "EXISTS", TAKEN)
    assert "location" not in found.headers
    assert web.jobs.get("taken").updated_at == before.updated_at


def test_a_job_that_exists_in_ones_own_queue_is_returned(web: Web) -> None:
    for path, body in (("/jobs", job(id="mine")), ("/jobs:batch", [job(id="mine")])):
        found = web.call("POST", path, json=body, **MAIL)
        assert (found["items"][0] if "items" in found else found) == {"id": "mine", "created": False}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs", job(after=["taken"])),
        ("PUT", "/jobs/new", job(after=["taken"])),
        ("POST", "/jobs:batch", [job(id="new", after=["taken"])]),
        ("POST", "/jobs:batch", [job(id="taken"), job(id="new", after=["taken"])]),
        ("POST", "/jobs/mine:depend", {"add": ["taken"]}),
        ("PUT", "/jobs/mine/after/taken", {}),
        ("POST", "/jobs/mine:fork", {"after": ["taken"], "from_start": True}),
    ],
)
def test_no_job_waits_for_one_of_another_queue(web: Web, method: str, path: str, body: Any) -> None:
    found = refusal(web.client.request(method, f"/api/v1{path}", json=body, **MAIL))
    assert found == Refusal(404, "NOTFOUND", "job taken does not exist")
    assert web.jobs.count(waits_for="taken") == 0


def test_jobs_of_one_request_may_wait_for_each_other(web: Web) -> None:
    body = [job(id="a"), job(id="b", after=["a", "mine"])]
    assert len(web.call("POST", "/jobs:batch", json=body, **MAIL)["items"]) == 2
    assert web.jobs.get("b").state == "blocked"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs", job(batch="foreign-batch")),
        ("POST", "/jobs", job(batch="no-batch")),
        ("PUT", "/jobs/new", job(batch="foreign-batch")),
        ("POST", "/jobs:batch", [job(batch="foreign-batch")]),
        ("POST", "/jobs/mine:fork", {"batch": "foreign-batch", "from_start": True}),
    ],
)
def test_a_batch_of_others_gets_no_job(web: Web, method: str, path: str, body: Any) -> None:
    found = refusal(web.client.request(method, f"/api/v1{path}", json=body, **MAIL))
    assert (found.status, found.code) == (403, "FORBIDDEN")
    assert web.jobs.batch("foreign-batch").status().total == 1


def test_the_schedule_of_another_queue_is_not_described(web: Web) -> None:
    web.call("PUT", "/schedules/nightly", json={"task": "t", "queue": "foreign", "every": "1h"}, **ALL)
    admin, body = as_user("admin mail"), {"task": "t", "queue": "mail", "every": "1h"}
    found = refusal(web.client.put("/api/v1/schedules/nightly", json=body, **admin))
    assert found == Refusal(403, "FORBIDDEN", "tester has no rights on the queue of the schedule nightly")
    added = refusal(web.post("/api/v1/schedules", json={**body, "schedule": "nightly"}, **admin))
    assert added == Refusal(409, "EXISTS", "there is a schedule of the name nightly")
    assert web.call("GET", "/schedules/nightly", **ALL)["queue"] == "foreign"


def test_a_token_does_not_say_in_which_queue_its_item_is(web: Web) -> None:
    web.call("POST", "/queues/foreign-items/items", json={"text": "x", "id": "item"}, **ALL)
    real = web.call("POST", "/queues/foreign-items/items:claim", json={}, **ALL)["token"]
    forged = str(msgspec.structs.replace(read_token(real), queue="mail"))
    for end, more in (("renew", {}), ("complete", {}), ("fail", {"reason": "x"}), ("release", {})):
        found = refusal(web.post(f"/api/v1/items:{end}", json={"token": forged, **more}, **MAIL))
        assert found == Refusal(404, "NOTFOUND", "job item does not exist")
    assert web.call("POST", "/items:complete", json={"token": real}, **ALL)["ended"] == "completed"


def test_why_a_job_does_not_run_names_no_other_queue_nor_its_jobs(web: Web) -> None:
    web.jobs.set_limit("shared", 2)
    for id, queue in (("foreign-holder", "foreign-3"), ("holder", "mail-2"), ("throttled", "mail-2")):
        put(web.jobs.store, id, queue, limits=["shared"])
    for queue in ("foreign-3", "mail-2"):
        claim(web.jobs.store, queue, 5)
    assert web.jobs.get("throttled").state in ("throttled", "waiting")
    seen = {}
    for id, workers in (("mine", ["foreign"]), ("mine", ["mail", "foreign"]), ("throttled", [])):
        if workers:
            send_heartbeat(web.jobs, "node/one", *workers)
        for path in (f"jobs/{id}", f"jobs/{id}/explain", f"jobs:show?id={id}"):
            found = web.call("GET", f"/{path}", **as_user("viewer mail,mail-2"))
            assert "foreign" not in str(found), path
            if path.endswith("explain"):
                seen[found["code"]] = found["text"]
                assert found["text"] != web.call("GET", f"/{path}", **ALL)["text"]
        assert "foreign" not in web.get(f"/jobs/{id}", headers={"x-user": "viewer mail,mail-2"}).text
    assert seen["unserved"] == "no live worker serves queue mail"
    assert "; these were asked: node/one" in seen["unknown-task"]
    assert "held by holder, jobs of other queues" in seen["limit"]


def put_everything(jobs: Holdfast) -> None:
    """Store something of every kind in `foreign`, with that in its name; and of some kinds in `mail`."""
    work = jobs.tasks["shared.task"]
    jobs.enqueue(
        work.bind("foreign").options(queue="foreign", id="foreign/1", limits=["foreign-limit"], scope="/foreign")
    )
    jobs.track("foreign/1")
    jobs.set_limit("foreign-limit", 1)
    jobs.schedule("foreign-nightly", work.bind("foreign").options(queue="foreign"), every="1h")
    jobs.pause("foreign")
    jobs.configure({"retries": 7}, queue="foreign")
    jobs.tag_all("foreign-tag", queue="foreign", wait=False)
    send_heartbeat(jobs, "node/one", "mail", "foreign")
    send_heartbeat(jobs, "node/foreign", "foreign")
    fail(jobs, "foreign-failed", "foreign", group="foreign-group", message="foreign data")
    fail(jobs, "failed", "mail", message="my data")
    put(jobs.store, "foreign-running", "foreign-2")
    claim(jobs.store, "foreign-2")
    put(jobs.store, "running", "mail")
    claim(jobs.store, "mail")


@pytest.mark.parametrize("queues", ["mail", "*,!for*"])
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "text/html"])
def test_no_route_shows_anything_of_other_queues(web: Web, accept: str, queues: str) -> None:
    put_everything(web.jobs)
    for route in every_route():
        for id in ("mine", "failed", "running") if "id" in route.parameters else ("mine",):
            if route.method in SAFE:
                status, text = ask(
                    web, route, {"x-user": f"admin {queues}", "Accept": accept}, id=id, failure=PRINT, worker="node/one"
                )
                assert "foreign" not in text, (route, id, text)
                assert status < 500, (route, id)
    for path in (
        "/api/v1/events?cursor=start&limit=1000",
        "/events?limit=1000",
        "/find?q=fore",
        "/find?q=foreign-failed",
    ):
        text = web.get(path, headers={"x-user": f"admin {queues}", "Accept": accept}).text
        shown = text.replace("foreign-failed", "") if "find" in path else text  # which we have named ourselves
        assert "foreign" not in shown, (path, text)


def test_who_has_all_queues_sees_them(web: Web) -> None:
    put_everything(web.jobs)
    shown = set()
    for route in every_route():
        if route.method in SAFE:
            _, text = ask(web, route, {"x-user": "admin"}, id="failed", failure=PRINT, worker="node/one")
            shown |= {route.path} if "foreign" in text else set()
    assert len(shown) > 40, shown


@pytest.mark.parametrize(
    "chosen",
    [
        "tag=foreign", "batch=foreign-batch", "id_prefix=ta", "waits_for=taken", "state=waiting", "task=shared.task",
        "newest=false&tag=foreign", "since=1h&tag=foreign",
    ],
)  # fmt: skip
def test_no_filter_counts_jobs_of_other_queues(web: Web, chosen: str) -> None:
    mine = ["mine"] if chosen in ("state=waiting", "task=shared.task") else []
    found = web.call("GET", f"/jobs?{chosen}", **MAIL)
    assert [each["id"] for each in found["items"]] == mine
    assert found.get("matched", 0) <= len(mine)
    counted = chosen.removeprefix("newest=false&")
    assert web.call("GET", f"/jobs:count?{counted}", **MAIL) == {"count": len(mine)}
    filters: dict[str, Any] = dict(each.split("=") for each in counted.split("&"))
    body = {
        "action": "tag",
        "tags": ["x"],
        "filter": {**filters, **({"state": ["waiting"]} if "state" in filters else {})},
    }
    assert web.call("POST", "/operations", json={**body, "dry_run": True}, **MAIL)["matched"] == len(mine)


def test_nobody_lets_jobs_move_on_to_a_queue_without_rights(web: Web) -> None:
    assert refusal(web.post("/api/v1/jobs/mine:move", json={"queue": "foreign"}, **MAIL)).status == 403
    for action in ("move", "retry"):
        body = {"action": action, "to": "foreign", "filter": {"queue": ["mail"]}}
        assert refusal(web.post("/api/v1/operations", json=body, **MAIL)).status == 403
        stopped = getattr(web.jobs, f"{action}_all")(queue="mail", to="foreign", wait=False)
        stopped.stop()
        assert refusal(web.post(f"/api/v1/operations/{stopped.id}:resume", **MAIL)).status == 403
        assert web.post(f"/api/v1/operations/{stopped.id}:resume", **ALL).status_code == 202


def test_an_operation_of_somebody_else_on_other_queues_is_not_seen(web: Web) -> None:
    body = {"action": "tag", "tags": ["x"], "filter": {"queue": ["mail", "foreign"]}}
    operation = web.call("POST", "/operations", json=body, **ALL)["operation"]["id"]
    assert web.call("GET", "/operations", **MAIL) == {"items": []}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", ":resume")):
        found = web.client.request(method, f"/api/v1/operations/{operation}{path}", **MAIL)
        assert refusal(found) == Refusal(404, "NOTFOUND", f"operation {operation} does not exist")
