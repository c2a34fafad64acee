"""The address of the store: an invalid URL is refused at once, in one sentence that never quotes a password."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

from holdfast import Holdfast, Invalid, StoreUnavailable
from holdfast.store import commands
from holdfast.store.address import Address, mask, read_url
from tests.store.test_store import running, tls_proxy
from tests.support.outages import eventually
from tests.support.servers import _free_port, running_server
from tests.support.shells import Shell
from tests.support.workers import new_crew, until

SECRET = "hunter2"  # noqa: S105 - in none of the messages
PASSWORD = "p@s/s:w%o#r?d&é= +"  # noqa: S105
WRONG = {
    "a port": ("redis://127.0.0.1:abc", "its port must be a number from 1 to 65535"),
    "port 0": ("redis://127.0.0.1:0", "its port must be"),
    "a big port": ("redis://127.0.0.1:65536", "its port must be"),
    "half a bracket": ("redis://[::1", r"its host cannot be parsed.*redis://\[::1\]:6379"),
    "no bracket": ("redis://::1:6379", "its port must be"),
    "no scheme": (f":{SECRET}@localhost:6379", "it must begin with redis://"),
    "another scheme": (f"http://:{SECRET}@localhost", "it must begin with redis://.* not http://"),
    "an option": ("unix:///s?foo=bar", "unknown option foo; expected db,"),
    "an option of TLS": (f"redis://:{SECRET}@localhost?ssl_ca_certs=x", "ssl_ca_certs needs rediss://"),
    "an option of a host": ("unix:///s?socket_keepalive=1", "socket_keepalive needs a host"),
    "half an option": (f"redis://:{SECRET}@localhost?db", "must be name=value"),
    "a database": ("redis://localhost/jobs", "its database.* must be a number"),
    "two databases": ("redis://localhost/1/2", "its database.* must be a number"),
    "a database as an option": ("redis://localhost?db=x", "option db must be a number"),
    "a time": ("redis://localhost?socket_timeout=nan", "socket_timeout must be a number of seconds"),
    "a flag": ("redis://localhost?socket_keepalive=maybe", "socket_keepalive must be true or false"),
    "a requirement": ("rediss://localhost?ssl_cert_reqs=perhaps", "ssl_cert_reqs must be none, optional or required"),
    "a version of TLS": ("rediss://localhost?ssl_min_version=1", "ssl_min_version must be 771 for TLS 1.2 or 772"),
    "two dots in a host": (f"redis://:{SECRET}@a..b", "its host must be a name"),
    "a long part of a host": (f"redis://{SECRET * 10}", "its host must be a name"),
    "a relative socket": (f"unix://:{SECRET}@run/s", "needs the absolute path of a socket"),
    "no socket": ("unix://", "needs the absolute path of a socket"),
    "a slash in the password": (f"redis://:{SECRET}/x@localhost", "an @ after its host; in a password, write"),
    "a slash after digits": (f"redis://:12/{SECRET}@localhost", "an @ after its host; in a password, write"),
    "a question mark in the password": (f"redis://:12?x={SECRET}@localhost", "an @ after its host"),
    "a hash in the password": (f"redis://:12#{SECRET}@localhost", "contains a #; in a password, write"),
    "a slash in the password of a socket": (f"unix://:{SECRET}/x@/s", "needs the absolute path"),
}


@pytest.mark.parametrize(("url", "why"), WRONG.values(), ids=WRONG)
def test_a_url_that_is_wrong_is_refused_when_it_is_given(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=f"^invalid store URL: .*{why}") as caught:
        Holdfast(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", [5, b"redis://localhost", Path("/run/s"), ["redis://localhost"]])
def test_a_url_must_be_text(url: Any) -> None:
    with pytest.raises(Invalid, match=f"must be text such as redis://localhost:6379, not {type(url).__name__}"):
        Holdfast(url)


def test_a_url_of_the_environment_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "redis://127.0.0.1:abc")
    with pytest.raises(Invalid, match="its port must be"):
        Holdfast()


RIGHT = {
    "redis://": ("tcp", {}),
    "valkey://h": ("tcp", {"host": "h"}),
    "VALKEY://h:1/": ("tcp", {"host": "h", "port": 1}),
    "redis://my_redis.example.": ("tcp", {"host": "my_redis.example."}),
    "redis://bücher.example": ("tcp", {"host": "bücher.example"}),
    "redis://[fe80::1%25eth0]": ("tcp", {"host": "fe80::1%eth0"}),
    "redis://[::1]:2/3": ("tcp", {"host": "::1", "port": 2, "db": 3}),
    "redis://u:p%40%25@h?db=4": ("tcp", {"host": "h", "username": "u", "password": "p@%", "db": 4}),
    "redis://:a@b@h": ("tcp", {"host": "h", "password": "a@b"}),
    "redis://h?password=p%2540&decode_responses=True": ("tcp", {"host": "h", "password": "p%40"}),
    "redis://h?socket_keepalive=yes&socket_timeout=.5": (
        "tcp",
        {"host": "h", "socket_keepalive": True, "socket_timeout": 0.5},
    ),
    "rediss://h?ssl_cert_reqs=CERT_NONE": ("tls", {"host": "h", "ssl_cert_reqs": "none"}),
    "valkeys://h?ssl_min_version=771": ("tls", {"host": "h", "ssl_min_version": 771}),
    "unix://:p@/run/a%20@b?db=2": ("unix", {"path": "/run/a @b", "password": "p", "db": 2}),
}


@pytest.mark.parametrize(("url", "target"), RIGHT.items(), ids=RIGHT)
def test_a_url_is_read(url: str, target: tuple[str, dict[str, Any]]) -> None:
    assert read_url(url) == (*target, None)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_every_option_is_one_of_the_client_library(how: str) -> None:
    """Or it would be refused in the first call, with a traceback."""
    options = "username=u&client_name=c&socket_timeout=1&socket_connect_timeout=0.1&protocol=3&timeout=1"
    tls = "ssl_ca_path=x&ssl_ca_data=x&ssl_certfile=x&ssl_keyfile=x&ssl_password=x&ssl_cert_reqs=none"
    for url in (
        f"unix:///nowhere?db=1&{options}",
        f"redis://127.0.0.1:1?{options}&socket_keepalive=1",
        f"rediss://127.0.0.1:1?{options}&{tls}&ssl_ca_certs=x&ssl_check_hostname=0&ssl_min_version=771&ssl_ciphers=x",
    ):
        with running(how, Address.find(url, timeout=0.05)) as call, pytest.raises(StoreUnavailable):
            call("run", commands.count())


SHOWN = {
    f"redis://user:{SECRET}@h:1/2": "redis://h:1/2",
    f"valkeys://:{SECRET}@[::1]?ssl_password={SECRET}&db=1": "valkeys://[::1]?db=1",
    f"redis://h?pass%77ord={SECRET}": "redis://h",
    f"unix://:{SECRET}@/run/a@b?db=2&password={SECRET}": "unix:///run/a@b?db=2",
}


@pytest.mark.parametrize(("url", "shown"), SHOWN.items())
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    address = Address.find(url, namespace="n")
    assert repr(address) == f"<Address {shown}, namespace n>"
    assert repr(Holdfast(url, namespace="n")) == f"<Holdfast {shown}, namespace n>"


def test_passwords_are_masked_in_any_text() -> None:
    text = f'Holdfast("redis://u:{SECRET}@h") or valkeys://:{SECRET}/@{SECRET}@h:x, unix:///s?password={SECRET}&db=1'
    assert mask(text) == 'Holdfast("redis://***@h") or valkeys://***@h:x, unix:///s?password=***&db=1'
    assert mask(f"redis+tls://:{SECRET}@h and 'sentinel://u:{SECRET}@h'") == "redis+tls://***@h and 'sentinel://***@h'"
    assert mask("https://ann@example.org has no password of ours") == "https://ann@example.org has no password of ours"


# On real servers


@contextmanager
def guarded() -> Iterator[tuple[str, int]]:
    """A server with a password: its socket, and its port."""
    with running_server(options=("--bind", "127.0.0.1")) as url, redis.Redis.from_url(url) as client:
        client.config_set("port", port := _free_port())
        client.config_set("requirepass", PASSWORD)
        yield url.removeprefix("unix://"), port


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_password_of_any_characters_is_let_in(how: str) -> None:
    with guarded() as (path, port):
        encoded = quote(PASSWORD, safe="")
        for url in (
            f"unix://:{encoded}@{path}",
            f"unix://{path}?password={encoded}",
            f"redis://:{encoded}@127.0.0.1:{port}",
            f"valkey://default:{encoded}@127.0.0.1:{port}/0",
            f"valkey://127.0.0.1:{port}?password={encoded}&username=default",
        ):
            with running(how, Address.find(url)) as call:
                assert call("run", commands.count()) == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, to make a certificate")
def test_valkeys_is_tls(tmp_path: Path, server_url: str, namespace: str) -> None:
    with tls_proxy(tmp_path, server_url.removeprefix("unix://")) as port:
        app = Holdfast(f"valkeys://localhost:{port}?ssl_ca_certs={tmp_path}/cert.pem", namespace=namespace)
        assert app.count() == 0
        app.close()
        app = Holdfast(f"valkeys://localhost:{port}?ssl_cert_reqs=none", namespace=namespace)
        assert app.count() == 0
        app.close()


def test_neither_worker_nor_doctor_shows_the_password(tmp_path: Path) -> None:
    with guarded() as (path, _):
        url = f"unix://:{quote(PASSWORD, safe='')}@{path}"
        with new_crew(url, tmp_path) as crew:
            worker = crew.start("--log-level", "DEBUG")
            until(crew.app.workers)
            doctor = subprocess.run(
                [sys.executable, "-m", "holdfast", "doctor"],
                env=os.environ | {"HOLDFAST_URL": url},
                capture_output=True,
                text=True,
                check=False,
            )
            output = worker.log + doctor.stdout + doctor.stderr
    assert f"unix://{path}" in worker.log
    for secret in (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD)):
        assert secret not in output


# On the command line


@pytest.mark.parametrize("url", ["redis://127.0.0.1:abc", "redis://[::1", "unix:///s?foo=bar", "valky://h"])
@pytest.mark.parametrize("words", [("queues",), ("work", "tasks"), ("enqueue", "tasks.add", "1"), ("outbox",)])
def test_the_command_line_refuses_a_url_in_one_line(shell: Shell, words: tuple[str, ...], url: str) -> None:
    (code, out, err), variable = shell(*words, "--url", url), shell(*words, HOLDFAST_URL=url)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("holdfast: invalid store URL: ")
    assert variable == (code, out, err)
    if words[0] != "work":  # which logs
        assert json.loads(shell(*words, "--url", url, "--json").err)["code"] == "INVALID"


@pytest.mark.parametrize(
    "words",
    [
        ("--url", f"redis://:{SECRET}@127.0.0.1:abc", "queues"),
        ("--url", f"amqp://:{SECRET}@localhost", "queues"),
        ("--url", f"redis://:{SECRET}/@localhost", "work", "tasks"),
        ("queues", f"--urll=redis://:{SECRET}@localhost"),
        ("queues", "--url", f"redis://:{SECRET}\udcff@localhost"),
        (f"redis://:{SECRET}@localhost", "queues"),
        ("queues", f"redis://:{SECRET}@localhost"),
        ("queues", "--url", f"redis://:{SECRET}@localhost:1"),
        ("work", f"redis://:{SECRET}@localhost"),
        ("queues", f"redis+tls://:{SECRET}@localhost"),
    ],
)
def test_the_command_line_quotes_no_password(shell: Shell, words: tuple[str, ...]) -> None:
    for variable in ("", "1"):
        code, out, err = shell(*words, HOLDFAST_JSON=variable)
        assert code in (2, 4)
        assert SECRET not in out + err
        assert err


@pytest.mark.parametrize("words", [("work", "wrong"), ("enqueue", "add", "1", "--app", "wrong")])
@pytest.mark.parametrize(
    ("scheme", "why"), [("redis", "its port must be a number"), ("redis+tls", "it must begin with redis://")]
)
def test_an_app_whose_url_is_wrong_is_shown_without_its_password(
    shell: Shell, words: tuple[str, ...], scheme: str, why: str
) -> None:
    (shell.folder / "wrong.py").write_text(
        f'from holdfast import Holdfast\njobs = Holdfast("{scheme}://:{SECRET}@127.0.0.1:abc")\n'
    )
    code, out, err = shell(*words)

    assert code in (1, 2)
    assert why in err
    assert f'jobs = Holdfast("{scheme}://***@127.0.0.1:abc")' in err  # with the line of the program
    assert SECRET not in out + err


# A cluster


@contextmanager
def cluster() -> Iterator[tuple[str, str, redis.Redis, redis.Redis]]:
    """Two nodes with half of the slots each: their URLs, and clients of them."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(_node()) for _ in range(2))
        one, other = (stack.enter_context(redis.Redis.from_url(url)) for url in (first, second))
        for client, slots in ((one, (0, 8191)), (other, (8192, 16383))):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        one.execute_command("CLUSTER", "MEET", "127.0.0.1", other.config_get("port")["port"])
        for client in (one, other):
            eventually(partial(_is_whole, client))
        yield first, second, one, other


def _is_whole(client: redis.Redis) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    return b"cluster_slots_ok:16384" in info and b"cluster_state:ok" in info


def _node() -> Any:
    options = ("--cluster-enabled", "yes", "--port", str(_free_port()), "--bind", "127.0.0.1")
    return running_server(options=options)


def _namespace_of(client: redis.Redis, slots: range) -> str:
    """A namespace whose keys are in these slots."""
    names = (f"n{number}" for number in range(1000))
    return next(name for name in names if client.execute_command("CLUSTER", "KEYSLOT", f"{{{name}}}") in slots)


def test_the_wrong_node_of_a_cluster_names_the_right_one_and_a_worker_logs_it_once(tmp_path: Path) -> None:
    with cluster() as (first, second, one, other), new_crew(first, tmp_path) as crew:
        namespace = _namespace_of(one, range(8192, 16384))
        port = other.config_get("port")["port"]
        words = f"{first} is part of a cluster in which 127.0.0.1:{port} has the keys of namespace {namespace} (MOVED)"
        for how in ("sync", "async"):
            with (
                running(how, Address.find(first, namespace=namespace)) as call,
                pytest.raises(StoreUnavailable) as caught,
            ):
                call("run", commands.count())
            assert str(caught.value).startswith(words)
            assert "let the URL begin with redis+cluster://" in str(caught.value)
            assert not caught.value.maybe_done
            with running(how, Address.find(second, namespace=namespace)) as call:
                assert call("run", commands.count()) == 0

        worker = crew.start(HOLDFAST_NAMESPACE=namespace)
        until(lambda: words in worker.log)
        slot = one.execute_command("CLUSTER", "KEYSLOT", f"{{{namespace}}}")
        for client in (one, other):  # as after a failover
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", one.execute_command("CLUSTER", "MYID"))
        until(lambda: "the store is back" in worker.log)
        assert worker.log.count("MOVED") == 1
        assert "Traceback" not in worker.log
