"""`make chaos`, or `python -m chaos --minutes 20 --seed 7`: exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from chaos.report import describe
from chaos.run import Run, Settings


def main() -> int:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that nothing is left behind
    seconds = options.seconds or options.minutes * 60
    settings = Settings(seconds, options.seed, options.jobs, options.workers)
    print(
        f"chaos: seed {settings.seed}, {seconds:g} s, {settings.jobs} jobs on {settings.workers} workers",
        file=sys.stderr,
    )
    folder = Path(tempfile.mkdtemp(prefix="hf-chaos-"))
    try:
        report, findings = Run(settings, folder, _progress).play()
    except (KeyboardInterrupt, SystemExit):  # nobody wants to know
        shutil.rmtree(folder, ignore_errors=True)
        return 130
    except BaseException:
        print(f"all that is known is in {folder}", file=sys.stderr)
        raise
    _progress("")
    print(json.dumps(report.json(), indent=2) if options.json else "\n".join(describe(report)))
    for finding in findings:
        print(f"NOT KEPT, seed {settings.seed}: {finding}", file=sys.stderr)
    if findings or options.keep:
        print(f"all that is known is in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if findings else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long everything is harmed (20)")
    parser.add_argument("--seconds", type=float, help="the same, in seconds")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="of kinds, pauses and victims")
    parser.add_argument("--jobs", type=int, default=50, help="number of unfinished jobs at any time")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="leave its directory there, also if all went well")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args()


def _progress(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{words:100.100}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
