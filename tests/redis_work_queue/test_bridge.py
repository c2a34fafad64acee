"""Items of a redis-work-queue as jobs: `work_queue_bridge` and `work_queue_settle`, under the test's clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid
from holdfast.constants import MAX_PAYLOAD
from holdfast.job.outcome import Error, Succeed
from holdfast.redis_work_queue.shared_items import SharedItems
from holdfast.store import commands
from holdfast.store.commands import BridgeReply, Finish, SettleReply
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.redis_work_queue.document import WorkQueue
from tests.redis_work_queue.test_shared_items import is_of_ended

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")
EXECUTOR = "node/worker.1"


class Site:
    """A shared queue, a client of the document beside it, and a worker's calls."""

    def __init__(self, app: Holdfast, client: redis.Redis, prefix: str) -> None:
        self.app = app
        self.db: Any = client
        self.prefix = prefix
        self.items: SharedItems = app.items("thumbs", protocol="redis-work-queue", prefix=prefix)
        self.document = WorkQueue(client, prefix)
        self._counter = 0

    def bridge(self, slots: int = 10, **batch: Any) -> BridgeReply:
        made = {"queue": "thumbs", "task": "make", "codec": "raw", **batch}
        return self.app.store.run(
            commands.work_queue_bridge(
                self.items.prefix, "thumbs", made, slots=slots, executors=[EXECUTOR], lease=30_000
            )
        )

    def settle(self, *jobs: str) -> SettleReply:
        given: dict[str, Any] = {"jobs": jobs} if jobs else {"cursor": "0"}
        return self.app.store.run(commands.work_queue_settle(self.items.prefix, "thumbs", lease=30_000, **given))

    def claim(self, count: int = 10) -> list[str]:
        self._counter += 1
        request = commands.claim_args(["thumbs"], counter=self._counter, limit=count)
        return [job.id for job in self.app.store.run(commands.claim(EXECUTOR, request)).jobs]

    def finish(self, job: str, outcome: Any = None) -> None:
        self.app.store.run(commands.finish(EXECUTOR, [Finish(job, 1, outcome or Succeed(b"1"))]))

    def lists(self) -> dict[str, list[bytes]]:
        names = ("queue", "processing", "cleaning")
        return {name: found for name in names if (found := self.db.lrange(f"{self.prefix}:{name}", 0, -1))}

    def expire(self, id: str) -> None:
        self.db.delete(f"{self.prefix}:lease:{id}", f"{self.prefix}:leased_by_session:{id}")

    def keys(self) -> list[bytes]:
        keys = [key for key in self.db.scan_iter(count=1000) if key.startswith(self.prefix.encode() + b":")]
        return sorted(key for key in keys if not is_of_ended(self.db, key))


@pytest.fixture
def site(server_url: str, namespace: str, store: Store) -> Iterator[Site]:
    app = Holdfast(server_url, namespace=namespace)
    app.store = store
    with redis.Redis.from_url(server_url) as client:
        made = Site(app, client, f"p{namespace}")
        yield made
        invariants.check(client, namespace)
        if keys := made.keys():
            client.delete(*keys)


def test_items_become_jobs_with_the_same_bytes(site: Site) -> None:
    data = bytes(range(256))
    site.items.put_many([("a", data), (b"\xff", b"2")])
    assert site.bridge(retries=5) == (2, 0, 0, True, [])
    jobs = [site.app.get(id) for id in site.claim()]
    assert [(job.payload, job.codec, job.retries, job.task) for job in jobs] == [
        (data, "raw", 5, "make"),
        (b"2", "raw", 5, "make"),
    ]
    assert site.db.get(f"{site.prefix}:lease:a") == jobs[0].id.encode()
    assert site.lists() == {"processing": [b"\xff", b"a"]}


def test_a_repeated_call_claims_nothing_more(site: Site) -> None:
    site.items.put_many([("a", b""), ("b", b"")])
    batch = {"queue": "thumbs", "task": "make", "codec": "raw"}
    command = commands.work_queue_bridge(site.items.prefix, "thumbs", batch, slots=1, lease=30_000)
    assert site.app.store.run(command) == site.app.store.run(command)
    assert (site.items.length(), len(site.claim())) == (1, 1)


def test_no_more_items_are_claimed_than_jobs_can_start(site: Site) -> None:
    site.items.put_many([b""] * 20)
    assert site.bridge(slots=3)[:4] == (3, 0, 17, False)
    assert site.bridge(slots=3)[:4] == (0, 0, 17, False)
    first, second = site.claim(2)  # they run, and have slots of this worker
    assert site.bridge(slots=3)[:4] == (0, 0, 17, False)
    site.finish(first)
    assert site.bridge(slots=3)[:4] == (1, 0, 16, False)
    site.app.pause("thumbs")
    assert site.bridge(slots=9).stored == 0
    site.app.resume("thumbs")
    assert site.bridge(slots=9).stored == 6
    site.finish(second)


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
def test_the_end_of_a_job_is_the_end_of_its_item(site: Site, end: str) -> None:
    site.items.put(b"", id="a")
    site.bridge()
    if end == "cancelled":
        (job,) = site.app.list(queue="thumbs")
        site.app.cancel(job.id)
        id = job.id
    else:
        (id,) = site.claim()
        assert site.settle(id) == ("0", 0, 1, 0)
        site.finish(id, None if end == "succeeded" else Error(b"", "bad", final=True))
    assert site.app.get(id).state == end
    assert site.settle() == ("0", 1, 0, 0)
    assert site.settle() == ("0", 0, 0, 0)
    assert site.keys() == []
    assert not site.db.exists(f"hf:{{{site.app.address.namespace}}}:bridged:thumbs")


def test_the_lease_is_renewed_while_the_job_waits_runs_or_is_retried(site: Site, clock: TestClock) -> None:
    site.items.put(b"", id="a")
    site.bridge(backoff=1000)
    lease = f"{site.prefix}:lease:a"

    def is_renewed() -> bool:
        site.db.pexpire(lease, 1000)
        return site.settle().renewed == 1 and site.db.pttl(lease) > 20_000

    assert is_renewed()
    (id,) = site.claim()
    assert is_renewed()
    site.expire("a")
    assert is_renewed()
    site.finish(id, Error(b"", "bad"))
    assert is_renewed()
    clock.advance(5)
    assert site.claim() == [id]
    assert is_renewed()


def test_the_item_of_a_job_that_was_deleted_after_its_end_is_completed(site: Site) -> None:
    site.items.put_many([("a", b""), ("b", b"")])
    site.bridge(slots=1)
    (id,) = site.claim()
    site.finish(id)
    site.app.delete(id)
    assert site.settle() == ("0", 1, 0, 0)
    assert site.lists() == {"queue": [b"b"]}


def test_a_job_is_cancelled_if_another_program_has_completed_its_item(site: Site) -> None:
    site.items.put_many([("a", b""), ("b", b"")])
    site.bridge()
    (running,) = site.claim(1)
    (waiting,) = [job.id for job in site.app.list(queue="thumbs", state="waiting")]
    assert site.document.complete("a")
    assert site.document.complete("b")
    assert site.settle() == ("0", 0, 0, 1)
    assert site.app.get(running).state == "running"
    assert site.app.get(waiting).state == "cancelled"
    assert "another program" in site.app.get(waiting).notes[-1].text
    site.finish(running)
    assert site.settle() == ("0", 0, 0, 0)
    assert site.keys() == []


def test_an_item_that_comes_back_goes_to_its_job(site: Site) -> None:
    site.items.put(b"1", id="a")
    site.bridge()
    site.expire("a")
    site.document.light_clean()
    assert site.lists() == {"queue": [b"a"]}
    assert site.bridge()[:2] == (0, 1)  # its job waits
    (id,) = site.claim()
    site.expire("a")
    site.document.light_clean()
    assert site.bridge()[:2] == (0, 1)  # its job runs
    site.finish(id)
    assert site.settle().completed == 1
    assert site.keys() == []
    assert len(list(site.app.list(queue="thumbs"))) == 1


def test_an_item_that_a_slow_cleaner_put_back_is_completed_in_the_queue(site: Site) -> None:
    site.items.put(b"1", id="a")
    site.bridge()
    (id,) = site.claim()
    site.db.lmove(f"{site.prefix}:processing", f"{site.prefix}:queue")  # it had seen no lease
    site.finish(id)
    assert site.settle(id).completed == 1
    assert site.keys() == []


@pytest.mark.parametrize("is_settled", [True, False])
def test_an_item_that_may_have_been_put_again_after_its_job_ended_is_run(site: Site, is_settled: bool) -> None:
    site.items.put(b"1", id="a")
    site.bridge()
    (first,) = site.claim()
    site.finish(first)  # the worker dies
    site.expire("a")
    assert site.document.complete("a")
    site.document.add("a", b"1")
    if is_settled:
        assert site.settle() == ("0", 0, 0, 0)
    assert site.bridge()[:2] == (1, 0)
    (second,) = site.claim()
    site.finish(second)
    assert site.settle() == ("0", 1, 0, 0)
    assert site.keys() == []


def test_an_id_with_other_data_is_another_item(site: Site) -> None:
    site.items.put(b"1", id="a")
    site.bridge()
    (id,) = site.claim()
    site.document.complete("a")
    site.items.put(b"2", id="a")
    site.finish(id)
    assert site.bridge()[:2] == (0, 0)  # a lease on the former item is still there
    assert site.settle().completed == 0
    assert site.bridge()[:2] == (1, 0)
    (second,) = site.claim()
    assert site.app.get(second).payload == b"2"


def test_an_item_that_another_program_works_on_is_left_to_it(site: Site) -> None:
    site.items.put(b"1", id="a")
    site.bridge()
    (id,) = site.claim()
    site.expire("a")
    site.document.light_clean()
    assert site.document.lease(30, 1)
    assert site.settle() == ("0", 0, 0, 0)
    site.finish(id)
    assert site.settle() == ("0", 0, 0, 0)
    assert site.document.complete("a")
    site.settle()
    assert site.keys() == []


def test_an_item_in_no_list_is_decided_when_it_is_in_one_again(site: Site) -> None:
    site.items.put(b"1", id="a")
    site.bridge()
    (id,) = site.claim()
    site.finish(id)
    site.db.lrem(f"{site.prefix}:processing", 0, "a")  # a cleaner of another program is moving it
    assert site.settle().completed == 0
    site.db.lpush(f"{site.prefix}:queue", "a")
    assert site.settle().completed == 1
    assert site.keys() == []


def test_items_that_are_too_big_stay_for_others_and_block_nobody(site: Site) -> None:
    big = b"x" * (MAX_PAYLOAD + 1)
    site.items.put_many([("big", big), ("a", b""), ("big2", big), ("b", b"")])
    reply = site.bridge()
    assert (reply.stored, reply.left, sorted(reply.too_big)) == (2, 2, [(b"big", len(big)), (b"big2", len(big))])
    again = site.bridge()
    assert (again.stored, len(again.too_big)) == (0, 2)
    assert sorted(site.lists()["queue"]) == [b"big", b"big2"]
    assert site.document.lease(10, 1)


@pytest.mark.parametrize(
    "batch", [{"queue": "other"}, {"keep": False}, {"unique": "x"}, {"after": ["x"]}, {"priority": 1000}]
)
def test_a_batch_that_cannot_be_bridged_is_refused_and_nothing_changes(site: Site, batch: dict[str, Any]) -> None:
    site.items.put(b"", id="a")
    before = site.lists()
    with pytest.raises(Invalid):
        site.bridge(**batch)
    assert site.lists() == before
    assert list(site.app.list()) == []


def test_a_queue_that_is_forgotten_forgets_its_items(site: Site) -> None:
    site.items.put(b"", id="a")
    site.bridge()
    (job,) = site.app.list(queue="thumbs")
    site.app.cancel(job.id)
    site.app.delete(job.id)
    site.app.forget("thumbs")
    assert site.settle() == ("0", 0, 0, 0)
    site.expire("a")
    assert site.lists() == {"processing": [b"a"]}


def test_a_refusal_half_way_completes_no_item_that_has_not_run(site: Site) -> None:
    site.items.put_many([("a", b"1"), ("b", b"2")])
    site.db.hset(f"{site.prefix}:lease:b", "no", "lease")
    assert site.bridge().stored == 1
    with pytest.raises(Invalid, match="lease:b"):
        site.bridge()
    assert len(site.claim()) == 1
    site.settle()
    assert site.db.exists(f"{site.prefix}:item:a")
    site.db.delete(f"{site.prefix}:lease:b")
    assert site.bridge().stored == 1


def test_jobs_that_a_limit_holds_back_count_as_waiting(site: Site) -> None:
    site.app.set_limit("one", 1)
    site.items.put_many([b""] * 20)
    for _ in range(5):
        site.bridge(slots=3, limits=["one"])
        site.claim()
    assert site.items.in_progress() == 3  # one runs, and two wait for it


def test_jobs_of_another_prefix_are_settled_under_theirs(site: Site) -> None:
    site.items.put_many([("a", b"1"), ("b", b"2")])
    site.bridge()
    (ended,) = site.claim(1)
    site.finish(ended)
    moved = commands.work_queue_settle(site.items.prefix + b"2", "thumbs", lease=30_000, cursor="0")
    assert site.app.store.run(moved) == ("0", 1, 1, 0)  # after a deployment with another prefix
    assert site.lists() == {"processing": [b"b"]}
    (waiting,) = site.claim()
    site.finish(waiting)
    assert site.settle(waiting).completed == 1


@pytest.mark.parametrize("lease", ["lease", "leased_by_session"])
@pytest.mark.parametrize("is_met_in", ["queue", "settle"])
def test_an_item_that_was_put_again_while_a_job_of_the_former_one_ran_is_run(
    site: Site, lease: str, is_met_in: str
) -> None:
    site.items.put(b"1", id="a")
    site.bridge()
    (first,) = site.claim()
    site.db.delete(f"{site.prefix}:item:a", f"{site.prefix}:{lease}:a")  # another program completes it
    site.db.lrem(f"{site.prefix}:processing", 0, "a")
    assert site.items.put(b"1", id="a").created
    if is_met_in == "queue":
        site.bridge()
    site.finish(first)
    assert site.settle().completed == 0
    assert site.bridge().stored == 1
    (second,) = site.claim()
    site.finish(second)
    assert site.settle().completed == 1
    assert site.keys() == []


def test_ids_of_ended_items_in_the_queue_hide_no_item_behind_them(site: Site) -> None:
    site.items.put(b"1", id="a")
    site.db.rpush(f"{site.prefix}:queue", *(f"ended-{number}" for number in range(3000)))
    assert site.items.claim()


def test_one_call_completes_few_items_if_the_lists_are_long_and_still_renews_all(site: Site) -> None:
    for _ in range(500):  # 500,000 entries: three ids are looked for in each call
        site.db.rpush(f"{site.prefix}:processing", *["of another program"] * 1000)
    site.items.put_many([b""] * 9)
    site.bridge()
    for job in site.claim(6):
        site.finish(job)
    replies = [site.settle() for _ in range(3)]
    assert [reply.completed for reply in replies] == [3, 3, 0]
    assert [reply.renewed for reply in replies] == [3, 3, 3]
