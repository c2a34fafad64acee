"""A worker's settings from a file: pools, errors in the file, and flags that override it."""

from __future__ import annotations

import json
import signal
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
import redis

from holdfast.errors import Invalid
from holdfast.units import size_in_bytes
from holdfast.worker.processes import Usage
from holdfast.worker.settings import Pool, WorkerSettings, read_queues
from holdfast.worker.settings_file import SettingsFile, make_settings, read_project_settings, read_settings_file
from holdfast.worker.supervisor.health import WorkerReport, _shortened
from holdfast.worker.supervisor.slots import shares
from tests.apps import worker_app as app
from tests.support.workers import Crew, children, until


class Write(Protocol):
    def __call__(self, text: str, name: str = "worker.toml") -> Path: ...


WHOLE = """
app = "tasks"
lease = "1m"
stop_within = 10
processes = 2
max_memory = "1G"

[[pools]]
name = "video"
queues = ["video"]
executors = 2
max_age = "12h"

[[pools]]
name = "rest"
queues = { mail = 5, default = 1 }
order = "weighted"
processes = 8
runner = "process"
max_jobs_per_executor = 1000
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "worker.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(Invalid) as refused:
        make_settings("tasks", {}, read_settings_file(path))
    return str(refused.value)


# Files


def test_a_file_describes_a_worker_and_its_pools(write: Write) -> None:
    settings = make_settings("tasks", {}, read_settings_file(write(WHOLE)))

    gib = 1 << 30
    video = Pool(name="video", queues={"video": 1}, executors=2, processes=2, max_age=12 * 3_600_000, max_memory=gib)
    rest = Pool(
        name="rest",
        queues={"mail": 5, "default": 1},
        order="weighted",
        processes=8,
        runner="process",
        max_memory=gib,
        max_jobs_per_executor=1000,
    )
    assert settings == WorkerSettings(app="tasks", lease=60_000, stop_within=10_000, pools=(video, rest))
    assert settings.queues == ["video", "mail", "default"]


def test_a_file_without_pools_describes_one(write: Write) -> None:
    settings = make_settings("tasks", {}, read_settings_file(write('queues = "a, b"\nburst = true')))

    assert settings == WorkerSettings(app="tasks", burst=True, pools=(Pool(queues={"a": 1, "b": 1}),))


def test_the_table_of_a_project_is_its_file(tmp_path: Path, write: Write) -> None:
    assert read_project_settings(tmp_path) == SettingsFile()
    write("[tool.other]\nholdfast = 1\n", "pyproject.toml")
    assert make_settings("tasks", {}, read_project_settings(tmp_path)) == WorkerSettings(app="tasks")
    write('[tool.holdfast.worker]\napp = "shop"\n[[tool.holdfast.worker.pools]]\nname = "a"\n', "pyproject.toml")

    found = read_project_settings(tmp_path)

    assert (found.worker, found.pools) == ({"app": "shop"}, ({"name": "a"},))


def test_an_error_in_the_project_table_is_reported_with_its_line(tmp_path: Path, write: Write) -> None:
    write("[project]\nname = 'x'\n\n[[tool.holdfast.worker.pools]]\nname = 'a'\nqueue = ['b']\n", "pyproject.toml")

    with pytest.raises(Invalid, match=r"^pyproject\.toml, line 6: pool a: unknown setting 'queue'; did you mean q"):
        read_project_settings(tmp_path)


@pytest.mark.parametrize("text", ["[tool]\nholdfast = 1\n", "[tool.holdfast]\nworker = 'shop'\n"])
def test_a_project_entry_that_is_not_a_table_is_refused(tmp_path: Path, write: Write, text: str) -> None:
    write(text, "pyproject.toml")

    with pytest.raises(Invalid, match=r"^pyproject\.toml: tool\.holdfast.* must be a table"):
        read_project_settings(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 1\nprocesses = \nb = 2", "is not valid TOML: Invalid value (at line 2"),
        ("\n\nproceses = 2", "line 3: unknown setting 'proceses'; did you mean processes?"),
        ("max-jobs = 2", "line 1: unknown setting 'max-jobs'; did you mean max_jobs or"),
        ("zzz = 2", "line 1: unknown setting 'zzz'; expected one of app, lease"),
        ("pool = 2", "did you mean pools?"),
        ("app = 'a'\n\n[[pool]]\nname = 'a'", "line 3: unknown setting 'pool'; did you mean pools?"),
        ("processes = 0", "line 1: processes is 0; it must be a whole number from 1 to"),
        ("processes = '4'", "processes is '4'; it must be a whole number"),
        ("processes = true", "processes is True; it must be a whole number"),
        ("burst = 1", "burst is 1; it must be true or false"),
        ("app = 1", "app is 1; it must be text"),
        ("lease = '1ms'", "lease is '1ms'; it must be from 1s to 1h"),
        ("max_memory = '1X'", "max_memory is '1X'; it must be a size"),
        ("max_memory = 1.5", "max_memory is 1.5; it must be a size"),
        ("max_memory = 1000", "max_memory is 1000; it must be at least 1 MiB"),
        ("order = 'random'", "order is 'random'; it must be strict, round-robin, weighted or fair"),
        ("node = 'a/b'", "node is 'a/b'"),
        (f"node = '{'a' * 25}'", "too long"),
        ("queues = []", "queues is empty"),
        ("queues = 3", "queues is 3; it must be names of queues"),
        ("queues = ['a', 'a']", "queues names a twice"),
        ("queues = ['a=x']", "queues has 'a=x'; a weight is a number"),
        ("queues = {a = 0}", "the weight of a is 0; it must be a whole number from 1 to 1000"),
        ("queues = {a = 5}", "queues have weights, but order is strict: set order to weighted"),
        ("pools = 3", "pools must be tables: write [[pools]]"),
        ("[[pools]]\nqueues = ['a']", "line 1: pool 1: name is missing"),
        ("[[pools]]\nname = 'a'\n[[pools]]\n# x\nname = 'a'", "line 5: two pools are named a"),
        ("[[pools]]\nname = 'a'\nlease = '1m'", "line 3: pool a: lease is a setting of the whole worker"),
        ("[[pools]]\nname = 'a'\n[[pools]]\nname = 'b'\nprocesses = 0", "line 5: pool b: processes is 0"),
        ("[[pools]]\nname = 'a'\n[pools.queues]\na = 'x'", "line 1: pool a: the weight of a is 'x'"),
        ("[[pools]]\nname = 'a'\nqueues = 'a=2'", "worker.toml: pool a: queues have weights, but order is strict"),
        ("pools = [{name = 'a', processes = 0}]", "worker.toml: pool a: processes is 0"),
        ("[[pools]]\nname = 'a b'", "line 2: pool a b: name is 'a b'"),
    ],
)
def test_an_error_in_a_file_is_reported_with_its_line_and_pool(write: Write, text: str, says: str) -> None:
    assert says in refusal(write(text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: " in refusal(tmp_path / "nowhere.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    assert "cannot be read: " in refusal(tmp_path / "bytes.toml")


# Flags


def test_flags_are_put_over_a_file(write: Write) -> None:
    config = read_settings_file(write("processes = 2\nconcurrency = 7\nlease = '1m'"))

    settings = make_settings("tasks", {"processes": 4, "lease": 5000}, config)

    assert settings == WorkerSettings(app="tasks", lease=5000, pools=(Pool(processes=4, concurrency=7),))


def test_flags_of_a_pool_are_refused_beside_pools_of_a_file(write: Write) -> None:
    config = read_settings_file(write(WHOLE))

    assert make_settings("tasks", {"burst": True}, config).burst
    with pytest.raises(
        Invalid, match=r"--max-jobs does not apply to the pools of worker\.toml: set it there for each pool"
    ):
        make_settings("tasks", {"max_jobs": 3}, config)


def test_more_queues_than_one_call_takes_are_refused() -> None:
    with pytest.raises(Invalid, match="up to 1000 queues and patterns, not 1001; start several"):
        make_settings("tasks", {"queues": {f"q{number}": 1 for number in range(1001)}}, SettingsFile())


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 1 << 20), ("512M", 512 << 20), ("1.5g", 3 << 29), ("2 GiB", 2 << 30), ("1024kB", 1 << 20)],
)
def test_sizes_are_read_in_powers_of_1024(text: str, size: int) -> None:
    assert size_in_bytes(text, what="size") == size


def test_queues_are_read_with_and_without_weights() -> None:
    assert read_queues("video=5, mail", "--queues") == {"video": 5, "mail": 1}
    assert read_queues(["b", "a"], "queues") == {"b": 1, "a": 1}


def test_the_jobs_of_a_pool_are_divided_among_its_executors() -> None:
    assert shares(Pool(executors=3)) == [None, None, None]
    assert shares(Pool(executors=3, max_jobs=7)) == [3, 2, 2]
    assert shares(Pool(executors=3, max_jobs=2)) == [1, 1]


def test_the_report_of_a_worker_is_never_too_long() -> None:
    rows = [{"name": f"node/worker.{number}", "jobs": number} for number in range(1000)]

    text = _shortened({"pid": 1, "executors": rows, "queues": ["q" * 100] * 1000})

    assert 1000 < len(text) <= 16384
    assert text.startswith('{"pid":1,')


def test_a_report_has_all_pools_of_a_worker_or_none() -> None:
    pools = [{"queues": {f"q{number}" * 20: 1}} for number in range(1000)]
    rows = [{"name": "node/worker.1", "jobs": 1}]

    about = json.loads(_shortened({"executors": rows, "pools": pools[:10], "queues": ["q"]}))
    assert about["pools"] == pools[:10]
    about = json.loads(_shortened({"executors": rows, "pools": pools, "queues": ["q"]}))
    assert about == {"executors": [], "pools": [], "queues": ["q"]}


def test_a_worker_shortens_a_very_long_app_name_in_its_report() -> None:
    text = WorkerReport(WorkerSettings(app="\0" * 100_000)).encode([], Usage())

    assert len(text) < 16384


# Real workers


def test_each_pool_runs_the_jobs_of_its_own_queues(crew: Crew, write: Write) -> None:
    path = write("""
        [[pools]]
        name = "slow"
        queues = ["slow"]
        processes = 1
        [[pools]]
        name = "quick"
        queues = ["quick", "default"]
    """)
    worker = crew.start("--config", str(path))
    held = [crew.put(app.hold.options(queue="slow"), name) for name in ("first", "second")]
    crew.pids("first", "runs")

    others = [crew.put(app.add.options(queue="quick"), 1, 2), crew.put(app.add, 1, 2)]
    assert [job.result(timeout="30s") for job in others] == [3, 3]

    assert crew.said("second", "runs") == []
    assert len(children(worker.pid)) == 2
    (seen,) = crew.app.workers()
    assert seen.queues == ["slow", "quick", "default"]
    for job, name in zip(held, ("first", "second"), strict=True):
        crew.open(name)
        assert job.result(timeout="30s") == name
    (slow,), (quick,) = ({crew.get(job).attempts[0].executor for job in jobs} for jobs in (held, others))
    assert slow != quick
    assert worker.stop() == 0


def test_a_burst_of_pools_runs_what_one_enqueues_for_another_that_was_idle(crew: Crew, write: Write) -> None:
    path = write("burst = true\n[[pools]]\nname = 'a'\nqueues = ['a']\n[[pools]]\nname = 'b'\nqueues = ['b']\n")
    first = crew.put(app.pass_on.options(queue="a"), "held", "b")
    worker = crew.start("--config", str(path))
    crew.pids("held", "runs")
    with redis.Redis.from_url(crew.url) as client:
        until(lambda: client.zcard(f"hf:{{{crew.namespace}}}:idle:b"))
    slow = children(worker.pid)[1]
    crew.kill(slow, signal.SIGSTOP)
    crew.open("held")
    assert crew.ended(first).state == "succeeded"
    looks = count()
    until(lambda: len(children(worker.pid)) == 1 or next(looks) > 100)  # so that the other could leave, wrongly

    crew.kill(slow, signal.SIGCONT)

    assert worker.wait() == 0
    assert crew.said("passed") == [[]]


def test_the_app_of_a_worker_may_stand_in_its_file(crew: Crew, write: Write) -> None:
    path = write('app = "tests.apps.worker_app"\nburst = true')
    job = crew.put(app.add, 1, 2)

    worker = crew.start("--config", str(path), app="--burst")

    assert worker.wait() == 0
    assert crew.get(job).decoded_result() == 3


def test_settings_come_from_the_environment_and_are_refused_beside_pools(crew: Crew, write: Write) -> None:
    crew.put_all([app.say.options(queue=queue).bind(queue) for queue in "aab"])
    worker = crew.start(HOLDFAST_BURST="1", HOLDFAST_QUEUES="a=2,b=1", HOLDFAST_ORDER="weighted", HOLDFAST_MAX_JOBS="3")
    assert worker.wait() == 0
    assert sorted(crew.said()) == [["a"], ["a"], ["b"]]

    refused = crew.start("--config", str(write("[[pools]]\nname = 'a'")), HOLDFAST_QUEUES="b")

    assert refused.wait() == 2
    assert "--queues does not apply to the pools of worker.toml" in refused.log


def test_a_worker_with_an_invalid_file_does_not_start(crew: Crew, write: Write) -> None:
    worker = crew.start("--config", str(write("burst = 1")))

    assert worker.wait() == 2
    assert "worker.toml, line 1: burst is 1" in worker.log


def test_a_worker_of_a_file_keeps_its_jobs_when_an_executor_dies(crew: Crew, write: Write) -> None:
    path = write("[[pools]]\nname = 'a'\nqueues = ['a']\n[[pools]]\nname = 'b'\nqueues = ['b']\n")
    crew.start("--config", str(path))
    jobs = {name: crew.put(app.hold_async.options(queue=name), name) for name in ("a", "b")}
    executors = {name: crew.pids(name, "runs")[0] for name in jobs}

    crew.kill(executors["a"])

    crew.pids("a", "runs", 2)
    for name, job in jobs.items():
        crew.open(name)
        assert job.result(timeout="30s") == name
    assert crew.outcomes(jobs["a"]) == ["crash", "succeeded"]
    assert crew.outcomes(jobs["b"]) == ["succeeded"]
    assert until(lambda: not crew.held())
