"""The page of the planner: when backlogs will be gone, now and with other workers."""

from __future__ import annotations

from urllib.parse import urlencode

from holdfast.records.plans import BLOCKED
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.charts.forecast import UNKNOWN, forecast_bars, longest
from holdfast.web.pages.commands import command_line
from holdfast.web.pages.formats import duration
from holdfast.web.pages.page import Page, Pages
from holdfast.web.problems import problem_of
from holdfast.web.resources.plans import PlanQuery, show_plan
from holdfast.web.resources.queues import list_queues

pages = Pages()

SHOWN = (422, 503)  # problems that the page shows above its form: an impossible plan, and too many at once

OPTIONS = ("workers", "processes", "concurrency", "arriving")
# What holds a backlog up, in words, by the codes of a forecast.
HELD_UP_BY = {
    "slots": "all slots are busy", "limit": "limit {name} is full", "paused": "the queue is paused",
    "no_worker": "no live worker",
    "task": "no worker knows task {name}", "retries": "retries wait", "running": "running jobs have to end",
    "arrivals": "more jobs arrive than end", "unknown": "too little is known", "complexity": "too complex to forecast",
}  # fmt: skip


class PlannerQuery(PlanQuery, frozen=True, kw_only=True):
    """What if; `forecast` asks for a plan, which takes a second or two."""

    forecast: bool = False


@pages.get("/planner")
async def planner_page(call: Call, query: PlannerQuery) -> Page:
    """A form, and the forecast that it asks for."""
    queues = [(each["queue"], each["queue"]) for each in (await list_queues(call)).items]
    given = {name: value for name in OPTIONS if (value := getattr(query, name)) is not None}
    plan, problem = None, None
    try:
        plan = await show_plan(call, query=PlanQuery(queue=query.queue, **given)) if query.forecast else None
    except Exception as error:
        problem = problem_of(error)
        if problem is None or problem.status not in SHOWN:
            raise
    return Page(
        "planner.html", title="Planner", status=problem.status if problem else 200, problem=problem, section="Planner",
        query=query, queue_choices=queues, given=given, plan=plan,
        bars=_bars(plan["queues"]) if plan else {}, gone=gone, range_of=range_of, held_up_by=held_up_by,
        api_query=urlencode({"queue": query.queue, **given}, doseq=True),
        shell=command_line("plan", *query.queue, **{name: str(value) for name, value in given.items()}),
    )  # fmt: skip


def gone(forecast: Record) -> str:
    """Return when a backlog will be gone: in 50 min, never."""
    if forecast["held_up_by"] in UNKNOWN:
        return "unknown"
    if forecast["after"] is None:
        return "never" if forecast["held_up_by"] in BLOCKED else "not in 30 days"
    if not forecast["held_up_by"]:
        return "no backlog"
    return f"in {duration(forecast['after'])}"


def range_of(forecast: Record) -> str:
    """Return the range in which eight of ten simulations end."""
    if forecast["after"] is None or not forecast["held_up_by"]:
        return ""
    latest = "more than 30 d" if forecast["latest"] is None else duration(forecast["latest"])
    return f"{duration(forecast['earliest'])} to {latest}"


def held_up_by(forecast: Record) -> str:
    code = str(forecast["held_up_by"])
    return HELD_UP_BY.get(code, code).replace("{name}", forecast["name"])


def _bars(queues: list[Record]) -> dict[str, Record]:
    """Return a bar of each forecast, all on one scale, by queue: `now` and `then`."""
    top = longest([each[which] for each in queues for which in ("now", "then") if each[which]])
    return {
        each["queue"]: {which: forecast_bars(each[which], top) for which in ("now", "then") if each[which]}
        for each in queues
    }
