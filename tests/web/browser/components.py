"""A page with every component, for tests and to look at; the application does not route it."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import HTMLResponse, Response

from holdfast.web.call import Call
from holdfast.web.pages.page import Pages
from holdfast.web.pages.rendering import environment, shared_variables

pages = Pages()

TEMPLATE = """
{% extends "base.html" %}
{% import "parts/actions.html" as actions with context %}
{% import "parts/figures.html" as figures with context %}
{% import "parts/filters.html" as filters with context %}
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
{% call tables.table("Failed jobs", [(tables.pick_all("jobs"), "pick"), ("State", ""), ("Job", ""), ("Arguments", "opt"), ("Attempt", "num"),
    ("Since", "num", "descending", here), ("Details", ""), ("Actions", "acts")], kind="jobs", live="jobs", noun="job") %}
{% for id in ids %}
{% call tables.row(id) %}
{{ tables.pick(id, label=id) }}
{% call tables.cell("State", "nolabel wide") %}{{ values.state("failed") }}{% endcall %}
{% call tables.cell("Job", "nolabel wide") %}<a class="main" href="{{ here }}">billing.charge_card</a><span class="sub mono cut">{{ id }}</span>{% endcall %}
{% call tables.cell("Arguments", "opt wide") %}<code class="soft cut">order=918273</code>{% endcall %}
{{ tables.text("Attempt", "4 of 4", "num") }}
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
<div class="two"><section class="panel"><header><h2>Arguments</h2></header>{{ values.json('{"seed": 9007199254740993, "big": 1e400}'|stored_json, "Arguments") }}</section>
<section class="panel">{{ notices.empty("No failed jobs", "Failed jobs appear here, grouped by where they failed.", command("jobs", state="failed"), "succeeded") }}</section></div>
<section class="panel"><header><h2>Log</h2></header><ol class="log" tabindex="0" aria-label="Log of attempt 4">{% for line in range(30) %}<li><span>epoch 36  step {{ line }}</span></li>{% endfor %}</ol></section>
<section class="panel"><header><h2>Actions as commands</h2></header><div class="pad">{{ actions.commands([command("show", "training"), curl("GET", "/api/v1/jobs/training")]) }}</div></section>
{% endblock %}
"""  # noqa: E501

COUNTS = {
    "running": 16, "waiting": 642, "throttled": 88, "blocked": 24, "scheduled": 9, "failed": 11,
    "succeeded": 48_210, "cancelled": 7,
}  # fmt: skip


@pages.get("/components")
async def components_page(call: Call) -> Response:
    """Every component once."""
    shared = shared_variables(call)
    now = shared["now"]
    content = (
        environment()
        .from_string(TEMPLATE)
        .render(
            shared,
            title="Components",
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
