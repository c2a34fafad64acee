"""Pages of batches: progress, jobs by state, callbacks; closed, cancelled and deleted after a question."""

from __future__ import annotations

from holdfast import Holdfast
from tests.web.acting import act, check_commands, main, page, row_of, rows, toast
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def _send() -> None: ...


def fill(jobs: Holdfast, name: str = "import", count: int = 4) -> None:
    """Open a batch of jobs, of which one is cancelled."""
    send = jobs.tasks.get("send") or jobs.task(name="send", queue="mail")(_send)
    batch = jobs.batch(name, then=send.bind())
    batch.open()
    jobs.enqueue_many(send.options(id=f"{name}-{number}", batch=name).bind() for number in range(count))
    jobs.cancel(f"{name}-0")


def test_batches_are_listed_newest_first_with_their_progress(web: Web) -> None:
    fill(web.jobs)
    web.jobs.batch("empty").open()
    found = main(page(web, "/batches"))
    assert [row[0] for row in rows(found)] == ["empty", "import"]
    row = row_of(found, "import")
    assert row.one("progress").attributes["value"] == "25"
    assert "no jobs yet" in row_of(found, "empty").text
    assert "/jobs?batch=import&state=cancelled" in [each.attributes["href"] for each in row.all("a")]
    check_commands(found)
    assert [row[0] for row in rows(main(page(web, "/batches?state=open")))] == ["empty", "import"]
    assert "No done batches" in main(page(web, "/batches?state=done")).text


def test_a_batch_has_a_page_with_its_callbacks(web: Web) -> None:
    fill(web.jobs)
    found = main(page(web, "/batches/import"))
    assert "1 of 4 jobs have ended" in found.text
    assert [row[:2] for row in rows(found)] == [["in any case", "send"]]
    check_commands(found)
    assert web.get("/batches/none").status_code == 404


def test_a_batch_is_closed_cancelled_and_deleted(web: Web) -> None:
    fill(web.jobs)
    assert "It cannot be opened again." in page(web, "/batches/import").text
    assert toast(act(web, "/batches/import", "Close the batch")) == "Closed batch import"
    assert web.jobs.batch("import").status().state == "closed"
    assert "its 3 jobs that have not ended are cancelled" in page(web, "/batches/import").text
    done = act(web, "/batches/import", "Cancel 3 jobs", reason="wrong file")
    assert (web.jobs.get("import-1").state, "Done" in done.text or "cancelled" in done.text) == ("cancelled", True)
    assert "Its jobs stay." in page(web, "/batches/import").text
    act(web, "/batches/import", "Delete the batch")
    assert [each.name for each in web.jobs.batches()] == []
    assert web.jobs.get("import-1").state == "cancelled"


def test_an_empty_list_says_what_would_be_here(web: Web) -> None:
    found = main(page(web, "/batches"))
    assert "A batch is a named group of jobs" in found.text
    check_commands(found)


def test_a_viewer_sees_no_actions_and_who_sees_some_queues_sees_no_batches(serving: Serving) -> None:
    web = serving(auth=user_of)
    fill(web.jobs)
    assert main(page(web, "/batches/import", "viewer")).all("form") == []
    for path in ("/batches", "/batches/import"):
        assert web.get(path, headers={"x-user": "admin mail"}).status_code == 403
