"""Failures of real jobs: in each runner the same fingerprint, one traceback, and the revision of the app."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apps import failures_app as app
from tests.support.servers import running_server
from tests.support.workers import Crew, new_crew


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("failures")) as made:
        made.start("--processes", "2", "--allow-exec", app="tests.apps.failures_app")
        yield made


def test_an_error_has_the_same_fingerprint_in_each_runner_and_one_traceback_for_all(crew: Crew) -> None:
    jobs = {runner: crew.ended(crew.put(app.tasks[runner], f"host-{runner}")) for runner in app.RUNNERS}
    plain = {job.fingerprint for runner, job in jobs.items() if runner != "async"}
    assert len(plain) == 1
    assert len(jobs["async"].fingerprint) == 16  # its coroutine is one more function on the way

    found = crew.app.failure(*plain)
    assert (found.count, found.errors) == (len(jobs) - 1, 2 * (len(jobs) - 1))
    assert (found.type, found.place, found.revision) == ("ValueError", "tests.apps.failures_app:attempt", 42)
    assert "in connect" in found.traceback
    assert found.traceback_of is not None
    owner = crew.app.get(found.traceback_of[0])
    assert owner.attempts[0].failure is not None
    assert owner.attempts[0].failure.traceback_of is None
    for job in jobs.values():
        for attempt in crew.get(job).attempts:
            assert attempt.failure is not None
            assert "Unreachable" in attempt.failure.traceback
            owner_of = attempt.failure.traceback_of or (job.id, attempt.number)
            assert crew.app.get(owner_of[0]).fingerprint == job.fingerprint


def test_crashes_and_programs_have_fingerprints_of_how_they_ended(crew: Crew) -> None:
    died = crew.ended(crew.put(app.die))
    assert crew.app.failure(died.fingerprint).place == "signal SIGKILL"

    false = [crew.app.enqueue(crew.app.program(["false"]).options(retries=0)) for _ in range(2)]
    other = crew.app.enqueue(crew.app.program(["ls", "/nowhere"]).options(retries=0))
    prints = [crew.ended(job).fingerprint for job in (*false, other)]
    assert prints[0] == prints[1] != prints[2]
    found = crew.app.failure(prints[2])
    assert (found.type, found.place) == ("ProgramFailed", "ls")
    assert "/nowhere" in found.traceback
