"""The doctor: its results as tables, and its findings about real servers with real settings."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import Holdfast
from holdfast.constants import MAX_TAGS
from holdfast.doctor import checks, report
from holdfast.doctor.probe import WRITES, Clock, FailureLimits, ServerFacts, aprobe_server, probe_server
from holdfast.doctor.report import Finding
from holdfast.errors import StoreUnavailable
from holdfast.job.outcome import Succeed
from holdfast.server import server
from holdfast.store import commands, library
from holdfast.store.commands import CheckHistory, Finish, PastFinding
from holdfast.store.store import Address, AsyncStore, Store
from tests.apps import worker_app
from tests.support.new_job import NewJob
from tests.support.servers import running_server
from tests.support.workers import new_crew, until

ROOT = Path(__file__).parents[2]
AOF = ("--appendonly", "yes", "--appendfsync", "always")


def find(url: str, namespace: str = "default") -> dict[str, Finding]:
    """Examine a server. Returns its findings by their codes."""
    return {finding.code: finding for finding in report.run_checks(ask(url, namespace))}


def ask(url: str, namespace: str = "default") -> ServerFacts:
    store = Store(Address.find(url, namespace=namespace))
    try:
        return probe_server(store)
    finally:
        store.close()


@contextmanager
def client_of(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        yield client


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def judge(code: str, **facts: Any) -> str:
    """The level of one finding, for facts that say so and otherwise nothing bad."""
    (finding,) = [each for each in report.run_checks(replace(HEALTHY, **facts)) if each.code == code]
    assert finding.means.endswith(".")
    assert finding.level == "ok" or finding.advice.endswith(".")
    return finding.level


GOOD = {
    "valkey_version": "9.1.2", "redis_version": "7.2.4", "role": "master", "cluster_enabled": "0", "aof_enabled": "1",
    "connected_slaves": "1", "maxmemory": "1000", "used_memory": "1", "maxmemory_policy": "noeviction",
    "connected_clients": "1", "maxclients": "100",
}  # fmt: skip
SET = {
    "appendfsync": "always", "aof-load-truncated": "yes", "save": "", "min-replicas-to-write": "1",
    "disable-thp": "yes", "lazyfree-lazy-user-del": "yes", "port": "6379", "bind": "*", "protected-mode": "yes",
}  # fmt: skip
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEALTHY = ServerFacts(
    info=GOOD,
    settings=SET,
    user="default",
    default_flags=("on", "nopass"),
    default_may_write=True,
    libraries=(),
    schema="",
    undefined_limits=(),
    failure_limits=FailureLimits(),
    tags=0,
    event_bytes=0,
    undelivered=(),
    check_history=CheckHistory(3, NOW, NOW, []),
    clock=Clock(0.0, 0.0),
    ping=0.0001,
    call=0.0001,
)


# Judgements


def test_a_healthy_server_has_nothing_but_good_findings() -> None:
    findings = report.run_checks(HEALTHY)

    assert {finding.level for finding in findings} == {"ok"}
    assert report.worst_level(findings) == "ok"
    assert report.reasons_to_refuse(HEALTHY) == []


@pytest.mark.parametrize(
    ("name", "version", "level"),
    [
        ("redis", "6.2.14", "danger"),
        ("redis", "7.0.0", "note"),
        ("redis", "7.0.15", "note"),
        ("redis", "7.2.10", "note"),
        ("redis", "7.2.11", "ok"),
        ("redis", "7.4.5", "note"),
        ("redis", "8.2.2", "ok"),
        ("redis", "8.4.0", "ok"),
        ("redis", "8.10.2", "ok"),
        ("redis", "255.255.255", "ok"),
        ("valkey", "7.2.4", "note"),
        ("valkey", "8.1.3", "note"),
        ("valkey", "8.1.4", "ok"),
        ("valkey", "9.0.0-rc1", "ok"),
        ("valkey", "9.1.2", "ok"),
    ],
)
def test_versions_are_judged(name: str, version: str, level: str) -> None:
    info = {"redis_version": "7.2.4", f"{name}_version": version, "role": "master"}

    assert judge("version", info=info) == level


@pytest.mark.parametrize(
    ("name", "version", "loses"),
    [
        ("redis", "7.0.15", True),
        ("redis", "8.4.7", True),
        ("redis", "8.6.0", False),
        ("redis", "8.10.2", False),
        ("valkey", "7.2.11", True),
        ("valkey", "8.1.9", True),
        ("valkey", "8.1.10", False),
        ("valkey", "9.0.3", True),
        ("valkey", "9.1.0", True),
        ("valkey", "9.1.2", False),
    ],
)
def test_a_default_user_without_rights_is_a_trap_of_some_versions(name: str, version: str, loses: bool) -> None:
    info = {"redis_version": "7.2.4", f"{name}_version": version, "aof_enabled": "1"}

    assert judge("acl", info=info, default_may_write=False) == ("danger" if loses else "ok")
    assert judge("acl", info=info, default_may_write=True) == "ok"
    assert judge("acl", info={**info, "aof_enabled": "0"}, default_may_write=False) == "ok"
    assert judge("acl", info=info, default_may_write=None, user="ann") == ("unknown" if loses else "ok")
    assert judge("acl", info=info, default_may_write=None, user="default") == "ok"


@pytest.mark.parametrize(
    ("code", "level", "changes"),
    [
        ("role", "danger", {"role": "slave"}),
        ("cluster", "note", {"cluster_enabled": "1"}),
        ("persistence", "danger", {"aof_enabled": "0"}),
        ("disk", "danger", {"aof_last_write_status": "err"}),
        ("disk", "warning", {"rdb_last_bgsave_status": "err"}),
        ("disk", "warning", {"aof_last_bgrewrite_status": "err"}),
        ("replicas", "warning", {"connected_slaves": "0"}),
        ("eviction", "danger", {"maxmemory_policy": "allkeys-lfu"}),
        ("eviction", "warning", {"maxmemory_policy": "volatile-ttl"}),
        ("eviction", "warning", {"evicted_keys": "3"}),
        ("memory", "warning", {"used_memory": "801"}),
        ("memory", "note", {"maxmemory": "0", "total_system_memory": "1000", "used_memory_rss": "800"}),
        ("memory", "warning", {"maxmemory": "0", "total_system_memory": "1000", "used_memory_rss": "801"}),
        ("clients", "warning", {"connected_clients": "81"}),
    ],
)
def test_facts_of_the_server_are_judged(code: str, level: str, changes: dict[str, str]) -> None:
    assert judge(code, info={**GOOD, **changes}) == level


@pytest.mark.parametrize(
    ("code", "level", "changes"),
    [
        ("persistence", "note", {"appendfsync": "everysec"}),
        ("persistence", "warning", {"appendfsync": "no"}),
        ("truncated", "note", {"aof-load-truncated": "no"}),
        ("replicas", "note", {"min-replicas-to-write": "0"}),
        ("replicas", "warning", {"min-replicas-to-write": "2"}),
        ("pages", "note", {"disable-thp": "no"}),
        ("lazyfree", "note", {"lazyfree-lazy-user-del": "no"}),
        ("access", "warning", {"protected-mode": "no"}),
        ("access", "ok", {"protected-mode": "no", "port": "0"}),
        ("access", "ok", {"protected-mode": "no", "bind": "127.0.0.1 -::1"}),
    ],
)
def test_settings_are_judged(code: str, level: str, changes: dict[str, str]) -> None:
    assert judge(code, settings={**SET, **changes}) == level


def test_no_password_is_bad_on_an_address_that_others_reach() -> None:
    assert judge("access", host="10.0.0.7") == "warning"
    assert judge("access", host="cache.example.org") == "warning"
    assert judge("access", host="127.0.0.2") == "ok"
    assert judge("access", host="10.0.0.7", default_flags=("on",)) == "ok"
    assert judge("access", host="10.0.0.7", default_flags=("off", "nopass")) == "ok"
    assert judge("access", host="10.0.0.7", default_flags=None, has_password=True) == "ok"
    assert judge("access", host="10.0.0.7", default_flags=None, has_password=False) == "warning"
    assert judge("access", settings=None) == "unknown"


def test_clocks_are_judged_by_what_is_certain() -> None:
    assert judge("clock", clock=Clock(1.2, 0.1)) == "warning"
    assert judge("clock", clock=Clock(-1.2, 0.1)) == "warning"
    assert judge("clock", clock=Clock(1.2, 0.3)) == "ok"
    assert judge("clock", clock=Clock(0.0, 0.0, went_back=0.5)) == "warning"


def test_latency_is_judged_by_the_slower_of_two() -> None:
    assert judge("latency", call=0.02) == "note"
    assert judge("latency", ping=0.3, call=None) == "warning"


def test_too_many_tags_are_named_before_new_ones_become_another() -> None:
    assert judge("tags", tags=79_999) == "ok"
    assert judge("tags", tags=80_000) == "note"
    assert judge("tags", tags=MAX_TAGS) == "warning"


def test_what_upkeep_has_found_is_reported_and_what_it_cannot_repair_is_a_warning() -> None:
    def judged(count: int, repaired: int, found_at: datetime) -> str:
        past = PastFinding("not_indexed", "", count, repaired, found_at, "job")
        return judge("consistency", check_history=CheckHistory(3, NOW, NOW, [past]))

    assert judged(2, 2, NOW) == "note"
    assert judged(2, 1, NOW) == "warning"
    assert judged(2, 1, NOW - timedelta(hours=1)) == "note"  # the last check of all keys did not find it


def test_unknown_facts_that_no_data_depends_on_are_no_warning() -> None:
    def worst_without(**facts: Any) -> str:
        return report.worst_level(report.run_checks(replace(HEALTHY, **facts)))

    assert worst_without(libraries=None, clock=None, ping=None, call=None) == "note"
    assert worst_without(schema=None) == "warning"
    assert worst_without(info=None) == "warning"
    assert worst_without(settings=None) == "warning"


def test_a_worker_refuses_only_what_loses_jobs() -> None:
    bad = {**GOOD, "role": "slave", "maxmemory_policy": "allkeys-random", "aof_enabled": "0", "redis_version": "6.0.0"}
    del bad["valkey_version"]

    assert [finding.code for finding in report.reasons_to_refuse(replace(HEALTHY, info=bad))] == [
        "version",
        "role",
        "eviction",
    ]
    assert report.reasons_to_refuse(ServerFacts()) == []


def test_every_check_can_be_unknown_and_says_which_right_is_missing() -> None:
    for finding in report.run_checks(replace(ServerFacts(), host="10.0.0.7", has_password=True)):
        assert finding.level == "unknown" or finding.code == "access"
        assert finding.level == "ok" or "+" in finding.advice


def test_the_document_explains_every_code_and_no_other() -> None:
    explained = re.findall(r"^### `(\w+)`", (ROOT / "docs" / "doctor.md").read_text(), re.MULTILINE)

    assert explained == [check.code for check in checks.CHECKS]


def test_all_that_the_functions_write_is_asked_for() -> None:
    """Which rights the user `default` needs, for the append-only file to be replayed as a whole."""
    used = set(re.findall(r"(?:redis\.p?call|apply)\('([A-Z]+)'", library.library()))
    read_only = "EXISTS|INFO|MEMORY|M?GET|GETRANGE|STRLEN|PTTL|TIME|TYPE|SCAN"
    read_only += "|H(GET|GETALL|MGET|KEYS|LEN|EXISTS|RANDFIELD|SCAN|STRLEN)"
    read_only += "|X(INFO|LEN|(REV)?RANGE)|L(LEN|RANGE|INDEX|POS)"
    read_only += "|S(CARD|MEMBERS|ISMEMBER|MISMEMBER|RANDMEMBER|SCAN)"
    read_only += "|Z(CARD|COUNT|LEXCOUNT|M?SCORE|RANK|RANDMEMBER|(REV)?RANGE(BYSCORE|BYLEX)?)"
    reading = {word for word in used if re.fullmatch(read_only, word)}
    written = {"ZMPOP": "ZPOPMAX"}  # as another command

    assert {written.get(word, word) for word in used - reading} <= {word for word, *_ in WRITES}


# Real servers


@pytest.mark.parametrize(
    ("options", "level", "words"),
    [
        (("--appendonly", "yes", "--appendfsync", "always"), "ok", "Neither a power cut nor a kill -9"),
        (("--appendonly", "yes", "--appendfsync", "everysec"), "note", "the last second"),
        (("--appendonly", "yes", "--appendfsync", "no"), "warning", "half a minute|half minute"),
        (("--save", "3600 1"), "warning", "snapshots at most"),
        ((), "danger", "a restart of the server loses all jobs"),
    ],
)
def test_persistence_is_found_as_it_is_set(options: tuple[str, ...], level: str, words: str) -> None:
    with running_server(options=options) as url:
        finding = find(url)["persistence"]

    assert finding.level == level
    assert re.search(words, finding.means)


def test_the_embedded_server_is_synced_by_its_keeper_however_it_is_addressed() -> None:
    home = Path(tempfile.mkdtemp(prefix="hf-")) / "h"
    try:
        url = f"unix://{server.ensure(home)}"
        for address in (Address(None, home), Address(url, None)):
            store = Store(address)
            result = checks.persistence(probe_server(store))
            store.close()
            assert result.level == "note"
            assert "keeper" in result.means
    finally:
        server.stop(home)
        shutil.rmtree(home.parent)


def test_the_embedded_server_is_not_synced_while_its_keeper_is_dead() -> None:
    home = Path(tempfile.mkdtemp(prefix="hf-")) / "h"
    try:
        store = Store(Address(f"unix://{server.ensure(home)}", None))
        probe_server(store)
        (keeping,) = keepers(home)
        os.kill(keeping, signal.SIGKILL)
        until(lambda: not keepers(home))
        result = checks.persistence(probe_server(store))
        assert result.level == "warning"
        assert "its keeper died, so nothing syncs" in result.means
        assert "holdfast server start" in result.advice

        result = checks.persistence(probe_server(Store(Address(None, home))))
        assert result.level == "note"
        assert checks.persistence(probe_server(store)) == result
        store.close()
    finally:
        server.stop(home)
        shutil.rmtree(home.parent)


def keepers(home: Path) -> list[int]:
    """The processes that keep the server of a home."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if str(home).encode() in words and any(word.endswith(b"keeper.py") for word in words):
                found.append(int(entry.parent.name))
    return found


def test_a_policy_that_evicts_is_a_danger_and_refused() -> None:
    with running_server(options=("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")) as url:
        facts = ask(url)

    assert [finding.code for finding in report.reasons_to_refuse(facts)] == ["eviction"]
    assert checks.memory(facts).level == "ok"


def test_keys_with_an_expiry_belong_to_no_job(server_url: str, namespace: str) -> None:
    """So a policy that evicts only those loses no job."""
    store = Store(Address.find(server_url, namespace=namespace))
    ids = ["waits", "runs", "ended"]
    store.run(commands.enqueue([NewJob(id=id, payload=b"{}", queue="q", task="t") for id in ids]))
    store.run(commands.renew("node/worker", [], executors=["node/worker.1"], about="{}"))
    store.run(commands.claim("node/worker.1", commands.claim_args(["q"], counter=1, limit=2)))
    store.run(commands.finish("node/worker.1", [Finish("waits", 1, Succeed(b"1"))]))
    store.close()

    with client_of(server_url) as client:
        keys = list(client.scan_iter(f"hf:{{{namespace}}}:*"))
        expiring = {key.decode().split(":")[2] for key in keys if client.pttl(key) > 0}

    assert expiring <= {"w", "wake", "inbox", "load", "fi", "sl"}
    assert len(keys) > 5


def test_a_replica_is_a_danger_and_its_primary_knows_of_it() -> None:
    port = free_port()
    with (
        running_server(options=("--port", port, "--bind", "127.0.0.1")) as primary,
        running_server(options=("--replicaof", "127.0.0.1", port)) as replica,
    ):
        with client_of(replica) as client:
            wait_for_link(client)
        assert find(replica)["role"].level == "danger"
        assert [finding.code for finding in report.reasons_to_refuse(ask(replica))] == ["role"]
        found = find(primary)
        assert found["role"].level == "ok"
        assert "asynchronous" in found["replicas"].means


def wait_for_link(client: redis.Redis) -> None:
    until(lambda: client.info("replication").get("master_link_status") == "up", what="the replica")


def test_a_cluster_is_noted() -> None:
    with running_server(cluster=True) as url:
        found = find(url)

    assert found["cluster"].level == "note"
    assert found["schema"].level == "ok"


def test_without_the_right_to_read_settings_the_doctor_names_what_is_unknown() -> None:
    with running_server(options=AOF) as url:
        with client_of(url) as client:
            client.execute_command("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "-config", "-acl")
        found = find(url.replace("unix://", "unix://ann:secret@"))

    unknown = {code for code, finding in found.items() if finding.level == "unknown"}
    assert {"persistence", "truncated", "pages", "lazyfree"} <= unknown
    assert {"version", "eviction", "memory", "latency", "clock", "schema"}.isdisjoint(unknown)
    assert "+config|get" in found["persistence"].advice
    assert report.worst_level(found.values()) == "warning"


def test_with_minimal_rights_the_doctor_names_what_is_unknown() -> None:
    with running_server() as url:
        ask(url)  # loads the library
        with client_of(url) as client:
            client.execute_command("ACL", "SETUSER", "ann", "on", "nopass", "~hf:*", "+fcall", "+@read", "+ping")
        found = find(url.replace("unix://", "unix://ann:any@"))

    assert found["version"].level == found["eviction"].level == found["clock"].level == "unknown"
    assert found["latency"].level != "unknown"


def test_libraries_of_other_releases_are_named_and_can_be_removed_as_advised() -> None:
    other = "holdfast_0123456789ab"
    with running_server() as url, client_of(url) as client:
        code = "redis.register_function('hf_0_x', function() return 1 end)"
        client.execute_command("FUNCTION", "LOAD", f"#!lua name={other}\n{code}")
        finding = find(url)["libraries"]
        assert finding.level == "note"
        assert other in finding.means
        assert library.digest() not in finding.means

        client.execute_command("FUNCTION", "DELETE", other)
        assert find(url)["libraries"].level == "ok"


def test_a_user_who_may_not_remove_libraries_is_told_which_right_it_lacks() -> None:
    with running_server() as url, client_of(url) as client:
        code = "redis.register_function('hf_0_x', function() return 1 end)"
        client.execute_command("FUNCTION", "LOAD", f"#!lua name=holdfast_0123456789ab\n{code}")
        assert "Workers remove" not in find(url)["libraries"].advice
        assert "These do not record when they were last called" in find(url)["libraries"].advice
        code = "redis.register_function('hf_abcdef012345_last_used', function() return 1 end)"
        client.execute_command("FUNCTION", "LOAD", f"#!lua name=holdfast_abcdef012345\n{code}")
        advice = find(url)["libraries"].advice
        assert "Workers remove" in advice
        assert "Of these, holdfast_0123456789ab do not record" in advice
        client.execute_command("ACL", "SETUSER", "ann", "on", ">x", "~*", "&*", "+@all", "-function|delete")
        assert "+function|delete" in find(url.replace("unix://", "unix://ann:x@"))["libraries"].advice


def test_data_of_another_schema_is_a_danger(server_url: str, namespace: str) -> None:
    with client_of(server_url) as client:
        client.hset(f"hf:{{{namespace}}}:meta", "schema", "99")
        finding = find(server_url, namespace)["schema"]

    assert finding.level == "danger"
    assert "schema 99" in finding.means


def test_a_clock_behind_the_last_sign_of_life_of_a_worker_has_gone_back(server_url: str, namespace: str) -> None:
    with client_of(server_url) as client:
        seconds, _ = client.time()
        client.hset(f"hf:{{{namespace}}}:meta", mapping={"schema": "2", "pulse": str((seconds + 3600) * 1000)})
        finding = find(server_url, namespace)["clock"]

    assert finding.level == "warning"
    assert "went back" in finding.means


def test_sync_and_async_find_the_same(server_url: str) -> None:
    async def ask_async() -> ServerFacts:
        store = AsyncStore(Address.find(server_url))
        try:
            return await aprobe_server(store)
        finally:
            await store.close()

    here, there = ask(server_url), asyncio.run(ask_async())

    assert here.settings == there.settings
    assert (here.info or {}).keys() == (there.info or {}).keys()
    assert here.libraries == there.libraries


def test_an_unreachable_server_is_an_error_and_not_a_finding(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        ask(f"unix://{tmp_path}/nobody")


def rules(rights: str) -> tuple[str, ...]:
    """Users for a server: `default` with these rights, and another with all rights."""
    return ("--user", *rights.split(), "--user", "ann", "on", ">secret", "~*", "&*", "+@all")


@pytest.mark.parametrize("rights", ["default on nopass +ping", "default on nopass ~* &* +@all"])
def test_a_restart_loses_what_functions_wrote_if_and_only_if_the_doctor_says_so(rights: str, tmp_path: Path) -> None:
    options = (*AOF, "--dir", str(tmp_path), *rules(rights))
    with running_server(options=options) as url:
        app = Holdfast(url.replace("unix://", "unix://ann:secret@"))
        refused = [finding.code for finding in report.reasons_to_refuse(probe_server(app.store))]
        app.store.run(commands.enqueue([NewJob(id="kept", payload=b"{}", queue="q", task="t")]))
        app.close()
    with running_server(options=options) as url:  # the other was killed
        app = Holdfast(url.replace("unix://", "unix://ann:secret@"))
        is_there = app.count() == 1
        app.close()

    assert refused == ([] if is_there else ["acl"])


def test_the_advice_about_the_trap_keeps_the_door_shut_and_the_data(tmp_path: Path) -> None:
    """With these rights, and off: nobody logs in as it, and the file is replayed as a whole."""
    options = (*AOF, "--dir", str(tmp_path))
    with running_server(options=options) as url:
        with client_of(url) as client:
            client.execute_command("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all")
            client.execute_command("ACL", "SETUSER", "default", "off", "resetpass", "~*", "&*", "+@all")
        with pytest.raises(StoreUnavailable):
            ask(url)
        facts = ask(url.replace("unix://", "unix://ann:secret@"))

    assert facts.default_may_write
    assert facts.default_flags is not None
    assert "off" in facts.default_flags
    assert report.reasons_to_refuse(facts) == []


# The command


def run(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    line = [sys.executable, "-m", "holdfast", "doctor", "--url", url, *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--appendonly", "yes"), 0),
        (("--appendonly", "yes", "--appendfsync", "no"), 1),
        (("--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"), 6),
    ],
)
def test_the_exit_code_reflects_the_worst_finding(options: tuple[str, ...], code: int) -> None:
    with running_server(options=options) as url:
        done = run(url)

    assert (done.returncode, done.stderr) == (code, "")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {len(row) for row in rows} == {4}
    levels = [row[0] for row in rows]
    assert levels == sorted(levels, key=report.LEVELS.index, reverse=True)
    assert {row[1] for row in rows} == {check.code for check in checks.CHECKS}


def test_json_has_every_finding_as_an_object(server_url: str) -> None:
    findings = json.loads(run(server_url, "--json").stdout)

    assert {finding["code"] for finding in findings} == {check.code for check in checks.CHECKS}
    assert all(set(finding) == {"code", "level", "means", "advice"} for finding in findings)


def test_a_server_that_is_not_there_has_its_own_exit_code(tmp_path: Path) -> None:
    done = run(f"unix://{tmp_path}/nobody")

    assert done.returncode == 4
    assert "cannot be reached" in done.stderr


def test_help_explains_the_exit_codes() -> None:
    words = " ".join(run("unix:///nobody", "--help").stdout.split())

    assert "Exit code 0 if nothing is worse than a note; 1 if" in words
    assert "--accept-data-loss" in words


def test_passwords_are_not_shown() -> None:
    with running_server() as url:
        with client_of(url) as client:
            client.execute_command("ACL", "SETUSER", "ann", "on", ">very-secret", "~*", "&*", "+@all")
        done = run(url.replace("unix://", "unix://ann:very-secret@"), "--json")

    assert "very-secret" not in done.stdout + done.stderr
    assert not re.search("[0-9a-f]{64}", done.stdout)


# Workers


def test_a_worker_refuses_a_server_that_loses_jobs_and_claims_nothing(tmp_path: Path) -> None:
    with (
        running_server(options=("--maxmemory-policy", "allkeys-lru")) as url,
        new_crew(url, tmp_path) as crew,
    ):
        job = crew.put(worker_app.add, 1, 2)
        worker = crew.start("--executors", "2")

        assert worker.wait() == 1
        assert worker.log.count("evicts keys of jobs (allkeys-lru)") == 1
        assert "Set maxmemory-policy noeviction." in worker.log
        assert "use --accept-data-loss to start anyway" in worker.log
        assert crew.get(job).state == "waiting"
        assert not crew.get(job).attempts


def test_a_worker_goes_on_if_data_loss_is_accepted(tmp_path: Path) -> None:
    with (
        running_server(options=("--maxmemory-policy", "allkeys-lru")) as url,
        new_crew(url, tmp_path) as crew,
    ):
        worker = crew.start(HOLDFAST_ACCEPT_DATA_LOSS="1")

        assert crew.ended(crew.put(worker_app.add, 1, 2)).state == "succeeded"
        assert worker.stop() == 0
        assert "evicts keys of jobs" in worker.log


def test_a_worker_that_cannot_reach_its_server_waits_for_it_and_examines_it_then(tmp_path: Path) -> None:
    port = free_port()
    with new_crew(f"redis://127.0.0.1:{port}", tmp_path) as crew:
        worker = crew.start()
        until(lambda: "cannot be reached" in worker.log, what="the complaint")
        with running_server(options=("--port", port, "--bind", "127.0.0.1", "--maxmemory-policy", "allkeys-lfu")):
            assert worker.wait() == 1

        assert worker.log.count("cannot be reached") == worker.log.count("the store is back") == 1
        assert "allkeys-lfu" in worker.log
