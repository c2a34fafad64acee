"""Statistics over REST: of a queue, of each queue and task, and as series."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish
from tests.support.varied_store import ONE, claim, put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def run(jobs: Holdfast, id: str, queue: str) -> None:
    put(jobs.store, id, queue)
    claim(jobs.store, queue)
    jobs.store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b"1"))]))


def fill(jobs: Holdfast) -> None:
    for queue in ("audio", "mail", "video"):
        run(jobs, f"in-{queue}", queue)
    run(jobs, "more", "mail")


def test_statistics_are_those_of_all_queues_or_of_one(web: Web) -> None:
    fill(web.jobs)
    assert web.call("GET", "/stats")["ended"] == 4
    found = web.call("GET", "/stats?queue=mail&task=task&since=7d")
    assert (found["ended"], found["run"]["count"], found["failed"]) == (2, 2, None)
    assert web.call("GET", "/stats?queue=mail&day=2024-07-01")["ended"] == 0
    assert web.call("GET", "/stats?queue=mail&since=2024-07-01&until=2024-07-02")["ended"] == 0


def test_each_queue_and_each_task_has_a_row(web: Web) -> None:
    fill(web.jobs)
    first = web.call("GET", "/stats/queues?limit=2")
    assert [(each["queue"], each["ended"]) for each in first["items"]] == [("audio", 1), ("mail", 2)]
    rest = web.call("GET", f"/stats/queues?limit=2&cursor={first['next']}")
    assert [each["queue"] for each in rest["items"]] == ["video"]
    [row] = web.call("GET", "/queues/mail/stats/tasks?since=1d")["items"]
    assert (row["task"], row["runs"]) == ("task", 2)
    assert web.call("GET", "/queues/mail/stats/tasks?task=other")["items"][0]["runs"] == 0


def test_a_series_has_a_point_for_each_minute_or_hour(web: Web) -> None:
    fill(web.jobs)
    minutes = web.call("GET", "/stats/series?queue=mail")["items"]
    assert (len(minutes) >= 180, sum(each["ended"] for each in minutes)) == (True, 2)
    hours = web.call("GET", "/stats/series?resolution=hour&since=2h")["items"]
    assert (len(hours) in (2, 3), sum(each["ended"] for each in hours)) == (True, 4)


def test_series_of_many_queues_are_read_together(web: Web) -> None:
    names = [f"queue-{number:02}" for number in range(23)]
    for name in names:
        run(web.jobs, f"in-{name}", name)
    web.jobs.configure({"stats_age": "1d"}, queue=names[0])  # which has fewer hours than the others
    for query in ("", "&resolution=hour", "&resolution=hour&since=30d"):
        path = f"/stats/series/queues?queue={'&queue='.join([*names, 'unknown'])}{query}"
        rows = web.call("GET", path)["items"]
        assert [each["queue"] for each in rows] == [*names, "unknown"]
        assert [sum(point["ended"] for point in each["points"]) for each in rows] == [1] * 23 + [0]
        assert len({tuple(point["time"] for point in each["points"]) for each in rows}) == 1
        total = web.call("GET", f"/stats/series?{query.removeprefix('&')}")["items"]
        assert sum(each["ended"] for each in total) == 23
    assert web.call("GET", "/stats")["ended"] == 23
    assert [each["ended"] for each in web.call("GET", "/stats/queues")["items"]] == [1] * 23
    assert refusal(web.get("/api/v1/stats/series/queues")).status == 422


def test_trends_are_numbers_of_several_queues(web: Web) -> None:
    fill(web.jobs)
    path = "/stats/trends?queue=mail&queue=video&queue=unknown"
    for query, seconds in (("", 180), ("&step=10", 600), ("&resolution=hour&since=2d&step=12", 43_200)):
        rows = web.call("GET", path + query)["items"]
        assert [(each["queue"], sum(each["ended"])) for each in rows] == [("mail", 2), ("video", 1), ("unknown", 0)]
        assert [(each["step_seconds"], len(each["ended"])) for each in rows] == [(seconds, len(rows[0]["ended"]))] * 3
        begin = datetime.fromisoformat(rows[0]["since"])
        assert begin.timestamp() % seconds == 0
        assert begin + timedelta(seconds=seconds * len(rows[0]["ended"])) > datetime.now(UTC)
        points = web.call("GET", f"/stats/series?queue=mail{query.partition('&step')[0]}")["items"]
        first = datetime.fromisoformat(points[0]["time"])
        assert begin <= first < begin + timedelta(seconds=seconds)
    assert refusal(web.get("/api/v1/stats/trends")).status == 422
    assert refusal(web.get(f"/api/v1{path}&step=0")).status == 422


def test_wrong_periods_are_refused(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    for query in (
        "since=soon", "day=today", "since=7d&day=2024-07-01", "until=2024-13-01", "task=a b", "queue=male",
        "since=2024-07-02&until=2024-07-01", "since=-1d", "resolution=day", "since=2024-07-01T00:00",
    ):  # fmt: skip
        status = 404 if "male" in query else 422
        assert refusal(web.get(f"/api/v1/stats?{query}")).status == status, query
    assert refusal(web.get("/api/v1/stats/series?resolution=day")).status == 422
    assert refusal(web.get("/api/v1/queues/male/stats/tasks")).status == 404


def test_statistics_of_other_queues_are_not_shown(serving: Serving) -> None:
    web = serving(auth=user_of)
    fill(web.jobs)
    viewer = as_user("viewer mail")
    assert web.call("GET", "/stats?queue=mail", **viewer)["ended"] == 2
    assert [each["queue"] for each in web.call("GET", "/stats/queues", **viewer)["items"]] == ["mail"]
    for path in (
        "/stats",
        "/stats?queue=video",
        "/stats/series",
        "/stats/series?queue=video",
        "/stats/series/queues?queue=video",
        "/stats/trends?queue=mail&queue=video",
    ):
        assert refusal(web.get(f"/api/v1{path}", **viewer)).status == 403
    assert refusal(web.get("/api/v1/queues/video/stats/tasks", **viewer)).status == 403
    assert [sum(each["ended"]) for each in web.call("GET", "/stats/trends?queue=mail", **viewer)["items"]] == [2]


@pytest.mark.parametrize(
    "query",
    [
        "stats?day=9999-12-31", "stats?day=0001-01-01", "stats?since=0001-01-01&until=9999-12-31",
        "stats/series?resolution=hour&since=0001-01-01&until=9999-12-31", "stats/queues?until=9999-12-31",
    ],
)  # fmt: skip
def test_no_day_is_too_early_or_too_late(web: Web, query: str) -> None:
    assert web.get(f"/api/v1/{query}").status_code in (200, 422)
