"""The tables of docs/metrics.md: `python -m tests.metrics.page` writes them, and a test compares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from holdfast.metrics import FAMILIES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
GRAFANA = ROOT / "examples" / "grafana"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((GRAFANA / "holdfast.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _families() -> Iterator[str]:
    yield "| metric | labels | what it is |"
    yield "|---|---|---|"
    for family in FAMILIES:
        kind = "" if family.kind in ("gauge", "info") else f" A {family.kind}."
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {labels} | {family.help}{kind} |"


def _alerts() -> Iterator[str]:
    yield "| alert | it says |"
    yield "|---|---|"
    for alert in alerts():
        words = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"\1", alert["annotations"]["summary"])
        yield f"| {alert['alert']} | {words.replace('{{ $value }}', 'n')} |"


def page() -> str:
    """Return the page as it should be."""
    text = PAGE.read_text()
    for name, table in (("metrics", _families()), ("alerts", _alerts())):
        lines = "\n".join(table)
        text = re.sub(rf"<!-- {name} -->\n.*?<!-- end -->", f"<!-- {name} -->\n{lines}\n<!-- end -->", text, flags=re.S)
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
