"""The benchmark's own arithmetic. Nothing is timed here."""

from __future__ import annotations

import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import redis
from bench import children, environments, goals, plot, results, table
from bench import publish as publishing
from bench.__main__ import main
from bench.clock import Clock
from bench.figures import Figure, Taken
from bench.measures import MEASURES, Measure
from bench.results import Cell, Results, Row
from bench.roster import OURS, PEERS, Peer
from bench.run import Plan, run
from bench.scene import Scene, Size
from bench.server import serving, way_to

CALM, BUSY = {"steal": 0.0, "other": 0.01}, {"steal": 0.2, "other": 0.1}
ABOUT = {
    "when": "now",
    "machine": "two cores",
    "server": "valkey",
    "transport": "a unix socket",
    "python": "3",
    "commit": "abc",
    "rounds": 3,
    "versions": {"holdfast": {"holdfast": "1"}, "rq": {"rq": "2"}},
}


def _found() -> Results:
    """A run in which Holdfast enqueues 900 a second and RQ 300, in calm rounds."""
    commands = {"by_command": {"fcall": [1, 8], "hset": [1, 3]}}
    rows = [
        Row("enqueue", "holdfast", 1, {"rate": 900.0, "server": 10.0}, commands, CALM),
        Row("enqueue", "holdfast", 2, {"rate": 100.0, "server": 99.0}, {}, BUSY),
        Row("enqueue", "rq", 1, {"rate": 300.0, "server": 40.0}, {}, CALM),
        Row("enqueue", "celery", 1, error="it does not start"),
        Row("two", "holdfast", 1, {"rate": 29_000.0}, {}, CALM),
        Row("two", "huey", 1, {"rate": 5000.0}, {}, CALM),
        Row("recovery", "holdfast", 1, {"seconds": 5.0}, {"capped": {"seconds": False}}),
        Row("recovery", "rq", 1, {"seconds": 90.0}, {"capped": {"seconds": True}}),
        Row("backlog", "holdfast", 1, {"claim, 1,000 waiting": 10.0, "claim, 1,000,000 waiting": 12.0}),
    ]
    return Results(dict(ABOUT), rows)


def test_a_disturbed_round_counts_only_if_there_is_no_calm_one() -> None:
    found = _found()
    cell = found.cell("enqueue", "holdfast", "rate")
    assert cell is not None
    assert (cell.median, cell.rounds, cell.is_noisy) == (900.0, 1, False)
    found.rows = [row for row in found.rows if row.is_noisy]
    cell = found.cell("enqueue", "holdfast", "rate")
    assert cell is not None
    assert (cell.median, cell.is_noisy) == (100.0, True)


@pytest.mark.parametrize(("is_higher_better", "times"), [(True, 3.0), (False, 1 / 3)])
def test_a_ratio_is_how_many_times_better_ours_is(is_higher_better: bool, times: float) -> None:
    ours, theirs = Cell(900, 900, 900, 1, 0, is_capped=False), Cell(300, 300, 300, 1, 0, is_capped=False)
    assert goals.ratio(ours, theirs, Figure("x", "x", "x", is_higher_better)) == pytest.approx(times)


def test_the_table_has_ratios_limits_and_what_failed() -> None:
    text = table.report(_found())
    for words in (
        "rq 300 (3.0 x)",
        "> 90 (> 18.0 x)",
        "1.20 x",
        "claim, most jobs waiting",
        "5.8 x: 29,000 to 5,000 of huey",
        "30,000 where huey does 5,000",
        "celery, enqueue: it does not start",
        "Lua itself",
    ):
        assert words in text


def test_the_picture_is_xml_and_names_everyone() -> None:
    drawn = ElementTree.fromstring(plot.draw(_found()))  # noqa: S314 - our own
    texts = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"holdfast", "rq"} <= texts


def test_results_are_the_same_when_read_again(tmp_path: Path) -> None:
    found = _found()
    found.save(tmp_path / "run.json")
    assert results.read(tmp_path / "run.json") == found


def test_a_run_is_published_in_the_documents(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (place,) = publishing.MARKS.finditer(publishing.PAGE.read_text())
    page.write_text(f"before\n{place[0]}\nafter")
    for _ in range(2):
        written = publishing.publish(_found(), tmp_path, page)
    assert all(path.exists() for path in written)
    text = page.read_text()
    assert text.startswith("before\n<!-- published -->\nnow, two cores")
    assert text.endswith("<!-- end of published -->\nafter")
    assert text.count("\n### Goals\n") == 1


def test_every_peer_has_a_script_and_every_measure_is_taken_of_holdfast() -> None:
    for peer in PEERS:
        assert Path(environments.line(peer)[1]).exists()
    for measure in MEASURES:
        assert measure.concerns(OURS)


def test_a_failed_measurement_is_a_row_and_stops_no_other(tmp_path: Path) -> None:
    def fail(_scene: Scene, peer: Peer, _size: Size) -> Taken:
        if peer is OURS:
            raise ZeroDivisionError("so it goes")
        return Taken({"rate": 1.0})

    measure = Measure("enqueue", "", (), fail, "enqueue")
    size = Size(seconds=0.1, samples=1, patience=1.0, is_quick=True)
    plan = Plan(size, (measure,), (OURS, PEERS[1]), rounds=1, tries=1, transport="unix")
    found, path = run(plan, tmp_path / "run.json")
    assert results.read(path) == found
    assert [(row.figures, row.error) for row in found.rows] == [
        ({}, "ZeroDivisionError: so it goes"),
        ({"rate": 1.0}, ""),
    ]
    assert "so it goes" in table.report(found)


def test_a_run_says_how_long_it_takes_yet_and_repeats_for_a_bounded_time() -> None:
    clock = Clock([(MEASURES[0], OURS)] * 24)
    assert clock.words() == "about 2 min left"
    for _ in range(24):
        clock.strike(MEASURES[0], OURS)
    assert clock.words() == "about 0 min left"
    assert [clock.may_repeat(150) for _ in range(3)] == [True, True, False]
    assert clock.may_repeat(10)


def test_a_relay_counts_round_trips_and_holds_back_replies(tmp_path: Path) -> None:
    with serving() as server, way_to(server, tmp_path, "relay", 30.0) as way, redis.Redis.from_url(way.url) as client:
        client.ping()
        before, began = way.counts(), time.monotonic()
        client.set("a", "b")
        pipe = client.pipeline(transaction=False)
        for _ in range(10):
            pipe.get("a")
        assert pipe.execute() == [b"b"] * 10
        assert time.monotonic() - began >= 0.06
        after = way.counts()
    assert after["trips"] - before["trips"] == 2
    assert after["received"] - before["received"] == len(b"+OK\r\n") + 10 * len(b"$1\r\nb\r\n")


def test_the_last_line_of_a_failed_child_is_reported(tmp_path: Path) -> None:
    with pytest.raises(children.Failed, match="no such luck"):
        children.ask(["sh", "-c", "echo; echo no such luck >&2; exit 3"], env={}, cwd=tmp_path, log=tmp_path / "log")
    with pytest.raises(children.Failed, match="longer than"):
        children.ask(["sleep", "60"], env={}, cwd=tmp_path, log=tmp_path / "log", timeout=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "must be 1 at least"),
        (["--render", "missing.json"], "missing.json does not exist"),
        (["--publish", "missing.json"], "missing.json does not exist"),
    ],
    ids=str,
)
def test_invalid_arguments_of_the_benchmark_are_refused(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert words in capsys.readouterr().err
