"""The routes agree with the client, the command line and the specification; and each works as its example says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from holdfast import Holdfast
from holdfast.records.table import Table
from holdfast.web.resource import ListOf, ResourceRoute, Stream
from holdfast.web.routes import RESOURCES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.cli.page import every_command
from tests.web.examples import EXAMPLES, Example, make_world, write_lua
from tests.web.serving import Web, serve

# Client methods, and why no route has them.
WITHOUT_ROUTE = {
    **dict.fromkeys(("task", "middleware", "on", "type", "carry"), "declares something in the code of an app"),
    **dict.fromkeys(("enqueue_with", "key"), "is for a transaction on the caller's own connection"),
    "worker": "runs jobs in this program",
    "close": "closes connections of this program",
}

# The routes that do what a command does, by their names; or why there is none.
ROUTES_OF_COMMANDS: dict[str, tuple[str, ...] | str] = {
    "work": "runs jobs",
    "enqueue": ("enqueue_job", "enqueue_jobs", "put_job"),
    "status": ("show_status", "list_attention"),
    "top": ("show_status", "show_load", "list_series", "list_jobs", "list_failures"),
    "metrics": ("show_metrics",),
    "jobs": ("list_jobs",),
    "show": (
        "show_job",
        "show_timeline",
        "show_graph",
        "show_usage",
        "show_payload",
        "show_checkpoint",
        "show_stored",
        "compare_job",
        "show_jobs",
    ),
    "logs": ("show_log", "stream_log"),
    "wait": ("show_result",),
    "retry": ("retry_job", "retry_jobs", "start_operation"),
    "cancel": ("cancel_job", "cancel_jobs", "cancel_tree", "start_operation"),
    "queues list": ("list_queues", "show_queue"),
    "queues pause": ("pause_queue",),
    "queues resume": ("resume_queue",),
    "queues forget": ("forget_queue",),
    "workers list": ("list_workers", "show_worker"),
    "workers drain": ("drain_worker", "drain_node"),
    "workers forget": ("deregister_worker",),
    "schedules list": ("list_schedules",),
    "schedules show": ("show_schedule",),
    "schedules add": ("put_schedule", "add_schedule", "put_timing"),
    "schedules reset": ("reset_schedule",),
    "schedules pause": ("pause_schedule",),
    "schedules resume": ("resume_schedule",),
    "schedules trigger": ("trigger_schedule",),
    "schedules remove": ("remove_schedule",),
    "why": ("show_job", "explain_job"),
    "count": ("count_jobs",),
    "export": ("export_jobs",),
    "peek": ("peek",),
    "stack": ("show_stack",),
    "fork": ("fork_job",),
    "delete": ("delete_job", "delete_jobs", "start_operation"),
    "move": ("move_job", "start_operation"),
    "release": ("release_job", "start_operation"),
    "fail": ("fail_job", "start_operation"),
    "depend": ("change_dependencies", "add_dependency", "remove_dependency"),
    "attach": ("change_fields", "set_field"),
    "note": ("add_note",),
    "tag": ("tag_job", "add_tag", "tag_jobs", "start_operation"),
    "untag": ("untag_job", "remove_tag", "untag_jobs", "start_operation"),
    "track": ("track_job",),
    "untrack": ("untrack_job",),
    "operations list": ("list_operations",),
    "operations show": ("show_operation",),
    "operations stop": ("stop_operation",),
    "operations resume": ("resume_operation",),
    "batches list": ("list_batches",),
    "batches show": ("show_batch",),
    "batches open": ("open_batch",),
    "batches close": ("close_batch",),
    "batches cancel": ("cancel_batch",),
    "batches wait": ("show_batch",),
    "batches delete": ("delete_batch",),
    "events": ("list_events",),
    "failures list": ("list_failures",),
    "failures show": ("show_failure",),
    "tags": ("list_tags",),
    "scopes": ("list_scopes",),
    "tracked": ("list_tracked",),
    "load": ("show_load", "show_queue_load", "show_autoscale"),
    "stats": (
        "show_statistics",
        "list_statistics_of_queues",
        "list_statistics_of_tasks",
        "list_tasks_that_ran",
        "list_series",
    ),
    "plan": ("show_plan",),
    "nodes": ("list_nodes",),
    "limits list": ("list_limits",),
    "limits show": ("show_limit", "list_limit_keys", "list_limit_holders", "list_limit_parked"),
    "limits set": ("set_limit", "add_limit"),
    "limits reset": ("reset_limit",),
    "limits remove": ("remove_limit",),
    "limits release": ("release_slot",),
    "limits share": ("set_share_weight",),
    "config list": ("list_settings", "list_queue_settings"),
    "config set": ("change_settings", "change_setting", "change_queue_settings", "change_queue_setting"),
    "config reset": ("replace_settings", "reset_setting", "replace_queue_settings", "reset_queue_setting"),
    "subscriptions list": ("list_subscriptions", "show_subscription"),
    "subscriptions pause": ("pause_subscription",),
    "subscriptions resume": ("resume_subscription",),
    "subscriptions remove": ("unsubscribe",),
    "outbox list": ("list_outbox",),
    "outbox send": ("send_outbox",),
    "upkeep": ("process_timers",),
    "doctor": ("list_findings",),
    "fsck": ("check_store", "measure_memory", "show_check_history"),
    "server status": ("show_server",),
    "server start": "a web process needs the server to run",
    "server stop": "would stop the server that the web process needs",
    "items put": ("put_item", "put_items"),
    "items claim": ("claim_item",),
    "items renew": ("renew_item",),
    "items complete": ("complete_item",),
    "items fail": ("fail_item",),
    "items release": ("release_item",),
    **dict.fromkeys(("items clean", "items length"), "programs that share a queue by its keys have these"),
    "call": ("call_function", "query_function"),
    "web serve": "starts the server that answers these requests",
    **dict.fromkeys(
        (
            "web users list",
            "web users add",
            "web users password",
            "web users remove",
            "web tokens list",
            "web tokens add",
            "web tokens remove",
        ),
        "changes a file of this machine: over the network, nobody gives rights",
    ),
    **dict.fromkeys(("conformance", "completion", "demo", "help"), "is about the command line, or starts servers"),
}


def test_every_client_method_has_a_route() -> None:
    methods = {name for name, value in vars(Holdfast).items() if not name.startswith("_") and callable(value)}
    twins = {name for name in methods if name[0] == "a" and name[1:] in methods}
    named = {name for route in RESOURCES for name in route.client}
    assert named <= methods
    assert methods - twins - named == WITHOUT_ROUTE.keys()


def test_every_command_has_a_route() -> None:
    names = {route.name for route in RESOURCES}
    groups = {name.rpartition(" ")[0] for name, _ in every_command() if " " in name}
    commands = {name for name, _ in every_command()} - groups
    assert commands == ROUTES_OF_COMMANDS.keys()
    found = {name for routes in ROUTES_OF_COMMANDS.values() if isinstance(routes, tuple) for name in routes}
    assert found <= names


def test_every_route_has_a_name_of_its_own() -> None:
    names = [route.name for route in RESOURCES]
    assert sorted(set(names)) == sorted(names)


def test_every_route_has_an_example() -> None:
    assert {route_of(each) for each in EXAMPLES} == set(RESOURCES), "add examples to tests/web/examples.py"


def route_of(example: Example) -> ResourceRoute:
    path = example.base + example.path.partition("?")[0].replace("<", "").replace(">", "")
    found: ResourceRoute = RESOURCES.find(example.method, path).route  # type: ignore[assignment]
    return found


@pytest.fixture
def world(server_url: str, namespace: str, tmp_path: Path) -> Iterator[Web]:
    app = Holdfast(server_url, namespace=namespace, extend=write_lua(tmp_path))
    with serve(Site(app, lambda _: LOCAL)) as web:
        yield web
    app.close()


def test_every_route_answers_its_example_as_the_specification_says(world: Web) -> None:
    names = make_world(world.jobs)
    for example in EXAMPLES:
        response = world.client.request(
            example.method, example.base + _filled(example.path, names), json=_filled_json(example.json, names)
        )
        check_answer(example, response)


def test_a_post_with_an_idempotency_key_takes_effect_once(world: Web) -> None:
    """The second answer is the first one, unless it tells what has changed since."""
    names = make_world(world.jobs)
    others = set()
    for number, example in enumerate(EXAMPLES):
        is_repeatable = "Idempotency-Key" in example.route.headers
        first, *again = [
            world.client.request(
                example.method, example.base + _filled(example.path, names), json=_filled_json(example.json, names),
                headers={"Idempotency-Key": str(number)},
            )
            for _ in range(1 + is_repeatable)
        ]  # fmt: skip
        check_answer(example, first)
        if any((each.status_code, each.content) != (first.status_code, first.content) for each in again):
            others.add(example.route.name)
    assert others - {"start_operation", "check_store"} == {  # whose answers have progress and times
        "tag_job", "untag_job", "tag_jobs", "untag_jobs", "pause_queue", "resume_queue",  # unchanged
        "delete_jobs",  # they do not exist
        "add_limit", "add_schedule",  # 409: there is one of this name
    }  # fmt: skip
    posts = [route for route in RESOURCES if route.method == "POST"]
    assert [route.name for route in posts if "Idempotency-Key" not in route.headers] == ["claim_item"]


def _filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"<{name}>", value)
    return text


def _filled_json(value: Any, names: dict[str, str]) -> Any:
    return msgspec.json.decode(_filled(msgspec.json.encode(value).decode(), names))


def check_answer(example: Example, response: httpx.Response) -> None:
    """Check that an answer is what its route declares."""
    route = example.route
    reply = route.handler.reply
    assert response.status_code == example.status, (example, response.text)
    if not response.is_success:
        assert response.headers["content-type"] == "application/problem+json"
        assert {"title", "status", "code", "detail"} <= response.json().keys()
        return
    assert response.status_code in route.statuses
    assert "location" in response.headers or response.status_code not in (201, 202) or route.method != "POST", route
    if response.status_code == 204 or reply is None:
        assert (response.status_code, response.content) == (204, b"")
    elif isinstance(reply, ListOf):
        for record in response.json()["items"]:
            if not reply.partial:
                check_record(record, reply.table)
    elif isinstance(reply, Table):
        check_record(response.json(), reply)
    elif isinstance(reply, Stream):
        assert response.headers["content-type"] == reply.media_type
    else:
        msgspec.json.decode(response.content, type=reply)


def check_record(record: dict[str, Any], table: Table) -> None:
    """Check that a record has all fields of its table and no other, each of its type."""
    assert list(record) == [each.name for each in table.fields]
    msgspec.convert(record, table.struct)
