"""Alerts, evaluated by Prometheus' own promtool: each fires when it should, and none of the others with it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics.page import GRAFANA, alerts

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
)
MINUTES = 120
FIRST_MINUTE = "0 10x119"  # ten at once, after a zero
EVERY_MINUTE = "0+1x120"
HEALTHY = {
    "holdfast_store_up": "1x120",
    'holdfast_jobs{queue="mail",state="waiting"}': "3x120",
    'holdfast_jobs{queue="mail",state="running"}': "3x120",
    'holdfast_oldest_seconds{queue="mail"}': "2x120",
    'holdfast_queue_paused{queue="mail"}': "0x120",
    'holdfast_queue_workers{queue="mail"}': "2x120",
    "holdfast_overdue": "0x120",
    'holdfast_attempts_total{queue="mail",task="send",outcome="completed"}': "0+60x120",
    'holdfast_attempts_total{queue="mail",task="send",outcome="retried"}': EVERY_MINUTE,
    'holdfast_failures_total{queue="mail",task="send"}': "7x120",
    'holdfast_workers{state="live"}': "2x120",
    'holdfast_workers{state="silent"}': "0x120",
    "holdfast_stalled_jobs": "0x120",
    "holdfast_store_memory_bytes": "80x120",
    "holdfast_store_max_memory_bytes": "100x120",
}


def healthy_but(**changes: str) -> dict[str, str]:
    """Return healthy series, of which those whose name begins with a word have other values."""
    found = dict(HEALTHY)
    for begins, values in changes.items():
        [name] = [each for each in HEALTHY if each.replace('"', "").startswith(f"holdfast_{begins}")]
        found[name] = values
    return found


CASES: list[tuple[dict[str, str], int, set[str]]] = [
    (HEALTHY, MINUTES, set()),
    (healthy_but(store_max="0x120"), MINUTES, set()),  # no limit
    ({"holdfast_store_up": "0x120"}, 2, {"StoreDown"}),
    ({}, 6, {"NotScraped"}),
    (healthy_but(oldest="1000x120"), 6, {"QueueBehind"}),
    (healthy_but(oldest="1000x120", queue_paused="1x120"), 6, set()),
    (healthy_but(queue_workers="0x120"), 6, {"QueueWithoutWorkers"}),
    (healthy_but(queue_paused="1x120"), 59, set()),
    (healthy_but(queue_paused="1x120"), 61, {"QueuePaused"}),
    (healthy_but(failures=EVERY_MINUTE), 15, {"JobsFail"}),
    (healthy_but(failures=FIRST_MINUTE), 2, {"JobsFail"}),
    (healthy_but(failures=FIRST_MINUTE), 20, set()),
    (healthy_but(failures="500x59 3 6x59"), 62, {"JobsFail"}),  # midnight
    (healthy_but(overdue="4x120"), 6, {"Overdue"}),
    (healthy_but(stalled="4x120"), 6, {"StalledJobs"}),
    (healthy_but(store_memory="86x120"), 11, {"StoreMemory"}),
]  # fmt: skip
CASES += [
    (HEALTHY | {'holdfast_workers{state="silent"}': "1x120"}, 6, {"SilentWorkers"}),
    (
        HEALTHY | {'holdfast_attempts_total{queue="mail",task="send",outcome="retried"}': "0+20x120"},
        50, {"ManyRetries"},
    ),
]  # fmt: skip


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    tests = [_case(series, minute, names) for series, minute, names in CASES]
    rules = str(GRAFANA / "holdfast.rules.yml")
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {f"Holdfast{name}" for *_, names in CASES for name in names} == {each["alert"] for each in alerts()}


def _case(series: dict[str, str], minute: int, names: set[str]) -> dict[str, Any]:
    firing = [{"labels": f'{{alertname="Holdfast{name}"}}', "value": 1} for name in sorted(names)]
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": f"{minute}m", "exp_samples": firing}],
    }


def test_rules_and_configuration_are_valid(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hft_x")
    text = (GRAFANA / "prometheus.yml").read_text().replace("/etc/prometheus/holdfast.token", str(token))
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copy(GRAFANA / "holdfast.rules.yml", tmp_path)
    subprocess.run(["promtool", "check", "config", str(tmp_path / "prometheus.yml")], check=True, capture_output=True)
