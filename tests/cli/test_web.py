"""`holdfast web`: the server as a process, its users and tokens."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.shells import PATIENCE, PROGRAM, Shell

PASSWORD = "correct horse battery"  # noqa: S105


class Server:
    """A running `holdfast web`."""

    def __init__(self, process: subprocess.Popen[str], url: str, errors: Path, client: httpx.Client) -> None:
        self.process, self.url, self._errors, self._client = process, url, errors, client

    def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        return self._client.request(method, self.url.rstrip("/") + path, **options)

    def follow(self, path: str, headers: dict[str, str]) -> AbstractContextManager[httpx.Response]:
        return self._client.stream("GET", self.url.rstrip("/") + path, headers=headers)

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def running(shell: Shell, *words: str) -> Iterator[Server]:
    errors = shell.folder / "web.log"
    with errors.open("w") as log:
        process = subprocess.Popen(
            [*PROGRAM, "web", "--port", "0", *words],
            cwd=shell.folder, env=shell.environ, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    assert process.stdout
    try:
        with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
            yield Server(process, process.stdout.readline().strip(), errors, client)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_this_machine_until_a_signal(shell: Shell, number: signal.Signals) -> None:
    shell.put("one", queue="mail")
    with running(shell) as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", server.url)
        assert server.ask("/api/v1/queues").json()["items"][0]["queue"] == "mail"
        assert server.ask("/queues", headers={"Host": "evil.example"}).status_code == 421
        server.ask("/api/v1/queues/mail:pause", "POST")
        assert server.stop(number) == 0
        assert "nobody signs in: only this machine can reach it" in server.errors
        assert '"action": "pause_queue"' in server.errors
        assert "Traceback" not in server.errors


def test_open_streams_end_with_the_server(shell: Shell) -> None:
    """Each open page of the dashboard has one."""
    shell.put("one")
    with running(shell) as server:
        followed: tuple[tuple[str, dict[str, str]], ...] = (
            ("/api/v1/events", {"Accept": "text/event-stream"}),
            ("/api/v1/jobs/one/attempts/latest/log?follow=true", {"Accept": "text/event-stream"}),
            ("/api/v1/jobs/one/attempts/latest/log?follow=true", {}),
        )
        with ExitStack() as stack:
            streams = [stack.enter_context(server.follow(path, headers)) for path, headers in followed]
            assert server.stop(signal.SIGTERM) == 0
            for each in streams:
                each.read()  # it is complete
        assert "ERROR" not in server.errors


def test_with_users_one_signs_in(shell: Shell) -> None:
    shell("web", "users", "add", "ada", "--role", "operator", stdin=f"{PASSWORD}\n")
    token = shell("web", "tokens", "add", "ci").out.strip()
    with running(shell) as server:
        assert "users and tokens are those of holdfast-web.toml" in server.errors
        assert server.ask("/api/v1/session").status_code == 401
        bearer = {"Authorization": f"Bearer {token}"}
        assert server.ask("/api/v1/session", headers=bearer).json()["name"] == "ci"
        found = server.ask("/api/v1/session", "POST", json={"name": "ada", "password": PASSWORD})
        assert found.json()["role"] == "operator"
        shell("web", "tokens", "remove", "ci")
        assert server.ask("/api/v1/session", headers=bearer).status_code == 401


def test_the_output_is_json_on_request(shell: Shell) -> None:
    shell("web", "users", "add", "ada", stdin=f"{PASSWORD}\n")
    with running(shell, "--json") as server:
        assert server.url == "{"
        rest = server.process.stdout.read if server.process.stdout else None
        assert server.stop(signal.SIGTERM) == 0
        assert rest
        assert json.loads("{" + rest())["sign_in"] == ["password"]


def test_others_are_served_only_with_authentication(shell: Shell) -> None:
    for words, message in (
        (("--host", "0.0.0.0"), "0.0.0.0 can be reached from other machines"),  # noqa: S104
        (("--host", "::"), ":: can be reached from other machines"),
        (("--trusted-proxy", "127.0.0.1"), "a proxy lets others reach this server"),
    ):
        code, out, err = shell("web", *words)
        assert (code, out) == (2, "")
        assert message in err
        assert "holdfast web users add" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--auth", "nowhere.toml"), 2, "nowhere.toml cannot be read: No such file or directory"),
        (("--trusted-proxy", "proxy", "--auth", "some.toml"), 2, "expected the address of a proxy"),
        (("--trusted-proxy", "0.0.0.0/0", "--auth", "some.toml"), 2, "0.0.0.0/0 is every address"),
        (("--auth", "empty.toml"), 2, "has no users and no tokens"),
        (("--auth", "open.toml"), 2, "others may read open.toml (mode 0644): chmod 600 open.toml"),
        (("--auth", "proxied.toml"), 2, "name them with --trusted-proxy"),
        (("--trusted-proxy", "127.0.0.1", "--auth", "some.toml"), 2, 'hosts = ["jobs.example.org"]'),
        (("--root-path", "jobs"), 2, "expected a path such as /jobs, got 'jobs'"),
        (("--root-path", "/a/../b"), 2, "expected a path such as /jobs"),
        (("--host", "no.such.host.invalid"), 2, "there is no host 'no.such.host.invalid'"),
        (("--host", "192.0.2.1", "--auth", "some.toml"), 1, "cannot listen at port 8420 of 192.0.2.1"),
        (("users", "add", "a b"), 2, "the name is 'a b'"),
        (("users", "add", "ada", "--queues", "a b"), 2, "queue is 'a b'"),
        (("users", "add", "ada"), 2, "the password has 5 characters; expected 10 to 1,000"),
        (("users", "remove", "nobody"), 3, "no user nobody"),
        (("users", "remove", "someone", "--auth", "some.toml"), 3, "no user someone; did you mean some?"),
        (("users", "add", "some", "--auth", "some.toml"), 1, "user some exists"),
        (("tokens", "add", "some", "--auth", "some.toml"), 2, "some is a user and a token"),
        (("tokens", "add", "x", "--scope", "all"), 2, "scope is 'all'; expected one of metrics"),
        (("tokens", "add", "x", "--expires", "soon"), 2, "--expires"),
        (("tokens", "remove", "x"), 3, "no token x"),
    ],
)  # fmt: skip
def test_a_mistake_is_explained_in_one_sentence(shell: Shell, words: tuple[str, ...], code: int, message: str) -> None:
    for name, text, mode in (
        ("some.toml", '[users.some]\nrole = "viewer"\n', 0o600),
        ("empty.toml", "", 0o600),
        ("open.toml", '[users.some]\nrole = "viewer"\n', 0o644),
        ("proxied.toml", 'hosts = ["a"]\n[proxy]\nuser_header = "X-User"\n', 0o600),
    ):
        (shell.folder / name).write_text(text)
        (shell.folder / name).chmod(mode)

    found = shell("web", *words, stdin="short\n")

    assert message in found.err
    assert (found.code, found.out, found.err.count("\n")) == (code, "", 1)
    assert not (shell.folder / "holdfast-web.toml").exists()


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = shell("web", "--port", port)
    assert (code, err) == (1, f"holdfast: port {port} of 127.0.0.1 is in use; choose another one with --port\n")


def test_users_and_tokens_are_listed(shell: Shell) -> None:
    assert shell("web", "users").out == ""
    shell("web", "users", "add", "ada", "--role", "admin", stdin=f"{PASSWORD}\n")
    shell("web", "users", "add", "eve", "--queues", "mail,video-*", "--data", "--no-password")
    shell("web", "tokens", "add", "prometheus", "--scope", "metrics", "--expires", "never")
    assert shell("web", "users").rows == [
        ["ada", "admin", "all", "yes", "yes"], ["eve", "viewer", "mail,video-*", "yes", "no"],
    ]  # fmt: skip
    assert shell("web", "tokens").rows == [["prometheus", "viewer", "all", "no", "metrics", ""]]
    assert shell("web", "users", "--json").json[1]["queues"] == ["mail", "video-*"]
    assert "ada" in shell("web", "users", "list", HOLDFAST_WEB_AUTH="holdfast-web.toml").out


def test_a_password_is_asked_for_twice_on_a_terminal(shell: Shell) -> None:
    with shell.terminal("web", "users", "add", "ada") as terminal:
        terminal.read_until("Password")
        terminal.type(f"{PASSWORD}\n")
        terminal.read_until("Repeat")
        terminal.type(f"{PASSWORD}\n")
        assert terminal.wait() == 0
        assert PASSWORD not in terminal.text
    before = (shell.folder / "holdfast-web.toml").read_text()
    shell("web", "users", "password", "ada", stdin="another long password\n")
    assert (shell.folder / "holdfast-web.toml").read_text() != before


def test_a_token_is_printed_once_and_only_its_hash_is_stored(shell: Shell) -> None:
    code, out, err = shell("web", "tokens", "add", "ci", "--expires", "90d")
    assert code == 0
    assert re.fullmatch(r"hft_[A-Za-z0-9_-]{43}\n", out)
    assert "is shown only now" in err
    assert out.strip() not in (shell.folder / "holdfast-web.toml").read_text()
    assert shell("web", "tokens", "add", "two", "--json").json["secret"].startswith("hft_")


def test_two_programs_change_the_file_at_once(shell: Shell) -> None:
    words = [[*PROGRAM, "web", "tokens", "add", f"token-{number}"] for number in range(3)]
    adding = [
        subprocess.Popen(
            each, cwd=shell.folder, env=shell.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for each in words
    ]
    assert [each.wait(PATIENCE) for each in adding] == [0] * 3
    assert sorted(row[0] for row in shell("web", "tokens").rows) == [f"token-{number}" for number in range(3)]


def test_without_the_extra_one_is_told_what_to_install(shell: Shell) -> None:
    (shell.folder / "starlette.py").write_text("raise ImportError('no', name='starlette')")
    for words in (("web",), ("web", "users")):
        line = ["-c", "import sys; sys.path.insert(0, ''); from holdfast.cli import main; main()", *words]
        done = subprocess.run(
            [PROGRAM[0], *line], cwd=shell.folder, env=shell.environ, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (
            1,
            "holdfast: starlette is not installed: pip install 'holdfast[web]'\n",
        )
    done = subprocess.run(
        [PROGRAM[0], "-c", "import holdfast.web"], cwd=shell.folder, env=shell.environ, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "ImportError: starlette is not installed: pip install 'holdfast[web]'"


def test_neither_the_library_nor_the_command_line_loads_the_web(shell: Shell) -> None:
    code = (
        "import sys, holdfast, holdfast.cli; print([n for n in ('starlette', 'uvicorn', 'jinja2') if n in sys.modules])"
    )
    done = subprocess.run(
        [PROGRAM[0], "-c", code], cwd=shell.folder, env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
