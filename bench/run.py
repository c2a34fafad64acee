"""A run: measures of peers in interleaved rounds, saved after each row."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from bench import children, environments
from bench.children import Failed
from bench.clock import Clock
from bench.measures import AGAIN, MEASURES, Measure
from bench.noise import Watch
from bench.results import FOLDER, Results, Row
from bench.roster import PEERS, Peer
from bench.scene import Scene, Size, new_folder
from bench.server import Way, answers, serving, way_to

DELAY = 1.0  # milliseconds
FAR_SHARE = 0.75  # of the time of a throughput, where it is measured again


class Step(NamedTuple):
    """One round of one measure."""

    measure: Measure
    number: int
    peers: tuple[Peer, ...]


@dataclass(frozen=True)
class Plan:
    size: Size
    measures: tuple[Measure, ...]
    peers: tuple[Peer, ...]
    rounds: int
    tries: int  # of a measurement that is disturbed, or fails
    transport: str

    @classmethod
    def choose(cls, size: Size, *, only: str, peers: str, rounds: int, tries: int, transport: str) -> Plan:
        wanted = only.split(",") if only else None
        measures = [each for each in MEASURES if (_matches(each.name, wanted) if wanted else not _left_out(each, size))]
        who = [each for each in PEERS if (_matches(each.name, _names(peers)) if peers else not _left_out(each, size))]
        if not measures or not who:
            raise SystemExit(f"nothing to measure: see --list (--only {only!r}, --peers {peers!r})")
        return cls(size, tuple(measures), tuple(who), rounds, tries, transport)

    def steps(self, peers: Sequence[Peer]) -> list[Step]:
        """Each round of each measure, in order; a round has all measures."""
        return [
            Step(measure, number, who)
            for number in range(1, self.rounds + 1)
            for measure in self.measures
            if number <= measure.most_rounds and (who := tuple(peer for peer in peers if measure.concerns(peer)))
        ]


def _left_out(what: Measure | Peer, size: Size) -> bool:
    return size.is_quick and (what.is_further if isinstance(what, Peer) else not what.is_quick)


def _names(text: str) -> list[str]:
    """Peers; a comma may be part of a name, as in `bare, 1 a call`."""
    return text.replace(", ", "\0").split(",")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern.replace("\0", ", ").strip()) for pattern in patterns)


def run(plan: Plan, output: Path | None) -> tuple[Results, Path]:
    """Measure all that is planned; what was found until Ctrl-C is kept."""
    began = datetime.now(UTC)
    path = output or FOLDER / f"{began:%Y-%m-%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = Results(_about(plan, began))
    peers = [peer for peer in plan.peers if _install(peer, found)]
    steps = plan.steps(peers)
    with ExitStack() as stack:
        places = _Places(stack, plan)
        clock = Clock((step.measure, peer) for step in steps for peer in step.peers)
        found.about["server"] = places.server.about()
        try:
            for step in steps:
                _Round(step, plan, places, clock).take(found.rows)
                found.save(path)
        except KeyboardInterrupt:
            _say("interrupted; what was found is kept")
        print(file=sys.stderr)
        found.about["seconds"] = round((datetime.now(UTC) - began).total_seconds())
        found.save(path)
    return found, path


def _about(plan: Plan, began: datetime) -> dict[str, object]:
    return {
        "when": f"{began:%Y-%m-%d %H:%M} UTC",
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "transport": "a unix socket" if plan.transport == "unix" else "TCP on the loopback",
        "rounds": plan.rounds,
        "is_quick": plan.size.is_quick,
        "size": asdict(plan.size),
        "commit": _commit(),
        "versions": {},
    }


def _commit() -> str:
    """Which Holdfast is measured, and whether the tree differs from it."""
    line = ["git", "describe", "--always", "--dirty", "--match", "none"]
    done = subprocess.run(line, cwd=environments.ROOT, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip()


def _install(peer: Peer, found: Results) -> bool:
    try:
        if not environments.is_installed(peer):
            _say(f"installing {peer.name} ...")
        environments.install(peer)
        found.about["versions"][peer.name] = environments.versions(peer)
    except (Failed, OSError) as error:
        found.rows.append(Row("install", peer.name, 0, error=str(error)))
        return False
    return True


class _Places:
    """The server, and the ways to it; made when first needed, and again if the server is gone."""

    def __init__(self, stack: ExitStack, plan: Plan) -> None:
        self._stack, self._plan = stack, plan
        self.server = stack.enter_context(serving(transport=plan.transport))
        self._scenes: dict[str, Scene] = {}

    def scene(self, place: str) -> Scene:
        if not answers(self.server.url):
            self.server = self._stack.enter_context(serving(transport=self._plan.transport))
            self._scenes.clear()
        if place not in self._scenes or not answers(self._scenes[place].way.url):
            self._scenes[place] = self._make(place)
        return self._scenes[place]

    def _make(self, place: str) -> Scene:
        server, way = self.server, Way(self.server.url)
        folder = self._stack.enter_context(new_folder())
        if place == "aof":
            server = self._stack.enter_context(serving(transport=self._plan.transport, append_only=True))
            way = Way(server.url)
        elif place in ("1ms", "counted"):
            delay = DELAY if place == "1ms" else 0.0
            way = self._stack.enter_context(way_to(server, folder, place, delay))
        return Scene(server, way, folder)


@dataclass
class _Round:
    """One round of one measure of all peers, one by one or several at once. A failure is recorded as a row."""

    step: Step
    plan: Plan
    places: _Places
    clock: Clock

    def take(self, rows: list[Row]) -> None:
        if self.step.measure.at_once > 1:
            self._at_once(rows)
            return
        for peer in self.step.peers:
            rows.append(self._calm(peer))
            self.clock.strike(self.step.measure, peer)

    def _at_once(self, rows: list[Row]) -> None:
        measure, who = self.step.measure, self.step.peers
        self._say("all at once" if len(who) <= measure.at_once else f"{measure.at_once} at once")
        lasting = tuple(children.descendants())
        with ThreadPoolExecutor(min(len(who), measure.at_once)) as pool:
            try:
                rows += pool.map(self._twice, who)
            except KeyboardInterrupt:
                children.interrupt()
                raise
        children.end_all(spare=lasting)
        for peer in who:
            self.clock.strike(measure, peer)

    def _twice(self, peer: Peer) -> Row:
        """Measure a peer, and again if it failed."""
        row = self._try(peer)
        return self._try(peer) if row.error and self.plan.tries > 1 else row

    def _calm(self, peer: Peer) -> Row:
        """Measure a peer; and again, a few times, while the machine is busy with something else, or it fails."""
        tries = [self._alone(peer)]
        while (
            _is_poor(tries[-1]) and len(tries) < self.plan.tries and self.clock.may_repeat(tries[-1].noise["seconds"])
        ):
            tries.append(self._alone(peer, ", again"))
        best = min(tries, key=lambda row: (bool(row.error), row.load))
        best.details["tries"] = len(tries)
        return best

    def _alone(self, peer: Peer, again: str = "") -> Row:
        self._say(peer.name + again)
        with suppress(Exception):  # it is tried below too; here, so that what is started is not taken for the peer's
            self.places.scene(self.step.measure.place)
        lasting, watch = tuple(children.descendants()), Watch()
        row = self._try(peer)
        children.end_all(spare=lasting)
        row.noise = asdict(watch.read())
        return row

    def _try(self, peer: Peer) -> Row:
        row = Row(self.step.measure.name, peer.name, self.step.number)
        try:
            place, size = self.step.measure.place, self.plan.size
            if place in AGAIN:
                size = replace(size, seconds=size.seconds * FAR_SHARE)
            taken = self.step.measure.run(self.places.scene(place), peer, size)
            row.figures, row.details = taken.figures, taken.details
        except Exception as error:  # a peer that fails does not stop the others
            row.error = f"{'' if isinstance(error, Failed) else type(error).__name__ + ': '}{error}"
        return row

    def _say(self, words: str) -> None:
        head = f"{self.clock.words()}; round {self.step.number}/{self.plan.rounds}: {self.step.measure.name}"
        _say(f"{head}: {words} ...")


def _is_poor(row: Row) -> bool:
    return row.is_noisy or bool(row.error)


def _say(words: str) -> None:
    """Progress: on a terminal in one line, else a line each."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words[:110]}", end="", file=sys.stderr, flush=True)
    else:
        print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)
