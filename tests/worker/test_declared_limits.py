"""Limits that the code declares, with real workers: enforced without any `set`, and overridden until a reset."""

from __future__ import annotations

import logging

import pytest

from holdfast import Holdfast, Limit
from holdfast.client.timing import Every
from tests.apps import schedule_app
from tests.apps.declared_limits_app import gpu, render, tenant
from tests.support.workers import Crew, until

APP = "tests.apps.declared_limits_app"


def slots(crew: Crew, name: str = "gpu") -> int:
    return {limit.name: limit.slots for limit in crew.app.limits()}.get(name, 0)


def test_a_declared_limit_is_enforced_without_any_set(crew: Crew) -> None:
    crew.put_all([render.bind(name) for name in "abc"])  # before any worker has started
    crew.put_all([render.options(limits=tenant.key("acme")).bind(name) for name in "xy"])
    crew.start("--processes", "8", app=APP)

    until(lambda: crew.app.count(state="throttled") == 3)

    assert crew.app.count(state="running") == 2
    assert {limit.name: (limit.declared, limit.held, limit.parked) for limit in crew.app.limits()} == {
        "gpu": (Limit("gpu", 1), 1, 2),
        "tenant": (Limit("tenant", 1), 1, 1),
    }
    [holder] = crew.app.limit_holders("gpu")
    assert (holder.state, holder.executor.startswith("node/")) == ("running", True)
    crew.app.release_slot("gpu", holder.id)
    until(lambda: len([*crew.app.limit_parked("gpu")]) == 1)
    assert crew.get(holder).state == "running"
    for name in "abcxy":
        crew.open(name)
    until(lambda: crew.app.count(state="succeeded") == 5)
    assert crew.held() == []


def test_an_override_outlives_restarts_and_deploys_until_it_is_reset(crew: Crew) -> None:
    first = crew.start(app=APP, SLOTS="3")
    until(lambda: slots(crew) == 3)
    crew.app.set_limit("gpu", 2)
    assert first.stop() == 0

    same = crew.start(app=APP, SLOTS="3")
    until(lambda: "has joined" in same.log or "is ready" in same.log or len(crew.app.workers()) > 0)
    newer = crew.start(app=APP, SLOTS="5", HOLDFAST_REVISION="2")
    until(lambda: "limit gpu is overridden, so its new declaration does not apply" in newer.log)
    older = crew.start(app=APP, SLOTS="4", HOLDFAST_REVISION="1")
    until(lambda: "declared by a newer release, revision 2; the newer declaration stays in effect" in older.log)

    assert slots(crew) == 2
    assert crew.app.reset_limit("gpu")
    assert slots(crew) == 5


def test_an_override_of_a_schedule_outlives_restarts_and_deploys_until_it_is_reset(crew: Crew) -> None:
    name, app = schedule_app.report.name, "tests.apps.schedule_app"
    first = crew.start(app=app, PERIOD="1h")
    until(lambda: name in [each.name for each in crew.app.schedules()])
    crew.app.schedule(name, schedule_app.report.bind(), every="2h")
    assert first.stop() == 0

    newer = crew.start(app=app, PERIOD="3h", HOLDFAST_REVISION="2")
    until(lambda: f"schedule {name} is overridden, so its new declaration does not apply" in newer.log)

    assert crew.app.get_schedule(name).when == Every(7_200_000)
    assert crew.app.reset_schedule(name)
    assert crew.app.get_schedule(name).when == Every(10_800_000)


def test_a_worker_inside_a_program_declares_limits_before_its_first_claim(
    server_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Holdfast(server_url, namespace=namespace, limits=[Limit("api", 1)])

    @jobs.task(name="double", limits="api:acme", runner="thread")
    def double(number: int) -> int:
        return 2 * number

    waiting = [double.enqueue(number) for number in range(3)]
    with caplog.at_level(logging.WARNING, "holdfast.worker"), jobs.worker(lease="1s"):
        assert [job.result(timeout="30s") for job in waiting] == [0, 2, 4]
    assert [(limit.name, limit.slots, limit.held) for limit in jobs.limits()] == [("api", 1, 0)]
    assert "not defined" not in caplog.text
    jobs.close()
    assert gpu == Limit("gpu", 1)
