"""Items on the command line: put, claim, renew, complete, fail, release, as shell scripts use them."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import exit_codes
from tests.support.shells import PROGRAM, Shell

SCRIPT = """
set -eu
for number in 1 2 3; do holdfast items put mail "letter $number" --id "mail-$number" > /dev/null; done
while token=$(holdfast items claim mail --lease 1m --payload letter); do
    if grep -q 2 letter; then holdfast items fail "$token" "not sent" --final
    else holdfast items complete "$token" "sent $(cat letter)"; fi
done > log 2> errors
"""


def claim(shell: Shell, *words: str) -> str:
    claimed = shell("items", "claim", "mail", *words)
    assert claimed.code == 0, claimed.err
    return claimed.out.strip()


def test_a_script_puts_claims_and_ends_items(shell: Shell, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "holdfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    environ = {**shell.environ, "PATH": f"{program.parent}:{shell.environ['PATH']}"}
    subprocess.run(["sh", "-c", SCRIPT], cwd=shell.folder, env=environ, timeout=120, check=True)
    states = {id: shell.client.get(id).state for id in ("mail-1", "mail-2", "mail-3")}
    assert states == {"mail-1": "succeeded", "mail-2": "failed", "mail-3": "succeeded"}
    assert shell.client.get("mail-3").result_bytes == b"sent letter 3"
    assert (shell.folder / "log").read_text() == "mail-1\tcompleted\nmail-2\tfailed\nmail-3\tcompleted\n"
    assert (shell.folder / "errors").read_text() == "holdfast: queue mail has no item to claim\n"


def test_the_payload_of_put_comes_from_the_command_line_a_file_or_a_pipe(shell: Shell) -> None:
    items = shell.client.items("mail")
    (shell.folder / "bytes").write_bytes(bytes(range(256)))
    for id, words, stdin, payload in [
        ("a", ("to ann",), "", b"to ann"),
        ("b", ("--file", "bytes"), "", bytes(range(256))),
        ("c", ("--file", "-"), "piped\n", b"piped\n"),
        ("d", (), "piped", b"piped"),
        ("e", ("",), "", b""),
    ]:
        put = shell("items", "put", "mail", *words, "--id", id, stdin=stdin)
        assert (put.code, put.out) == (0, f"{id}\n"), put.err
        assert items.value(id) == payload
    again = shell("items", "put", "mail", "other", "--id", "a")
    assert (again.code, again.err) == (0, "holdfast: item a already exists; nothing was stored\n")
    options = shell("items", "put", "mail", "x", "--priority", "3", "--retries", "7", "--delay", "1h", "--keep", "no")
    job = shell.client.get(options.out.strip())
    assert (job.priority, job.state, job.keep) == (3, "scheduled", False)


def test_lines_are_items_of_their_own(shell: Shell) -> None:
    put = shell("items", "put", "mail", "--lines", "--fresh", stdin="".join(f"line {n}\n" for n in range(1500)) + "end")
    assert (put.code, len({*put.out.splitlines()})) == (0, 1501)
    payloads = [item.payload for _ in range(2) for item in shell.client.items("mail").claim_many(1000)]
    assert payloads[0] == b"line 0"
    assert payloads[-2:] == [b"line 1499", b"end"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("put", "mail", "x", "--file", "tasks.py"), "TEXT and --file cannot be combined"),
        (("put", "mail", "x", "--fresh"), "--fresh needs --lines"),
        (("put", "mail", "x", "--id", "a b"), "id is"),
        (("put", "a/b", "x"), "queue is"),
        (("put", "mail", "--file", "nowhere"), "nowhere"),
        (("claim", "mail", "--payload", "-"), "needs --token FILE"),
        (("claim", "mail", "--payload", "-", "--token", "t", "--json"), "both write to standard output"),
        (("claim", "mail", "--payload", "no/where"), "no/where"),
        (("claim", "mail", "--lease", "1ms"), "--lease"),
        (("claim", "mail", "--payload", "-", "--token", "-"), "needs --token FILE"),
        (("claim", "mail", "--token", "-", "--json"), "--token - and --json cannot be combined: both write"),
        (("put", "mail", "--lines", "--id", "a"), "--id is for one item"),
        (("complete", "item_x"), "expected the token of an item"),
        (("complete", "TOKEN", "x", "--file", "tasks.py"), "RESULT and --file cannot be combined"),
        (("renew", "nothing"), "expected the token of an item"),
        (("fail", "TOKEN"), "REASON"),
        (("release", "TOKEN", "--delay", "soon"), "--delay"),
    ],
)
def test_what_cannot_be_meant_is_refused(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    shell.client.items("mail").put(b"", id="a")
    ended = shell("items", *words)
    assert (ended.code, ended.out) == (exit_codes.USAGE, "")
    assert expected in ended.err
    assert shell.client.get("a").attempt == 0


def test_too_much_is_refused(shell: Shell) -> None:
    for words in (("put", "mail", "--file", "/dev/zero"), ("put", "mail", "--lines", "--file", "/dev/zero")):
        ended = shell("items", *words)
        assert ended.code == exit_codes.REFUSED, ended.err
        assert "1048576" in ended.err
    assert shell.client.count() == 0


def test_a_claimed_item_is_shown_as_json(shell: Shell) -> None:
    items = shell.client.items("mail")
    items.put(b"to ann", id="a")
    items.put(b"\xff\0", id="b")
    found = shell("items", "claim", "mail", "--lease", "5m", "--json").json
    assert {name: found[name] for name in found if name != "token"} == {
        "id": "a", "queue": "mail", "attempt": 1, "lease_seconds": 300.0, "payload": "to ann", "data": "",
    }  # fmt: skip
    assert items.complete(found["token"])
    payload = shell("items", "claim", "mail", "--json").json["payload"]
    assert base64.b64decode(payload["base64"]) == b"\xff\0"


def test_the_payload_goes_to_a_file_or_to_the_standard_output(shell: Shell) -> None:
    items = shell.client.items("mail")
    for id in ("a", "b"):
        items.put(f"to {id}".encode(), id=id)
    token = claim(shell, "--payload", "letter")
    assert (shell.folder / "letter").read_text() == "to a"
    assert items.complete(token)
    assert claim(shell, "--payload", "-", "--token", "token") == "to b"
    assert items.complete((shell.folder / "token").read_text().strip())


def test_an_item_whose_payload_cannot_be_written_is_released(shell: Shell) -> None:
    """Otherwise it could be claimed again only after its lease has ended."""
    shell.client.items("mail").put(b"x" * 1000, id="a", at_most_once=True)
    full = shell("items", "claim", "mail", "--payload", "/dev/full")
    assert full.code == exit_codes.REFUSED
    assert "No space left" in full.err
    job = shell.client.get("a")
    assert (job.state, job.attempts[0].reason) == ("waiting", "the claimed item could not be written")
    with open("/dev/full", "wb") as nowhere:
        ended = subprocess.run(
            [*PROGRAM, "items", "claim", "mail"],
            cwd=shell.folder,
            env=shell.environ,
            stdout=nowhere,
            check=False,
            timeout=60,
        )
    assert ended.returncode == exit_codes.REFUSED
    assert (shell.client.get("a").state, shell.client.get("a").attempt) == ("waiting", 2)


def test_nothing_to_claim_has_an_exit_code_of_its_own(shell: Shell) -> None:
    shell.client.items("mail").put(b"", delay="1h")
    for words in ((), ("--wait", "50ms")):
        ended = shell("items", "claim", "mail", *words)
        assert (ended.code, ended.out) == (exit_codes.NOT_FOUND, "")
    assert "queue mail has no item to claim" in ended.err


def test_a_claim_waits_for_an_item(shell: Shell) -> None:
    shell.client.items("mail").put(b"", id="a", delay="1s")
    assert claim(shell, "--wait", "30s").startswith("item_")


def test_an_item_is_renewed_and_released_by_its_token(shell: Shell) -> None:
    shell.client.items("mail").put(b"", id="a")
    token = claim(shell)
    assert shell("items", "renew", token).out == "renewed\n"
    assert shell("items", "renew", token, "--data", "-", stdin="half").out == "renewed\n"
    released = shell("items", "release", token, "--reason", "the shop is closed")
    assert (released.code, released.out) == (0, "a\treleased\n")
    again = shell("items", "claim", "mail", "--json").json
    assert (again["data"], again["attempt"]) == ("half", 2)
    shell.client.cancel("a")
    assert shell("items", "renew", again["token"]).out == "cancelled\n"
    assert shell("items", "renew", again["token"], "--json").json == {"id": "a", "cancelled": True}


@pytest.mark.parametrize("end", [("complete",), ("fail", "why"), ("release",), ("renew",)])
def test_a_stale_token_is_refused(shell: Shell, end: tuple[str, ...]) -> None:
    shell.client.items("mail").put(b"", id="a")
    token = claim(shell)
    assert shell("items", "complete", token).code == 0
    refused = shell("items", end[0], token, *end[1:])
    assert (refused.code, refused.out) == (exit_codes.REFUSED, "")
    assert "item a is no longer held by this token" in refused.err


def test_a_token_is_good_after_the_program_that_claimed_was_killed(shell: Shell) -> None:
    """The program that printed it has ended long since; what it was, and where, does not matter."""
    shell.client.items("mail").put(b"", id="a")
    token = claim(shell)
    assert shell.client.workers() == []
    text = "import sys; from holdfast import Holdfast; Holdfast().items('mail').complete(sys.argv[1], b'done')"
    subprocess.run([sys.executable, "-c", text, token], env=shell.environ, timeout=60, check=True)
    assert shell.client.get("a").result_bytes == b"done"
