"""An example of each route, in the order in which they work on the world of `make_world`.

`<token>` and the like stand for what only the world knows.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import Holdfast, every
from holdfast.constants import USAGE_BLOCK
from holdfast.job.usage import Series
from holdfast.store import Store, commands
from holdfast.store.commands import LogBlock
from holdfast.web.paths import encode_name
from holdfast.web.resource import API, ResourceRoute
from holdfast.web.routes import RESOURCES
from tests.conftest import TestClock
from tests.support.varied_store import WORKER, claim, fill, put

LUA = """
holdfast.register('add', function(a, b) return a + b end)
holdfast.register('refuse', function() holdfast.refuse('closed', 'the shop is closed') end)
"""


class Example(NamedTuple):
    """A request, and the status of its answer."""

    method: str
    path: str  # below `base`
    json: Any = None
    status: int = 200
    base: str = API

    @property
    def route(self) -> ResourceRoute:
        path = self.base + self.path.partition("?")[0].replace("<", "").replace(">", "")
        found: ResourceRoute = RESOURCES.find(self.method, path).route  # type: ignore[assignment]
        return found


def make_world(jobs: Holdfast) -> dict[str, str]:
    """Store something of everything. Return what stands for `<name>` in the examples."""
    now = time.time_ns() // 1_000_000
    fill(jobs.store, TestClock(now))
    for id in ("over", "over-too"):
        put(jobs.store, id, "spare")
        jobs.cancel(id)
    for id in ("spare-1", "spare-2", "spare-3"):
        put(jobs.store, id, "spare")
    _add_usage(jobs)
    jobs.pause("unused")
    jobs.set_limit("spare", 3)
    _add_dead_worker(jobs, now)
    _add_schedules(jobs)
    return {"worker": encode_name(WORKER), "dead": encode_name("gone/dead"), **_claim_items(jobs)}


def _add_usage(jobs: Holdfast) -> None:
    put(jobs.store, "measured", "measured")
    claim(jobs.store, "measured")
    usage = Series()
    usage.add(3.0, 1 << 20, 1.0)
    created = round(jobs.get("measured").created_at.timestamp() * 1000)
    jobs.store.run(commands.log([LogBlock("measured", created, 1, USAGE_BLOCK, usage.text())]))


def _add_dead_worker(jobs: Holdfast, now: int) -> None:
    behind = Store(jobs.address, clock=lambda: now - 3_600_000)
    behind.run(commands.renew("gone/dead", [], queues=["mail"]))
    behind.close()


def _add_schedules(jobs: Holdfast) -> None:
    report = jobs.task(name="report", queue="reports", schedule=every("1h"))(_report)
    jobs.store.run(commands.declare_schedule(**jobs.declared_schedules["report"]))
    for name in ("hourly", "soon", "spare"):
        jobs.schedule(name, report.bind().options(queue="reports"), every="1h")


def _report() -> None: ...


def _claim_items(jobs: Holdfast) -> dict[str, str]:
    items, tokens = jobs.items("scans"), {}
    for name in ("renewed", "failed", "released"):
        items.put(b"scan", id=f"item-{name}")
        item = items.claim()
        assert item
        tokens[name] = item.detach()
    return tokens


EXAMPLES = [
    # The service
    Example("GET", "/health/live"),
    Example("GET", "/health/ready"),
    Example("GET", "/openapi.json"),
    Example("GET", "/info"),
    Example("GET", "/tasks"),
    Example("GET", "/status"),
    Example("GET", "/attention"),
    Example("GET", "/metrics", base=""),
    Example("GET", "/server", status=404),  # another server than an embedded one
    Example("POST", "/upkeep"),
    Example("GET", "/outbox"),
    Example("POST", "/outbox:send"),
    Example("GET", "/session"),
    Example("POST", "/session", {"name": "ada", "password": "secret"}, 404),  # nobody signs in here
    Example("DELETE", "/session", status=404),
    # Parts of jobs, as they are before they are changed
    Example("GET", "/jobs:show?id=long&id=nobody"),
    Example("GET", "/jobs/long/stored"),
    Example("GET", "/jobs/long/comparison?days=3"),
    Example("GET", "/jobs/succeeded/result"),
    Example("GET", "/jobs/waiting/result", status=202),
    Example("GET", "/jobs/waiting/explain"),
    Example("GET", "/jobs/failed/timeline"),
    Example("GET", "/jobs/second/graph"),
    Example("GET", "/jobs/measured/usage"),
    Example("GET", "/jobs/waiting/usage", status=204),
    Example("GET", "/jobs/long/log?tail=10"),
    Example("GET", "/jobs/long/attempts/1/log"),
    Example("GET", "/jobs/long/attempts/latest/log?tail=10"),
    Example("GET", "/jobs/long/payload"),
    Example("GET", "/jobs/long/checkpoint"),
    Example("GET", "/jobs/long/stored"),
    Example("GET", "/jobs/long/comparison?days=2"),
    # Jobs
    Example("GET", "/jobs?queue=mail&state=pending&limit=2"),
    Example("GET", "/jobs:export?queue=mail&limit=2"),
    Example("GET", "/jobs:count?state=failed"),
    Example("POST", "/jobs", {"task": "send", "arguments": {"to": "ada"}, "queue": "mail", "delay": "1h"}, 201),
    Example("POST", "/jobs:batch", [{"task": "send"}, {"task": "send"}]),
    Example("GET", "/jobs/long"),
    Example("PUT", "/jobs/mine", {"task": "send"}, 201),
    Example("POST", "/jobs/spare-1:cancel", {"reason": "not needed"}),
    Example("POST", "/jobs/first:cancel-tree"),
    Example("POST", "/jobs/failed:retry"),
    Example("POST", "/jobs/running:release"),
    Example("POST", "/jobs/spare-2:fail", {"group": "given-up"}),
    Example("POST", "/jobs/spare-3:move", {"queue": "slow"}),
    Example("POST", "/jobs/waiting:fork", {"from_start": True}, 201),
    Example("POST", "/jobs/long:stack", {"timeout": 0.01}, 504),  # no worker answers
    Example("POST", "/jobs/waiting:depend", {"add": ["scheduled"]}),
    Example("PUT", "/jobs/waiting/after/kept"),
    Example("DELETE", "/jobs/waiting/after/kept"),
    Example("POST", "/jobs/long/notes", {"text": "looked at"}),
    Example("PATCH", "/jobs/long/fields", {"ticket": "7"}),
    Example("POST", "/jobs/long/fields", {"name": "ticket", "text": "8"}),
    Example("POST", "/jobs/long:tag", {"tags": ["seen"]}),
    Example("POST", "/jobs/long:untag", {"tags": ["seen"]}),
    Example("PUT", "/jobs/long/tags/seen"),
    Example("DELETE", "/jobs/long/tags/seen"),
    Example("POST", "/jobs/long:track"),
    Example("POST", "/jobs/long:untrack"),
    Example("POST", "/jobs:cancel", {"ids": ["kept", "nobody"]}),
    Example("POST", "/jobs:retry", {"ids": ["kept"]}),
    Example("POST", "/jobs:delete", {"ids": ["over"]}),
    Example("POST", "/jobs:tag", {"ids": ["marked"], "tags": ["c"]}),
    Example("POST", "/jobs:untag", {"ids": ["marked"], "tags": ["c"]}),
    Example("DELETE", "/jobs/over-too", status=204),
    # Operations
    Example("POST", "/operations", {"action": "cancel", "filter": {"tag": "a"}, "dry_run": True}),
    Example("POST", "/operations", {"action": "tag", "filter": {"queue": ["mail"]}, "tags": ["c"]}, 202),
    Example("GET", "/operations"),
    Example("GET", "/operations/op1"),
    Example("DELETE", "/operations/op1"),
    Example("POST", "/operations/op1:resume", status=202),
    # Batches
    Example("GET", "/batches?state=done&limit=2"),
    Example("GET", "/batches/import"),
    Example("PUT", "/batches/nightly", {"then": {"task": "report", "queue": "reports"}, "keep": "1d"}, 201),
    Example("PUT", "/batches/nightly", {}),
    Example("POST", "/batches/nightly:close"),
    Example("POST", "/batches/import:cancel", {"reason": "wrong file"}),
    Example("DELETE", "/batches/over", status=204),
    # Events
    Example("GET", "/events?queue=mail&limit=2"),
    Example("GET", "/events?cursor=start&type=enqueued&limit=2"),
    # Items
    Example("POST", "/queues/scans/items", {"text": "a scan", "id": "scan-1"}, 201),
    Example("POST", "/queues/scans/items:batch", {"items": [{"text": "a"}, {"base64": "/w=="}], "priority": 3}),
    Example("POST", "/queues/scans/items:claim", {"lease": "1m"}),
    Example("POST", "/items:renew", {"token": "<renewed>", "text": "half"}),
    Example("POST", "/items:complete", {"token": "<renewed>", "text": "done"}),
    Example("POST", "/items:fail", {"token": "<failed>", "reason": "torn"}),
    Example("POST", "/items:release", {"token": "<released>", "delay": "10m"}),
    # Queues
    Example("GET", "/queues?limit=3"),
    Example("GET", "/queues/mail"),
    Example("GET", "/queues/mail:peek?limit=2"),
    Example("POST", "/queues/mail:pause"),
    Example("POST", "/queues/mail:resume"),
    Example("DELETE", "/queues/unused", status=204),
    Example("PUT", "/queues/fair/shares/bob", {"weight": 2}),
    Example("GET", "/queues/mail/load?target=30s"),
    Example("GET", "/autoscale/mail?target=30s"),
    Example("GET", "/load?queue=mail&queue=fair"),
    # Limits
    Example("GET", "/limits"),
    Example("GET", "/limits/=cmF0ZTphbm4"),  # rate:ann
    Example("GET", "/limits/api/keys"),
    Example("GET", "/limits/api/holders"),
    Example("GET", "/limits/api/parked"),
    Example("POST", "/limits", {"limit": "added", "slots": 5}, 201),
    Example("POST", "/limits", {"limit": "added", "slots": 5}, 409),
    Example("PUT", "/limits/spare", {"slots": 5, "per": "1s", "ttl": "1h"}),
    Example("POST", "/limits/spare:reset", status=409),  # no app declares it
    Example("DELETE", "/limits/spare", status=204),
    Example("DELETE", "/limits/api/holders/api0"),
    # Schedules
    Example("GET", "/schedules"),
    Example("GET", "/schedules/hourly?limit=3"),
    Example("PUT", "/schedules/nightly", {"task": "report", "cron": "0 2 * * *", "tz": "Europe/Berlin"}, 201),
    Example("PUT", "/schedules/report", {"task": "report", "every": 60}),
    Example("POST", "/schedules", {"schedule": "added", "task": "report", "every": "1h"}, 201),
    Example("POST", "/schedules", {"schedule": "added", "task": "report", "every": "1h"}, 409),
    Example("PUT", "/schedules/report/timing", {"every": "2m"}),
    Example("POST", "/schedules/report:reset"),
    Example("POST", "/schedules/hourly:pause"),
    Example("POST", "/schedules/hourly:resume"),
    Example("POST", "/schedules/hourly:trigger", status=201),
    Example("DELETE", "/schedules/spare", status=204),
    # Workers
    Example("GET", "/workers"),
    Example("GET", "/workers:summary?queue=mail"),
    Example("GET", "/workers/<worker>"),
    Example("POST", "/workers/<worker>:drain"),
    Example("POST", "/nodes/node:drain"),
    Example("DELETE", "/workers/<dead>", status=204),
    Example("GET", "/nodes"),
    Example("GET", "/stalled"),
    # Failures
    Example("GET", "/failures?by=fingerprint"),
    Example("GET", "/failures/given-up"),
    Example("GET", "/failures:trends?by=group&name=given-up&step=5m&count=12"),
    Example("GET", "/attention"),
    # Statistics and plans
    Example("GET", "/stats?queue=ends&since=7d"),
    Example("GET", "/stats/queues?limit=2"),
    Example("GET", "/queues/ends/stats/tasks"),
    Example("GET", "/stats/tasks?days=2"),
    Example("GET", "/stats/series?queue=ends&resolution=hour"),
    Example("GET", "/stats/series/queues?queue=ends&queue=mail&resolution=hour"),
    Example("GET", "/stats/trends?queue=ends&queue=mail&step=5"),
    Example("GET", "/plan?queue=mail&workers=%2B2&concurrency=4"),
    # Tags
    Example("GET", "/tags?min_count=1&limit=2"),
    Example("GET", "/scopes?scope=/x"),
    Example("GET", "/tracked"),
    # Subscriptions
    Example("GET", "/subscriptions"),
    Example("GET", "/subscriptions/audit"),
    Example("POST", "/subscriptions/audit:pause"),
    Example("POST", "/subscriptions/audit:resume"),
    Example("DELETE", "/subscriptions/audit", status=204),
    # Functions
    Example("POST", "/functions/add:call", {"arguments": [1, 2]}),
    Example("POST", "/functions/add:query", {"arguments": [1, 2]}),
    # Settings
    Example("GET", "/config"),
    Example("PATCH", "/config", {"lease": "1m", "retries": 5, "keep_failed": None}),
    Example("PUT", "/config", {"lease": 45}),
    Example("PUT", "/config/retries", {"value": 4}),
    Example("DELETE", "/config/retries", status=204),
    Example("GET", "/queues/mail/config"),
    Example("PATCH", "/queues/mail/config", {"lease": "1m"}),
    Example("PUT", "/queues/mail/config", {"retries": 1}),
    Example("PUT", "/queues/mail/config/lease", {"value": "2m"}),
    Example("DELETE", "/queues/mail/config/lease", status=204),
    # Checks
    Example("GET", "/doctor"),
    Example("POST", "/check", {"seconds": 10}),
    Example("GET", "/memory"),
    Example("GET", "/check/history"),
]


def write_lua(folder: Path) -> Path:
    path = folder / "shop.lua"
    path.write_text(LUA)
    return path
