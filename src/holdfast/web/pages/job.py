"""The page of a job: why it is not running, its story, log, attempts, data, and what can be done."""

from __future__ import annotations

from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.job_views import show_stored
from holdfast.web.resources.jobs import show_job

pages = Pages()


@pages.get("/jobs/{id}")
async def job_page(call: Call, id: str) -> Page:
    """Everything about a job."""
    job = await show_job(call, id=id)
    stored = await show_stored(call, id=id)
    return Page(
        "job.html", title=job["task"] or id, section="Jobs", job=job, stored=stored, shows_data=call.user.may_see_data
    )
