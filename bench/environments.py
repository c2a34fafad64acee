"""Where each peer is installed: an environment of its own under `.bench/`, made when it is first needed.

`tree` stands for the interpreter that runs the benchmark, with Holdfast as it is in this tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.children import Failed
from bench.roster import Peer

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".bench"
SCRIPTS = Path(__file__).parent / "peers"
INSTALLING = 300.0  # seconds
CLIENTS = ("redis", "coredis", "hiredis", "uvloop", "ioredis", "kombu", "taskiq")


def _home(peer: Peer) -> Path:
    return CACHE / peer.place


def _stamp(peer: Peer) -> Path:
    return _home(peer) / "installed.json"


def is_installed(peer: Peer) -> bool:
    stamp = _stamp(peer)
    return peer.runtime == "tree" or (stamp.exists() and json.loads(stamp.read_text()) == list(peer.packages))


def install(peer: Peer) -> None:
    """Make the environment of a peer, with the newest releases.

    Raises:
        Failed: it cannot be installed.
    """
    if is_installed(peer):
        return
    home = _home(peer)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    if peer.runtime == "node":
        (home / "package.json").write_text('{"private": true}\n')
        _run(["npm", "install", "--loglevel", "error", "--no-audit", "--no-fund", *peer.packages], home)
    else:
        _run([sys.executable, "-m", "venv", str(home)], home)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *peer.packages], home)
    _stamp(peer).write_text(json.dumps(list(peer.packages)))


def _run(line: list[str], home: Path) -> None:
    try:
        done = subprocess.run(line, cwd=home, capture_output=True, text=True, timeout=INSTALLING, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Failed(f"cannot be installed: {error}") from None
    if done.returncode:
        words = [each for each in done.stderr.splitlines() if each.strip() and "complete log" not in each]
        raise Failed(f"cannot be installed: {words[-1][:300] if words else 'no words'}")


def line(peer: Peer, *words: str) -> list[str]:
    """Return the command line that runs a command of a peer."""
    script = SCRIPTS / peer.place
    if peer.runtime == "node":
        return ["node", str(script / "peer.mjs"), *words]
    python = sys.executable if peer.runtime == "tree" else str(_home(peer) / "bin" / "python")
    return [python, str(script / "peer.py"), *words]


def folder(peer: Peer) -> Path:
    return SCRIPTS / peer.place


def environment(peer: Peer) -> dict[str, str]:
    """Return the environment variables of its processes, besides those of a measure."""
    path = [str(SCRIPTS / peer.place), str(SCRIPTS)]
    if peer.runtime == "tree":
        path.append(str(ROOT / "src"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST", "PYTHON"))}
    return {
        **kept,
        **peer.environment,
        "PYTHONPATH": os.pathsep.join(path),
        "BENCH_MODULES": str(_home(peer)),
    }


def versions(peer: Peer) -> dict[str, str]:
    """The versions of a peer, and of what it talks to the server with."""
    names = list(dict.fromkeys([*(name.partition("[")[0] for name in peer.packages), *CLIENTS]))
    if peer.runtime == "node":
        found = {}
        for name in names:
            about = _home(peer) / "node_modules" / name / "package.json"
            if about.exists():
                found[name] = str(json.loads(about.read_text())["version"])
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=20, check=False)
        return {**found, "node": node.stdout.strip().removeprefix("v")}
    program = (
        "import importlib.metadata as m, json, sys\n"
        "def version(name):\n"
        "    try: return m.version(name)\n"
        "    except m.PackageNotFoundError: return None\n"
        "print(json.dumps({n: version(n) for n in sys.argv[1:] if version(n)}))"
    )
    python = line(peer)[0]
    done = subprocess.run([python, "-c", program, *names], capture_output=True, text=True, timeout=30, check=False)
    answer: dict[str, str] = json.loads(done.stdout or "{}")
    return answer
