"""Pages of workers: by node, silent ones, slots and revisions, draining and forgetting; who sees what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.store import Store, commands
from holdfast.web.paths import encode_name
from holdfast.web.resources.workers import Slots, slots_of
from tests.support.varied_store import claim, put
from tests.web.acting import act, check_commands, main, page, row_of, rows, toast
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of

POOL = {"queues": {"mail": 1}, "order": "strict", "processes": 4, "concurrency": 100}


def beat(jobs: Holdfast, worker: str, *queues: str, age: int = 0, **about: Any) -> None:
    """Send a heartbeat of a worker, `age` seconds ago."""
    seconds, _ = jobs.store.execute("TIME")
    store = Store(jobs.address, clock=lambda: (int(seconds) - age) * 1000)
    started = (int(seconds) - 7200) * 1000
    known = {"pid": 7, "app": "shop", "memory": 3 << 20, "cpu_seconds": 3600, "started": started, "pools": [POOL]}
    store.run(commands.renew(worker, [], about=json.dumps({**known, "queues": queues, **about}), queues=queues))
    store.close()


def test_workers_are_listed_by_node(web: Web) -> None:
    beat(web.jobs, "b/one", "mail", revision=418)
    beat(web.jobs, "a/two", "mail", "video", revision=418)
    beat(web.jobs, "a/one", "video", revision=417)
    found = main(page(web, "/workers"))
    assert [row[1] for row in rows(found)] == ["a/oneshop", "a/twoshop", "b/oneshop"]
    assert ["first" in each.classes for each in found.one("tbody").all("tr")] == [True, False, True]
    assert "3 workers on 2 nodes" in found.text
    assert "Revision 4182 of 3not on all yet" in found.one("section", "kpis").text
    assert "r417" in row_of(found, "a/one").text
    check_commands(found)


def test_busy_slots_are_shown_and_lead_to_the_jobs(web: Web) -> None:
    for number in range(3):
        put(web.jobs.store, f"j{number}", "mail")
    claim(web.jobs.store, "mail", 3)
    beat(web.jobs, "node/one", "mail")
    row = row_of(page(web, "/workers"), "node/one")
    assert row.one("svg", "slots").attributes["aria-label"] == "3 of 4 slots busy"
    link = next(each for each in row.all("a") if each.text == "3")
    assert link.attributes["href"] == "/jobs?state=running&worker=node%2Fone"


HELD = ["send", "send", "fetch"]


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, Slots(3, None)),
        ({"pools": "many"}, Slots(3, None)),
        ({"pools": [{"processes": -1, "concurrency": 1}]}, Slots(3, None)),
        ({"pools": [POOL, POOL]}, Slots(3, 8)),
        ({"pools": [POOL], "in_process": ["fetch"]}, Slots(2, 4, 1, 100)),
        ({"pools": [{**POOL, "processes": 0, "concurrency": 16}]}, Slots(3, 16)),
    ],
)
def test_slots_are_read_from_what_a_worker_reports(about: dict[str, Any], expected: Slots) -> None:
    assert slots_of(about, 3, HELD) == expected


def test_a_silent_worker_is_explained_and_can_be_forgotten(web: Web) -> None:
    beat(web.jobs, "node/one", "mail")
    beat(web.jobs, "gone/dead", "mail", age=7200)
    found = main(page(web, "/workers"))
    assert "Worker gone/dead has been silent since" in found.one("section", "why").text
    assert "Drain worker gone/dead" not in [each.attributes.get("aria-label") for each in found.all("summary")]
    after = act(web, "/workers", "Forget worker gone/dead")
    assert toast(after) == "Forgot gone/dead"
    assert [each.name for each in web.jobs.workers()] == ["node/one"]


def test_a_silent_worker_that_holds_jobs_cannot_be_forgotten_yet(web: Web) -> None:
    put(web.jobs.store, "j", "mail")
    claim(web.jobs.store, "mail", executor="gone/dead.0")
    beat(web.jobs, "gone/dead", "mail", age=7200)
    why = main(page(web, "/workers")).one("section", "why")
    assert "it holds 1 job." in why.text
    assert why.buttons() == ["Show its jobs"]


def test_a_worker_is_drained_after_a_question_that_says_what_happens(web: Web) -> None:
    beat(web.jobs, "node/one", "mail")
    found = page(web, "/workers")
    question = row_of(found, "node/one").one("details")
    assert "It claims no more jobs" in question.text or "It holds no jobs" in question.text
    assert "holdfast workers drain node/one" in question.text
    assert toast(act(web, "/workers", "Drain worker node/one")) == "Draining node/one"
    inbox = web.jobs.store.run(commands.renew("node/one", [], queues=["mail"])).inbox_key
    assert web.jobs.store.execute("LPOP", inbox).split()[0] == b"drain"


def test_a_worker_has_a_page_with_its_jobs_facts_and_events(web: Web) -> None:
    put(web.jobs.store, "j", "mail")
    claim(web.jobs.store, "mail", executor="node/one.0")
    beat(web.jobs, "node/one", "mail", revision=7, host="node", version="0.1.0", tasks=["send", "fetch"])
    found = main(page(web, f"/workers/{encode_name('node/one')}"))
    assert [row[0] for row in rows(found)] == ["taskj"]
    facts = found.one("dl", "kv").text
    for fact in ("Heartbeat", "Slots1 of 4", "CPU1 h 0.5 processors on average", "Revisionr7", "Process7 on node"):
        assert fact in facts, fact
    assert "Claimed" in found.text
    check_commands(found)
    assert web.get(f"/workers/{encode_name('node/two')}").status_code == 404


def test_nodes_are_listed_and_drained_as_a_whole(web: Web) -> None:
    for name in ("a/one", "a/two", "b/one"):
        beat(web.jobs, name, "mail")
    found = main(page(web, "/workers?by=node"))
    assert [row[1:3] for row in rows(found)] == [["a", "2"], ["b", "1"]]
    for link in (each.attributes["href"] for each in found.one("table").all("a")):
        assert "wrongly" not in web.get(link).text, link
    assert toast(act(web, "/workers?by=node", "Drain node a")) == "Draining the workers of a"
    check_commands(found)


def test_a_list_is_narrowed_by_queue_and_node_and_cut_into_pages(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        beat(web.jobs, f"a/{number}", "mail")
    beat(web.jobs, "b/0", "video")
    monkeypatch.setattr("holdfast.web.pages.workers.PAGE", 2)
    first = main(page(web, "/workers?queue=mail"))
    [following] = [each.attributes["href"] for each in first.all("a") if each.attributes.get("rel") == "next"]
    assert [row[1] for row in rows(first) + rows(main(page(web, following)))] == ["a/0shop", "a/1shop", "a/2shop"]
    assert len(rows(main(page(web, "/workers?node=b")))) == 1
    assert "No such worker" in main(page(web, "/workers?queue=none")).text


def test_an_empty_list_says_what_would_be_here(web: Web) -> None:
    found = main(page(web, "/workers"))
    assert "One appears here with its first heartbeat, and stays for a day" in found.text
    check_commands(found)


def test_who_may_not_act_sees_no_buttons_and_only_his_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    beat(web.jobs, "node/one", "mail", "video")
    beat(web.jobs, "node/two", "video")
    viewer = main(page(web, "/workers", "viewer"))
    assert len(rows(viewer)) == 2
    assert viewer.all("form") == []
    mail = main(page(web, "/workers", "operator mail"))
    assert [(row[1], row[2]) for row in rows(mail)] == [("node/oneshop", "mail")]
    assert web.get(f"/workers/{encode_name('node/two')}", headers={"x-user": "viewer mail"}).status_code == 404
    assert mail.all("form") == []
    drain = web.post(f"/api/v1/workers/{encode_name('node/one')}:drain", headers={"x-user": "operator mail"})
    assert drain.status_code == 403
    assert main(page(web, "/workers?by=node", "operator mail")).all("form") == []


def test_a_worker_is_drained_only_by_those_who_have_rights_on_all_its_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    beat(web.jobs, "node/both", "mail", "video")
    beat(web.jobs, "node/mail", "mail")
    found = main(page(web, "/workers", "operator mail"))
    drained = [name for name in ("node/both", "node/mail") if row_of(found, name).all("form")]
    assert drained == ["node/mail"]
    for name in drained:
        assert "Draining" in toast(act(web, "/workers", f"Drain worker {name}", "operator mail"))
    assert not main(page(web, f"/workers/{encode_name('node/both')}", "operator mail")).all("form")
