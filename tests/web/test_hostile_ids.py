"""Two hundred nasty ids walked through every route of jobs: each does its work on that job, and on no other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.constants import MAX_ID
from holdfast.names import check_id
from holdfast.web.paths import decode_name, encode_name
from holdfast.web.resource import API, ResourceRoute
from holdfast.web.routes import RESOURCES, ROUTES
from tests.web.serving import Web
from tests.web.test_jobs import put

# Ids that the store knows: some look like other paths, actions, encoded names or relative paths.
CHOSEN = [
    ".", "..", "...", "/", "//", "a/b", "/a", "a/", "../a", "a/..", "./a", "a//b", "a/result", "a:cancel", "a:", ":a",
    ":", "a/log", "a/tags/x", "a/after/b", "a@b", "@", "a~7", "a:b~65535", "-", "--", "_", "-a", "a.json",
    "jobs:count", "jobs", "a/attempts/1/log", "latest", "on", "0", "00", "null", "undefined", "NaN", "__proto__",
    "constructor", "CON", "a" * MAX_ID, "/" * MAX_ID, ":" * MAX_ID, "." * MAX_ID, "a/b:c@d.e-f_g", "http://x/y",
    "//evil.example/x", "api/v1/jobs", "a:cancel-tree", "..:..", "@/@",
]  # fmt: skip
# What is no id of a job, encoded and as it is.
WRONG = [
    "%2F",
    "a b",
    "\x00",
    "\n",
    "a\r\nX: y",
    "é",
    "😀",
    "<script>",
    "a?b",
    "a#b",
    "a%",
    "=",
    "a,b",
    "~",
    "a~123456",
    "a" * 129,
]

LETTERS = "aZ0._:@/-"


def nasty_ids(count: int) -> list[str]:
    """Return different ids that the store accepts: chosen ones, and random ones of all characters that ids have."""
    draw = random.Random(7)
    found = dict.fromkeys(CHOSEN)
    while len(found) < count:
        text = "".join(draw.choice(LETTERS) for _ in range(draw.randint(1, 12)))
        found[text + draw.choice(["", "", f"~{draw.randint(0, 99999)}"])] = None
    return [check_id(each) for each in found]


def routes_of_jobs() -> list[ResourceRoute]:
    return [route for route in RESOURCES if route.path.startswith(f"{API}/jobs/{{id}}")]


# What each action is told; others need nothing.
BODIES: dict[str, dict[str, Any]] = {
    "put_job": {"task": "resize", "arguments": {"path": "a.png"}},
    "fork_job": {"from_start": True},
    "move_job": {"priority": 3},
    "change_dependencies": {"add": ["other"]},
    "add_note": {"text": "seen"},
    "change_fields": {"ticket": "7"},
    "set_field": {"name": "a", "text": "b"},
    "tag_job": {"tags": ["x"]},
    "untag_job": {"tags": ["x"]},
    "show_stack": {"timeout": 1},
}
# The answers of each route for a waiting job, if they are not those of success.
REFUSED = {"release_job": 409, "retry_job": 409, "show_stack": 409, "delete_job": 409, "show_checkpoint": 404}


def call(web: Web, route: ResourceRoute, id: str) -> Any:
    names = {"id": id, "other": "other", "tag": "x", "attempt": "latest"}
    body = BODIES.get(route.name)
    return web.client.request(
        route.method, route.url(**{name: names[name] for name in route.parameters}), json=body if body else None
    )


def test_every_route_is_found_by_nasty_names() -> None:
    for id in nasty_ids(200):
        for route in RESOURCES:
            found = ROUTES.find(route.method, route.url(**dict.fromkeys(route.parameters, id)))
            assert found.route is route
            assert {decode_name(each) for each in found.segments.values()} <= {id}


def test_every_route_finds_its_job_by_a_nasty_id(web: Web) -> None:
    put(web.jobs, "other", "a")
    ids = nasty_ids(200)
    harmless = [route for route in routes_of_jobs() if route.name not in ("cancel_job", "cancel_tree", "fail_job")]
    for place, id in enumerate(ids):
        put(web.jobs, id)
        for route in harmless[place % 3 :: 3] if place < len(CHOSEN) else [harmless[place % len(harmless)]]:
            found = call(web, route, id)
            expected = [REFUSED[route.name]] if route.name in REFUSED else [*route.statuses, 202]
            assert found.status_code in expected, (id, route, found.text)
            if found.headers.get("content-type") == "application/json" and "id" in found.json():
                assert found.json()["id"] == id or route.name == "fork_job", (id, route)
        assert web.call("GET", f"/jobs/{encode_name(id)}")["id"] == id
    for id in ids:
        assert web.call("POST", f"/jobs/{encode_name(id)}:cancel")["id"] == id
        assert web.jobs.get(id).state == "cancelled"
    assert web.jobs.get("a").state in ("cancelled", "waiting")


def test_what_is_no_id_finds_nothing(web: Web) -> None:
    put(web.jobs, "a", "b")
    before = web.jobs.events()[-1].id
    for route in routes_of_jobs():
        for id in WRONG:
            found = call(web, route, id)
            assert found.status_code in (404, 422), (id, route, found.text)
            assert found.headers["content-type"] == "application/problem+json"
    assert web.jobs.events()[-1].id == before
    assert web.jobs.count() == 2


@pytest.mark.parametrize("segment", ["a%2Fb", "a%3Acancel", "=", "=%00", "=/w", "%2e%2e", "é", "=gICA"])
def test_a_name_that_is_written_otherwise_is_refused(web: Web, jobs: Holdfast, segment: str) -> None:
    put(jobs, "a")
    assert web.get(f"/api/v1/jobs/{segment}").status_code in (404, 405)
