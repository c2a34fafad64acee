"""Functions of the app's own Lua over REST."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.web.site import Site
from tests.web.examples import write_lua
from tests.web.serving import Web, as_user, refusal, serve, user_of


@pytest.fixture
def shop(server_url: str, namespace: str, tmp_path: Path) -> Iterator[Web]:
    app = Holdfast(server_url, namespace=namespace, extend=write_lua(tmp_path))
    with serve(Site(app, user_of)) as web:
        yield web
    app.close()


def test_a_function_is_called_with_json_values(shop: Web) -> None:
    body = {"arguments": [1, 2]}
    assert shop.call("POST", "/functions/add:call", json=body, **as_user("admin")) == {"value": 3}
    assert shop.call("POST", "/functions/add:query", json=body, **as_user("operator")) == {"value": 3}
    refused = refusal(shop.post("/api/v1/functions/refuse:call", json={}, **as_user("admin")))
    assert refused == (409, "REFUSED", "the shop is closed")
    assert refusal(shop.post("/api/v1/functions/nothing:call", json={}, **as_user("admin"))).status == 404
    for wrong in ([{"holdfast.call": 1}], [1 << 60]):
        assert refusal(shop.post("/api/v1/functions/add:call", json={"arguments": wrong}, **as_user("admin")))[0] == 422


def test_functions_are_for_users_with_all_rights(shop: Web) -> None:
    for user, action in (("operator", "call"), ("admin mail", "call"), ("viewer", "query"), ("admin mail", "query")):
        assert refusal(shop.post(f"/api/v1/functions/add:{action}", json={}, **as_user(user))).status == 403


def test_an_app_without_lua_has_no_functions(web: Web) -> None:
    assert "no Lua of its own" in refusal(web.post("/api/v1/functions/add:call", json={})).detail
