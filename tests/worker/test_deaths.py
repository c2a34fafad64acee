"""What happens to jobs when a process dies or hangs: the job's, an executor's, a supervisor's, the server's."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import Job, JobNotFound
from holdfast.server.binary import find_binary
from tests.apps import worker_app as app
from tests.support.workers import Crew, children, descendants, is_alive, new_crew, until

# A job's process


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("os._exit", "ended without an outcome; exit code 3"),
        ("sys.exit", "ended without an outcome; exit code 4"),
        ("sys.exit-words", "ended without an outcome; exit code 1"),
        ("signal", "was killed; signal SIGSEGV"),
        ("kill", "was killed; signal SIGKILL"),
    ],
)
def test_a_process_that_dies_is_described_and_charged_as_a_crash(company: Crew, way: str, words: str) -> None:
    job = company.put(app.end_by.options(crashes=1), way)

    ended = company.ended(job)

    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "crashed", 2)
    assert company.outcomes(job) == ["crash", "crash"]
    for run in ended.attempts:
        assert run.failure
        assert re.fullmatch(rf"the job's process {words}; memory last seen \d+ MiB", run.failure.message)


def test_a_job_that_raises_is_described_and_charged_as_an_error(company: Crew) -> None:
    job = company.put(app.end_by.options(retries=0), "raise")

    ended = company.ended(job)

    assert (ended.group, ended.crashes_used, company.outcomes(job)) == ("ZeroDivisionError", 0, ["error"])
    assert ended.failure
    assert "ZeroDivisionError: division by zero" in ended.failure.traceback


def test_a_coroutine_that_calls_sys_exit_crashes_without_its_executor(company: Crew) -> None:
    neighbour = company.put(app.hold_async, "polite")
    company.pids("polite", "runs")

    ended = company.ended(company.put(app.exit_async.options(crashes=0)))

    assert ended.group == "crashed"
    assert ended.failure
    assert ended.failure.message.endswith("exit code 5")
    company.open("polite")
    assert neighbour.result(timeout="30s") == "polite"
    assert company.outcomes(neighbour) == ["succeeded"]


# An executor


def test_the_only_job_of_an_executor_that_dies_is_charged_and_runs_again(crew: Crew) -> None:
    worker = crew.start()
    job = crew.put(app.hold, "only")
    crew.pids("only", "runs")

    crew.kill(worker.executor)

    first, second = crew.pids("only", "runs", 2)
    assert not is_alive(first)
    assert is_alive(second)
    crew.open("only")
    ended = crew.ended(job)
    assert (ended.state, ended.crashes_used) == ("succeeded", 1)
    assert crew.outcomes(job) == ["crash", "succeeded"]
    assert ended.attempts[0].reason == "the executor died: signal SIGKILL"


def test_of_several_coroutines_only_the_one_that_kills_again_is_charged(crew: Crew) -> None:
    crew.start()
    killer = crew.put(app.kill_executor.options(crashes=1), "killer")
    neighbours = [crew.put(app.hold_async, name) for name in ("left", "right")]
    (executor,) = {crew.pids(name, "runs")[0] for name in ("killer", "left", "right")}

    crew.open("killer")

    ended = crew.ended(killer)
    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "crashed", 2)
    assert crew.outcomes(killer) == ["released", "crash", "crash"]
    assert not is_alive(executor)
    for job, name in zip(neighbours, ("left", "right"), strict=True):
        crew.pids(name, "runs", 2)
        crew.open(name)
        assert job.result(timeout="30s") == name
        assert crew.outcomes(job) == ["released", "succeeded"]
        assert crew.get(job).crashes_used == 0


def test_a_job_that_exits_its_executor_with_code_0_is_charged(crew: Crew) -> None:
    crew.start()

    job = crew.put(app.leave_executor.options(crashes=1), "leaver")

    assert crew.ended(job).state == "failed"
    assert crew.outcomes(job) == ["crash", "crash"]


def test_jobs_are_requeued_only_when_all_processes_of_the_dead_executor_are_dead(crew: Crew) -> None:
    worker = crew.start()
    crew.put(app.lead, "leader")
    family = crew.pids("leader", "started", 2) + crew.pids("leader", "runs")

    crew.kill(worker.executor)

    crew.pids("leader", "runs", 2)
    assert not any(map(is_alive, family))


def test_a_zygote_that_is_killed_takes_its_jobs_with_it_and_is_replaced(crew: Crew) -> None:
    worker = crew.start()
    job = crew.put(app.lead, "forked")
    family = crew.pids("forked", "started", 2) + crew.pids("forked", "runs")

    crew.kill(worker.zygote)

    crew.pids("forked", "runs", 2)
    assert not any(map(is_alive, family))
    crew.open("forked")
    assert crew.ended(job).state == "succeeded"
    assert crew.outcomes(job) == ["crash", "succeeded"]


def test_a_process_that_dies_before_its_job_arrives_loses_nothing(crew: Crew) -> None:
    worker = crew.start()
    crew.put(app.add, 1, 2).result(timeout="30s")
    (waiting,) = until(lambda: children(worker.zygote))  # forked ahead, for the next one

    crew.kill(waiting)
    job = crew.put(app.add, 3, 4)

    assert job.result(timeout="30s") == 7
    assert crew.outcomes(job) == ["succeeded"]


def test_a_descriptor_that_a_child_keeps_does_not_hide_the_death_of_an_executor(crew: Crew) -> None:
    """A child that left its group has copies of all descriptors of its job."""
    worker = crew.start()
    crew.put(app.leave_child, "keeper", True).result(timeout="30s")
    job = crew.put(app.hold, "held")
    crew.pids("held", "runs")

    crew.kill(worker.executor)

    crew.pids("held", "runs", 2)
    assert not any(map(is_alive, crew.pids("keeper", "started")))
    crew.open("held")
    assert crew.ended(job).state == "succeeded"


# A supervisor, a worker, a node


def test_nothing_outlives_a_supervisor_that_is_killed(crew: Crew) -> None:
    worker = crew.start()
    crew.put(app.lead, "leader")
    crew.put(app.hold_async, "coroutine")
    crew.pids("coroutine", "runs")
    processes = crew.pids("leader", "started", 2) + crew.pids("leader", "runs") + descendants(worker.pid)

    worker.kill()

    assert until(lambda: not any(map(is_alive, processes)))


def test_another_worker_on_the_node_requeues_the_jobs_of_a_dead_one_long_before_their_leases_expire(crew: Crew) -> None:
    dead = crew.start("--lease", "60s")
    job = crew.put(app.use_directory, "left-over")
    crew.pids("left-over", "runs")
    directories = crew.directories()
    sibling = crew.start("--lease", "60s")
    until(lambda: len(crew.app.workers()) == 2)

    dead.kill()

    crew.pids("left-over", "runs", 2)
    crew.open("left-over")
    ended = crew.ended(job)
    assert crew.outcomes(job) == ["lost", "succeeded"]
    assert (ended.lost_used, ended.crashes_used, ended.attempts[0].reason) == (1, 0, "the worker died")
    assert until(lambda: len(crew.app.workers()) == 1)
    assert until(lambda: not any(directory.exists() for directory in directories))
    assert sibling.stop() == 0


def test_another_node_claims_the_jobs_of_a_dead_one_when_their_leases_expire(crew: Crew) -> None:
    dead = crew.start("--lease", "1s", node="one")
    job = crew.put(app.hold, "orphan")
    crew.pids("orphan", "runs")
    crew.start("--lease", "1s", node="two")
    until(lambda: len(crew.app.workers()) == 2)

    dead.kill()

    crew.pids("orphan", "runs", 2)
    crew.open("orphan")
    ended = crew.ended(job)
    assert crew.outcomes(job) == ["lost", "succeeded"]
    assert (ended.attempts[0].node, ended.attempts[0].reason) == ("one", "lease ended")
    assert ended.attempts[1].node == "two"


def test_executors_claim_nothing_while_their_leases_are_not_renewed(crew: Crew) -> None:
    """The supervisor alone stands still, as when a machine has just woken and has not renewed yet."""
    worker = crew.start("--lease", "1s", "--processes", "4")
    held = crew.put(app.hold, "held")
    crew.pids("held", "runs")
    worker.send(signal.SIGSTOP)
    until(lambda: (crew.get(held).lease_ends_at or datetime.now(UTC)) < datetime.now(UTC))

    job = crew.put(app.say, "claimed")
    assert [crew.get(job).attempt for _ in range(500)] == [0] * 500, "it was claimed, though it was not held on to"

    worker.send(signal.SIGCONT)
    assert crew.ended(job).state == "succeeded"
    crew.open("held")
    assert crew.ended(held).state == "succeeded"
    assert crew.outcomes(held) == ["succeeded"]


# The server


class Server:
    """A server that can be killed and started again on its data, or on those that it had earlier."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"unix://{folder}/s"
        self.start()

    def start(self) -> None:
        line = [str(find_binary()), "--unixsocket", f"{self._folder}/s", "--port", "0", "--save", ""]
        line += ["--dir", f"{self._folder}", "--appendonly", "yes", "--appendfsync", "always"]
        self._process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url) as client:
            until(lambda: _answers(client))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def keep(self) -> None:
        shutil.copytree(self._folder / "appendonlydir", self._folder / "kept")

    def go_back(self) -> None:
        """Be killed, and start again with what was kept."""
        self.kill()
        shutil.rmtree(self._folder / "appendonlydir")
        shutil.move(self._folder / "kept", self._folder / "appendonlydir")
        self.start()


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.fixture
def own_server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    made = Server(folder)
    yield made
    made.kill()
    shutil.rmtree(folder)


@pytest.fixture
def own_crew(own_server: Server, tmp_path: Path) -> Iterator[Crew]:
    with new_crew(own_server.url, tmp_path) as made:
        yield made


def test_workers_log_once_that_the_store_is_unreachable_and_continue_when_it_is_back(
    own_server: Server, own_crew: Crew
) -> None:
    crew = own_crew
    workers = [crew.start("--lease", "1s", "--processes", "2") for _ in range(2)]
    jobs: list[Job[Any]] = [crew.put(app.hold, "first"), crew.put(app.hold_async, "second")]
    crew.pids("first", "runs")
    crew.pids("second", "runs")

    own_server.kill()
    for worker in workers:
        until(lambda worker=worker: "cannot be reached" in worker.log)  # type: ignore[misc]
    crew.open("second")
    until(lambda: crew.said("second", "ends"))
    own_server.start()

    for worker in workers:
        until(lambda worker=worker: "the store is back" in worker.log)  # type: ignore[misc]
    crew.open("first")
    assert [job.result(timeout="30s") for job in jobs] == ["first", "second"]
    assert crew.put(app.add, 1, 2).result(timeout="30s") == 3
    assert [crew.outcomes(job) for job in jobs] == [["succeeded"], ["succeeded"]]
    assert len(crew.said("first", "runs")) == len(crew.said("second", "runs")) == 1
    for worker in workers:
        assert worker.log.count("cannot be reached") == worker.log.count("the store is back") == 1
        assert len(children(worker.pid)) == 1


@pytest.mark.parametrize("processes", ["1", "4"])
def test_a_job_whose_claim_the_server_forgot_runs_again_and_not_twice_at_once(
    own_server: Server, own_crew: Crew, processes: str
) -> None:
    """With room for more, the executor may claim the job again before it hears that it was lost: then it goes on."""
    crew = own_crew
    job = crew.put(app.hold, "forgotten")
    own_server.keep()
    crew.start("--lease", "1s", "--processes", processes)
    crew.pids("forgotten", "runs")
    gone = crew.put(app.say.options(delay="1h"), "gone")
    until(lambda: crew.app.workers()[0].seen_at > gone.created_at)
    seen_at = crew.app.workers()[0].seen_at
    until(lambda: crew.app.workers()[0].seen_at > seen_at)  # so it has the reply to the renewal before

    own_server.go_back()

    assert until(lambda: crew.events("rewound"))
    first, *others = crew.pids("forgotten", "runs", 2 if processes == "1" else 1)
    until(lambda: crew.get(job).state == "running")
    assert not (others and is_alive(first))
    crew.open("forgotten")
    assert crew.ended(job).state == "succeeded"
    assert len(crew.said("forgotten", "ends")) == 1
    with pytest.raises(JobNotFound):
        crew.get(gone)
    assert crew.held() == []


def test_a_server_that_refuses_writes_counts_as_unreachable(own_server: Server, own_crew: Crew) -> None:
    """As the old primary does after a failover."""
    crew = own_crew
    worker = crew.start("--lease", "1s")
    job = crew.put(app.hold_async, "through")
    crew.pids("through", "runs")
    with redis.Redis.from_url(own_server.url) as client:
        client.replicaof("127.0.0.1", 1)
        until(lambda: "accepts no writes" in worker.log or "is temporarily unavailable" in worker.log)
        crew.open("through")
        until(lambda: crew.said("through", "ends"))
        client.replicaof("NO", "ONE")

    assert crew.ended(job).state == "succeeded"
    assert crew.outcomes(job) == ["succeeded"]
    until(lambda: "the store is back" in worker.log)
    assert "died" not in worker.log


def test_a_repeated_refusal_of_the_server_is_logged_once(own_server: Server, own_crew: Crew) -> None:
    worker = own_crew.start("--lease", "1s")
    until(own_crew.app.workers)
    with redis.Redis.from_url(own_server.url) as client:
        client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-fcall"])
        until(lambda: client.info("commandstats")["cmdstat_fcall"]["rejected_calls"] > 30)
        client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all"])

    assert own_crew.ended(own_crew.put(app.add, 1, 2)).state == "succeeded"
    assert "Traceback" not in worker.log
    said = [line.partition("ERROR")[2] for line in worker.log.splitlines() if "no permissions" in line]
    assert 0 < len(said) < 10


def test_a_duty_of_the_supervisor_that_fails_begins_again(crew: Crew) -> None:
    worker = crew.start()
    job = crew.put(app.hold, "held")
    crew.pids("held", "runs")
    with redis.Redis.from_url(crew.url) as client:
        client.rpush(f"hf:{{{crew.namespace}}}:inbox:{crew.app.workers()[0].name}", b"\xff")
    until(lambda: "restarting it" in worker.log)

    job.cancel()

    assert crew.ended(job).state == "cancelled"


def test_an_executor_goes_on_when_the_server_has_refused_it_for_a_while(own_server: Server, own_crew: Crew) -> None:
    crew = own_crew
    worker = crew.start("--lease", "2s", "--processes", "2")
    assert crew.put(app.add, 1, 2).result(timeout="30s") == 3
    stubborn = crew.put(app.hold_async, "first")
    crew.pids("first", "runs")
    executor = worker.executor

    with redis.Redis.from_url(own_server.url) as client:
        client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-blpop", "-zadd"])
        until(lambda: "refused a command" in worker.log)
        client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all"])

    assert crew.put(app.add, 2, 3).result(timeout="30s") == 5
    crew.open("first")
    assert stubborn.result(timeout="30s") == "first"
    assert worker.executor == executor


def test_a_worker_that_never_reached_its_store_stops_at_once(own_server: Server, own_crew: Crew) -> None:
    own_server.kill()
    worker = own_crew.start("--stop-within", "10m")
    until(lambda: "cannot be reached" in worker.log)
    assert worker.stop() == 0
    own_server.start()
