"""Sentinels and clusters: every client and worker finds the server, and finds it again after each change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import Holdfast, Invalid, NotReplicated, StoreUnavailable
from holdfast.store import commands
from holdfast.store.address import Address, mask, read_url
from holdfast.store.deadline import Deadline
from tests.apps import worker_app
from tests.store.test_failover import enqueue
from tests.store.test_store import running
from tests.support.outages import PATIENCE, eventually
from tests.support.topologies import Cluster, Node, Watched, cluster, node, sentinels
from tests.support.workers import new_crew, until

PASSWORD = "p@s/s:w%o#r?d&é= +"  # noqa: S105

# Addresses


def test_the_seeds_of_sentinels_and_their_service_are_read() -> None:
    hosts = "one,[::1]:7000,two.example:26380/my%20jobs/3?sentinel_password="
    url = f"rediss+sentinel://me:{quote(PASSWORD, safe='')}@{hosts}s%40"
    target = read_url(url)
    assert target.kind == "tls"
    assert target.options == {"username": "me", "password": PASSWORD, "db": 3}
    assert target.topology is not None
    assert target.topology.seeds == (("one", 26379), ("::1", 7000), ("two.example", 26380))
    assert target.topology.service == "my jobs"
    assert target.topology.access == {"password": "s@"}
    assert "s%40" not in Address(url, None).display
    assert "me" not in Address(url, None).display
    assert (
        mask(f"see {url}")
        == "see rediss+sentinel://***@one,[::1]:7000,two.example:26380/my%20jobs/3?sentinel_password=***"
    )


@pytest.mark.parametrize("scheme", ["redis", "valkey", "rediss", "valkeys"])
def test_the_seeds_of_a_cluster_are_read(scheme: str) -> None:
    target = read_url(f"{scheme}+cluster://:secret@one,two:7000")
    assert target.options == {"password": "secret"}
    assert target.topology is not None
    assert target.topology.seeds == (("one", 6379), ("two", 7000))


WRONG = {
    "no service": ("redis+sentinel://one,two", "it must name the service that the Sentinels watch: redis.sentinel://"),
    "no host": ("redis+sentinel:///jobs", "it must name hosts, separated by commas"),
    "an empty host": ("redis+cluster://one,,two", "it must name hosts, separated by commas"),
    "a port": ("redis+cluster://one,two:x", "its port must be a number"),
    "a database of a cluster": ("redis+cluster://one/1", "a cluster has one database"),
    "another topology": ("redis+ring://one", r"it must begin with redis://.* not redis\+ring://"),
    "a socket": ("unix+cluster:///s", "it must begin with redis://"),
    "an option of Sentinels": ("redis+cluster://one?sentinel_password=hunter2", "unknown option sentinel_password"),
    "a slash in the password": (
        "redis+sentinel://:hun/ter@one/jobs",
        "it contains an @ after its hosts; in a password",
    ),
}


@pytest.mark.parametrize(("url", "why"), WRONG.values(), ids=WRONG)
def test_a_wrong_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=f"^invalid store URL: {why}") as caught:
        Holdfast(url)
    assert "hunter2" not in str(caught.value)


# Sentinels


@pytest.fixture(scope="module")
def _watched() -> Iterator[Watched]:
    with sentinels() as made:
        yield made


@pytest.fixture
def watched(_watched: Watched) -> Watched:
    """Servers that are all there: the ones that tests have killed or frozen have come back."""
    _watched.heal()
    return _watched


@pytest.fixture(params=["sync", "async"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _address(url: str, namespace: str) -> Address:
    return Address.find(url, namespace=namespace)


@pytest.mark.parametrize("fate", ["killed", "frozen", "demoted"])
def test_clients_follow_the_sentinels(watched: Watched, fate: str) -> None:
    address = _address(watched.url, fate)
    with running("sync", address) as sync, running("async", address) as other:
        for place, call in enumerate((sync, other)):
            call("run", enqueue(f"{place}-before"))
        watched.catch_up()
        old = watched.primary
        watched.lose(old, fate)
        for place, call in enumerate((sync, other)):
            eventually(partial(_is_stored, call, f"{place}-after"))
        assert watched.primary is not old
        stored = [job is not None for job in sync("run", commands.get(["0-before", "1-before", "0-after", "1-after"]))]
        assert stored == [True] * 4


def _is_stored(call: Any, id: str) -> bool:
    try:
        return bool(call("run", enqueue(id, Deadline(2))))
    except StoreUnavailable:
        return False


def test_a_sentinel_that_is_silent_or_unknown_is_passed_over(watched: Watched, how: str) -> None:
    first, *others = watched.sentinels
    first.freeze()
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in (first, *others))
    url = f"redis+sentinel://127.0.0.1:1,{hosts}/jobs"
    with running(how, _address(url, f"silent-{how}")) as call:
        assert call("run", enqueue("a")).created == [True]
    first.thaw()


def test_what_each_sentinel_said_is_in_the_error(watched: Watched, how: str) -> None:
    known = watched.sentinels[0].port
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{known}/unknown"
    with running(how, _address(url, "errors")) as call, pytest.raises(StoreUnavailable) as caught:
        call("run", enqueue("a", Deadline(0.5)))
    assert "127.0.0.1:1: " in str(caught.value)
    assert f"127.0.0.1:{known}: the Sentinel watches no service 'unknown'" in str(caught.value)
    assert not caught.value.maybe_done


def test_a_blocked_worker_leaves_a_frozen_primary(watched: Watched, tmp_path: Path) -> None:
    with new_crew(watched.url, tmp_path) as crew:
        worker = crew.start("--lease", "2s")
        assert crew.ended(until(lambda: _put(crew))).state == "succeeded"
        old = watched.primary
        watched.lose(old, "frozen")
        assert crew.ended(until(lambda: _put(crew))).state == "succeeded"
        old.thaw()
        assert crew.ended(until(lambda: _put(crew))).state == "succeeded"
        assert "Traceback" not in worker.log


def _put(crew: Any) -> Any:
    """Enqueue a job that a replica has, too, so that the next failover does not lose it; None: try again."""
    try:
        return crew.put(worker_app.add.options(when_unreachable="raise", acknowledge="replica"), 1, 2)
    except (StoreUnavailable, NotReplicated):
        return None


# Clusters


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def _other(three: Cluster, node: Node) -> Node:
    return next(each for each in three.nodes if each is not node)


def test_a_namespace_is_found_on_any_node_by_any_seed(three: Cluster, how: str) -> None:
    for each in three.nodes:
        namespace = three.namespace_of(each)
        for seed in three.nodes:
            with running(how, _address(f"redis+cluster://127.0.0.1:{seed.port}", namespace)) as call:
                call("run", enqueue(f"{how}-{seed.port}"))
        assert each.client.exists(f"hf:{{{namespace}}}:meta")


def test_a_client_follows_a_slot_to_a_node_without_the_library(three: Cluster, how: str) -> None:
    node = three.nodes[0]
    namespace = three.namespace_of(node)
    slot = three.slot(namespace)
    with running(how, _address(three.url, namespace)) as call:
        before = call("run", commands.count())
        call("run", enqueue(f"{how}-first"))
        for number in range(2):
            to = _other(three, three.owner(slot))
            to.ask("FUNCTION", "FLUSH")
            three.move(slot, to)
            assert call("run", enqueue(f"{how}-{number}")).created == [True]
        assert call("run", commands.count()) == before + 3


def test_a_pop_that_blocks_follows_its_slot(three: Cluster, how: str) -> None:
    namespace = three.namespace_of(three.nodes[1])
    slot = three.slot(namespace)
    key = f"hf:{{{namespace}}}:own:{how}"
    got: list[Any] = []
    with running(how, _address(three.url, namespace)) as call:
        popping = threading.Thread(target=lambda: got.append(call("execute", "BLPOP", key, PATIENCE, blocks=PATIENCE)))
        popping.start()
        eventually(lambda: _blocked(three.owner(slot)) > 0)
        three.move(slot, _other(three, three.owner(slot)))
        eventually(lambda: _blocked(three.owner(slot)) > 0)
        three.owner(slot).client.rpush(key, "x")
        popping.join()
    assert got[0][1] == b"x"


def _blocked(node: Node) -> int:
    return int(node.client.info("clients")["blocked_clients"])


def test_a_worker_follows_its_slot(three: Cluster, tmp_path: Path) -> None:
    with new_crew(three.url, tmp_path) as crew:
        worker = crew.start("--lease", "2s")
        assert crew.ended(crew.put(worker_app.add, 1, 2)).state == "succeeded"
        slot = three.slot(crew.namespace)
        for number in range(3):
            three.move(slot, _other(three, three.owner(slot)))
            assert crew.ended(crew.put(worker_app.add, number, 2)).state == "succeeded"
        assert "Traceback" not in worker.log


def test_a_plain_url_of_the_wrong_node_advises_the_scheme_of_clusters(three: Cluster, how: str) -> None:
    node = three.nodes[0]
    namespace = three.namespace_of(_other(three, node))
    with (
        running(how, _address(f"redis://127.0.0.1:{node.port}", namespace)) as call,
        pytest.raises(StoreUnavailable, match=r"let the URL begin with redis\+cluster://"),
    ):
        call("run", commands.count())


# Passwords


def test_servers_and_sentinels_have_passwords_of_their_own(tmp_path: Path, how: str) -> None:
    mine, theirs = PASSWORD, "s e/n:t@i%"
    with ExitStack() as stack:
        server = stack.enter_context(node(tmp_path, "server", "--requirepass", mine, password=mine))
        config = (
            f"sentinel monitor jobs 127.0.0.1 {server.port} 1\n"
            f'sentinel auth-pass jobs "{mine}"\nrequirepass "{theirs}"\n'
        )
        sentinel = stack.enter_context(node(tmp_path, "sentinel", "--sentinel", config=config, password=theirs))
        secret, other = quote(mine, safe=""), quote(theirs, safe="")
        host = f"127.0.0.1:{sentinel.port}/jobs"
        with running(how, _address(f"redis+sentinel://:{secret}@{host}?sentinel_password={other}", "auth")) as call:
            assert call("run", enqueue("a")).created == [True]
        for url in (f"redis+sentinel://:{secret}@{host}", f"redis+sentinel://{host}?sentinel_password={other}"):
            with (
                running(how, _address(url, "auth")) as call,
                pytest.raises(StoreUnavailable, match=r"[Aa]uth") as caught,
            ):
                call("run", commands.count())
            assert secret not in str(caught.value)


def test_a_cluster_with_a_user_of_few_rights(how: str) -> None:
    """The rights that doctor names, and CLUSTER SLOTS, to find the node."""
    with cluster(1) as alone:
        rights = ["on", f">{PASSWORD}", "~hf:*", "+@all", "-@admin", "-@dangerous", "+cluster|slots", "+info"]
        alone.nodes[0].ask("ACL", "SETUSER", "worker", *rights)
        url = alone.url.replace("://", f"://worker:{quote(PASSWORD, safe='')}@")
        with running(how, _address(url, "acl")) as call:
            assert call("run", enqueue("a")).created == [True]
