"""The group of a failed job is that of its last error; `final_reason` is why there was no other attempt."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, JobFailed
from holdfast.client import operations
from holdfast.job.outcome import Crash, Error, Outcome, Release, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.apps import failure_groups_app as app
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import end, fields, put, take
from tests.support.servers import running_server
from tests.support.shells import Hand, Shell, failure
from tests.support.workers import ROOT, Crew, new_crew

Ends = list[Outcome]

ENDS: dict[str, tuple[dict[str, Any], Ends, str, str]] = {
    "retries are used up": ({"retries": 1}, [Error(b"", "Disk", delay=0)] * 2, "Disk", "exhausted"),
    "the last error counts": (
        {"retries": 1},
        [Error(b"", "Net", delay=0), Error(b"", "Disk", delay=0)],
        "Disk",
        "exhausted",
    ),
    "there are none": ({"retries": 0}, [Error(b"", "Disk")], "Disk", "exhausted"),
    "declared by the task": ({}, [Error(b"", "Disk", final=True)], "Disk", "declared"),
    "it is refused": ({}, [Error(b"", "Disk", final="refused")], "Disk", "refused"),
    "crashes are used up": ({"crashes": 1}, [Crash(b"")] * 2, "crashed", "exhausted"),
    "once, an error": ({"at_most_once": True}, [Error(b"", "Disk")], "Disk", "at_most_once"),
    "once, declared": ({"at_most_once": True}, [Error(b"", "Disk", final=True)], "Disk", "declared"),
    "once, a crash": ({"at_most_once": True}, [Crash(b"")], "crashed", "at_most_once"),
    "once, released": ({"at_most_once": True}, [Release("stopped")], "interrupted", "at_most_once"),
}


@pytest.mark.parametrize(("options", "ends", "group", "reason"), ENDS.values(), ids=ENDS.keys())
def test_a_job_fails_in_the_group_of_its_error_with_a_final_reason(
    store: Store, options: dict[str, Any], ends: Ends, group: str, reason: str
) -> None:
    put(store, "job", **options)
    for outcome in ends:
        assert take(store) == ["job"]
        end(store, "job", outcome)

    assert fields(store, "job", "state", "group", "final_reason") == ("failed", group, reason)
    assert store.run(commands.retry(["job"])) == ["waiting"]
    assert fields(store, "job", "state", "group", "final_reason") == ("waiting", "", "")
    take(store)
    end(store, "job", Succeed(b"1"))
    assert fields(store, "job", "state", "group", "final_reason") == ("succeeded", "", "")


def test_a_lost_lease_a_deadline_and_an_operator_have_groups_and_reasons(store: Store, clock: TestClock) -> None:
    put(store, "lost", lost=0)
    take(store)
    assert store.run(commands.requeue_orphaned(worker="node/one", reason="dead")) == ["lost"]
    put(store, "late", "stopped", deadline=1000, queue="elsewhere")
    store.run(commands.fail(["stopped"], group="no-disk"))
    clock.advance(2)
    take(store)

    assert fields(store, "lost", "group", "final_reason") == ("lost", "exhausted")
    assert fields(store, "late", "group", "final_reason") == ("deadline", "deadline")
    assert fields(store, "stopped", "group", "final_reason") == ("no-disk", "operator")


def test_a_group_that_is_longer_than_a_record_holds_is_found_by_its_whole_name(store: Store) -> None:
    long = "some.module.of.a.library.that.likes.long.names.SomethingWentWrongSomewhere"
    put(store, "job")
    take(store)
    end(store, "job", Error(b"", long, final=True))

    store.run(commands.start_operation("o", "retry", states=["failed"], group=long))
    acted = store.run(commands.continue_operation("o", 0))

    assert acted.answers == {"waiting": 1}


def test_show_and_json_have_the_final_reason(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure(), "bad-address", final=True))

    assert ["final reason", "declared"] in shell("show", "mine").rows
    assert shell("show", "mine", "--json").json["final_reason"] == "declared"
    assert shell("jobs", "--json").json[0]["final_reason"] == "declared"
    with pytest.raises(JobFailed, match=r"job mine failed in group bad-address \(declared\): "):
        shell.client.get("mine").result()


def test_the_reason_of_an_operator_counts_more_than_the_error_of_an_earlier_attempt(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure("earlier"), "g"))
    shell.client.fail("mine", group="no-disk", reason="the disk is full")
    shell.client.note("mine", "a note that came later")

    assert shell.client.get("mine").why == "the disk is full"


def test_a_job_whose_payload_is_missing_has_a_final_reason_too(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).end(Error(failure("earlier"), "g", delay=0))
    shell.client.store.execute("HDEL", shell.client.address.key.replace("meta", "j:mine"), "p")
    assert Hand(shell.client, "node/other").try_to_take() is None

    job = shell.client.get("mine")
    assert (job.group, job.final_reason) == ("payload-lost", "refused")
    assert job.why == "its payload is missing from the store: enqueue it again"


# The examples of the documents, as they are written there, with jobs that had retries


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("groups")) as made:
        made.start("--queues", "mail,video", "--processes", "2", app="tests.apps.failure_groups_app")
        yield made


FAILS = {
    app.connect: "ConnectionError",
    app.send: "smtplib.SMTPServerDisconnected",
    app.read: "OSError",
    app.eat: "memory",
    app.last: "timeout",
    app.hang: "stalled",
    app.die: "crashed",
}
DOCUMENTS = [
    ROOT / "README.md",
    *(path for folder in ("", "cli", "reference") for path in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
EXAMPLE = re.compile(r"jobs\.retry_all\([^)]*group=[^)]*\)|holdfast retry --all [^`\n]*--group [\w.-]+[^`\n#]*")
OWN_GROUP = {'jobs.retry_all(queue="later", group="no-disk")'}  # of `fail_all`, in a document that is run


def examples(text: str) -> set[str]:
    """Those that retry jobs where they are; client/test_failures.py retries some in another queue."""
    found = {found.strip() for found in EXAMPLE.findall(text)} - OWN_GROUP
    return {each for each in found if not re.search(r" (--)?to\b", each)}


def test_every_error_ends_in_its_own_group_after_its_retries(crew: Crew) -> None:
    jobs = {task: crew.put(task) for task in FAILS}
    for task, group in FAILS.items():
        ended = crew.ended(jobs[task])
        assert (ended.state, ended.group, ended.final_reason) == ("failed", group, "exhausted")
        assert ended.failure is not None


@pytest.mark.parametrize("example", sorted({each for path in DOCUMENTS for each in examples(path.read_text())}))
def test_what_the_documents_retry_by_group_is_retried(crew: Crew, example: str) -> None:
    """All of them: those of the reference and of --help are in the documents too."""
    (group,) = re.findall(r"group[= ]\"?([\w.]+)", example)
    (task,) = [task for task, name in FAILS.items() if name == group]
    job = crew.ended(crew.put(task))
    before = job.attempt

    assert _run(example, crew) >= 1

    assert crew.ended(job).attempt == before + 2
    crew.app.delete_all(state="failed")


def test_there_are_examples_in_the_places_that_people_read() -> None:
    found = {str(path.relative_to(ROOT)): examples(path.read_text()) for path in DOCUMENTS}
    assert {name for name, texts in found.items() if texts} >= {
        *("docs/cli/actions.md", "docs/reference/jobs.md", "docs/pipelines.md", "docs/long.md")
    }
    assert examples(operations.retry_all.__doc__ or "") <= found["docs/reference/jobs.md"]


def _run(example: str, crew: Crew) -> int:
    """Run an example. Returns how many jobs it retries."""
    if example.startswith("holdfast "):
        line = [sys.executable, "-m", "holdfast", *shlex.split(example)[1:], "--json"]
        where = {
            "HOLDFAST_URL": crew.url,
            "HOLDFAST_NAMESPACE": crew.namespace,
            "PATH": str(Path(sys.executable).parent),
        }
        done = subprocess.run(line, env=where, cwd=ROOT, capture_output=True, check=True)
        counts: dict[str, int] = ast.literal_eval(done.stdout.decode())
        return counts["waiting"]
    call = ast.parse(example, mode="eval").body
    assert isinstance(call, ast.Call)
    kind: dict[str, Any] = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    return Holdfast.retry_all(crew.app, **kind).counts["waiting"]
