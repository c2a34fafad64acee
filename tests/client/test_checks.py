"""Checks of the store by the client, sync and async."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from holdfast import Holdfast
from tests.support.outages import eventually
from tests.support.sync_and_async import FACES, Ask


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, app: Holdfast) -> Ask:
    return FACES[request.param](app)


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as made:
        yield made


def _report(path: str) -> str:
    return path


def _enqueue(app: Holdfast, count: int) -> None:
    task = app.task(name="report")(_report)
    app.enqueue_many(task.bind(str(number)).options(id=f"job{number}") for number in range(count))


def test_a_check_reports_and_repairs(app: Holdfast, ask: Ask, client: redis.Redis) -> None:
    _enqueue(app, 300)
    seen: list[int] = []
    assert ask("check", progress=seen.append).is_healthy
    index = f"hf:{{{app.address.namespace}}}:q:default:waiting"
    client.delete(index)

    report = ask("check")
    assert not report.is_healthy
    (finding,) = report.findings
    assert (finding.code, finding.count, finding.repaired, finding.left) == ("not_indexed", 300, 0, 300)
    assert len(finding.examples) == 5
    assert client.exists(index) == 0
    assert sum(seen) >= 300

    repaired = ask("check", repair=True)
    assert repaired.is_healthy
    assert [(each.code, each.count, each.repaired) for each in repaired.findings] == [("not_indexed", 300, 300)]
    assert client.zcard(index) == 300
    assert ask("check").findings == []


def test_what_cannot_be_repaired_is_left(app: Holdfast, ask: Ask, client: redis.Redis) -> None:
    _enqueue(app, 2)
    client.hset(f"hf:{{{app.address.namespace}}}:j:job1", "h", "damaged")

    report = ask("check", repair=True)

    assert not report.is_healthy
    (finding,) = report.findings
    assert (finding.code, finding.repair, finding.left, finding.examples) == ("record_damaged", "", 1, ["job1"])
    assert client.hget(f"hf:{{{app.address.namespace}}}:j:job1", "h") == b"damaged"


def test_a_repair_that_leads_to_another_finding_is_followed_by_a_second_pass(
    app: Holdfast, ask: Ask, client: redis.Redis
) -> None:
    _enqueue(app, 20)
    base = f"hf:{{{app.address.namespace}}}:"
    client.delete(base + "queues", base + "meta")
    client.set(base + "queues", "text")
    client.set(base + "meta", "text")

    assert ask("check", repair=True).is_healthy
    assert ask("check").is_healthy
    assert client.get(base + "damaged:queues") == b"text"


def test_memory_is_estimated_by_kind(app: Holdfast, ask: Ask) -> None:
    _enqueue(app, 200)

    uses = {use.name: use for use in ask("memory")}

    assert uses["jobs"].keys == 200
    assert 10 <= uses["jobs"].measured < 100
    assert 200 * 50 < uses["jobs"].estimate < 200 * 1000
    assert [*uses] == sorted(uses, key=lambda name: -uses[name].estimate)


def test_the_history_of_a_store_without_damage_is_empty(app: Holdfast, ask: Ask) -> None:
    app.configure({"check_rate": 1000})
    eventually(lambda: (app.upkeep(), app.check_history().passes)[1])  # it passes over the keys of other tests, too

    history = ask("check_history")

    assert history.findings == []
    assert history.finished_at is not None
    assert history.unrepaired == []
