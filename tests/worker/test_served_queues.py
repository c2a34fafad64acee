"""Workers that serve patterns of queues: new queues are found while they run, and excluded ones never served."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from holdfast import Holdfast, Invalid
from holdfast.store import commands
from tests.apps import runner_app
from tests.apps import worker_app as app
from tests.support.outages import Switch
from tests.support.shells import Shell
from tests.support.workers import Crew, new_crew, until


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis[bytes]]:
    with redis.Redis.from_url(server_url) as made:
        yield made


def key(crew: Crew, name: str) -> str:
    return f"hf:{{{crew.namespace}}}:{name}"


def are_idle(client: redis.Redis[bytes], crew: Crew, executors: int = 1) -> None:
    """Wait until so many executors have found nothing."""

    def idle() -> int:
        return sum(client.zcard(name) for name in client.keys(key(crew, "idle:*").replace("[", "\\[")))

    until(lambda: idle() == executors, what="idle executors")


def served(crew: Crew, count: int) -> list[str]:
    """Wait until the only worker says that it serves so many queues, and return them."""

    def found() -> list[str] | None:
        workers = crew.app.workers()
        return workers[0].queues if workers and len(workers[0].queues) == count else None

    return until(found, what=f"a worker of {count} queues")


def run_in(crew: Crew, queue: str) -> None:
    assert crew.put(app.add.options(queue=queue), 1, 2).result(timeout="30s") == 3


# New queues


def test_a_new_queue_is_found_while_all_executors_are_idle(crew: Crew, client: redis.Redis[bytes]) -> None:
    crew.start("--queues", "video-*,mail", "--executors", "2")
    are_idle(client, crew, executors=2)

    run_in(crew, "video-one")
    run_in(crew, "video-two")
    run_in(crew, "mail")

    assert served(crew, 3) == ["video-one", "video-two", "mail"]
    are_idle(client, crew, executors=2)


def test_a_new_queue_is_found_while_all_executors_are_busy(crew: Crew) -> None:
    crew.start("--queues", "video-*", "--executors", "2", "--processes", "1")
    held = [crew.put(app.hold.options(queue="video-one"), name) for name in ("first", "second")]
    crew.pids("first", "runs")
    crew.pids("second", "runs")

    later = crew.put(app.add.options(queue="video-two"), 1, 2)
    assert served(crew, 2) == ["video-one", "video-two"]
    crew.open("first")

    assert later.result(timeout="30s") == 3
    crew.open("second")
    assert [job.result(timeout="30s") for job in held] == ["first", "second"]


def test_an_unknown_inbox_message_is_ignored(crew: Crew, client: redis.Redis[bytes]) -> None:
    worker = crew.start("--queues", "video-*")
    until(crew.app.workers)
    client.rpush(key(crew, f"inbox:{crew.app.workers()[0].name}"), "what", "is this now", "cancel nobody/x.1 id 1")

    run_in(crew, "video-one")

    assert "Traceback" not in worker.log


def test_a_job_may_make_the_queue_of_the_next(crew: Crew) -> None:
    crew.start("--queues", "*,!default")
    crew.open("held")

    crew.put(app.pass_on.options(queue="one"), "held", "two")

    until(lambda: crew.said("passed"))


def test_while_no_queue_matches_a_worker_waits_and_logs_it_once(crew: Crew) -> None:
    worker = crew.start("--queues", "video-*,other-*")
    until(lambda: "no queue matches" in worker.log)

    run_in(crew, "video-now")

    assert worker.log.count("no queue matches video-*, other-* yet; waiting for one") == 1


# What is excluded, and in what order


def test_jobs_of_excluded_queues_never_run(crew: Crew) -> None:
    queues = ["video-one", "video-test", "mail-slow", "mail"]
    crew.put_all([app.say.options(queue=queue).bind(queue) for queue in queues])
    worker = crew.start("--queues", "*,!video-test,!*-slow", "--burst")
    assert worker.wait() == 0

    assert sorted(crew.said()) == [["mail"], ["video-one"]]
    waiting = {queue.name: queue.counts["waiting"] for queue in crew.app.queues()}
    assert waiting == {"mail": 0, "mail-slow": 1, "video-one": 0, "video-test": 1}


def test_each_queue_that_matches_has_the_weight_of_its_pattern(crew: Crew) -> None:
    for queue in ("mail", "video-a", "video-b"):
        crew.put_all([app.say.options(queue=queue).bind(queue) for _ in range(30)])

    worker = crew.start(
        "--queues", "video-*=3,mail", "--order", "weighted", "--max-jobs", "21", "--processes", "1", "--burst"
    )

    assert worker.wait() == 0
    assert Counter(word for (word,) in crew.said()) == {"video-a": 9, "video-b": 9, "mail": 3}


def test_a_fair_order_gives_each_queue_its_share_of_the_slots_of_all_workers(crew: Crew) -> None:
    """A queue of long jobs has all slots of one worker; another worker gives its own to the other queue."""
    hold = runner_app.find("hold", "fork")
    for queue in ("slow", "quick"):
        crew.put_all([hold.options(queue=queue, id=f"{queue}{n}").bind(queue, False) for n in range(12)])

    def running() -> Counter[str]:
        return Counter(job.queue for job in crew.app.list(state="running"))

    crew.start("--queues", "slow", "--processes", "4", app="tests.apps.runner_app")
    until(lambda: running() == {"slow": 4})
    crew.start("--queues", "slow,quick", "--order", "fair", "--processes", "4", app="tests.apps.runner_app")
    until(lambda: sum(running().values()) == 8)
    assert running() == {"slow": 4, "quick": 4}


def test_a_fair_order_has_the_weights_of_patterns(crew: Crew) -> None:
    hold = runner_app.find("hold", "fork")
    for queue in ("mail", "video-a", "video-b"):
        crew.put_all([hold.options(queue=queue).bind("never", False) for _ in range(9)])
    crew.start("--queues", "video-*=2,mail", "--order", "fair", "--processes", "5", app="tests.apps.runner_app")
    until(lambda: len(list(crew.app.list(state="running"))) == 5)
    assert Counter(job.queue for job in crew.app.list(state="running")) == {"video-a": 2, "video-b": 2, "mail": 1}


def test_a_strict_order_takes_a_named_queue_in_its_place(crew: Crew) -> None:
    queues = ["b-video", "mail", "a-video", "urgent"]
    crew.put_all([app.say.options(queue=queue).bind(queue) for queue in queues])

    worker = crew.start("--queues", "urgent,*,mail", "--burst", "--processes", "1")

    assert worker.wait() == 0
    assert crew.said() == [["urgent"], ["a-video"], ["b-video"], ["mail"]]


# Bursts


def test_a_burst_runs_what_its_last_job_puts_into_a_new_queue(crew: Crew) -> None:
    crew.open("held")
    crew.put(app.pass_on.options(queue="video-one"), "held", "video-two")

    worker = crew.start("--queues", "video-*", "--burst")

    assert worker.wait() == 0
    assert crew.said("passed") == [[]]


def test_a_burst_without_any_queue_ends(crew: Crew) -> None:
    worker = crew.start("--queues", "video-*", "--burst")

    assert worker.wait() == 0


def test_pools_have_patterns_of_their_own(crew: Crew, tmp_path: Path) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("""
        burst = true
        [[pools]]
        name = "video"
        queues = ["video-*"]
        [[pools]]
        name = "rest"
        queues = ["*", "!video-*"]
    """)
    crew.open("held")
    crew.put(app.pass_on.options(queue="mail"), "held", "video-one")

    worker = crew.start("--config", str(path))

    assert worker.wait() == 0
    assert crew.said("passed") == [[]]
    assert "pool rest: queues that match *: mail" in worker.log
    assert "pool video: no queue matches video-* yet" in worker.log


# What it says of itself


def test_a_worker_publishes_its_patterns_and_the_queues_that_it_serves(crew: Crew) -> None:
    crew.put(app.add.options(queue="video-one"), 1, 2)
    crew.put(app.add.options(queue="video-test"), 1, 2)
    crew.start("--queues", "mail,video-*,!video-test")

    assert served(crew, 2) == ["mail", "video-one"]

    (worker,) = crew.app.workers()
    assert worker.queue_patterns == ["mail", "video-*", "!video-test"]
    assert {queue.name: queue.workers for queue in crew.app.queues()} == {"video-one": 1, "video-test": 0}


def test_a_queue_that_is_forgotten_is_not_served_any_more(crew: Crew) -> None:
    crew.start("--queues", "mail,video-*", "--lease", "1s")
    for queue in ("video-one", "video-two"):
        crew.app.delete(crew.ended(crew.put(app.add.options(queue=queue), 1, 2)).id)
    assert served(crew, 3) == ["mail", "video-one", "video-two"]

    crew.app.forget("video-one")

    assert served(crew, 2) == ["mail", "video-two"]
    run_in(crew, "video-one")
    assert served(crew, 3) == ["mail", "video-one", "video-two"]


def test_the_command_line_shows_both(shell: Shell) -> None:
    about = json.dumps({"pid": 1, "queues": ["v-*", "!v-x", "m"]})
    served = ["v-a", "v-b", "v-c", "v-d", "m"]
    shell.client.store.run(commands.renew("node/worker", [], about=about, queues=served))
    shell.client.store.run(commands.renew("node/other", [], about=about, queues=["m"]))

    shown = shell.on_a_terminal("workers", columns=200)

    assert "v-*,!v-x,m (now v-a,v-b,v-c and 2 more)" in shown
    assert "v-*,!v-x,m (now m)" in shown
    other, worker = sorted(json.loads(shell("workers", "--json").out), key=lambda each: each["worker"])
    assert (worker["queues"], worker["queue_patterns"]) == (served, ["v-*", "!v-x", "m"])
    assert (other["queues"], other["queue_patterns"]) == (["m"], ["v-*", "!v-x", "m"])


def test_an_app_whose_queues_match_is_not_warned_of(crew: Crew) -> None:
    worker = crew.start("--queues", "def*", "--burst")
    other = crew.start("--queues", "video-*", "--burst")

    assert (worker.wait(), other.wait()) == (0, 0)
    assert "does not serve" not in worker.log
    assert "use queues that this worker does not serve: default" in other.log


def test_an_invalid_pattern_is_refused_at_the_start(crew: Crew) -> None:
    worker = crew.start("--queues", "video-*,!video-*")

    assert worker.wait() == 2
    assert "--queues has video-* and excludes it by !video-*" in worker.log


# Faults


def test_another_worker_takes_over_when_one_is_killed_and_goes_on_to_find_queues(crew: Crew) -> None:
    first = crew.start("--queues", "video-*")
    job = crew.put(app.hold.options(queue="video-one"), "held")
    crew.pids("held", "runs")
    crew.start("--queues", "video-*")
    until(lambda: len(crew.app.workers()) == 2)

    first.kill()

    crew.pids("held", "runs", 2)
    crew.open("held")
    assert job.result(timeout="30s") == "held"
    run_in(crew, "video-two")
    assert {queue.name: queue.workers for queue in crew.app.queues()} == {"video-one": 1, "video-two": 1}


def test_a_fresh_executor_serves_what_the_dead_one_did(crew: Crew) -> None:
    worker = crew.start("--queues", "video-*")
    run_in(crew, "video-one")
    old = worker.executor

    crew.kill(old)

    run_in(crew, "video-one")
    run_in(crew, "video-two")
    assert worker.executor != old


def test_a_stopped_worker_serves_no_queue(crew: Crew, client: redis.Redis[bytes]) -> None:
    worker = crew.start("--queues", "video-*")
    run_in(crew, "video-one")

    assert worker.stop() == 0

    assert [queue.workers for queue in crew.app.queues()] == [0]
    assert [name for kind in ("live", "inbox") for name in client.keys(key(crew, f"{kind}:*"))] == []


def test_a_queue_that_is_new_while_a_server_comes_back_is_found(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    switch = Switch(tmp_path / "server")
    switch.on()
    try:
        with new_crew(switch.url, tmp_path) as crew:
            worker = crew.start("--queues", "video-*")
            run_in(crew, "video-one")

            switch.off()
            until(lambda: "running jobs continue, retrying" in worker.log)
            switch.on()

            run_in(crew, "video-two")
    finally:
        switch.off()


# Many


def test_of_many_queues_those_with_jobs_are_served(crew: Crew, client: redis.Redis[bytes]) -> None:
    client.zadd(key(crew, "queues"), {f"q{number:05}": 0 for number in range(10_001)})
    queues = [f"q{number:05}" for number in range(0, 10_000, 9)]
    for first in range(0, len(queues), 1000):
        crew.put_all([app.add_async.options(queue=queue).bind(1, 2) for queue in queues[first : first + 1000]])

    worker = crew.start("--queues", "q*", "--burst")

    assert worker.wait() == 0
    assert crew.app.count(state="succeeded") == len(queues)
    assert len(crew.app.queues()) == 10_001


def test_more_named_queues_than_a_claim_names_are_served_in_their_order(crew: Crew) -> None:
    queues = [f"q{number:02}" for number in range(30, 0, -1)]
    crew.put_all([app.say.options(queue=queue).bind(queue) for queue in sorted(queues)])

    worker = crew.start("--queues", ",".join(queues), "--burst", "--processes", "1")

    assert worker.wait() == 0
    assert crew.said() == [[queue] for queue in queues]


# Inside a program


@pytest.fixture
def jobs(server_url: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


def test_a_worker_inside_a_program_serves_patterns(jobs: Holdfast) -> None:
    go = threading.Event()

    @jobs.task(name="wait")
    def wait(name: str) -> str:
        go.wait(30)
        return name

    with jobs.worker(queues=["video-*", "!video-test"]):
        excluded = wait.options(queue="video-test").enqueue("never")
        busy = wait.options(queue="video-one").enqueue("one")
        until(lambda: jobs.count(state="running") == 1)
        new = wait.options(queue="video-two").enqueue("two")
        until(lambda: jobs.count(state="running") == 2)
        go.set()
        assert [busy.result(timeout="30s"), new.result(timeout="30s")] == ["one", "two"]

    assert jobs.get(excluded.id).state == "waiting"


def test_a_worker_inside_a_program_refuses_bad_patterns_at_once(jobs: Holdfast) -> None:
    with pytest.raises(Invalid, match="queues has !a but no pattern"):
        jobs.worker(queues="b,!a")


def test_a_worker_inside_a_program_ends_while_it_waits_for_a_queue(jobs: Holdfast) -> None:
    with jobs.worker(queues={"video-*": 3}, order="weighted") as worker:
        until(lambda: [one.name for one in jobs.workers()] == [worker.name])

    assert jobs.workers() == []
