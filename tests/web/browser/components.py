"""A page with every component, for tests and to look at; the application does not route it."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import sin

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from holdfast.web.call import Call
from holdfast.web.pages.charts import (
    Bucket,
    Mark,
    Moment,
    Panel,
    Series,
    Span,
    Times,
    Track,
    histogram,
    plot,
    timeline,
)
from holdfast.web.pages.formats import duration
from holdfast.web.pages.page import Pages
from holdfast.web.pages.rendering import environment, shared_variables

pages = Pages()

TEMPLATE = """
{% extends "base.html" %}
{% import "parts/actions.html" as actions with context %}
{% import "parts/figures.html" as figures with context %}
{% import "parts/filters.html" as filters with context %}
{% import "parts/logs.html" as logs with context %}
{% import "parts/notices.html" as notices with context %}
{% import "parts/tables.html" as tables with context %}
{% import "parts/values.html" as values with context %}
{% block main %}
<div class="head"><h1>Components</h1><span class="muted">every part of the pages</span>
<div class="end">{{ filters.choice("Period", [("15 min", here, false), ("3 hours", here, true)]) }}
{{ actions.button("Stack", "/queues/mail:resume", "Stack asked for", small=false) }}
{% call actions.menu("More") %}{{ actions.button("Pause", "/queues/mail:pause", "Paused", small=false) }}{% endcall %}
{% call actions.confirm("Cancel…", "Cancel this job?", "Cancel the job", "/queues/mail:pause", "Cancelled the job",
    text="The attempt gets SIGTERM, and SIGKILL a second later. The checkpoint is kept.",
    commands=[command("cancel", "training", dependents=true), curl("POST", "/api/v1/jobs/training:cancel")]) %}
{{ actions.field("Reason, stored with the job", "reason") }}{% endcall %}
</div></div>
<section class="panel"><header><h2>States</h2></header><div class="pad chips">
{% for state in STATES %}{{ values.state(state, big=true) }}{% endfor %}</div>
<div class="pad chips">{% for state in STATES + ("live", "draining", "silent") %}{{ values.state(state) }}{% endfor %}
{{ values.badge("r418", here, "rev") }} {{ values.badge("new", kind="new") }} {{ values.badge("paused", icon_name="paused") }}</div></section>
{% call figures.figures("Key figures", live="figures") %}
{{ figures.figure("Waiting", 1973|number, "oldest 2 h 10 min", here, sparkline([3, 4, 4, 5, 7, 9], "waiting")) }}
{{ figures.figure("Oldest waits", 840|duration, "usually 40 s") }}
{{ figures.figure("Failed", 214|number, "1 in the hour before", here, sparkline([0, 0, 0, 1, 6, 9], "failed")) }}
{{ figures.figure("Memory", 41300000000|size) }}
{% endcall %}
<section class="panel pad col">{{ state_bar(counts, wide=true) }}{{ figures.legend(counts, hrefs, big=true) }}</section>
<div class="split"><div class="whys">
{% call notices.why("blocked", "Blocked by 2 of 14 jobs: one runs, one failed.", "It stays blocked until the failed job is retried.",
   facts=[("Failed", "imports.load"), ("Running", "61 %")], command=command("why", "training")) %}
{{ actions.button("Retry the failed job", "/queues/mail:resume", kind="primary", small=false) }}{% endcall %}
{{ notices.why("failed", "No live worker serves queue legacy-pdf.", "Workers serve billing, mail and video.", shape="warn", id="why-2") }}
</div>
<aside class="col" aria-label="Facts"><section class="panel"><header><h2>Facts</h2></header><div class="pad">
{% call values.facts() %}
{% call values.fact("Created") %}{{ values.at(hour_ago) }}{% endcall %}
{% call values.fact("Heartbeat") %}{{ values.age(second_ago) }}{% endcall %}
{% call values.fact("Due") %}{{ values.age(later) }}{% endcall %}
{% call values.fact("Retries") %}{{ figures.budget(1, 3) }}{% endcall %}
{% call values.fact("Slots") %}{{ figures.slots(5, 8) }}{% endcall %}
{% call values.fact("Runs") %}{{ figures.runs(["succeeded", "succeeded", "failed", "cancelled"]) }}{% endcall %}
{% call values.fact("Hostile") %}{{ hostile }}{% endcall %}
{% endcall %}</div></section></aside></div>
{% call notices.wrong("Needs attention", 2) %}
{% call notices.problem("failed", "failed") %}<p><a href="{{ here }}">billing.charge_card has failed with ConnectTimeout</a>. <span>212 jobs</span></p><a class="btn small" href="{{ here }}">Open failure</a>{% endcall %}
{% call notices.problem("paused", "waiting") %}<p>Queue imports is paused. <span>1,204 jobs</span></p>{% endcall %}
{% endcall %}
<section class="panel">
{{ filters.tabs("State", [("All", here, false), ("Failed", here, true, 231, "failed"), ("Succeeded", here, false, 1284107, "succeeded")]) }}
<div class="bar">{{ filters.query("state:failed queue:billing", hidden={"limit": "50"}) }}
<div class="chips" role="group" aria-label="Filters">{{ filters.chip("queue", "billing", here) }}{{ filters.add("task", here) }}</div></div>
{% call tables.table("Failed jobs", [(tables.pick_all("jobs"), "pick"), ("State", ""), ("Job", ""), ("Arguments", "opt"), ("Queue", ""), ("Attempt", "num"),
    ("Since", "num", "descending", here), ("Details", ""), ("Actions", "acts")], kind="jobs", live="jobs", noun="job") %}
{% for id in ids %}
{% call tables.row(id) %}
{{ tables.pick(id, label=id) }}
{% call tables.cell("State", "nolabel wide") %}{{ values.state("failed") }}{% endcall %}
{% call tables.cell("Job", "nolabel wide") %}<a class="main" href="{{ here }}">billing.charge_card</a><span class="sub mono cut">{{ id }}</span>{% endcall %}
{% call tables.cell("Arguments", "opt wide") %}<code class="soft cut">order=918273</code>{% endcall %}
{{ tables.text("Queue", "billing") }}{{ tables.text("Attempt", "4 of 4", "num") }}
{% call tables.cell("Since", "num") %}{{ values.since(hour_ago) }}{% endcall %}
{% call tables.cell("Details", "wide nolabel") %}{{ values.progress(0.72, "Progress of " ~ id) }}{% endcall %}
{% call tables.cell("Actions", "acts") %}{{ actions.button("Retry", "/queues/mail:resume", name="Retry " ~ id) }}{% endcall %}
{% endcall %}
{% endfor %}
{% endcall %}
{% call tables.picked("bulk", "job") %}<button class="btn small" form="bulk">Move…</button><button class="btn small primary" form="bulk">Retry…</button>{% endcall %}
<form id="bulk" hidden action="{{ here }}"></form>
{{ tables.pager("50 of 214 matches", next=here, first=here) }}
</section>
<div class="two">{{ figures.plot("Jobs ended per minute", ended, states=["succeeded", "failed"], live="ended") }}
{{ figures.plot("Wait before start", waits) }}</div>
<div class="two">{{ figures.plot("Running time", hist, "last hour") }}{{ figures.plot("Backlog", backlog, "last 12 days") }}</div>
<section class="panel"><header><h2>Timeline</h2><span class="muted">36 h 39 min: 25 h 07 min running</span></header>
<div class="story" tabindex="0" role="group" aria-label="Timeline plot">{{ story }}</div>
<div class="story" tabindex="0" role="group" aria-label="Timeline plot, to scale">{{ story_to_scale }}</div></section>
<div class="two"><section class="panel"><header><h2>Arguments</h2></header>{{ values.json('{"seed": 9007199254740993, "big": 1e400}'|stored_json, "Arguments") }}</section>
<section class="panel">{{ notices.empty("No failed jobs", "Failed jobs appear here, grouped by where they failed.", command("jobs", state="failed"), "succeeded") }}</section></div>
<section class="panel"><header><h2>Log</h2><div class="end">{{ logs.state() }}</div></header>
{{ logs.lines(log, "Log of attempt 1", url("/api/v1/jobs/training/attempts/1/log"), "1." ~ log_size) }}</section>
<section class="panel"><header><h2>Actions as commands</h2></header><div class="pad">{{ actions.commands([command("show", "training"), curl("GET", "/api/v1/jobs/training")]) }}</div></section>
{% endblock %}
"""  # noqa: E501

COUNTS = {
    "running": 16, "waiting": 642, "throttled": 88, "blocked": 24, "scheduled": 9, "failed": 11,
    "succeeded": 48_210, "cancelled": 7,
}  # fmt: skip


def _plots(now: datetime) -> dict[str, Markup]:
    minutes = Times(now - timedelta(hours=3), timedelta(minutes=3), 60)
    wave = [700 + 40 * sin(place / 5) for place in range(60)]
    failures = [0.0] * 29 + [1.0] + [0.0] * 17 + [1, 4, 8, 9, 9, 11, 12, 9, 10, 10, 11, 8, 2]
    marks = [Mark(now - timedelta(minutes=40), "r418"), Mark(now - timedelta(minutes=36), "r419")]
    ended = [
        Panel([Series("succeeded", [*wave[:-1], 210], "succeeded")], weight=3),
        Panel([Series("failed", failures, "failed")]),
    ]
    p50 = [0.04 + 0.005 * sin(place) for place in range(60)]
    p95 = [0.9 + place / 40 for place in range(60)]
    waits = [
        Panel([Series("p50", p50), Series("p95", [*p95[:20], None, None, *p95[22:]])], "lines", True, duration, 1, True)
    ]
    days = Times(now - timedelta(days=12), timedelta(hours=6), 48)
    backlog = [Panel([Series("waiting", [2000 + 800 * sin(place / 3) for place in range(48)], "waiting")], "area")]
    bounds, counts = (1, 3, 9, 27, 81, 243, 729, 2187, 6561), (0, 2, 6, 24, 92, 78, 17, 4, 1)
    buckets = [Bucket(bound, bound * 3, count) for bound, count in zip(bounds, counts, strict=True)]
    return {
        "ended": plot("Jobs ended per minute, last three hours", minutes, ended, marks=marks),
        "waits": plot("Waiting time before start", minutes, waits, marks=marks),
        "backlog": plot("Waiting jobs", days, backlog),
        "hist": histogram("Running time", buckets, state="running", marks=[(82, "p50 1 min 22 s"), (363, "p95 6 min")]),
        "story": _story(now, collapse=True),
        "story_to_scale": _story(now, collapse=False),
    }


def _story(now: datetime, *, collapse: bool) -> Markup:
    at = now - timedelta(hours=36, minutes=39)
    spans = []
    for minutes, state, label, note in (
        (1, "waiting", "", ""), (372, "running", "Attempt 1", ""), (1, "waiting", "", ""),
        (315, "running", "Attempt 2", ""), (1, "failed", "", ""), (691, "throttled", "", ""),
        (67, "running", "Attempt 3", ""), (1, "scheduled", "", ""), (750, "running", "Attempt 4", "running"),
    ):  # fmt: skip
        spans.append(Span(at, at + timedelta(minutes=minutes), state, label, note))
        at += timedelta(minutes=minutes)
    last = spans[-1]
    moments = [
        Moment(spans[2].start, "deploy r416"), Moment(spans[4].start, "lease lost"),
        Moment(spans[7].start, "out of memory"),
        *(Moment(span.start + timedelta(minutes=40 * place)) for span in spans if span.label
          for place in range(1, int((span.end - span.start) / timedelta(minutes=40)))),
    ]  # fmt: skip
    every = (last.end - last.start) / 60
    memory = Track("Memory", "41.2 GiB", last.start, every, [41 - 40 / (n + 1) for n in range(60)], 48, "limit 48 GiB")
    cpu = Track("CPU", "6.8 cores", last.start, every, [7 + sin(place) for place in range(60)])
    return timeline(
        "Timeline of the job: four attempts",
        spans,
        moments=moments,
        tracks=[memory, cpu],
        collapse=collapse,
        is_open=True,
    )


@pages.get("/components")
async def components_page(call: Call) -> Response:
    """Every component once."""
    shared = shared_variables(call)
    log = await call.app.alogs("training")
    now = shared["now"]
    content = (
        environment()
        .from_string(TEMPLATE)
        .render(
            shared | _plots(now),
            title="Components",
            log=log.text.removesuffix("\n").split("\n"),
            log_size=len(log.data),
            counts=COUNTS,
            hrefs=dict.fromkeys(COUNTS, shared["here"]),
            ids=[f"0R5dQw1xTzLm7Pk{letter}" for letter in "ABCDEF"],
            hour_ago=now - timedelta(hours=1),
            second_ago=now - timedelta(seconds=1),
            later=now + timedelta(minutes=10),
            hostile='<b>bold</b> \u202etxt.exe\x1b[31m "quoted"',
        )
    )
    return HTMLResponse(content)
