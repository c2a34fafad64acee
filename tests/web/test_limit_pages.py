"""Pages of limits: use, holders and waiting jobs by key; changed, reset and removed by forms; slots released."""

from __future__ import annotations

from holdfast.store import commands
from holdfast.web.paths import encode_name
from tests.support.varied_store import claim, put
from tests.web.acting import act, check_commands, commands_of, main, page, row_of, rows, send, toast
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def throttle(web: Web, limit: str = "gpu", slots: int = 2, jobs: int = 5) -> None:
    """Store jobs that need a slot, and run as many as there are slots."""
    web.jobs.set_limit(limit.partition(":")[0], slots)
    for number in range(jobs):
        put(web.jobs.store, f"j{number}", "mail", limits=(limit,))
    claim(web.jobs.store, "mail", jobs)


def test_limits_are_listed_with_their_use(web: Web) -> None:
    throttle(web)
    web.jobs.set_limit("api", 100, per="1m")
    put(web.jobs.store, "stray", "video", limits=("nobody",))
    claim(web.jobs.store, "video")
    found = main(page(web, "/limits"))
    gpu = row_of(found, "gpu")
    assert gpu.one("svg", "slots").attributes["aria-label"] == "2 of 2 slots busy"
    assert [cell.text for cell in gpu.all("td")] == ["gpu", "2 at once", "2", "", "3", "1", "set"]
    assert "100 in 1 min" in row_of(found, "api").text
    assert "not defined" in row_of(found, "nobody").text
    assert "no effect" in row_of(found, "nobody").text
    check_commands(found)


def test_a_limit_has_a_page_with_its_holders_and_those_that_wait(web: Web) -> None:
    throttle(web)
    found = main(page(web, "/limits/gpu"))
    assert [row[0] for row in rows(found, 0)] == ["taskj0", "taskj1"]
    assert [row[0] for row in rows(found, 1)] == ["taskj2", "taskj3", "taskj4"]
    check_commands(found)
    assert web.get("/limits/gpo").status_code == 404


def test_a_limit_with_keys_leads_to_each(web: Web) -> None:
    throttle(web, "gpu:acme")
    found = main(page(web, "/limits/gpu"))
    assert "Jobs that wait for a slot" not in found.text
    [link] = row_of(found, "acme").all("a")
    assert link.attributes["href"] == f"/limits/{encode_name('gpu:acme')}"
    of_key = main(page(web, link.attributes["href"]))
    assert "a key of limit gpu" in of_key.text
    assert len(rows(of_key, 1)) == 3
    act(web, link.attributes["href"], "Release the slot of j0")
    assert [job.id for job in web.jobs.limit_holders("gpu:acme")] == ["j1"]


def test_a_slot_is_released_after_a_question(web: Web) -> None:
    throttle(web)
    question = row_of(page(web, "/limits/gpu"), "j0")
    assert "for a while, one more job runs than the limit allows" in question.text
    assert toast(act(web, "/limits/gpu", "Release the slot of j0")) == "Released the slot of j0"
    assert [job.id for job in web.jobs.limit_holders("gpu")] == ["j1"]


def test_starts_in_a_period_cannot_be_released(web: Web) -> None:
    web.jobs.set_limit("api", 5, per="1h")
    put(web.jobs.store, "j", "mail", limits=("api",))
    claim(web.jobs.store, "mail")
    found = main(page(web, "/limits/api"))
    assert "Started in this period" in found.text
    assert "Release its slot…" not in found.buttons()


def test_a_form_defines_a_limit_and_another_changes_it(web: Web) -> None:
    act(web, "/limits", "Define the limit", limit="api", slots="5", per="1m")
    [limit] = web.jobs.limits()
    assert (limit.name, limit.slots, limit.per) == ("api", 5, 60_000)
    again = send(web, "/limits", "Define the limit", limit="api", slots="6")
    assert (again.status_code, "there is a limit of the name api" in again.text) == (409, True)
    assert toast(act(web, "/limits/api", "Change the limit", slots="7")) == "Changed limit api"
    [limit] = web.jobs.limits()
    assert (limit.slots, limit.per) == (7, 60_000)
    brief = act(web, "/limits/api", "Change the limit", per="", ttl="1h")
    assert "7 at once until" in brief.text


def test_a_limit_that_jobs_name_but_nobody_defines_is_defined_on_its_page(web: Web) -> None:
    put(web.jobs.store, "j", "mail", limits=("gpu",))
    claim(web.jobs.store, "mail")
    assert "nobody has defined it" in page(web, "/limits/gpu").text
    act(web, "/limits/gpu", "Define the limit", slots="3")
    assert web.jobs.limits()[0].slots == 3


def test_a_declared_limit_is_overridden_and_reset(web: Web) -> None:
    web.jobs.store.run(commands.declare_limit("gpu", 4, per=0, revision=1))
    assert "the change overrides the declaration" in page(web, "/limits/gpu").text
    act(web, "/limits/gpu", "Change the limit", slots="2")
    found = page(web, "/limits/gpu")
    assert "an app declares 4 at once" in found.text
    assert "declared: 4 at once" in row_of(page(web, "/limits"), "gpu").text
    act(web, "/limits/gpu", "Reset the limit")
    assert web.jobs.limits()[0].slots == 4


def test_a_limit_is_removed_after_a_question_that_says_how_many_jobs_start(web: Web) -> None:
    throttle(web)
    assert "The 3 jobs that wait for a slot can start at once" in page(web, "/limits/gpu").text
    after = act(web, "/limits/gpu", "Remove the limit")
    assert toast(after) == "Removed limit gpu"
    assert not any(each.is_defined for each in web.jobs.limits())


def test_an_empty_list_says_what_would_be_here(web: Web) -> None:
    found = main(page(web, "/limits"))
    assert "A limit stays until it is removed." in found.text
    check_commands(found)


def test_what_a_user_may_do_is_what_he_sees(serving: Serving) -> None:
    web = serving(auth=user_of)
    throttle(web)
    assert main(page(web, "/limits/gpu", "viewer")).all("form") == []
    operator = main(page(web, "/limits/gpu", "operator")).buttons()
    assert "Release the slot" in operator
    assert not {"Change the limit", "Remove…"} & {*operator}
    for path in ("/limits", "/limits/gpu"):
        assert web.get(path, headers={"x-user": "admin mail"}).status_code == 403


def test_the_commands_of_a_rate_limit_keep_its_period(web: Web) -> None:
    web.jobs.set_limit("api", 100, per="1m")
    found = main(page(web, "/limits/api"))
    body = next(each for each in commands_of(found) if each.startswith("curl -X PUT")).split("'")[1]
    web.call("PUT", "/limits/api", content=body)
    assert [(each.slots, each.per) for each in web.jobs.limits()] == [(100, 60_000)]
