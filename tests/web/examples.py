"""An example of each route, in the order in which they work on the world of `make_world`.

`<token>` and the like stand for what only the world knows.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import Holdfast, every
from holdfast.store import Store, commands
from holdfast.web.paths import encode_name
from holdfast.web.resource import API, ResourceRoute
from holdfast.web.routes import RESOURCES
from tests.conftest import TestClock
from tests.support.varied_store import WORKER, fill, put

LUA = """
holdfast.register('add', function(a, b) return a + b end)
holdfast.register('refuse', function() holdfast.refuse('closed', 'the shop is closed') end)
"""


class Example(NamedTuple):
    """A request, and the status of its answer."""

    method: str
    path: str  # below /api/v1
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
    jobs.pause("unused")
    jobs.set_limit("spare", 3)
    _add_dead_worker(jobs, now)
    _add_schedules(jobs)
    return {"worker": encode_name(WORKER), "dead": encode_name("gone/dead"), **_claim_items(jobs)}


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
    Example("GET", "/session"),
    Example("POST", "/session", {"name": "ada", "password": "secret"}, 404),  # nobody signs in here
    Example("DELETE", "/session", status=404),
    Example("GET", "/tasks"),
    Example("GET", "/status"),
    Example("GET", "/server", status=404),  # another server than an embedded one
    Example("POST", "/upkeep"),
    Example("GET", "/outbox"),
    Example("POST", "/outbox:send"),
    Example("GET", "/metrics", base=""),
    Example("GET", "/autoscale/mail"),
    # Jobs
    Example("GET", "/jobs?queue=mail&state=pending&limit=2"),
    Example("GET", "/jobs:export?queue=mail&limit=2"),
    Example("GET", "/jobs:count?state=failed"),
    Example("POST", "/jobs", {"task": "send", "arguments": {"to": "ada"}, "queue": "mail", "delay": "1h"}, 201),
    Example("POST", "/jobs:batch", [{"task": "send"}, {"task": "send"}]),
    Example("GET", "/jobs/long"),
    Example("GET", "/jobs:some?id=long&id=nobody"),
    Example("GET", "/jobs/succeeded/result"),
    Example("GET", "/jobs/scheduled/explain"),
    Example("GET", "/jobs/long/timeline"),
    Example("GET", "/jobs/third/graph"),
    Example("GET", "/jobs/long/usage", status=204),  # nothing was recorded
    Example("GET", "/jobs/long/log"),
    Example("GET", "/jobs/long/attempts/1/log"),
    Example("GET", "/jobs/long/payload"),
    Example("GET", "/jobs/long/checkpoint"),
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
    # Operations, batches and events
    Example("POST", "/operations", {"action": "tag", "filter": {"queue": ["mail"]}, "tags": ["seen"]}, 202),
    Example("GET", "/operations"),
    Example("GET", "/operations/op1"),
    Example("DELETE", "/operations/op1"),
    Example("POST", "/operations/op1:resume", status=202),
    Example("PUT", "/batches/photos", {"then": {"task": "report"}}, 201),
    Example("GET", "/batches"),
    Example("GET", "/batches/photos"),
    Example("POST", "/batches/photos:close"),
    Example("POST", "/batches/import:cancel"),
    Example("DELETE", "/batches/over", status=204),
    Example("GET", "/events?limit=3"),
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
    Example("GET", "/queues/mail/next?limit=2"),
    Example("POST", "/queues/mail:pause"),
    Example("POST", "/queues/mail:resume"),
    Example("DELETE", "/queues/unused", status=204),
    Example("PUT", "/queues/fair/shares/bob", {"weight": 2}),
    Example("GET", "/queues/mail/load?target=30s"),
    Example("GET", "/load?queue=mail&queue=fair"),
    # Limits
    Example("GET", "/limits"),
    Example("GET", "/limits/=cmF0ZTphbm4"),  # rate:ann
    Example("GET", "/limits/api/keys"),
    Example("GET", "/limits/api/holders"),
    Example("GET", "/limits/api/parked"),
    Example("PUT", "/limits/spare", {"slots": 5, "per": "1s", "ttl": "1h"}),
    Example("POST", "/limits/spare:reset", status=409),  # no app declares it
    Example("DELETE", "/limits/spare", status=204),
    Example("DELETE", "/limits/api/holders/api0"),
    # Schedules
    Example("GET", "/schedules"),
    Example("GET", "/schedules/hourly?limit=3"),
    Example("PUT", "/schedules/nightly", {"task": "report", "cron": "0 2 * * *", "tz": "Europe/Berlin"}, 201),
    Example("PUT", "/schedules/report", {"task": "report", "every": 60}),
    Example("POST", "/schedules/report:reset"),
    Example("POST", "/schedules/hourly:pause"),
    Example("POST", "/schedules/hourly:resume"),
    Example("POST", "/schedules/hourly:trigger", status=201),
    Example("DELETE", "/schedules/spare", status=204),
    # Workers
    Example("GET", "/workers"),
    Example("GET", "/workers/<worker>"),
    Example("POST", "/workers/<worker>:drain"),
    Example("POST", "/nodes/node:drain"),
    Example("DELETE", "/workers/<dead>", status=204),
    Example("GET", "/nodes"),
    Example("GET", "/jobs:stalled"),
    # Failures
    Example("GET", "/failures?by=fingerprint"),
    Example("GET", "/failures/given-up"),
    # Statistics and plans
    Example("GET", "/stats?queue=ends&since=7d"),
    Example("GET", "/stats/queues?limit=2"),
    Example("GET", "/queues/ends/stats/tasks"),
    Example("GET", "/stats/series?queue=ends&resolution=hour"),
    Example("GET", "/plan?queue=mail&workers=%2B2&concurrency=4"),
    # Tags
    Example("GET", "/tags?min=1&limit=2"),
    Example("GET", "/scopes?within=/x"),
    Example("GET", "/jobs:tracked"),
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
