"""Commands that keep running: refreshed in place on a terminal, lines in a pipe, ended by Ctrl-C or a closed pipe."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO

import pytest
from rich.console import Console
from rich.text import Text

from holdfast.cli.output import Output
from holdfast.cli.watch import live_screen, show
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from tests.cli.test_queues_and_workers import sign_of_life
from tests.support.new_job import NewJob
from tests.support.shells import ESCAPE, PROGRAM, Hand, Shell, wait_for_another_millisecond

OTHER_SCREEN, BACK = f"{ESCAPE}?1049h", f"{ESCAPE}?1049l"


class Piped:
    """A command whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[bytes], out: IO[bytes]) -> None:
        self.process = process
        self._out = out

    def line(self) -> str:
        return self._out.readline().decode().rstrip("\n")

    def close(self) -> None:
        self._out.close()

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(), self._out.read().decode()


@contextmanager
def piped(shell: Shell, *words: str) -> Iterator[Piped]:
    process = subprocess.Popen(
        [*PROGRAM, *words], cwd=shell.folder, env=shell.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stderr
    with process.stdout, process.stderr:
        try:
            yield Piped(process, process.stdout)
            assert process.wait(30) is not None
            assert process.stderr.read().strip() == b""
        finally:
            process.kill()
            process.wait()


def test_jobs_are_refreshed_in_place_until_ctrl_c(shell: Shell) -> None:
    shell.put("first")
    with shell.terminal("jobs", "-w") as terminal:
        place = terminal.read_until(OTHER_SCREEN, "first", "waiting")
        shell.put("second")
        place = terminal.read_until("second", after=place)
        shell.client.cancel("first")
        terminal.read_until("cancelled", after=place)

        assert BACK not in terminal.text
        assert terminal.interrupt() == 0
        assert BACK in terminal.text


def test_as_many_jobs_are_followed_as_fit_on_the_screen(shell: Shell) -> None:
    jobs = [NewJob(id=f"j{number}", payload=b"{}", queue="default", task="t") for number in range(100)]
    shell.client.store.run(commands.enqueue(jobs))

    with shell.terminal("jobs", "-w") as terminal:  # of 50 lines
        place = terminal.read_until("Ctrl-C to exit")
        terminal.read_until("Ctrl-C to exit", after=place)  # so the first is whole
        assert terminal.interrupt() == 0
    first = terminal.text.split(f"{ESCAPE}H")[2]
    assert first.count("waiting") == 46


@pytest.mark.parametrize("name", ["queues", "workers", "nodes"])
def test_lists_are_refreshed_in_place(shell: Shell, name: str) -> None:
    with shell.terminal(name, "--watch", columns=200) as terminal:
        place = terminal.read_until(f"no {name}")
        shell.put("mine", queue="video")
        sign_of_life(shell, "video/worker")
        terminal.read_until("video", after=place)
        assert terminal.interrupt() == 0


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_waits_until_a_view_is_drawn(number: signal.Signals, raised: type[BaseException]) -> None:
    """Otherwise rich would, now and then, leave the terminal on the alternate screen."""
    written = SignallingFile(number)
    output = Output("table", lambda: datetime.now(UTC))
    output.__dict__["console"] = Console(file=written, force_terminal=True, width=80, height=24)

    with live_screen(output) as live:
        written.is_armed = True
        with pytest.raises(raised):
            show(live, Text("a view"))
        assert "a view" in written.getvalue()
    assert BACK in written.getvalue()


class SignallingFile(io.StringIO):
    """A file; the process gets a signal when it is next written to."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self._number, self.is_armed = number, False

    def write(self, text: str) -> int:
        if self.is_armed:
            self.is_armed = False
            signal.raise_signal(self._number)
        return super().write(text)


def test_a_terminal_that_cannot_be_redrawn_gets_a_line_for_each_change(shell: Shell) -> None:
    shell.put("first")
    with shell.terminal("jobs", "-w", TERM="dumb") as terminal:
        place = terminal.read_until("first", "waiting")
        shell.client.cancel("first")
        terminal.read_until("cancelled", after=place)
        assert terminal.interrupt() == 0
    assert "\x1b" not in terminal.text


def test_a_terminal_is_restored_also_after_sigterm(shell: Shell) -> None:
    with shell.terminal("queues", "-w") as terminal:
        terminal.read_until("no queues")
        terminal.process.send_signal(signal.SIGTERM)

        assert terminal.wait() == 143
        assert BACK in terminal.text


def test_jobs_that_change_are_lines_in_a_pipe(shell: Shell) -> None:
    shell.put("one")
    with piped(shell, "jobs", "-w") as follow:
        assert follow.line().split("\t")[:4] == ["one", "tasks.add", "default", "waiting"]
        shell.put("two")
        assert follow.line().split("\t")[0] == "two"
        shell.client.cancel("one")
        assert follow.line().split("\t")[:4] == ["one", "tasks.add", "default", "cancelled"]
        assert follow.interrupt() == (0, "")


def test_queues_that_change_are_objects_on_lines(shell: Shell) -> None:
    shell.put("one", queue="a")
    shell.put("two", queue="b")
    with piped(shell, "queues", "-w", "--json") as follow:
        assert {json.loads(follow.line())["queue"] for _ in range(2)} == {"a", "b"}
        shell.client.pause("b")
        changed = json.loads(follow.line())
        assert (changed["queue"], changed["paused"]) == ("b", True)
        assert follow.interrupt() == (0, "")


def test_a_heartbeat_alone_is_not_shown_as_a_change_of_a_worker(shell: Shell) -> None:
    sign_of_life(shell, "node/one")
    with piped(shell, "workers", "-w") as follow:
        assert follow.line().startswith("node/one\tlive")
        sign_of_life(shell, "node/one")
        sign_of_life(shell, "node/two")
        assert follow.line().startswith("node/two\tlive")
        assert follow.interrupt() == (0, "")


def test_a_renewed_lease_is_not_shown_as_a_change_of_a_job(shell: Shell) -> None:
    shell.put("one")
    Hand(shell.client).take()
    with piped(shell, "jobs", "-w", "--json") as follow:
        before = json.loads(follow.line())
        wait_for_another_millisecond(shell.client)
        sign_of_life(shell, "node/worker", "one")
        shell.put("two")
        assert json.loads(follow.line())["id"] == "two"
        assert follow.interrupt() == (0, "")
    assert before["lease_ends_at"] != shell("show", "one", "--json").json["lease_ends_at"]


def test_show_follows_a_job_until_it_has_ended(shell: Shell) -> None:
    shell.put("mine")
    hand = Hand(shell.client)
    with shell.terminal("show", "mine", "-w") as terminal:
        terminal.read_until(OTHER_SCREEN, "waiting")
        hand.end(Succeed(b'"done"'))

        assert terminal.wait() == 0
        after = terminal.text.partition(BACK)[2]
    assert "succeeded" in after
    assert '"done"' in after


def test_show_in_a_pipe_prints_each_change_and_then_ends(shell: Shell) -> None:
    shell.put("mine")
    hand = Hand(shell.client)
    with piped(shell, "show", "mine", "-w", "--json") as follow:
        assert json.loads(follow.line())["state"] == "waiting"
        hand.end(Succeed(b"42"))
        last = json.loads(follow.line())
        assert (last["state"], last["result"]) == ("succeeded", 42)
        assert follow.process.wait(30) == 0


def test_interrupting_show_before_the_end_has_its_exit_code(shell: Shell) -> None:
    shell.put("mine")
    with piped(shell, "show", "mine", "-w") as follow:
        assert follow.line().split("\t")[3] == "waiting"
        assert follow.interrupt() == (130, "")


def test_a_job_that_has_ended_is_shown_once(shell: Shell) -> None:
    shell.put("mine")
    shell.client.cancel("mine")
    code, out, _ = shell("show", "mine", "-w")

    assert (code, out.count("\n"), "cancelled" in out) == (0, 1, True)


@pytest.mark.parametrize("words", [("events", "-f"), ("jobs", "-w"), ("queues", "-w", "--json")])
def test_a_following_command_ends_when_its_pipe_is_closed_although_nothing_happens(
    shell: Shell, words: tuple[str, ...]
) -> None:
    shell.put("mine")
    with piped(shell, *words) as follow:
        assert "default" in (line := follow.line()) or "mine" in line
        follow.close()
        assert follow.process.wait(30) == 141


def test_head_ends_a_following_command(shell: Shell) -> None:
    shell.put("mine")
    line = f"{' '.join(PROGRAM)} events -f | head -1"
    done = subprocess.run(
        ["bash", "-c", line], env=shell.environ, capture_output=True, text=True, check=False, timeout=60
    )

    assert "mine" in done.stdout
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_an_unreachable_server_is_shown_on_the_screen_and_waited_for(shell: Shell) -> None:
    del shell.environ["HOLDFAST_URL"]
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")
    try:
        shell("enqueue", "any.task", "--id", "before")
        with shell.terminal("jobs", "-w") as terminal:
            place = terminal.read_until("before")
            assert shell("server", "stop", "--force").code == 0
            assert shell("enqueue", "any.task", "--id", "afterwards").code == 0
            terminal.read_until("afterwards", after=place)
            assert terminal.interrupt() == 0
    finally:
        shell("server", "stop", "--force")


def test_limits_and_schedules_are_followed_too(shell: Shell) -> None:
    shell.client.set_limit("api", 5)
    shell("schedules", "add", "nightly", "any.task", "--cron", "0 2 * * *")

    with piped(shell, "limits", "-w") as limits, piped(shell, "schedules", "-w", "--json") as schedules:
        assert limits.line().split("\t")[:2] == ["api", "5"]
        assert json.loads(schedules.line())["paused"] is False
        shell.client.set_limit("api", 7)
        shell.client.pause_schedule("nightly")
        assert limits.line().split("\t")[:2] == ["api", "7"]
        assert json.loads(schedules.line())["paused"] is True
        assert (limits.interrupt(), schedules.interrupt()) == ((0, ""), (0, ""))
