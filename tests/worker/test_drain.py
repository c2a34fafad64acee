"""Drained workers claim nothing more, and exit when their jobs have ended."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.store.caller import caller_name
from tests.apps import long_app
from tests.cli.test_queues_and_workers import silence
from tests.support.shells import Shell
from tests.support.workers import Crew, until

APP = "tests.apps.long_app"


def test_a_drained_worker_ends_when_its_job_has_and_claims_no_other(crew: Crew) -> None:
    worker = crew.start("--processes", "2", app=APP)
    running = crew.put(long_app.wait_for_file, str(crew.folder / "go"))
    until(lambda: running.refresh().state == "running")
    [known] = crew.app.workers()
    assert not known.is_idle

    crew.app.drain(known.name)
    until(lambda: crew.app.workers()[0].is_draining)
    assert f"is draining, as {caller_name()} requested: it exits" in worker.log
    other = crew.put(long_app.wait_for_file, str(crew.folder / "go"))
    (crew.folder / "go").touch()

    assert worker.wait() == 0
    assert running.refresh().state == "succeeded"
    assert other.refresh().state == "waiting"
    assert crew.app.workers() == []


def test_an_idle_worker_that_is_drained_ends_at_once(crew: Crew) -> None:
    worker = crew.start(app=APP)
    until(crew.app.workers)
    assert crew.app.workers()[0].is_idle

    crew.app.drain(crew.app.workers()[0].name)

    assert worker.wait() == 0


def test_a_worker_that_is_not_there_cannot_be_drained(crew: Crew) -> None:
    with pytest.raises(errors.WorkerNotFound, match="worker node/nobody does not exist"):
        crew.app.drain("node/nobody")


def test_the_command_line_drains_the_workers_of_a_node_and_waits_for_their_end(
    shell: Shell, crew: Crew, namespace: str
) -> None:
    for node, queue in (("here", "default"), ("here", "default"), ("there", "other")):
        crew.start("--queues", queue, app=APP, node=node, HOLDFAST_NAMESPACE=namespace)
    until(lambda: len(shell("workers", "--idle").rows) == 3)
    job = shell.client.enqueue(long_app.wait_for_file.bind(str(crew.folder / "go")))
    until(lambda: len(shell("workers", "--idle").rows) == 2)

    assert sorted(row[1:] for row in shell("workers", "drain", "--node", "here").rows) == [
        ["draining", "0"],
        ["draining", "1"],
    ]
    until(lambda: [row[1] for row in shell("workers").rows if row[0].startswith("here/")] == ["draining"])
    assert sorted(worker["draining"] for worker in shell("workers", "--json").json) == [False, True]

    (crew.folder / "go").touch()
    assert shell.client.get(job.id).result(timeout="30s") == "found"
    (other,) = until(lambda: left if len(left := shell.client.workers()) == 1 else None)
    assert other.node == "there"
    assert [row[1] for row in shell("workers", "drain", other.name, "--wait").rows] == ["draining", "ended"]


def test_waiting_for_a_drained_worker_can_time_out(shell: Shell, crew: Crew, namespace: str) -> None:
    crew.start(app=APP, HOLDFAST_NAMESPACE=namespace)
    job = shell.client.enqueue(long_app.wait_for_file.bind(str(crew.folder / "go")))
    name = until(lambda: shell.client.get(job.id).worker)

    code, _, err = shell("workers", "drain", name, "--wait", "--timeout", "10ms")

    assert (code, err) == (5, "holdfast: --timeout elapsed before 1 of 1 worker ended; draining continues\n")
    assert shell("workers", "drain").code == 2
    assert shell("workers", "drain", "--node", "nowhere").code == 3


def test_a_worker_that_is_waited_for_and_gives_no_sign_of_life_is_named(shell: Shell) -> None:
    silence(shell, "node/gone")

    code, _, err = shell("workers", "drain", "node/gone", "--wait", "--timeout", "10ms")

    assert code == 5
    assert "worker node/gone sends no heartbeat; if it is dead: `holdfast workers forget node/gone`" in err
