"""The units and manifests of docs/deploy.md are right, as far as that can be checked here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.units import milliseconds
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.supervisor import supervisor
from tests.apps import worker_app as app
from tests.support.workers import ROOT, Crew, until

PAGE = (ROOT / "docs" / "deploy.md").read_text()
BLOCKS = dict(re.findall(r"<!-- \w+: ([^>]+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
LONGEST_STOP = (
    WorkerSettings(app="any").stop_within / 1000 + 2 * supervisor.GRACE + 1
)  # seconds, and some to say goodbye


def read_yaml(text: str) -> Any:
    """Read YAML as far as the page uses it: blocks of maps and lists, and values that are JSON or words."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines() if line.strip()]
    value, left = _block(lines, lines[0][0])
    assert not left, f"not understood: {left[0]}"
    return value


def _block(lines: list[tuple[int, str]], indent: int) -> tuple[Any, list[tuple[int, str]]]:
    made: Any = [] if lines[0][1].startswith("- ") else {}
    while lines and lines[0][0] == indent:
        line = lines[0][1]
        if isinstance(made, list):
            assert line.startswith("- ")
            value, lines = _block([(indent + 2, line[2:]), *lines[1:]], indent + 2)
            made.append(value)
            continue
        name, colon, rest = line.partition(":")
        assert colon, line
        assert name not in made
        if rest.strip():
            made[name], lines = _value(rest.strip()), lines[1:]
        else:
            made[name], lines = _block(lines[1:], lines[1][0])
    return made, lines


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        assert text[0] not in "[{\"'", text
        return text


def test_kubernetes_waits_for_long_enough_and_asks_what_can_be_answered() -> None:
    deployment = read_yaml(BLOCKS["deployment"])
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    names = {each["name"]: each.get("value") for each in container["env"]}

    assert pod["terminationGracePeriodSeconds"] > LONGEST_STOP
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert mounts[names["XDG_RUNTIME_DIR"]] == pod["volumes"][0]["name"]
    assert names["TMPDIR"] == names["XDG_RUNTIME_DIR"]
    assert container["command"][-1] == "$(POD_NAME)"
    assert "livenessProbe" not in container

    hook = read_yaml(BLOCKS["part of a pod"])
    line = hook["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
    patience = milliseconds(re.findall(r"--timeout (\w+)", line)[0], what="timeout") / 1000
    assert hook["terminationGracePeriodSeconds"] > patience + LONGEST_STOP


def test_the_probe_finds_a_live_worker_and_no_other(crew: Crew, tmp_path: Path) -> None:
    container = read_yaml(BLOCKS["deployment"])["spec"]["template"]["spec"]["containers"][0]
    (tmp_path / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    (tmp_path / "holdfast").chmod(0o755)
    crew.start(node="pod-7")
    until(crew.app.workers)

    def probe(pod: str) -> int:
        path = f"{tmp_path}:{os.environ['PATH']}"
        env = os.environ | {
            "PATH": path,
            "POD_NAME": pod,
            "HOLDFAST_URL": crew.url,
            "HOLDFAST_NAMESPACE": crew.namespace,
        }
        return subprocess.run(container["readinessProbe"]["exec"]["command"], env=env, check=False).returncode

    assert (probe("pod-7"), probe("pod")) == (0, 1)


def test_docker_waits_for_long_enough_and_starts_no_shell() -> None:
    worker = read_yaml(BLOCKS["compose"])["services"]["worker"]
    (command,) = re.findall(r"^CMD (.*)$", BLOCKS["Dockerfile"], re.MULTILINE)

    assert milliseconds(worker["stop_grace_period"], what="stop_grace_period") / 1000 > LONGEST_STOP
    assert json.loads(command)[:2] == ["holdfast", "work"]


def test_systemd_waits_for_long_enough_and_accepts_the_unit(tmp_path: Path) -> None:
    unit = BLOCKS["holdfast@.service"]
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert (settings["KillMode"], settings["Type"], settings["OOMPolicy"]) == ("mixed", "notify", "continue")
    assert int(settings["TimeoutStopSec"]) > LONGEST_STOP
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("there is no systemd-analyze here")
    file = tmp_path / "holdfast@1.service"
    file.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit).replace("User=shop", "User=root"))

    done = subprocess.run([analyze, "verify", "--man=no", file], capture_output=True, text=True, check=False)

    assert "holdfast@1.service:" not in done.stderr, "a line that systemd does not understand"


def test_systemd_is_notified_when_a_worker_is_ready_and_when_it_stops(crew: Crew) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{crew.namespace}")
        listener.settimeout(30)
        worker = crew.start(NOTIFY_SOCKET=f"@{crew.namespace}")

        assert listener.recv(100) == b"READY=1"
        assert crew.app.workers() or until(crew.app.workers)
        assert worker.stop() == 0
        assert listener.recv(100) == b"STOPPING=1"


def test_a_worker_as_process_1_handles_signals_and_reaps_orphans(crew: Crew) -> None:
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("there are no namespaces here")
    worker = crew.start(before=apart)
    job = crew.put(app.add, 1, 2)
    assert job.result(timeout="30s") == 3
    assert crew.get(job).pid < 100, "as processes are counted there"

    (first,) = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    crew.kill(int(first), signal.SIGTERM)

    assert worker.wait() == 0
    assert crew.app.workers() == []
