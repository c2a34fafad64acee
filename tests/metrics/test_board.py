"""The Grafana board, the alerts and the page: up to date, and about metrics and labels that exist."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import yaml

from holdfast import Holdfast
from holdfast.metrics import FAMILIES
from holdfast.testing import Workbench
from tests.metrics.page import GRAFANA, PAGE, alerts, page

ENDS = {"histogram": ("_bucket", "_sum", "_count")}
LABELS = {
    f"{family.name}{end}": {*family.labels, *(["le"] if end == "_bucket" else [])}
    for family in FAMILIES
    for end in ENDS.get(family.kind, ("",))
}
FROM_TARGET = {"job", "instance"}  # labels that Prometheus adds


def check(query: str) -> None:
    """Fail if a query names a metric or a label that does not exist."""
    names = re.findall(r"\bholdfast_\w+", query)
    assert names, query
    assert set(names) <= LABELS.keys(), query
    known = set().union(*(LABELS[name] for name in names))
    for inside in re.findall(r"\{([^}]*)\}", query):
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside)) <= known, query
    for grouped in re.findall(r"\b(?:by|on|ignoring)\s*\(([^)]*)\)", query):
        assert {label.strip() for label in grouped.split(",")} <= known | FROM_TARGET, query
    assert query.count("(") == query.count(")"), query


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GRAFANA / "holdfast.json").read_text())
    return found


def test_the_board_is_up_to_date() -> None:
    made = runpy.run_path(str(GRAFANA / "board.py"))["board"]()
    assert board() == made, "run: python examples/grafana/board.py > examples/grafana/holdfast.json"


def test_the_board_names_only_metrics_and_labels_that_exist() -> None:
    queries = [target["expr"] for panel in board()["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 20
    for query in queries:
        check(query)
    shown = {name for query in queries for name in re.findall(r"\bholdfast_\w+", query)}
    unused = {family.name for family in FAMILIES if family.kind != "info"} - {
        name.removesuffix("_bucket") for name in shown
    }
    assert unused <= {"holdfast_queue_workers"}


def test_panels_do_not_overlap() -> None:
    taken = set[tuple[int, int]]()
    ids = [panel["id"] for panel in board()["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_alerts_name_only_metrics_that_exist_and_say_what_to_do() -> None:
    assert len(alerts()) > 8
    for alert in alerts():
        check(alert["expr"])
        words = alert["annotations"]
        assert words["summary"]
        assert words["description"].endswith("."), alert["alert"]
        labels = set(re.findall(r"\$labels\.(\w+)", " ".join(words.values())))
        assert labels <= {"queue", "task"}, alert["alert"]
        assert all(label in alert["expr"] or label in _labels_of(alert["expr"]) for label in labels), alert["alert"]


def _labels_of(query: str) -> set[str]:
    return set().union(*(LABELS[name] for name in re.findall(r"\bholdfast_\w+", query)))


def test_commands_in_alerts_exist() -> None:
    from holdfast.cli.program import program

    for alert in alerts():
        for name in re.findall(r"`holdfast (\w+)", " ".join(alert["annotations"].values())):
            assert name in program.commands, alert["alert"]


def test_the_tables_of_the_page_are_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.metrics.page"


def test_configurations_are_valid_yaml_and_name_routes_that_exist() -> None:
    from holdfast.web.routes import RESOURCES

    [scrape] = yaml.safe_load((GRAFANA / "prometheus.yml").read_text())["scrape_configs"]
    assert scrape["metrics_path"] in {route.path for route in RESOURCES}
    *_, scaled = yaml.safe_load_all((GRAFANA / "keda.yml").read_text())
    [trigger] = scaled["spec"]["triggers"]
    path = "/" + trigger["metadata"]["url"].partition("//")[2].partition("/")[2].partition("?")[0]
    found = RESOURCES.find("GET", path).route.handler
    assert trigger["metadata"]["valueLocation"] in {field.name for field in _fields(found.reply)}


def _fields(kind: Any) -> Any:
    import msgspec

    return msgspec.structs.fields(kind)


def test_the_keys_that_keda_counts_are_sorted_sets_of_jobs(jobs: Holdfast, bench: Workbench) -> None:
    assert bench
    jobs.task(name="video.transcode", queue="video")(_transcode)
    jobs.enqueue(jobs.tasks["video.transcode"].bind())
    keys = re.findall(r'listName: "(.*)"', PAGE.read_text())
    assert len(keys) == 2
    waiting = keys[0].replace("{default}", f"{{{jobs.address.namespace}}}")
    size = (
        "local cmd = { zset = 'zcard', none = 'llen' } return redis.call(cmd[redis.call('type', KEYS[1]).ok], KEYS[1])"
    )
    assert jobs.store.execute("EVAL", size, 1, waiting) == 1
    assert keys[1].endswith(":running")


def _transcode() -> None: ...
