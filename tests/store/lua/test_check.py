"""Checks of the store: each damage is found by its code, the check changes nothing, and a repair leaves nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from holdfast import Holdfast, errors
from holdfast.store import commands
from holdfast.store.store import Address, Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.store.lua.test_state_machine import dump
from tests.support.store_check import findings, nothing_found, repair_all
from tests.support.varied_store import ONE, claim, fill, put

ROOT = Path(__file__).parents[3]
LUA, PAGE = ROOT / "src/holdfast/store/lua/check.lua", ROOT / "docs/fsck.md"
NOT_PLANTED = {"not_checked", "record_newer"}
MAX_CHECKS = 10_000  # a check visits the keys of all namespaces, those of other tests, too


class Damage(NamedTuple):
    """What is found after some commands, separated by `;`. Keys begin with a dot."""

    code: str
    commands: str
    stays: bool = False  # nothing can be repaired


DAMAGES = (
    # keys
    Damage("unknown_key", "SET .surprise 1", stays=True),
    Damage("unknown_key", "ZADD .timers 5 ~new:kind", stays=True),
    Damage("wrong_type", "DEL .timers; SET .timers 1"),
    Damage("wrong_type", "DEL .q:mail:waiting; SET .q:mail:waiting 1"),
    Damage("wrong_type", "DEL .meta; SET .meta 1"),
    Damage("wrong_type", "DEL .queues; LPUSH .queues x"),
    Damage("wrong_type", "DEL .tag:a; SET .tag:a x"),
    Damage("never_expires", "PERSIST .load:mail"),
    Damage("never_expires", "PERSIST .k:t"),
    Damage("never_expires", "SET .t:token reply"),
    Damage("never_expires", "ZADD .outcomes 5 nobody"),
    Damage("expires", "EXPIRE .j:waiting 100"),
    Damage("expires", "EXPIRE .timers 100"),
    Damage("expires", "EXPIRE .k:k 100"),
    Damage("orphan", "SET .p:nobody payload"),
    Damage("orphan", "RPUSH .n:nobody note"),
    Damage("orphan", "HSET .g:nobody '1 0' text"),
    Damage("orphan", "HSET .a:nobody first 1-"),
    Damage("orphan", "ZADD .batch:nothing 1 waiting"),
    Damage("orphan", "SADD .acted:nothing waiting"),
    Damage("orphan", "SET .set:+none x"),
    Damage("orphan", "ZADD .shares:fair:7 5 ann"),
    Damage("damaged_value", "HSET .sd:5:mail task x; EXPIRE .sd:5:mail 100"),
    Damage("damaged_value", "APPEND .sl:run x"),
    Damage("damaged_value", "SET .k:odd nonsense"),
    Damage("damaged_value", "HSET .limits api nonsense"),
    Damage("damaged_value", "HSET .op:half state running"),
    Damage("damaged_value", "HSET .resolving first nonsense"),
    Damage("damaged_value", "ZADD .outcomes 4 nobody; EXPIRE .outcomes 100"),
    Damage("damaged_value", "HDEL .b:over state"),
    Damage("damaged_value", "HDEL .b:import state keep"),
    Damage("damaged_value", "HSET .b:import succeeded x"),
    Damage("damaged_value", "HSET .b:import created x"),
    Damage("damaged_value", f"HSET .meta arrivals {2**63 - 1}"),
    Damage("damaged_value", "HSET .meta arrivals 1.5"),
    Damage("damaged_value", "HSET .meta pulse 9e18"),
    Damage("damaged_value", "HSET .check passes x"),
    Damage("damaged_value", "HDEL .sc:hourly next"),
    Damage("damaged_value", "HSET .sc:hourly next x; ZREM .timers &hourly"),
    Damage("damaged_value", "HDEL .sc:soon times"),
    Damage("damaged_value", "HDEL .sc:hourly batch", stays=True),
    Damage("damaged_value", "HSET .bridged:mail ione nonsense; HSET .bridged:mail inone '2 0'; HSET .fair:fair v0 x"),
    # meta
    Damage("meta_lost", "DEL .meta"),
    Damage("arrivals_behind", "HSET .meta arrivals 3"),
    Damage("marker", "HDEL .meta markers"),
    Damage("marker", "HSET .meta markers nonsense"),
    Damage("marker", """HSET .meta markers '{"config":{},"outages":{},"other":true,"sets":{},"undefined":"x"}'"""),
    Damage("marker", "DEL .paused"),
    Damage("marker", "ZADD .outcomes 5 nobody; EXPIRE .outcomes 100"),
    Damage("config_lost", "DEL .config"),
    Damage("config_lost", "HSET .config retries 9"),
    Damage("config_copy", "DEL .config_copy"),
    # records
    Damage("record_damaged", "HSET .j:waiting h x", stays=True),
    Damage("record_damaged", "HSET .j:waiting s x", stays=True),
    Damage("record_damaged", "DEL .j:waiting; SET .j:waiting x", stays=True),
    Damage("stray_field", "HSET .j:waiting g error"),
    Damage("flags", "HDEL .j:kept k"),
    Damage("flags", "HDEL .j:api1 l"),
    Damage("attempt_lost", "HDEL .j:running a1"),
    Damage("payload_lost", "DEL .p:long", stays=True),
    Damage("result_lost", "DEL .r:succeeded", stays=True),
    Damage("value_lost", "DEL .c:long"),
    Damage("value_lost", "DEL .m:long-marks"),
    Damage("failure_unnamed", "HDEL .j:failed g v"),
    Damage("stray_value", "SET .c:waiting checkpoint"),
    Damage("stray_value", "HDEL .j:long p"),
    Damage("unflagged_keys", "HSET .u:waiting one 1"),
    # indexes
    Damage("not_indexed", "DEL .q:mail:waiting .q:mail:scheduled"),
    Damage("not_indexed", "ZREM .q:run:running running"),
    Damage("misplaced", "ZADD .q:mail:waiting 5 waiting"),
    Damage("misplaced", "ZADD .timers 99999999999999 running"),
    Damage("misplaced", "ZADD .timers 5 !timed"),
    Damage("misplaced", "ZADD .timers inf scheduled"),
    Damage("misplaced", "ZADD .q:mail:scheduled inf scheduled"),
    Damage("misplaced", "ZADD .workers inf node/one"),
    Damage("misplaced", "ZADD .batches_done -inf over"),
    Damage("misplaced", "ZADD .operating inf op1"),
    Damage("misplaced", "ZADD .queues 5 mail"),
    Damage("misplaced", "ZADD .schedules 5 hourly"),
    Damage("misplaced", "ZADD .subscriptions 5 audit"),
    Damage("misplaced", "ZADD .lh:api 5 'api api0'"),
    Damage("misplaced", "ZADD .lq:api 5 api"),
    Damage("misplaced", "ZADD .lt:api 5 api"),
    Damage("misplaced", "ZADD .expiring 5 succeeded"),
    Damage("misplaced", "ZADD .scope:/x 5 marked"),
    Damage("misplaced", "ZADD .batch:import 5 member1"),
    Damage("stray_entry", "ZADD .q:mail:waiting 5 nobody"),
    Damage("stray_entry", "ZADD .q:mail:failed 5 waiting"),
    Damage("stray_entry", "ZADD .expiring 5 waiting"),
    Damage("stray_entry", "ZADD .tag:a 5 waiting"),
    Damage("stray_entry", "ZADD .tracked 5 nobody"),
    Damage("stray_entry", "ZADD .fg:Net 5 waiting"),
    Damage("stray_entry", "ZADD .batch:import 5 waiting"),
    Damage("stray_entry", "SADD .bo:import member0"),
    Damage("stray_entry", "ZADD .lp:api\\ api 5 waiting"),
    Damage("stray_entry", "ZADD .d:first 5 waiting"),
    Damage("stray_entry", "ZADD .outcomes 5 waiting; EXPIRE .outcomes 100"),
    Damage("stray_entry", "ZADD .schedules 0 nothing"),
    Damage("stray_entry", "ZADD .subscriptions 0 nothing"),
    Damage("stray_entry", "ZADD .operations 0 nothing"),
    Damage("stray_entry", "ZADD .batches 0 nothing"),
    Damage("stray_entry", "HSET .bridged:mail jone two"),
    Damage("unlisted", "DEL .queues"),
    Damage("unlisted", "DEL .schedules"),
    Damage("unlisted", "DEL .subscriptions"),
    Damage("unlisted", "DEL .batches"),
    Damage("unlisted", "DEL .batches_done"),
    Damage("unlisted", "DEL .operating"),
    Damage("unlisted", "DEL .operations"),
    Damage("unlisted", "DEL .lq:api"),
    Damage("unlisted", "DEL .fingerprints"),
    Damage("no_timer", "DEL .timers"),
    Damage("stray_timer", "ZADD .timers 5 waiting; ZADD .timers 5 nobody"),
    Damage("stray_timer", "ZADD .timers 5 &nothing; ZADD .timers 5 !waiting; ZADD .timers 5 =nothing"),
    Damage("no_hold", f"DEL .x:{ONE}"),
    Damage("no_hold", f"HSET .x:{ONE} running 7"),
    Damage("stray_hold", f"HSET .x:{ONE} waiting 1; HSET .x:node/gone.0 running 1"),
    Damage("not_expiring", "DEL .expiring"),
    Damage("failure_unlisted", "DEL .fg:Net"),
    Damage("marks_unlisted", "DEL .tag:a .scope:/x .tracked"),
    Damage("wrong_count", "ZADD .tags 9 a; ZADD .failed:g 5 Net"),
    # dependencies
    Damage("dependency_lost", "HDEL .a:third first"),
    Damage("dependencies_lost", "DEL .a:third"),
    Damage("dependency_count", "HSET .j:third b '7 r 0'"),
    Damage("dependency_missed", "DEL .j:first"),
    Damage("not_dependent", "DEL .d:first"),
    Damage("blocked_wrongly", "HSET .a:second first 1S"),
    # limits and keys
    Damage("no_slot", "DEL .lh:api"),
    Damage("stray_slot", "ZADD .lh:api 0 'api waiting'; ZADD .lh:api 0 'api nobody'"),
    Damage("not_parked", "DEL .lp:api\\ api"),
    Damage("stranded", "ZREM .lh:api 'api api0'; DEL .j:api0"),
    Damage("stranded", "ZREM .timers %rate:ann"),
    Damage("unique_lost", "DEL .k:w .k:k"),
    Damage("stray_unique", "SET .k:mine 'p waiting 5'"),
    # batches, pools
    Damage("not_open", "SREM .bo:import member1"),
    Damage("not_done", "DEL .bo:import .batch:import"),
    Damage("pool_unaware", "DEL .ready:{pool}"),
    Damage("stray_entry", "ZADD .ready:{pool} 5 mail"),
)


def apply(client: redis.Redis, namespace: str, damage: Damage) -> None:
    base = f"hf:{{{namespace}}}:"
    pool = next((key.decode().removeprefix(base + "set:") for key in client.scan_iter(f"{base}set:*", count=10_000)
                 if client.get(key).startswith(b"weighted")), "")  # fmt: skip
    for command in damage.commands.replace("{pool}", pool).split("; "):
        verb, *words = shlex.split(command)
        client.execute_command(verb, *(base + word[1:] if word.startswith(".") else word for word in words))


@pytest.fixture
def varied(store: Store, clock: TestClock, client: redis.Redis, namespace: str) -> Store:
    fill(store, clock)
    invariants.check(client, namespace)
    nothing_found(store)
    return store


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: f"{damage.code}: {damage.commands}")
def test_damage_is_found_by_its_code_and_repaired(
    varied: Store, client: redis.Redis, namespace: str, damage: Damage
) -> None:
    apply(client, namespace, damage)
    before = dump(client, namespace)

    found = findings(varied)

    assert damage.code in found, f"found {[*found]}"
    assert dump(client, namespace) == before, "a check without repair has changed something"
    repair_all(varied)
    left = findings(varied)
    assert set(left) == ({damage.code} if damage.stays else set()), left
    client.delete(*client.scan_iter(f"hf:{{{namespace}}}:damaged:*", count=10_000), "none")
    if damage.stays:
        client.delete(
            *client.scan_iter(f"hf:{{{namespace}}}:*", count=10_000)
        )  # the check of all keys would find it, too


@pytest.mark.parametrize("value", ["p:long p", "r:succeeded r", "m:long-marks t", "c:long c"])
def test_a_long_value_is_not_deleted_if_the_record_has_only_lost_its_field(
    varied: Store, client: redis.Redis, namespace: str, value: str
) -> None:
    name, field = value.split()
    id, base = name.partition(":")[2], f"hf:{{{namespace}}}:"
    before = client.hgetall(f"{base}j:{id}"), client.get(base + name)
    apply(client, namespace, Damage("", f"HDEL .j:{id} {field}"))

    found = findings(varied)
    assert "stray_value" in found
    assert not {"payload_lost", "result_lost", "value_lost"} & set(found)
    repair_all(varied)

    assert (client.hgetall(f"{base}j:{id}"), client.get(base + name)) == before
    nothing_found(varied)


def test_a_short_value_that_no_record_names_is_deleted(varied: Store, client: redis.Redis, namespace: str) -> None:
    apply(client, namespace, Damage("", "SET .c:waiting checkpoint"))

    assert "stray_value" in findings(varied, repair=True)
    assert not client.exists(f"hf:{{{namespace}}}:c:waiting")


def test_a_schedule_that_lost_its_next_time_fires_at_the_time_of_its_timer(
    varied: Store, client: redis.Redis, namespace: str
) -> None:
    base = f"hf:{{{namespace}}}:"
    wanted = {name: client.hgetall(base + name) for name in ("sc:hourly", "sc:soon")}
    apply(client, namespace, Damage("", "HDEL .sc:hourly next; HDEL .sc:soon times"))

    assert findings(varied, repair=True)["damaged_value"].repaired == 2

    assert {name: client.hgetall(base + name) for name in wanted} == wanted
    nothing_found(varied)


@pytest.mark.parametrize("name", ["sc:hourly", "on:audit"])
def test_workers_declare_again_what_lost_its_record(
    varied: Store, client: redis.Redis, namespace: str, name: str
) -> None:
    base = f"hf:{{{namespace}}}:"
    before = int(client.hget(base + "meta", "since") or 0)
    client.delete(base + name)

    findings(varied, repair=True)

    assert int(client.hget(base + "meta", "since") or 0) > before


def test_a_batch_that_lost_its_state_keeps_its_callbacks(varied: Store, client: redis.Redis, namespace: str) -> None:
    base = f"hf:{{{namespace}}}:"
    wanted = {name: client.hgetall(base + name) for name in ("b:import", "b:over")}
    assert [fields[b"state"] for fields in wanted.values()] == [b"closed", b"done"]
    apply(client, namespace, Damage("", "HDEL .b:import state; HDEL .b:over state"))

    repair_all(varied)

    assert {name: client.hgetall(base + name) for name in wanted} == wanted


@pytest.mark.parametrize("loss", ["HDEL .a:third first", "HDEL .a:third second"])
def test_a_lost_dependency_is_restored_at_its_position(
    varied: Store, client: redis.Redis, namespace: str, loss: str
) -> None:
    base = f"hf:{{{namespace}}}:"
    before = client.hgetall(f"{base}a:third"), client.hgetall(f"{base}j:third")
    apply(client, namespace, Damage("", loss))

    repair_all(varied)

    assert (client.hgetall(f"{base}a:third"), client.hgetall(f"{base}j:third")) == before
    nothing_found(varied)


def test_dependencies_that_are_lost_together_are_restored(varied: Store, client: redis.Redis, namespace: str) -> None:
    base = f"hf:{{{namespace}}}:"
    record, known = client.hgetall(f"{base}j:third"), client.hkeys(f"{base}a:third")
    client.delete(f"{base}a:third")

    repair_all(varied)

    assert client.hgetall(f"{base}j:third") == record
    assert sorted(client.hkeys(f"{base}a:third")) == sorted(known)  # their order is lost
    nothing_found(varied)


def test_only_a_second_pass_runs_a_job_whose_count_has_unknown_dependencies(
    varied: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    lost = Damage("", "DEL .a:third; ZREM .d:first third; ZREM .d:second third")
    apply(client, namespace, lost)

    findings(varied, repair=True)
    for _ in range(200):
        clock.now += 1000
        varied.run(commands.upkeep())
    assert client.zscore(f"hf:{{{namespace}}}:q:chain:blocked", "third")

    repair_all(varied)
    assert client.zscore(f"hf:{{{namespace}}}:q:chain:waiting", "third")
    nothing_found(varied)


def test_a_time_to_live_that_cannot_be_read_is_repaired_once(
    varied: Store, client: redis.Redis, namespace: str
) -> None:
    apply(client, namespace, Damage("", "HSET .j:succeeded k x"))

    assert "misplaced" in findings(varied, repair=True)
    assert not findings(varied, repair=True)
    client.delete(*client.scan_iter(f"hf:{{{namespace}}}:*", count=10_000))  # the check of all keys cannot read it


def test_an_attempt_that_cannot_be_read_stays_with_the_executor_that_holds_the_job(
    varied: Store, client: redis.Redis, namespace: str
) -> None:
    apply(client, namespace, Damage("", f"HSET .j:running a1 {'9' * 30}"))

    repair_all(varied)

    assert client.hget(f"hf:{{{namespace}}}:j:running", "a1").endswith(ONE.encode())
    nothing_found(varied)


def test_a_check_by_small_steps_finds_the_same(varied: Store, client: redis.Redis, namespace: str) -> None:
    apply(client, namespace, Damage("not_indexed", "DEL .q:mail:waiting; ZADD .timers 5 waiting"))

    whole, parts = findings(varied), findings(varied, units=1)

    assert {code: each.count for code, each in whole.items()} == {code: each.count for code, each in parts.items()}
    findings(varied, repair=True, units=1)
    nothing_found(varied)


@pytest.mark.parametrize("position", [b"nonsense", b"\x93\x01\x02\x03", b"\x92\xa1x\xa10"])
def test_a_position_that_no_call_returned_is_refused(store: Store, position: bytes) -> None:
    with pytest.raises(errors.Invalid, match="position"):
        store.run(commands.check_step(position))


def test_a_check_measures_the_memory_of_each_kind_of_key(varied: Store) -> None:
    step = varied.run(commands.check_step(memory=True, units=10_000))

    uses = {use.name: use for use in step.memory}
    assert uses["jobs"].keys == varied.run(commands.count())
    assert uses["indexes"].measured == uses["indexes"].keys
    assert uses["jobs"].estimate > uses["jobs"].bytes > 50 * uses["jobs"].measured > 0
    assert not step.findings
    assert step.entries == 0


def test_upkeep_checks_some_keys_each_second_and_repairs_what_it_finds(
    varied: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    apply(client, namespace, Damage("not_indexed", "ZREM .q:mail:waiting waiting; SET .surprise 1"))
    found: dict[str, commands.PastFinding] = {}
    for _ in range(MAX_CHECKS):
        clock.advance(1)
        varied.run(commands.upkeep())
        history = varied.run(commands.check_history())
        found = {each.code: each for each in history.findings}
        if "unknown_key" in found and found["unknown_key"].count >= 2:
            break
    assert set(found) == {"not_indexed", "unknown_key"}
    assert (found["not_indexed"].count, found["not_indexed"].repaired, found["not_indexed"].example) == (
        1,
        1,
        "waiting",
    )
    assert found["unknown_key"].repaired == 0
    assert found["unknown_key"].count == 2
    assert history.passes >= 1
    assert history.finished_at is not None
    client.delete(f"hf:{{{namespace}}}:surprise")


def test_upkeep_checks_nothing_if_the_rate_is_zero(
    varied: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    client.delete(f"hf:{{{namespace}}}:check")
    varied.run(commands.configure(None, set={"check_rate": 0}, reset=[]))
    clock.advance(10)
    varied.run(commands.upkeep())

    assert not client.exists(f"hf:{{{namespace}}}:check")


def test_the_page_explains_every_code() -> None:
    rows = re.findall(r"^  \{ '(\w+)', '(.*?)'(?:, '(.*)')? \},$", LUA.read_text(), re.MULTILINE)
    page = PAGE.read_text()

    assert len(rows) >= 40
    for code, meaning, repair in rows:
        assert f"| `{code}` | {meaning} | {repair or '—'} |" in page
    assert {damage.code for damage in DAMAGES} >= {code for code, _, _ in rows} - NOT_PLANTED


def test_every_family_of_keys_is_checked() -> None:
    texts = [path.read_text() for path in LUA.parent.glob("*.lua")]
    families = {name for text in texts for name in re.findall(r"\bbase \.\. '(\w+)", text)}
    checked = {name for text in texts for name in re.findall(r"(?:\bcheck\.kind|_kind)\('(\w+)'", text)}

    assert len(families) > 60
    assert families <= checked, "declare these families with check.kind"


def test_a_record_of_a_newer_release_is_reported_and_stays(varied: Store, client: redis.Redis, namespace: str) -> None:
    name = f"hf:{{{namespace}}}:j:waiting"
    head = client.hget(name, "h")
    assert head is not None
    client.hset(name, "h", b"\x02" + head[1:])
    before = dump(client, namespace)

    found = findings(varied, repair=True)

    assert set(found) == {"record_newer"}
    assert dump(client, namespace) == before
    client.hset(name, "h", head)


@pytest.mark.parametrize(
    ("whose", "bad"),
    [
        ("j:waiting", "j:waiting\udcff"),
        ("j:waiting", "j:two words"),
        ("q:mail:waiting", "q:mail\udcff:waiting"),
        ("fair:fair", "fair:fair\udcff"),
        ("b:import", "b:import\udcff"),
        ("sc:hourly", "sc:hourly\udcff"),
        ("on:audit", "on:audit\udcff"),
        ("op:op1", "op:op1\udcff"),
    ],
)
def test_a_name_that_no_release_gives_is_reported_and_never_listed(
    varied: Store, client: redis.Redis, namespace: str, whose: str, bad: str
) -> None:
    """Clients could not read it: a claim that returned it would fail again and again."""
    base = f"hf:{{{namespace}}}:".encode()
    copy = base + bad.encode(errors="surrogateescape")
    client.copy(base + whose.encode(), copy)
    before = dump(client, namespace)

    assert set(findings(varied, repair=True)) == {"unknown_key"}

    assert dump(client, namespace) == before
    client.delete(copy)


@pytest.mark.parametrize("place", ["SADD .paused", "ZADD .queues 0", "ZADD .q:mail:waiting 0"])
def test_an_entry_that_no_release_writes_is_reported_and_stays(
    varied: Store, client: redis.Redis, namespace: str, place: str
) -> None:
    apply(client, namespace, Damage("", f"{place} 'two words'"))
    before = dump(client, namespace)

    assert set(findings(varied, repair=True)) == {"unknown_key"}

    assert dump(client, namespace) == before
    key = place.split()[1].replace(".", f"hf:{{{namespace}}}:", 1)
    client.execute_command("SREM" if place.startswith("SADD") else "ZREM", key, "two words")


def test_a_scheduled_job_whose_timer_is_no_time_keeps_its_own(
    varied: Store, client: redis.Redis, namespace: str
) -> None:
    base = f"hf:{{{namespace}}}:"
    due = client.zscore(f"{base}timers", "scheduled")

    for name in ("timers", "q:mail:scheduled"):
        client.zadd(base + name, {"scheduled": float("inf")})
        repair_all(varied)

        assert (
            client.zscore(f"{base}timers", "scheduled") == client.zscore(f"{base}q:mail:scheduled", "scheduled") == due
        )


@pytest.mark.parametrize("arrivals", [2**63 - 1, 10**20, "1.5", " 7", "-5"])
def test_jobs_can_be_enqueued_again_after_the_count_of_arrivals_was_damaged(
    varied: Store, client: redis.Redis, namespace: str, arrivals: int | str
) -> None:
    client.hset(f"hf:{{{namespace}}}:meta", "arrivals", arrivals)

    repair_all(varied)

    put(varied, "next", "mail")
    assert claim(varied, "mail", 10)[-2:] == ["next", "waiting"]  # before those of a lower priority


def test_one_damaged_arrival_number_does_not_move_those_of_later_jobs(
    varied: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    """After it, a new job of the lowest priority would be claimed before all others, or after them."""
    base = f"hf:{{{namespace}}}:"
    client.hset(f"{base}j:paused", "s", b"w" + b"\xff" * 6)

    repair_all(varied)

    assert int(client.hget(f"{base}meta", "arrivals") or 0) <= clock.now
    nothing_found(varied)
    client.delete(*client.scan_iter(f"{base}*", count=10_000))  # the check of all keys would find the job


def test_markers_of_a_wrong_type_stop_no_call(varied: Store, client: redis.Redis, namespace: str) -> None:
    markers = '{"config":{},"outages":[],"other":true,"sets":{},"undefined":"x","paused":null}'
    client.hset(f"hf:{{{namespace}}}:meta", "markers", markers)

    varied.run(commands.upkeep())
    assert claim(varied, "mail") == ["kept"]
    repair_all(varied)


def test_a_lost_marker_of_sets_does_not_make_pools_forget_their_queues(
    varied: Store, client: redis.Redis, namespace: str
) -> None:
    ready = next(client.scan_iter(f"hf:{{{namespace}}}:ready:*", count=10_000))
    before = client.zrange(ready, 0, -1, withscores=True)
    client.hdel(f"hf:{{{namespace}}}:meta", "markers")

    findings(varied, repair=True)

    assert client.zrange(ready, 0, -1, withscores=True) == before


def test_a_damaged_history_of_checks_can_be_read(varied: Store, client: redis.Redis, namespace: str) -> None:
    name = f"hf:{{{namespace}}}:check"
    client.hset(
        name, mapping={"passes": "x", "began": "nan", "finished": "9" * 30, "marker": f"1 1 {'9' * 30} example"}
    )

    history = varied.run(commands.check_history())

    assert (history.passes, history.finished_at, [each.last_at.year for each in history.findings]) == (0, None, [1970])
    repair_all(varied)


def test_a_deadline_that_is_no_time_is_not_repaired_again_and_again(
    varied: Store, client: redis.Redis, namespace: str
) -> None:
    apply(client, namespace, Damage("", "HSET .j:timed d nan"))

    repair_all(varied)

    nothing_found(varied)
    client.delete(*client.scan_iter(f"hf:{{{namespace}}}:*", count=10_000))  # the check of all keys cannot read it


@pytest.mark.parametrize("name", ["sc:hourly", "on:audit", "b:import"])
def test_one_damaged_record_does_not_hide_the_others_and_can_be_removed(
    varied: Store, address: Address, client: redis.Redis, namespace: str, name: str
) -> None:
    base, short = f"hf:{{{namespace}}}:", name.partition(":")[2]
    app = Holdfast(address.url, namespace=namespace)
    lists: dict[str, Callable[[], Iterable[Any]]] = {
        "sc": app.schedules, "on": app.subscriptions, "b": app.batches,
    }  # fmt: skip
    listed = lists[name.partition(":")[0]]
    expected = {each.name for each in listed()}
    for field, value in client.hgetall(base + name).items():
        for damage in (None, b"x", b"\xff", b"5", b"[]", b"{}", b"9" * 30):
            if damage is None and field == b"state":
                continue  # a batch without a state does not exist until a check restores it
            client.hset(base + name, field, damage) if damage else client.hdel(base + name, field)
            assert {each.name for each in listed()} == expected, (field, damage)
        client.hset(base + name, field, value)
    assert short in expected
    app.close()
    nothing_found(varied)
