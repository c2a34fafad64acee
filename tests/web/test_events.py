"""Events over REST: a list with a cursor, and a stream that resumes, tells of gaps, and bears slow clients."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.store import commands
from holdfast.web import User, feed, streaming
from holdfast.web.serve import listen
from tests.support.workers import until
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of
from tests.web.test_job_parts import messages
from tests.web.test_jobs import as_user, put

STREAM = {"Accept": "text/event-stream"}


class Follower:
    """A client that follows events."""

    def __init__(self, stack: ExitStack, web: Web, query: str = "", **headers: str) -> None:
        url = f"{web.url}/api/v1/events?{query}"
        self.response = stack.enter_context(httpx.stream("GET", url, headers=STREAM | headers, timeout=60))
        assert self.response.headers["content-type"].startswith("text/event-stream")
        self._messages = messages(self.response)

    def take(self) -> dict[str, Any]:
        return next(self._messages)

    def jobs(self, count: int = 1) -> list[str]:
        return [job for _ in range(count) for job in self.take()["data"]["jobs"]]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def last_event(jobs: Holdfast) -> str:
    return jobs.events()[-1].id


def trim(jobs: Holdfast) -> None:
    """Delete all events, as the store does when they are too many."""
    jobs.store.execute("XTRIM", jobs.store.run(commands.events(limit=1)).key, "MAXLEN", 0)


# List


def test_events_are_listed_from_a_cursor_on(web: Web) -> None:
    for id in "abc":
        put(web.jobs, id)
    found = web.call("GET", "/events?limit=2&cursor=start")
    rest = web.call("GET", "/events", params={"cursor": found["next"]})
    assert [each["jobs"] for each in (*found["items"], *rest["items"])] == [["a"], ["b"], ["c"]]
    assert "next" not in rest
    assert [each["jobs"] for each in web.call("GET", "/events?limit=1")["items"]] == [["c"]]
    assert web.call("GET", "/events?type=failed,cancelled&job=a")["items"] == []
    lines = web.get("/api/v1/events?cursor=start", headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert len(lines) == 4
    assert web.get("/api/v1/events?cursor=x").status_code == 422
    assert web.get("/api/v1/events?type=exploded").status_code == 422


# Stream


def test_events_are_sent_as_they_happen_and_resume(web: Web, stack: ExitStack) -> None:
    put(web.jobs, "before")
    live = Follower(stack, web, "cursor=start")
    assert live.jobs() == ["before"]
    put(web.jobs, "a")
    first = live.take()
    assert (first["data"]["jobs"], first["data"]["type"], first["event"]) == (["a"], "enqueued", "")
    assert first["id"] == first["data"]["event"] == last_event(web.jobs)
    put(web.jobs, "b")
    put(web.jobs, "c")
    resumed = Follower(stack, web, **{"Last-Event-ID": first["id"]})
    assert resumed.jobs(2) == live.jobs(2) == ["b", "c"]
    put(web.jobs, "d")
    assert resumed.jobs() == live.jobs() == ["d"]


def test_a_stream_has_only_what_matches(web: Web, stack: ExitStack) -> None:
    found = Follower(stack, web, "cursor=start&queue=mail&type=cancelled,failed")
    put(web.jobs, "a", "b", queue="mail")
    put(web.jobs, "c")
    for id in "cab":
        web.jobs.cancel(id)
    assert found.jobs(2) == ["a", "b"]


def test_a_gap_is_told_where_events_are_missing(web: Web, stack: ExitStack) -> None:
    put(web.jobs, "a")
    position = last_event(web.jobs)
    put(web.jobs, "lost")
    trim(web.jobs)
    put(web.jobs, "b")
    found = Follower(stack, web, **{"Last-Event-ID": position})
    gap = found.take()
    assert (gap["event"], gap["id"]) == ("gap", f"={last_event(web.jobs)}")
    assert found.jobs() == ["b"]
    assert Follower(stack, web, **{"Last-Event-ID": gap["id"]}).jobs() == ["b"]


def test_a_process_reads_events_once_for_all_who_follow_them(web: Web, stack: ExitStack) -> None:
    followers = [Follower(stack, web, "cursor=start") for _ in range(5)]
    put(web.jobs, "a")
    assert [each.jobs() for each in followers] == [["a"]] * 5
    [made] = [found for of_apps in feed._feeds.values() for app, found in of_apps.items() if app is web.jobs]
    assert made.readers == 1
    followers[0].response.close()
    put(web.jobs, "b")
    assert [each.jobs() for each in followers[1:]] == [["b"]] * 4


def test_comments_keep_a_silent_stream_open(web: Web, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "COMMENT_INTERVAL", 0.02)
    lines = Follower(stack, web).response.iter_lines()
    assert [next(lines) for _ in range(5)] == ["retry: 2000", "", ": nothing new", "", ": nothing new"]


def test_a_slow_client_gets_everything_in_its_own_time(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_QUEUED", 3)
    overflows: list[bool] = []
    monkeypatch.setattr(feed.Follower, "begin_again", _noting(overflows))
    monkeypatch.setattr("tests.web.serving.listen", _listen_with_small_buffers)
    web = serving()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", httpx.URL(web.url).port))
        slow.sendall(b"GET /api/v1/events?cursor=start HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
        for number in range(60):  # 800 KB of events
            put(web.jobs, *(f"{number}-{place:0100}" for place in range(100)))
        put(web.jobs, "last")
        seen = [json.loads(line)["jobs"][0].partition("-")[0] for line in data_lines(slow)]
    assert seen == [*map(str, range(60)), "last"]
    assert any(overflows)


def _listen_with_small_buffers(host: str, port: int) -> socket.socket:
    listener = listen(host, port)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # also of the connections that it accepts
    return listener


def _noting(overflows: list[bool]) -> Any:
    begin_again = feed.Follower.begin_again

    def noting(self: feed.Follower) -> None:
        overflows.append(self.overflowed)
        begin_again(self)

    return noting


def data_lines(connection: socket.socket) -> Iterator[str]:
    """Yield the data of server-sent events, up to that of the job `last`."""
    for line in connection.makefile("rb"):
        if line.startswith(b"data: "):
            yield line[6:].decode()
            if b'["last"]' in line:
                return


# Rights


def test_events_of_other_queues_are_not_shown(serving: Serving, stack: ExitStack) -> None:
    web = serving(auth=user_of)
    put(web.jobs, "secret", queue="video")
    put(web.jobs, "m", queue="mail")
    web.jobs.pause("video")
    web.jobs.pause("mail")
    web.jobs.set_limit("api", 3)
    listed = web.call("GET", "/events?cursor=start", **as_user("viewer mail"))["items"]
    assert [(each["type"], each["jobs"]) for each in listed] == [("enqueued", ["m"]), ("paused", ["mail"])]
    found = Follower(stack, web, "cursor=start", **{"x-user": "viewer mail"})
    assert found.jobs(2) == ["m", "mail"]


def test_one_user_cannot_have_all_connections(
    serving: Serving, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.security.streams.MAX_STREAMS", 2)
    web = serving(auth=lambda scope: User(dict(scope["headers"])[b"x-name"].decode(), "viewer"))

    def follow(name: str) -> httpx.Response:
        headers = {"Accept": "text/event-stream", "x-name": name}
        response = stack.enter_context(web.client.stream("GET", "/api/v1/events", headers=headers))
        if response.status_code == 200:
            kept.append(response.iter_lines())  # one that is forgotten closes the response
            next(kept[-1])
        return response

    kept: list[Iterator[str]] = []
    mine = [follow("ada") for _ in range(3)]
    assert [each.status_code for each in mine] == [200, 200, 503]
    assert follow("eve").status_code == 200
    assert web.get("/api/v1/queues", headers={"x-name": "ada"}).status_code == 200
    mine[0].close()
    until(lambda: follow("ada").status_code == 200)
