"""Mounts: below any path, in Starlette, FastAPI, Django and others, whatever they do with the path."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

import holdfast.web
from holdfast import Holdfast, Invalid
from holdfast.web import User
from holdfast.web.paths import Scope, path_of, root_of
from holdfast.web.serve import listen
from tests.support.shells import PATIENCE
from tests.web.serving import user_of

Asgi = Callable[[Any, Any, Any], Awaitable[Any]]
ADMIN = {"x-user": "admin"}


@contextmanager
def served(application: Asgi, root_path: str = "") -> Iterator[httpx.Client]:
    """Serve any ASGI application with uvicorn."""
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(application, root_path=root_path, log_config=None, lifespan="auto")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", trust_env=False) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def check(client: httpx.Client, jobs: Holdfast, below: str, shown: str | None = None) -> None:
    """Check that all works below a path, and that links begin with the path that browsers see."""
    shown = below if shown is None else shown
    jobs.pause("jobs")
    page = client.get(f"{below}/queues", headers=ADMIN)
    assert page.status_code == 200
    links = re.findall(r'(?:href|action|src)="([^"#]*)"', page.text)
    assert all(link.startswith(f"{shown}/") for link in links), links
    returns = re.findall(r'name="_next" value="([^"]*)"', page.text)
    assert f"{shown}/queues" in returns
    assert all(each.startswith(f"{shown}/") for each in returns), returns
    style = next(link for link in links if link.endswith(".css"))
    assert client.get(below + style.removeprefix(shown)).status_code == 200
    # the same words as in the path of the mount are a part of ours
    resumed = client.post(
        f"{below}/api/v1/queues/jobs:resume", headers=ADMIN, data={"_next": f"{shown}/queues", "_message": "m"}
    )
    assert (resumed.status_code, resumed.headers["location"]) == (303, f"{shown}/queues")
    assert f"Path={shown or '/'};" in resumed.headers["set-cookie"]
    assert client.get(f"{below}/api/v1/health/live").json() == {"status": "ok"}
    assert client.get(f"{below}/nothing", headers=ADMIN).json()["detail"] == "there is nothing at /nothing"
    assert client.get(f"{below}/api/v1/queues").status_code == 401


@pytest.fixture
def dashboard(jobs: Holdfast) -> Asgi:
    return holdfast.web.app(jobs, auth=user_of)


def test_fastapi_mounts_it(jobs: Holdfast, dashboard: Asgi) -> None:
    application = FastAPI()
    application.mount("/jobs", dashboard)
    with served(application) as client:
        check(client, jobs, "/jobs")
        assert client.get("/openapi.json").status_code == 200


def test_starlette_mounts_it_anywhere(jobs: Holdfast, dashboard: Asgi) -> None:
    inner = Starlette(routes=[Mount("/jobs", dashboard)])
    with served(Starlette(routes=[Mount("/ops", inner), Mount("/", dashboard)])) as client:
        check(client, jobs, "/ops/jobs")
        check(client, jobs, "")


def test_behind_a_proxy_that_removes_a_part_of_the_path(jobs: Holdfast, dashboard: Asgi) -> None:
    application = FastAPI()
    application.mount("/jobs", dashboard)
    with served(application, root_path="/outer") as client:
        check(client, jobs, "/jobs", "/outer/jobs")
    with served(rooted(application, "/outer")) as client:
        check(client, jobs, "/jobs", "/outer/jobs")


def rooted(application: Asgi, root_path: str) -> Asgi:
    """Set the root path as `FastAPI(root_path=...)` does, whose path is without it."""

    async def answer(scope: Scope, receive: Any, send: Any) -> None:
        await application({**scope, "root_path": root_path}, receive, send)

    return answer


def shortening(application: Asgi, below: str) -> Asgi:
    """Mount as frameworks do that remove the path of the mount from the path."""

    async def answer(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": below, "path": scope["path"].removeprefix(below)}
        await application(scope, receive, send)

    return answer


def test_a_framework_may_shorten_the_path(jobs: Holdfast, dashboard: Asgi) -> None:
    with served(shortening(dashboard, "/jobs")) as client:
        check(client, jobs, "/jobs")


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ({"path": "/queues"}, "/queues"),
        ({"path": ""}, "/"),
        ({"path": "/jobs/queues", "root_path": "/jobs"}, "/queues"),
        ({"path": "/jobs", "root_path": "/jobs"}, "/"),
        ({"path": "/jobs/", "root_path": "/jobs/"}, "/"),
        ({"path": "/queues", "root_path": "/jobs"}, "/queues"),
        ({"path": "/jobsx", "root_path": "/jobs"}, "/jobsx"),
        ({"path": "/jobs/jobs", "root_path": "/jobs", "raw_path": b"/jobs/jobs"}, "/jobs"),
        ({"path": "/jobs", "root_path": "/jobs", "raw_path": b"/jobs/jobs"}, "/jobs"),  # shortened
        ({"path": "/jobs/é", "root_path": "/jobs", "raw_path": b"/jobs/jobs/%C3%A9"}, "/jobs/é"),
        ({"path": "/jobs/x", "root_path": "/outer/jobs", "app_root_path": "/outer"}, "/x"),
    ],
)
def test_the_path_below_the_mount(scope: dict[str, Any], path: str) -> None:
    assert path_of(scope) == path


@pytest.mark.parametrize(
    ("root", "shown"),
    [
        ("", ""), ("/", ""), ("/jobs/", "/jobs"), ("//evil.example", "/evil.example"),
        ("/\\evil.example", "/%5Cevil.example"),
        ('/a"b<c>', "/a%22b%3Cc%3E"), ("/a;b\r\nc d", "/a%3Bb%0D%0Ac%20d"), ("/é?#", "/%C3%A9%3F%23"),
    ],
)  # fmt: skip
def test_links_cannot_be_led_elsewhere_by_the_path_of_the_mount(root: str, shown: str) -> None:
    assert root_of({"root_path": root}) == shown


def test_a_mount_whose_path_has_parameters(jobs: Holdfast, dashboard: Asgi) -> None:
    with served(Starlette(routes=[Mount("/{tenant}/jobs", dashboard)])) as client:
        check(client, jobs, "/acme/jobs")
        page = client.get("/%5Cevil.example%22%3E/jobs/queues", headers=ADMIN)
        assert page.status_code == 200
        assert 'href="/%5Cevil.example%22%3E/jobs/queues"' in page.text
        assert "\\evil" not in page.text


def test_a_mounted_application_has_the_session_of_the_other(jobs: Holdfast) -> None:
    def user_of_session(scope: Scope) -> User | None:
        name = scope["session"].get("user")
        return User(name, "viewer", ("mail",)) if name else None

    def with_sessions(application: Asgi) -> Asgi:
        async def answer(scope: Scope, receive: Any, send: Any) -> None:
            session = {"user": Request(scope).cookies.get("user")} if scope["type"] == "http" else {}
            await application({**scope, "session": session}, receive, send)

        return answer

    routes = [Mount("/jobs", holdfast.web.app(jobs, auth=user_of_session))]
    with served(Starlette(routes=routes, middleware=[Middleware(with_sessions)])) as client:
        assert client.get("/jobs/api/v1/session").status_code == 401
        client.cookies.set("user", "ada")
        assert client.get("/jobs/api/v1/session").json()["name"] == "ada"
        form = client.post(
            "/jobs/api/v1/session", json={"name": "a", "password": "b"}, headers={"Sec-Fetch-Site": "same-origin"}
        )
        assert form.json()["detail"].startswith("nobody signs in here")


def test_auth_may_be_async_and_must_return_a_user(jobs: Holdfast) -> None:
    async def find(scope: Scope) -> Any:
        user = dict(scope["headers"]).get(b"x-user", b"")
        return {b"good": User("ada"), b"bad": SimpleNamespace(role="admin")}.get(user)

    with served(holdfast.web.app(jobs, auth=find)) as client:
        statuses = [client.get("/api/v1/session", headers={"x-user": user}).status_code for user in ("good", "bad", "")]
        assert statuses == [200, 500, 401]


def test_open_is_for_everybody_and_no_auth_for_nobody(jobs: Holdfast) -> None:
    with served(holdfast.web.app(jobs, auth="open")) as client:
        assert client.get("/api/v1/session").json()["role"] == "admin"
    with served(holdfast.web.app(jobs)) as client:
        assert client.get("/api/v1/health/live").status_code == 200
        for path in ("/api/v1/health/ready", "/api/v1/queues", "/sign-in", "/queues"):
            assert client.get(path).status_code == 403


def test_names_to_redact_are_those_of_the_mount(jobs: Holdfast) -> None:
    assert holdfast.web.app(jobs, redact=["Password"]).site.redact == {"password"}


WEB: Any = holdfast.web  # without its types


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda _: WEB.app("redis://localhost"), "expected a Holdfast app, got 'redis://localhost'"),
        (lambda jobs: WEB.app(jobs, auth="admin"), "auth is 'admin'; expected a function from the ASGI scope"),
        (lambda jobs: WEB.app(jobs, auth=WEB.User("ada", "admin")), "expected a function from the ASGI scope"),
        (lambda jobs: WEB.app(jobs, redact="password"), "redact is 'password'; expected a list of names"),
        (lambda _: WEB.User("ada", "root"), "role is 'root'; expected one of viewer, operator, admin"),
        (lambda _: WEB.User("ada", queues="*"), "queues is '*'; expected a tuple of names and patterns, or None"),
        (lambda _: WEB.User("ada", queues=["mail"]), "expected a tuple of names and patterns"),
        (lambda _: WEB.User("ada", queues=("a b",)), "queue is 'a b'"),
        (lambda _: WEB.User("ada", scope="all"), "scope is 'all'; expected one of metrics"),
        (lambda jobs: WEB.beside("shop.asgi", "/jobs", jobs), "expected an ASGI application, got 'shop.asgi'"),
        (lambda jobs: WEB.beside(hello, "/", jobs), "expected a path such as /jobs, got '/'"),
        (lambda jobs: WEB.beside(hello, "jobs", jobs), "expected a path such as /jobs, got 'jobs'"),
    ],
)  # fmt: skip
def test_wrong_use_is_refused_at_once(jobs: Holdfast, wrong: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(Invalid, match=re.escape(message)):
        wrong(jobs)


SHOP = """
from fastapi import FastAPI
import holdfast.web
from holdfast import Holdfast

application = FastAPI()
application.mount("/jobs", holdfast.web.app(Holdfast(), auth="open"))
"""


def test_open_pages_do_not_keep_uvicorn_from_stopping(server_url: str, namespace: str, tmp_path: Path) -> None:
    """It waits for all connections, and each open page of the dashboard has one that lasts."""
    (tmp_path / "shop.py").write_text(SHOP)
    line = [sys.executable, "-m", "uvicorn", "shop:application", "--uds", "web.sock"]
    environ = os.environ | {"HOLDFAST_URL": server_url, "HOLDFAST_NAMESPACE": namespace}
    process = subprocess.Popen(line, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        with process.stderr:
            while "running on" not in process.stderr.readline():
                assert process.poll() is None
            transport = httpx.HTTPTransport(uds=str(tmp_path / "web.sock"))
            with (
                httpx.Client(transport=transport, base_url="http://localhost", timeout=PATIENCE) as client,
                client.stream("GET", "/jobs/api/v1/events", headers={"Accept": "text/event-stream"}) as stream,
            ):
                process.send_signal(signal.SIGTERM)
                stream.read()
            assert "Traceback" not in process.stderr.read()
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()


# Beside another application


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """An application of its own, without a lifespan, as Django's."""
    if scope["type"] != "http":
        raise ValueError(f"this application knows no {scope['type']}")
    await PlainTextResponse(f"hello {scope['path']}")(scope, receive, send)


def test_it_stands_beside_any_application(jobs: Holdfast) -> None:
    application = holdfast.web.beside(hello, "/jobs/", jobs, auth=user_of)
    with served(application) as client:
        check(client, jobs, "/jobs")
        for path in ("/", "/jobsx", "/job", "/other/jobs"):
            assert client.get(path).text == f"hello {path}"
    with served(application, root_path="/outer") as client:
        check(client, jobs, "/jobs", "/outer/jobs")
        assert client.get("/about").text == "hello /outer/about"
    with pytest.raises(Invalid):
        holdfast.web.beside(hello, "jobs", jobs)


def test_the_other_application_keeps_its_lifespan(jobs: Holdfast) -> None:
    seen = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        seen.append("started")
        yield
        seen.append("stopped")

    with served(holdfast.web.beside(Starlette(lifespan=lifespan), "/jobs", jobs, auth="open")) as client:
        assert client.get("/jobs/api/v1/queues").status_code == 200
        assert seen == ["started"]
    assert seen == ["started", "stopped"]


def test_it_stands_beside_django(jobs: Holdfast) -> None:
    pytest.importorskip("django", reason="Django is not installed: pip install django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            SECRET_KEY="secret", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], DEBUG=False,  # noqa: S106
            SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
            MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
        )  # fmt: skip
    import django
    from django.core.asgi import get_asgi_application

    django.setup()
    globals()["urlpatterns"] = django_views()
    with served(holdfast.web.beside(get_asgi_application(), "/jobs", jobs, auth=user_of_django)) as client:
        assert client.get("/hello").text == "hello"
        assert client.get("/jobs/api/v1/session").status_code == 401
        client.get("/sign-in")
        assert client.get("/jobs/api/v1/session").json()["name"] == "ada"
        assert client.get("/jobs/queues").status_code == 200


async def user_of_django(scope: Scope) -> User | None:
    """Find the user in the session of Django, whose middleware is not asked about requests of the dashboard."""
    from asgiref.sync import sync_to_async
    from django.conf import settings
    from django.contrib.sessions.backends.signed_cookies import SessionStore

    key = Request(scope).cookies.get(settings.SESSION_COOKIE_NAME)
    name = await sync_to_async(SessionStore(key).get)("user") if key else None
    return User(name, "operator") if name else None


def django_views() -> list[Any]:
    from django.http import HttpResponse
    from django.urls import path

    def sign_in(request: Any) -> Any:
        request.session["user"] = "ada"
        return HttpResponse("signed in")

    return [path("hello", lambda _: HttpResponse("hello")), path("sign-in", sign_in)]


def test_a_websocket_is_closed(jobs: Holdfast) -> None:
    import asyncio

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    asyncio.run(holdfast.web.app(jobs, auth="open")({"type": "websocket", "path": "/"}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1000}]


@pytest.mark.parametrize(
    ("rights", "wrong"), [({"role": "root"}, "role"), ({"queues": "mail"}, "queues"), ({"queues": ["mail"]}, "queues")]
)
def test_a_user_with_wrong_rights_is_a_mistake(rights: dict[str, Any], wrong: str) -> None:
    """A text would be taken for the names of its letters."""
    with pytest.raises(Invalid, match=f"{wrong} is "):
        User("ada", **rights)
