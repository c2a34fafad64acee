"""Holdfast and its peers side by side, on one server, in one run: `make bench`, or `make bench QUICK=1`.

    make bench ARGS="--only enqueue,drain --peers holdfast,rq"
    make bench ARGS="--only '*@1ms'"          the same rows at a millisecond of delay
    make bench ARGS="--render FILE"           table and plot again, from the results of a run
    make bench ARGS="--publish FILE"          the same as results/published.*, and into docs/performance.md
    make bench ARGS=imports                   and another that stands alone: running

Rounds are interleaved: each measure is taken of every peer, then all are taken again. docs/performance.md explains how
each figure is taken and how each peer is configured.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from bench import children, plot, results, table
from bench.measures import MEASURES
from bench.publish import publish
from bench.results import FOLDER
from bench.roster import PEERS
from bench.run import Plan, run
from bench.scene import Size

ALONE = ("imports", "running")
FULL = Size(seconds=1.3, samples=300, patience=90.0)
QUICK = Size(seconds=0.3, samples=40, patience=40.0, is_quick=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("alone", nargs="?", choices=ALONE, help="a measure that stands alone")
    parser.add_argument(
        "--quick", action="store_true", default=os.environ.get("QUICK", "") not in ("", "0"), help="in two minutes"
    )
    parser.add_argument("--only", default="", help="measures, by name or pattern; see --list")
    parser.add_argument("--peers", default="", help="peers, by name or pattern")
    parser.add_argument("--rounds", type=int, help="how often each is measured (3; quick: 1)")
    parser.add_argument("--tries", type=int, help="how often at most, while the machine is busy (3; quick: 1)")
    parser.add_argument("--seconds", type=float, help="about how long each throughput is measured")
    parser.add_argument("--patience", type=float, help="seconds until a job of a killed worker counts as lost (90)")
    parser.add_argument("--transport", choices=("unix", "tcp"), default="unix", help="how all reach the server")
    parser.add_argument("--output", type=Path, help=f"where results go (a new file in {FOLDER.name}/)")
    parser.add_argument("--render", type=Path, metavar="FILE", help="measure nothing, show the results of a run")
    parser.add_argument("--publish", type=Path, metavar="FILE", help="the same, and write it into the documents")
    parser.add_argument("--list", action="store_true", help="list measures and peers")
    options = parser.parse_args()
    if options.alone:
        return _alone(options.alone, options.quick)
    if options.list:
        return _list()
    for file in filter(None, (options.render, options.publish)):
        if not file.is_file():
            parser.error(f"{file} does not exist; a run writes its results to bench/results/")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be 1 at least")
    if options.render:
        return show(results.read(options.render), options.render)
    if options.publish:
        print(*publish(results.read(options.publish)), sep="\n")
        return 0
    size = QUICK if options.quick else FULL
    plan = Plan.choose(
        replace(size, seconds=options.seconds or size.seconds, patience=options.patience or size.patience),
        only=options.only,
        peers=options.peers,
        rounds=options.rounds or (1 if options.quick else 3),
        tries=options.tries or (1 if options.quick else 3),
        transport=options.transport,
    )
    children.adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        found, path = run(plan, options.output)
    finally:
        children.end_all()
    return show(found, path)


def show(found: results.Results, path: Path) -> int:
    """Print the table, and write it and the plot beside the results."""
    text = table.report(found)
    path.with_suffix(".md").write_text(text)
    path.with_suffix(".svg").write_text(plot.draw(found))
    print(text)
    print(f"{path}, {path.with_suffix('.md').name}, {path.with_suffix('.svg').name}", file=sys.stderr)
    return 0


def _list() -> int:
    for measure in MEASURES:
        print(f"{measure.name:14} {'quick' if measure.is_quick else '':6} {measure.title}")
    for peer in PEERS:
        print(f"{peer.name:18} {peer.settings}")
    return 0


def _alone(name: str, is_quick: bool) -> int:
    if name == "imports":
        from bench import imports

        imports.main(is_quick)
    else:
        from bench import running

        running.main(is_quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
