"""The specification: complete, valid, and kept by the server, as schemathesis finds out."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast.web.routes import RESOURCES
from holdfast.web.security.users import LOCAL, Scope, User
from tests.web.conftest import Serving
from tests.web.serving import Web

CASES = int(os.environ.get("HOLDFAST_API_CASES", "300"))  # for all operations together


def test_the_specification_has_all_routes_with_descriptions(web: Web) -> None:
    found = web.call("GET", "/openapi.json")
    assert found["openapi"] == "3.1.0"
    operations = {(method.upper(), path) for path, each in found["paths"].items() for method in each}
    assert operations == {(route.method, route.path) for route in RESOURCES}
    for path, each in found["paths"].items():
        for method, operation in each.items():
            assert operation["summary"].endswith("."), (method, path)


def _holder_of_token(scope: Scope) -> User | None:
    return LOCAL if dict(scope["headers"]).get(b"authorization") == b"Bearer right" else None


# Not checked: that valid data is accepted. Which names are valid is a rule of the store, not of the specification.
def test_the_server_keeps_to_its_specification(serving: Serving) -> None:
    web = serving(auth=_holder_of_token)
    token = {"Authorization": "Bearer right"}
    schema = schemathesis.openapi.from_dict(web.call("GET", "/openapi.json", headers=token))
    found: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    for operation in found:

        @settings(
            max_examples=max(5, CASES // len(found)), deadline=None, database=None, derandomize=CASES <= 300,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def keep(case: Any) -> None:
            case.call_and_validate(base_url=web.url, headers=token, excluded_checks=[positive_data_acceptance])

        keep()
