"""`holdfast top`: everything on one screen, refreshed in place, with keys; once or as lines elsewhere."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from itertools import product

import pytest

from holdfast.cli.keys import read_keys
from holdfast.cli.top import _queue_lines, _Rows
from holdfast.job.outcome import Error
from holdfast.records import top
from holdfast.records.top import Top
from holdfast.store import commands
from tests.cli.test_queues_and_workers import sign_of_life
from tests.cli.test_watch import BACK, OTHER_SCREEN, piped
from tests.support.new_job import NewJob
from tests.support.shells import ESCAPE, EVIL, Hand, Shell, failure

QUIT, PAUSE, UP, DOWN = "q", "p", f"{ESCAPE}A", f"{ESCAPE}B"


def fill(shell: Shell, *, queues: int = 2, running: int = 1) -> None:
    """Store waiting jobs in queues, jobs that run with progress, and one that failed."""
    hand = Hand(shell.client)
    shell.put("broken")
    hand.end(Error(failure(), "g", final=True))
    for number in range(running):
        shell.put(f"job{number:02d}", task="video.transcode")
    ids = [hand.take() for _ in range(running)]
    for id in ids:
        held = commands.Lease("node/worker.1", id, 1)
        progress = json.dumps({"progress": 0.25, "message": "frame 100"})
        shell.client.store.run(commands.save(held, b"1", progress=progress))
    sign_of_life(shell, "node/worker", *ids)
    jobs = [
        NewJob(id=f"waits{number}", payload=b"{}", queue=f"queue{number:02d}", task="mail.send")
        for number in range(queues)
    ]
    shell.client.store.run(commands.enqueue(jobs))


def frames(text: str) -> Iterator[list[str]]:
    """Yield the lines of each complete view, without colours."""
    for view in text.split(f"{ESCAPE}H")[2:-1]:
        yield re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", view).split("\n")


def test_everything_is_on_one_screen(shell: Shell) -> None:
    fill(shell, queues=40, running=30)
    with shell.terminal("top", columns=80, rows=24) as terminal:
        place = terminal.read_until(OTHER_SCREEN, "ValueError: boom")
        terminal.read_until("ValueError: boom", after=place)
        terminal.type(QUIT)
        assert terminal.wait() == 0
        assert BACK in terminal.text
    reading, *views = frames(terminal.text)
    assert reading[0].strip() == "reading ..."
    assert views
    for lines in views:
        assert len(lines) == 24
        assert all(len(line) <= 80 for line in lines)
        text = "\n".join(lines)
        assert re.search(r"jobs +40 waiting, 30 running, 1 failed", text)
        assert re.search(r"workers +1 live .* 30 of", text)
        assert re.search(r"QUEUE \(\+\d+\) .* NEED", text)
        assert re.search(r"job00 +video.transcode .* 25% .*frame 100", text)
        assert re.search(r"RUNNING JOB .*\(1 to \d+ of 30\)", text)
        assert re.search(r"1 +[\d.]+m?s? +ValueError: boom", text)


def test_of_many_queues_some_are_shown_and_all_are_counted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "MAX_QUEUES", 3)
    monkeypatch.setattr(top, "MAX_PROBLEMS", 2)
    fill(shell, queues=6)
    moment = Top(shell.client).read()
    assert (len(moment["queues"]), moment["queue_count"], len(moment["problems"])) == (3, 7, 2)
    heading, *_ = _queue_lines(moment, 2, 80)
    assert "QUEUE (+5)" in heading.plain
    heading, *_ = _queue_lines(moment, 3, 80)
    assert "QUEUE (+4)" in heading.plain


def test_a_stopped_program_gives_the_terminal_back(shell: Shell) -> None:
    fill(shell)
    with shell.terminal("top") as terminal:
        place = terminal.read_until(OTHER_SCREEN, "job00")
        terminal.process.send_signal(signal.SIGTSTP)
        place = terminal.read_until(BACK, after=place)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        terminal.cook()  # as shells do
        terminal.process.send_signal(signal.SIGCONT)
        terminal.read_until(OTHER_SCREEN, "job00", after=place)
        terminal.type(QUIT)
        assert terminal.wait() == 0


def test_what_changes_is_refreshed_in_place_until_ctrl_c(shell: Shell) -> None:
    fill(shell)
    with shell.terminal("top") as terminal:
        place = terminal.read_until("queue01", "video.transcode")
        shell.put("more", queue="elsewhere")
        terminal.read_until("elsewhere", after=place)
        assert terminal.interrupt() == 0
        assert BACK in terminal.text


def test_a_terminal_is_restored_also_after_sigterm(shell: Shell) -> None:
    with shell.terminal("top") as terminal:
        terminal.read_until("no queues", "no running jobs")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 143
        assert BACK in terminal.text


def test_keys_pause_and_scroll(shell: Shell) -> None:
    fill(shell, running=30)
    with shell.terminal("top", columns=80, rows=24) as terminal:
        place = terminal.read_until("(1 to ")
        terminal.type(PAUSE)
        place = terminal.read_until("paused", after=place)
        shell.put("more", queue="elsewhere")
        terminal.type(DOWN + DOWN)
        place = terminal.read_until("(3 to ", "job02", after=place)
        terminal.type(UP)
        place = terminal.read_until("(2 to ", after=place)
        assert "elsewhere" not in terminal.text
        terminal.type(PAUSE)
        terminal.read_until("elsewhere", "UTC", after=place)
        terminal.type(QUIT)
        assert terminal.wait() == 0


def test_in_a_pipe_it_is_printed_once(shell: Shell) -> None:
    fill(shell)
    facts = dict(shell("top").rows)
    assert facts["jobs"] == "2 waiting, 1 running, 1 failed"
    assert facts["queue queue00"] == "1 waiting; needs 1"
    assert facts["running job00"] == "video.transcode 25% frame 100"
    assert any(value == "1 ValueError: boom" for value in facts.values())
    assert facts["problem"] == "queue queue01 has 1 waiting job, but no live worker serves it"
    assert shell.on_a_terminal("top", "--once", NO_COLOR="1").count("job00") == 1


def test_on_a_terminal_that_cannot_be_redrawn_it_is_printed_once(shell: Shell) -> None:
    fill(shell)
    printed = shell.on_a_terminal("top", TERM="dumb")
    assert printed.count("job00") == 1
    assert "\x1b" not in printed


def test_the_screen_says_what_it_waits_for(shell: Shell) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(shell.folder / "silent.sock"))
        silent.listen()
        with shell.terminal("top", "--url", f"unix://{shell.folder}/silent.sock") as terminal:
            terminal.read_until(OTHER_SCREEN, "reading ...")
            assert terminal.interrupt() == 0
            assert BACK in terminal.text


def test_json_is_a_line_for_each_moment(shell: Shell) -> None:
    fill(shell)
    with piped(shell, "top", "--json") as follow:
        first = json.loads(follow.line())
        assert first["jobs"]["waiting"] == 2
        assert first["running"][0]["progress"]["fraction"] == 0.25
        assert first["workers"] == {
            "live": 1,
            "draining": 0,
            "silent": 0,
            "slots": 2,
            "busy": 1,
            "memory_bytes": 3_000_000,
        }
        shell.put("more")
        while json.loads(follow.line())["jobs"]["waiting"] != 3:
            pass
        assert follow.interrupt() == (0, "")


def test_text_of_jobs_is_never_interpreted_by_the_terminal(shell: Shell) -> None:
    fill(shell)
    shell.client.store.run(
        commands.save(commands.Lease("node/worker.1", "job00", 1), b"1", progress=json.dumps({"message": EVIL}))
    )
    with shell.terminal("top", columns=200) as terminal:
        terminal.read_until("[31mred")
        terminal.type(QUIT)
        assert terminal.wait() == 0
    assert f"{ESCAPE}31mred\x07" not in terminal.text
    assert "\u202e" not in terminal.text


def test_the_cost_does_not_depend_on_the_number_of_jobs(shell: Shell) -> None:
    fill(shell, running=3)
    source = Top(shell.client)
    source.read()
    calls = _calls(shell)
    source.read()
    first = _calls(shell) - calls
    jobs = [NewJob(id=f"many{number}", payload=b"{}", queue="queue00", task="t") for number in range(900)]
    shell.client.store.run(commands.enqueue(jobs))
    calls = _calls(shell)
    source.read()
    assert _calls(shell) - calls == first


def _calls(shell: Shell) -> int:
    """Return how many functions of the library the server has called."""
    return int(shell.client.store.execute("INFO", "commandstats")["cmdstat_fcall"]["calls"])


@pytest.mark.parametrize("height", [24, 30, 50, 100])
def test_rows_fit_the_terminal(height: int) -> None:
    for queues, running, failures, problems in product((0, 1, 9, 90), repeat=4):
        moment = {
            "queues": [0] * queues,
            "running": [0] * running,
            "failures": [0] * failures,
            "problems": [0] * problems,
        }
        rows = _Rows.of(height, moment)
        used = 4 + rows.problems + 2 + rows.queues + 2 + rows.running + (2 + rows.failures if failures else 0)
        assert used <= height
        assert used == height or (rows.queues >= queues and rows.running >= running), moment
        assert rows.failures >= min(1, failures)


def test_keys_are_read_one_by_one() -> None:
    assert read_keys(f"qp{UP}x{DOWN}{ESCAPE}Z\x1b") == ["quit", "pause", "up", "down"]
