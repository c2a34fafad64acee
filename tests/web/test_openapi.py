"""The specification: complete, valid, and kept by the server, as schemathesis finds out."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast import Holdfast
from holdfast.errors import WrongState
from holdfast.web.paths import encode_name
from holdfast.web.routes import RESOURCES
from holdfast.web.security.users import LOCAL, Scope, User
from tests.web.conftest import Serving
from tests.web.examples import make_world
from tests.web.serving import Web
from tests.web.test_jobs import put

MIN_CASES = 2  # of each operation, valid and invalid
CASES = int(os.environ.get("HOLDFAST_API_CASES") or 0)  # of all operations together, if that is more
MAX_QUERY = 4_000  # characters: the server reads up to 64 KiB of a head
SEED = int(os.environ.get("HOLDFAST_API_SEED") or (random.randrange(10**6) if CASES else 0))


def test_the_specification_has_all_routes_with_descriptions(web: Web) -> None:
    found = web.call("GET", "/openapi.json")
    assert found["openapi"] == "3.1.0"
    operations = {(method.upper(), path) for path, each in found["paths"].items() for method in each}
    assert operations == {(route.method, route.path) for route in RESOURCES}
    for path, each in found["paths"].items():
        for method, operation in each.items():
            assert operation["summary"].endswith("."), (method, path)
            for parameter in operation["parameters"]:
                assert parameter.get("description"), (method, path, parameter["name"])


def test_every_field_of_the_specification_is_described(web: Web) -> None:
    components = web.call("GET", "/openapi.json")["components"]["schemas"]
    assert not any("." in name for name in components), "two types have the same name"
    undescribed = {
        f"{name}.{field}"
        for name, each in components.items()
        for field, schema in each.get("properties", {}).items()
        if "description" not in schema and name != "Marks"
    }
    assert undescribed == set(), "say what they mean with `about`"


def test_a_parameter_of_a_query_is_not_null(web: Web) -> None:
    """It can be left out, but a text cannot say null."""
    for path, each in web.call("GET", "/openapi.json")["paths"].items():
        for method, operation in each.items():
            for parameter in operation["parameters"]:
                assert "null" not in json.dumps(parameter["schema"]), (method, path, parameter["name"])


def _holder_of_token(scope: Scope) -> User | None:
    return LOCAL if dict(scope["headers"]).get(b"authorization") == b"Bearer right" else None


# Names that exist, in paths and in bodies: others lead no further than to 404.
KNOWN = {
    "id": "job-1", "other": "job-2", "queue": "default", "batch": "batch-1", "attempt": "1", "tag": "new",
    "limit": "api", "schedule": "hourly", "worker": encode_name("node/one"), "node": "node", "subscription": "audit",
    "failure": "Net", "setting": "lease", "share": "ann", "operation": "op1", "function": "add",
}  # fmt: skip
KNOWN_LISTS = {"ids": ["job-1", "job-2"], "add": ["job-2"], "after": ["job-2"], "tags": ["new"], "queue": ["default"]}


def use_known_names(jobs: Holdfast, case: Any) -> None:
    """Let a request be about jobs that exist, whatever earlier requests did."""
    put(jobs, "job-1", "job-2")
    with suppress(WrongState):
        jobs.batch("batch-1").open()
    case.path_parameters = {name: KNOWN.get(name, value) for name, value in (case.path_parameters or {}).items()}
    if case.query:
        case.query.pop("follow", None)  # until the end of the job
    if isinstance(case.body, dict):
        case.body = {
            name: KNOWN_LISTS.get(name, value) if isinstance(value, list) else value
            for name, value in case.body.items()
        }


# Not checked: that valid data is accepted. Which names are valid is a rule of the store, not of the specification.
def test_the_server_keeps_to_its_specification(serving: Serving) -> None:
    """Send requests that the specification allows, and ones that it forbids; `make api` sends many."""
    web = serving(auth=_holder_of_token)
    make_world(web.jobs)
    token = {"Authorization": "Bearer right"}
    schema = schemathesis.openapi.from_dict(web.call("GET", "/openapi.json", headers=token))
    found: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    kinds = [(operation, mode) for operation in found for mode in GenerationMode if _can(operation, mode)]
    sent, began = Counter[GenerationMode](), time.monotonic()

    def send(case: Any, mode: GenerationMode, finds: bool) -> None:
        if finds and mode is GenerationMode.POSITIVE:
            use_known_names(web.jobs, case)
        assume(_can_be_sent(case, mode))
        sent[mode] += 1
        case.call_and_validate(base_url=web.url, headers=token, excluded_checks=[positive_data_acceptance])

    for operation, mode in kinds:
        requests = given(operation.as_strategy(mode), st.just(mode), st.booleans())(send)
        each = settings(
            max_examples=max(MIN_CASES, math.ceil(CASES / len(kinds))), deadline=None, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        try:
            each(seed(SEED)(requests))()
        except BaseException as error:
            error.add_note(f"make api CASES={CASES} SEED={SEED}")
            raise
    print(
        f"\n{len(found)} routes, {sent[GenerationMode.POSITIVE]:,} valid and {sent[GenerationMode.NEGATIVE]:,} invalid"
        f" requests in {time.monotonic() - began:.0f} s; seed {SEED}"
    )


def _can_be_sent(case: Any, mode: GenerationMode) -> bool:
    """Return whether an address can say what a case has: a list of one is a text there, and an empty one nothing."""
    query = case.query or {}
    parameters = case.operation.definition.raw.get("parameters", ())
    lists = {each["name"] for each in parameters if each["in"] == "query" and each["schema"].get("type") == "array"}
    has_empty = any(str(each).strip("[]{}, ") in ("", "None") for each in query.values() if not isinstance(each, str))
    return (
        all(isinstance(query[name], list) for name in lists & query.keys())
        and not (has_empty and mode is GenerationMode.NEGATIVE)
        and len(str(query)) < MAX_QUERY
    )


def _can(operation: Any, mode: GenerationMode) -> bool:
    """Return whether there are requests of this kind: nothing is wrong with one that has no parts, and is for all."""
    has_parts = (
        operation.path_parameters or operation.query or operation.body or operation.definition.raw.get("security", True)
    )
    return mode is GenerationMode.POSITIVE or bool(has_parts)
