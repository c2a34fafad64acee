"""Commands behind actions: a shell reads back exactly what they are about."""

from __future__ import annotations

import shlex
import subprocess

from starlette.requests import Request

from holdfast.web.pages.commands import command_line, curl_line, in_namespace
from holdfast.web.security.users import LOCAL, User

HOSTILE = ("", "a b", "it's", '"; rm -rf /', "$(id)", "`id`", "--flag", "naïve", "back\\slash", "*")
INVISIBLE = ("line\nbreak", "\x1b]0;owned\x07", "\u202etxt.exe", "it's\n\\n", "\x85\u2028")


def _words(line: str) -> list[str]:
    """Return the arguments that a shell hands to a program."""
    script = f'print() {{ printf "%s\\0" "$@"; }}; {line.replace("holdfast", "print", 1)}'
    found = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    return found.stdout.decode().split("\0")[:-1]


def test_a_command_is_what_somebody_would_type() -> None:
    assert command_line("cancel", "0R4k", dependents=True, reason="wrong order") == (
        "holdfast cancel --dependents --reason 'wrong order' 0R4k"
    )
    assert command_line("jobs", state="failed", tag=["a", "b"], queue=None, all=False) == (
        "holdfast jobs --state failed --tag a --tag b"
    )
    assert command_line("limits set", "gpu", slots=2) == "holdfast limits set --slots 2 gpu"


def test_a_command_acts_in_the_namespace_of_the_page() -> None:
    assert in_namespace("holdfast retry --all", "shop") == "holdfast --namespace shop retry --all"
    assert in_namespace("holdfast retry --all", "default") == "holdfast retry --all"
    assert in_namespace("curl http://localhost:8420/", "shop") == "curl http://localhost:8420/"


def test_a_shell_reads_back_what_is_quoted() -> None:
    for text in (*HOSTILE, *INVISIBLE):
        words = _words(command_line("show", text))
        assert words[-1] == text
        assert (words[-2] == "--") == text.startswith("-")


def test_a_command_has_no_invisible_characters() -> None:
    assert all(command_line("show", text).isprintable() for text in INVISIBLE)


def _request() -> Request:
    headers = [(b"host", b"jobs.example.org:8420")]
    return Request({"type": "http", "scheme": "https", "path": "/", "headers": headers, "server": ("x", 1)})


def test_a_line_of_curl_does_what_the_form_does() -> None:
    line = curl_line(_request(), User("ann", "operator"), "POST", "/ops/api/v1/jobs/a:cancel", {"reason": "it's"})
    assert shlex.split(line) == [
        "curl", "-X", "POST", "-H", "Authorization: Bearer $TOKEN", "--json", '{"reason":"it\'s"}',
        "https://jobs.example.org:8420/ops/api/v1/jobs/a:cancel",
    ]  # fmt: skip
    assert curl_line(_request(), LOCAL, "GET", "/api/v1/queues") == "curl https://jobs.example.org:8420/api/v1/queues"
