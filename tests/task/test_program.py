"""Any program as a job: as a list of arguments that nobody interprets, with the same care as a task, and only on
workers that allow it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import BoundCall, Holdfast, Invalid, Job, JobFailed, TooBig
from holdfast.store import commands
from holdfast.task.program import MAX_ARGUMENT, MAX_ARGUMENTS, PROGRAM, ProgramResult
from tests.support.new_job import NewJob
from tests.support.servers import running_server
from tests.support.shells import Shell, running_worker, wait_until
from tests.support.workers import Crew, Worker, is_alive, new_crew, until

HOSTILE = [
    "",
    " ",
    "; rm -rf /",
    "$(touch owned)",
    "`touch owned`",
    "a\nb",
    "*",
    "~",
    "--",
    "|&<>\"'\\",
    "é\u202e",
    "\x1b[31m",
]
PYTHON = sys.executable


def python(code: str, *arguments: str) -> list[str]:
    return [PYTHON, "-c", code, *arguments]


class Staff:
    """A worker that runs programs, and what is asked of it."""

    def __init__(self, crew: Crew, worker: Worker) -> None:
        self.crew = crew
        self.worker = worker

    def put(self, arguments: list[str], **more: Any) -> Job[ProgramResult]:
        about = {name: more.pop(name) for name in ("cwd", "env", "stdin") if name in more}
        call: BoundCall[ProgramResult] = self.crew.app.program(arguments, **about)
        return self.crew.app.enqueue(call.options(**more))

    def run(self, arguments: list[str], **more: Any) -> Job[Any]:
        return self.crew.ended(self.put(arguments, **more))

    def output(self, arguments: list[str], **more: Any) -> str:
        """Run a program to its success, and return its last line."""
        ended = self.put(arguments, **more).result(timeout="40s")
        assert ended.exit_code == 0
        return ended.last_line

    def log(self, job: Job[Any]) -> str:
        blocks = self.crew.app.store.run(commands.logs(job.id)).blocks
        return b"".join(data for number, data in sorted(blocks.items()) if number >= 0).decode()


def start(crew: Crew, *options: str, allow: bool = True, **more: str) -> Staff:
    line = (*(["--allow-exec"] if allow else []), "--processes", "4", "--lease", "1s", *options)
    return Staff(crew, crew.start(*line, **more))


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staff]:
    """A worker for all tests that do no harm to it."""
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        yield start(crew)


# What it is given, and what comes of it


@pytest.mark.parametrize("runner", ["fork", "spawn", "process", "thread", "none can be forked"])
def test_a_program_runs_whatever_the_runner_of_the_worker(crew: Crew, runner: str) -> None:
    if runner == "none can be forked":
        worker = start(crew, app="tests.apps.runner_app", START_THREAD="yes")
    else:
        worker = start(crew, "--runner", runner)

    job = worker.put(["sh", "-c", "echo one; echo two >&2; echo $HOLDFAST_JOB $HOLDFAST_ATTEMPT"])

    assert job.result(timeout="40s") == ProgramResult(0, f"{job.id} 1")
    until(lambda: worker.log(job).splitlines() == ["one", "two", f"{job.id} 1"], what="its log")


def test_its_arguments_arrive_as_they_were_given_and_no_shell_reads_them(staff: Staff, tmp_path: Path) -> None:
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"

    assert json.loads(staff.output(python(code, *HOSTILE), cwd=str(tmp_path))) == HOSTILE
    assert list(tmp_path.iterdir()) == []
    assert staff.run(["true; touch owned"], cwd=str(tmp_path), retries=0).failure
    assert list(tmp_path.iterdir()) == []


def test_it_has_its_environment_directory_and_input(staff: Staff, tmp_path: Path) -> None:
    code = """if True:
        import hashlib, json, os, sys
        directory = os.environ["HOLDFAST_DIRECTORY"]
        print(json.dumps([os.getcwd(), os.environ["COLOUR"], os.environ["GATES"],
                          hashlib.sha256(sys.stdin.buffer.read()).hexdigest(),
                          os.stat(directory).st_mode & 0o777, os.listdir(directory), directory]))
    """
    text = "first\nsecond é\n" * 10_000
    job = staff.run(python(code), cwd=str(tmp_path), env={"COLOUR": "blue = green"}, stdin=text)

    assert job.state == "succeeded"
    *seen, directory = json.loads(_whole_log(staff, job))
    assert seen == [
        str(tmp_path),
        "blue = green",
        str(staff.crew.folder / "gates"),
        sha256(text.encode()).hexdigest(),
        0o700,
        [],
    ]
    assert not Path(directory).exists()


def _whole_log(staff: Staff, job: Job[Any]) -> str:
    until(lambda: staff.log(job).endswith("]\n"), what="its log")
    return staff.log(job)


def test_without_a_text_its_input_is_empty_and_it_inherits_nothing_of_the_worker(staff: Staff) -> None:
    code = """if True:
        import os, signal, sys
        found = [f"/proc/self/fd/{n}" for n in range(3, 256)]
        strange = [os.readlink(path) for path in found if os.path.lexists(path)]
        strange = [name for name in strange if "/holdfast-workers-" not in name]  # the lock of a live worker
        status = open("/proc/self/status").read()
        ignored = int(status.split("SigIgn:")[1].split()[0], 16)
        print(repr(sys.stdin.read()), strange, ignored, os.getpgid(0) == os.getpid())
    """

    assert staff.output(python(code)) == f"'' [] {_ignored_here()} True"


def _ignored_here() -> int:
    """The signals that this process ignores, as its children do: two by Python, others perhaps by our parent."""
    return int(Path("/proc/self/status").read_text().split("SigIgn:")[1].split()[0], 16)


def test_the_end_of_a_pipe_ends_a_program_as_in_a_shell(staff: Staff) -> None:
    assert staff.output(["sh", "-c", "yes | head -1; echo done"]) == "done"


def test_an_exit_code_is_the_group_of_its_failure_and_its_last_lines_are_kept(staff: Staff) -> None:
    job = staff.run(["sh", "-c", "echo begins; echo no such file: in.mov >&2; exit 3"], retries=0)

    assert job.failure
    assert (job.state, job.failure.group, job.failure.type) == ("failed", "exit-3", "ProgramFailed")
    assert job.failure.message == "the program ended with exit code 3; its last line: no such file: in.mov"
    assert job.failure.traceback == "begins\nno such file: in.mov\n"
    with pytest.raises(JobFailed, match="exit code 3"):
        job.result()


def test_a_retry_knows_which_attempt_it_is(staff: Staff) -> None:
    job = staff.run(["sh", "-c", "test $HOLDFAST_ATTEMPT = 3 || exit $HOLDFAST_ATTEMPT"], retries=3, backoff=0)

    assert [attempt.outcome for attempt in job.attempts] == ["error", "error", "succeeded"]
    assert [each.failure.group for each in job.attempts if each.failure] == ["exit-1", "exit-2"]


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGTERM", "SIGKILL", "SIGUSR2"])
def test_a_signal_is_the_group_of_its_failure(staff: Staff, name: str) -> None:
    job = staff.run(["sh", "-c", f"kill -{name.removeprefix('SIG')} $$"], retries=0)

    assert job.failure
    assert (job.failure.group, job.failure.message) == (f"signal-{name}", f"the program was ended by {name}")


@pytest.mark.parametrize(
    ("arguments", "more", "reason"),
    [
        (["no-such-program"], {}, "no-such-program cannot be run here: No such file or directory"),
        (["/etc/passwd"], {}, "/etc/passwd cannot be run here: Permission denied"),
        (["true"], {"cwd": "/no/such/place"}, "true cannot be run here: No such file or directory: /no/such/place"),
        (["true"], {"env": {"PATH": "/nowhere"}}, "true cannot be run here: No such file or directory"),
    ],
)
def test_what_cannot_be_run_here_is_an_error_that_may_be_retried(
    staff: Staff, arguments: list[str], more: dict[str, Any], reason: str
) -> None:
    job = staff.run(arguments, **more, retries=1, backoff=0)

    assert job.failure
    assert (job.failure.group, job.failure.message) == ("no-program", reason)
    assert [attempt.outcome for attempt in job.attempts] == ["error", "error"]


def test_a_program_may_be_a_dependency_and_many_are_stored_together(staff: Staff) -> None:
    first = staff.crew.app.program(["true"])
    second = staff.crew.app.program(["echo", "then"]).options(after=first)

    _, then = staff.crew.app.enqueue_many([first, second])

    assert then.result(timeout="40s").last_line == "then"


# What is refused before anything is stored

NOWHERE = Holdfast("redis://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "more", "error", "reason"),
    [
        ([], {}, Invalid, "expected a program as a list of arguments"),
        ("rm -rf /", {}, Invalid, "expected a program as a list of arguments, not a shell command"),
        ([""], {}, Invalid, "the name of the program, is empty"),
        (["echo", 1], {}, Invalid, "argument 1 of the program is 1; it must be a str"),
        (["echo", b"x"], {}, Invalid, "argument 1 of the program"),
        (["echo", "a\0b"], {}, Invalid, "argument 1 of the program has a NUL character"),
        (["echo\0"], {}, Invalid, "argument 0 of the program has a NUL character"),
        (["echo", "\udcff"], {}, Invalid, "which cannot be encoded as UTF-8"),
        (["echo", "x" * (2 << 20)], {}, TooBig, rf"is {2 << 20} bytes \(limit {MAX_ARGUMENT}\)"),
        (["echo", "é" * MAX_ARGUMENT], {}, TooBig, rf"is {2 * MAX_ARGUMENT} bytes \(limit {MAX_ARGUMENT}\)"),
        (["echo"] * (MAX_ARGUMENTS + 1), {}, TooBig, rf"\(limit {MAX_ARGUMENTS}\)"),
        (["echo", *["x" * 100_000] * 20], {}, TooBig, r"arguments and variables are 2000025 bytes \(limit 524288\)"),
        (["echo"], {"cwd": ""}, Invalid, "cwd is empty"),
        (["echo"], {"cwd": "/tmp\0"}, Invalid, "cwd has a NUL"),
        (["echo"], {"env": {"A=B": "c"}}, Invalid, "a name must not be empty or contain ="),
        (["echo"], {"env": {"": "c"}}, Invalid, "a name must not be empty or contain ="),
        (["echo"], {"env": {"A": "\0"}}, Invalid, "A in env has a NUL"),
        (["echo"], {"env": ["A"]}, Invalid, "it must be a mapping"),
        (["echo"], {"stdin": b"x"}, Invalid, "stdin is b'x'; it must be a str"),
    ],
)
def test_arguments_that_no_program_can_get_are_refused_at_once(
    arguments: Any, more: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        NOWHERE.program(arguments, **more)


def test_paths_are_words_too() -> None:
    call = NOWHERE.program([Path("/bin/ls"), Path("/")], cwd=Path("/tmp"))
    assert b'["/bin/ls","/"],"cwd":"/tmp"' in call.payload


def test_a_program_has_always_a_process_of_its_own() -> None:
    with pytest.raises(Invalid, match="runner is 'thread', but a program always runs in its own process"):
        NOWHERE.program(["ls"]).options(runner="thread")


def test_a_task_cannot_have_the_name_of_programs() -> None:
    with pytest.raises(Invalid, match="is reserved for programs"):
        NOWHERE.task(name=PROGRAM)(print)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"{}",
        b'{"arguments": "rm -rf /"}',
        b'{"arguments": []}',
        b'{"arguments": ["a\\u0000b"]}',
        b'{"arguments": ["true"], "shell": true}',
        b'{"arguments": ["true"], "env": {"A=B": "c"}}',
        b'{"arguments": [%s]}' % b",".join([b'"x"'] * 5000),
    ],
)
def test_a_program_stored_by_another_client_is_checked_by_the_worker_too(staff: Staff, payload: bytes) -> None:
    store = staff.crew.app.store
    (id,) = store.run(commands.enqueue([NewJob(id=_new_id(), payload=payload, queue="default", task=PROGRAM)])).ids

    job = staff.crew.ended(staff.crew.app.get(id))

    assert job.failure
    assert (job.state, job.failure.group, job.attempt) == ("failed", "no-program", 1)


def _new_id() -> str:
    return f"stranger-{os.urandom(6).hex()}"


# Stopping it


def _trap(staff: Staff, name: str) -> list[str]:
    """A program that prints its process ids, has a child, and ignores SIGTERM if asked to."""
    ledger = staff.crew.folder / "ledger"
    ignore = "trap '' TERM; " if "stubborn" in name else ""
    return ["sh", "-c", f"{ignore}sleep 1000 & echo {name} runs $$ >> {ledger}; echo {name} child $! >> {ledger}; wait"]


@pytest.mark.parametrize("name", ["quiet", "stubborn"])
def test_cancelled_it_is_asked_and_then_killed_with_its_children(staff: Staff, name: str) -> None:
    job = staff.put(_trap(staff, name))
    pids = [*staff.crew.pids(name, "runs"), *staff.crew.pids(name, "child")]
    assert all(map(is_alive, pids))

    staff.crew.app.cancel(job.id)

    assert staff.crew.ended(job).state == "cancelled"
    assert not any(map(is_alive, pids))


def test_a_program_may_clean_up_after_sigterm(staff: Staff, tmp_path: Path) -> None:
    job = staff.put(
        ["sh", "-c", "trap 'echo tidy > tidied; exit 0' TERM; touch ready; while :; do sleep 0.01; done"],
        cwd=str(tmp_path),
    )
    until((tmp_path / "ready").exists)

    staff.crew.app.cancel(job.id)

    assert staff.crew.ended(job).state == "cancelled"
    assert (tmp_path / "tidied").read_text() == "tidy\n"


@pytest.mark.parametrize(
    ("then", "group"),
    [("exit 0", ""), ("exit 3", "exit-3"), ("trap - TERM; kill $$", "signal-SIGTERM"), ("", "timeout")],
)
def test_at_its_soft_timeout_it_is_asked_to_end_and_what_it_does_then_counts(
    staff: Staff, then: str, group: str
) -> None:
    line = f"trap '{then}' TERM; while :; do sleep 0.05; done"

    job = staff.run(["sh", "-c", line], soft_timeout="0.3s", timeout="30s" if then else "1s", retries=0)

    assert job.group == group
    if group == "signal-SIGTERM":
        assert "ended by SIGTERM, sent by its soft_timeout" in str(job.failure)


def test_a_program_that_saves_for_itself_when_it_is_asked_to_end_runs_again_uncharged(staff: Staff) -> None:
    line = "test $HOLDFAST_ATTEMPT = 2 && exit; trap 'exit 75' TERM; while :; do sleep 0.05; done"

    job = staff.run(["sh", "-c", line], soft_timeout="0.3s", retries=0, crashes=0, lost=0)

    assert (job.state, staff.crew.outcomes(job)) == ("succeeded", ["released", "succeeded"])
    assert staff.run(["sh", "-c", "exit 75"], retries=0).group == "exit-75"


def test_over_its_time_it_is_stopped(staff: Staff) -> None:
    job = staff.run(_trap(staff, "late-stubborn"), timeout="0.3s", retries=0)

    assert job.failure
    assert job.failure.group == "timeout"
    assert not any(map(is_alive, staff.crew.pids("late-stubborn", "runs")))


def test_over_its_memory_it_is_killed(staff: Staff) -> None:
    job = staff.run(
        python("x = bytearray(300 << 20); input(); import time; time.sleep(1000)"), memory="100MiB", retries=0
    )

    assert job.failure
    assert job.failure.group == "memory"
    assert "more than their limit of 100 MiB" in job.failure.message


def test_silent_for_too_long_it_is_stopped_and_a_printed_line_counts(staff: Staff) -> None:
    silent = staff.put(["sleep", "1000"], stalled="0.5s", retries=0)
    talks = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; echo $i; done"]

    assert staff.output(talks, stalled="1.5s") == "10"
    ended = staff.crew.ended(silent)
    assert ended.failure
    assert ended.failure.group == "stalled"


def test_asked_for_its_stack_it_runs_on(staff: Staff) -> None:
    """It has no handler for the signal that asks for the stacks of Python, which would end it."""
    job = staff.put(_trap(staff, "looked-at"))
    (pid,) = staff.crew.pids("looked-at", "runs")

    staff.crew.app.stack(job.id)

    assert is_alive(pid)
    staff.crew.app.cancel(job.id)
    assert staff.crew.ended(job).state == "cancelled"


def test_when_its_worker_stops_it_may_end_within_the_deadline(crew: Crew) -> None:
    staff = start(crew)
    gate = crew.folder / "gates" / "go"
    job = staff.put(
        [
            "sh",
            "-c",
            f"echo slow runs $$ >> {crew.folder / 'ledger'}; until test -e {gate}; do sleep 0.01; done; echo end",
        ]
    )
    crew.pids("slow", "runs")

    staff.worker.send(signal.SIGTERM)
    until(lambda: "is stopping within" in staff.worker.log)
    gate.touch()

    assert staff.worker.wait() == 0
    assert crew.get(job).result() == ProgramResult(0, "end")


def test_a_program_that_outlasts_the_stop_of_its_worker_is_requeued_without_using_up_a_retry(crew: Crew) -> None:
    staff = start(crew, "--stop-within", "0.2s")
    line = ["sh", "-c", f"echo long runs $$ >> {crew.folder / 'ledger'}; test $HOLDFAST_ATTEMPT = 2 || sleep 1000"]
    job = staff.put(line, retries=0, crashes=0, lost=0)
    (pid,) = crew.pids("long", "runs")

    assert staff.worker.stop() == 0

    assert not is_alive(pid)
    assert (crew.get(job).state, crew.outcomes(job)) == ("waiting", ["released"])
    start(crew)
    assert crew.ended(job).state == "succeeded"


def test_kill_of_the_worker_ends_it_and_another_worker_runs_it_again(crew: Crew) -> None:
    staff = start(crew)
    line = ["sh", "-c", f"echo long runs $$ >> {crew.folder / 'ledger'}; test $HOLDFAST_ATTEMPT = 2 || sleep 1000"]
    job = staff.put(line)
    (pid,) = crew.pids("long", "runs")
    start(crew)

    staff.worker.kill()

    until(lambda: not is_alive(pid), what="its end")
    assert crew.ended(job).state == "succeeded"
    assert len(crew.pids("long", "runs", 2)) == 2


# Who may


def test_a_worker_without_allow_exec_leaves_a_program_to_one_with_it(crew: Crew) -> None:
    staff = start(crew, allow=False)
    job = staff.put(["touch", str(crew.folder / "touched")])
    until(lambda: crew.get(job).attempt == 1 and crew.get(job).state == "scheduled", what="its release")

    assert crew.outcomes(job) == ["unknown"]
    assert not (crew.folder / "touched").exists()
    assert f"task {PROGRAM} is not known here" in staff.worker.log
    assert "--allow-exec" not in staff.worker.log
    assert [worker.allows_exec for worker in crew.app.workers()] == [False]
    staff.worker.stop()

    other = start(crew)
    assert crew.ended(job).state == "succeeded"
    assert (crew.folder / "touched").exists()
    assert "--allow-exec: this worker runs any program that is enqueued, as user " in other.worker.log
    until(lambda: [worker.allows_exec for worker in crew.app.workers() if worker.is_live] == [True])


def test_a_worker_inside_a_program_cannot_allow_it(server_url: str, namespace: str) -> None:
    app = Holdfast(server_url, namespace=namespace)
    with pytest.raises(Invalid, match="has no setting 'allow_exec'"):
        app.worker(allow_exec=True)  # type: ignore[call-arg]


def test_where_the_store_cannot_be_reached_it_does_not_run_inline() -> None:
    app = Holdfast("redis://127.0.0.1:1", when_unreachable="inline")
    with pytest.raises(Exception, match="its task is not declared in this process"):
        app.enqueue(app.program(["true"]))


# From the command line


def test_the_command_line_stores_a_program_and_waits_for_it(shell: Shell) -> None:
    with running_worker(shell, "--allow-exec"):
        done = shell("enqueue", "--exec", "--wait", "--", "printf", "%s|", "-i", "in.mov", "--wait", "a b")
        assert (done.code, json.loads(done.out)) == (0, {"exit_code": 0, "last_line": "-i|in.mov|--wait|a b|"})
        more = ("--env", "A=b=c", "--cwd", str(shell.folder), "--stdin", "-", "--run-timeout", "1m", "--memory", "1G")
        done = shell("enqueue", "--exec", "--wait", *more, "--", "sh", "-c", 'pwd; cat; echo "$A"', stdin="given\n")
        assert json.loads(done.out)["last_line"] == "b=c"
        done = shell("enqueue", "--exec", "--wait", "--retries", "0", "--", "sh", "-c", "exit 9")
        assert done.code == 1
        assert "exit code 9" in done.err
        (worker,) = shell("workers", "--json").json
        assert worker["allow_exec"] is True
        assert re.search(r"EXEC.*\n.* tasks +yes ", shell.on_a_terminal("workers", columns=80, NO_COLOR="1"))


def test_the_command_line_warns_if_no_worker_runs_programs(shell: Shell) -> None:
    words = ("enqueue", "--exec", "--", "true")
    assert "no worker is running; start one: `holdfast work APP --allow-exec`" in shell(*words).err
    with running_worker(shell):
        wait_until(lambda: shell.client.workers() != [])
        message = "the job waits: no live worker of queue default runs programs; start one: "
        assert shell(*words).err == f"holdfast: {message}`holdfast work APP --allow-exec`\n"


def test_the_command_line_stores_the_arguments_and_options_of_a_program(shell: Shell) -> None:
    options = ("--queue", "video", "--priority", "-5", "--run-timeout", "6h", "--delay", "1h", "--id", "mine")
    assert shell("enqueue", "--exec", *options, "--", "ffmpeg", "-i", "in.mov").out == "mine\n"

    job = shell.client.get("mine")
    assert (job.task, job.queue, job.priority, job.state) == (PROGRAM, "video", -5, "scheduled")
    assert msgspec.json.decode(job.payload or b"") == {
        "arguments": ["ffmpeg", "-i", "in.mov"],
        "cwd": None,
        "env": None,
        "stdin": None,
    }


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--exec",), "expected a program after --: holdfast enqueue --exec -- ffmpeg"),
        (("--exec", "--", ""), "the name of the program, is empty"),
        (("--exec", "--env", "A", "--", "true"), "expected NAME=VALUE, got 'A'"),
        (("--exec", "--memory", "many", "--", "true"), "--memory is 'many'"),
        (("--exec", "--from", "-", "--", "true"), "--from and --exec cannot be combined"),
        (("--cwd", "/", "tasks.add"), "--cwd needs --exec, and the program after --"),
        (("--exec", "ffmpeg", "-i", "in.mov"), "No such option"),
    ],
)
def test_the_command_line_explains_invalid_programs(shell: Shell, words: tuple[str, ...], reason: str) -> None:
    done = shell("enqueue", *words)

    assert done.code == 2
    assert reason in done.err
    assert shell.client.count() == 0


def test_the_setting_may_come_from_the_environment(shell: Shell) -> None:
    shell.environ["HOLDFAST_ALLOW_EXEC"] = "1"
    with running_worker(shell):
        assert shell("enqueue", "--exec", "--wait", "--", "true").code == 0
