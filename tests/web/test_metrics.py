"""`/metrics` and `/autoscale`: what scrapers and autoscalers get, and who may ask."""

from __future__ import annotations

import asyncio
import gc
import weakref

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

import holdfast.web
from holdfast import Holdfast
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.web.conftest import Serving
from tests.web.serving import Web, serve, user_of
from tests.web.test_application import put


def test_prometheus_can_scrape(web: Web) -> None:
    put(web.jobs)
    found = web.get("/metrics")
    assert found.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {family.name: family.samples for family in parse(found.text)}
    assert samples["holdfast_store_up"][0].value == 1
    waiting = [each.value for each in samples["holdfast_jobs"] if each.labels == {"queue": "mail", "state": "waiting"}]
    assert waiting == [1]


def test_openmetrics_is_sent_to_whoever_asks_for_it(web: Web) -> None:
    put(web.jobs)
    found = web.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
    assert found.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert "holdfast_jobs" in {family.name for family in parse_open(found.text)}  # type: ignore[no-untyped-call]


def test_metrics_need_a_viewer_who_sees_only_his_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs, "mail")
    put(web.jobs, "video")
    assert web.get("/metrics").status_code == 401
    assert web.get("/metrics", headers={"x-user": "public"}).status_code == 403
    text = web.get("/metrics", headers={"x-user": "viewer mail"}).text
    assert 'queue="mail"' in text
    assert "video" not in text
    assert "holdfast_store" not in text
    assert "holdfast_store" in web.get("/metrics", headers={"x-user": "viewer"}).text


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
def test_an_unreachable_store_is_down(accept: str) -> None:
    with serve(Site(Holdfast("redis://127.0.0.1:1", timeout="50ms"), lambda _: LOCAL)) as web:
        found = web.get("/metrics", headers={"Accept": accept})
    assert found.status_code == 200
    assert "holdfast_store_up 0" in found.text


def test_an_app_that_is_gone_leaves_no_collector(server_url: str, namespace: str) -> None:
    async def scrape(jobs: Holdfast) -> None:
        transport = httpx.ASGITransport(holdfast.web.app(jobs, auth="open"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/metrics")).status_code == 200
        await jobs.aclose()

    jobs = Holdfast(server_url, namespace=namespace)
    asyncio.run(scrape(jobs))
    gone = weakref.ref(jobs)
    del jobs
    gc.collect()
    assert gone() is None


def test_an_autoscaler_gets_what_a_queue_needs(web: Web) -> None:
    for _ in range(3):
        put(web.jobs)
    found = web.call("GET", "/autoscale/mail")
    assert found["needed"] == web.jobs.load("mail")[0].needed == 1
    assert (found["queue"], found["waiting"], found["running"], found["paused"]) == ("mail", 3, 0, False)
    assert web.call("GET", "/autoscale/mail?target=5m")["needed"] == 1
    assert web.call("GET", "/autoscale/unknown")["needed"] == 0


def test_a_wrong_target_is_refused(web: Web) -> None:
    assert web.get("/api/v1/autoscale/mail?target=soon").status_code == 422


def test_autoscaling_needs_rights_on_the_queue(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs)
    assert web.get("/api/v1/autoscale/mail", headers={"x-user": "viewer video"}).status_code == 403
    assert web.get("/api/v1/autoscale/mail", headers={"x-user": "viewer mail"}).status_code == 200
