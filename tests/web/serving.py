"""Real web servers for tests: uvicorn on a free port of loopback, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from holdfast import Holdfast
from holdfast.web import Application, User
from holdfast.web.security.users import Scope
from holdfast.web.serve import listen, make_server
from holdfast.web.site import Site


class Web:
    """A web server, and a client of it that acts as an operator's browser or program."""

    def __init__(self, url: str, jobs: Holdfast) -> None:
        self.url, self.jobs = url, jobs
        self.client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.client.post(path, **options)

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Call the API, and return what a successful answer has."""
        response = self.client.request(method, f"/api/v1{path}", **options)
        assert response.is_success, (response.status_code, response.text)
        return response.json() if response.content else None


def user_of(scope: Scope) -> User | None:
    """Find the user in the header `x-user`: role, and the queues if they are limited, as in `viewer mail,video`."""
    found = dict(scope["headers"]).get(b"x-user", b"").decode().split()
    if not found:
        return None
    return User("tester", found[0], tuple(found[1].split(",")) if len(found) > 1 else None)


def as_user(user: str) -> dict[str, Any]:
    """Return the options of a request of a user, as `user_of` finds it."""
    return {"headers": {"x-user": user}}


class Refusal(NamedTuple):
    """What a problem says."""

    status: int
    code: str
    detail: str


def refusal(response: httpx.Response) -> Refusal:
    """Return the problem with which a request was answered."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return Refusal(response.status_code, response.json()["code"], response.json()["detail"])


@contextmanager
def serve(site: Site, root_path: str = "") -> Iterator[Web]:
    """Serve a site until the end."""
    listener = listen("127.0.0.1", 0)
    server = make_server(Application(site), root_path=root_path)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    web = Web(f"http://127.0.0.1:{listener.getsockname()[1]}", site.app)
    try:
        yield web
    finally:
        web.client.close()
        server.should_exit = True
        thread.join()
        listener.close()
