"""Queues, workers, nodes and settings, from the command line."""

from __future__ import annotations

import json

import pytest

from holdfast.store import commands
from holdfast.store.store import Store
from tests.support.shells import Hand, Shell

ABOUT = {"pid": 7, "app": "tasks", "memory": 3_000_000, "cpu_seconds": 1.5, "started": 1_700_000_000_000}


def sign_of_life(shell: Shell, worker: str, *held: str) -> None:
    leases = [commands.Lease(f"{worker}.1", id, 1) for id in held]
    about = json.dumps(ABOUT)
    shell.client.store.run(commands.renew(worker, leases, about=about, queues=["a", "b"]))


def silence(shell: Shell, worker: str) -> None:
    """Have a worker's last sign of life be long ago, by a store whose clock is behind."""
    seconds, _ = shell.client.store.execute("TIME")
    behind = Store(shell.client.address, clock=lambda: (int(seconds) - 3600) * 1000)
    behind.run(commands.renew(worker, [], about=json.dumps(ABOUT), queues=["a"]))
    behind.close()


# Queues


def test_queues_are_listed_with_their_numbers(shell: Shell) -> None:
    shell.put("one", queue="a")
    shell.put("two", queue="b")
    shell.client.cancel("two")
    assert shell("queues", "pause", "b").out.split() == ["b", "paused"]

    assert shell("queues").rows == [
        ["a", "active", "0", "0", "1", "0", "0", "0", "0", "0", "0"],
        ["b", "paused", "0", "0", "0", "0", "0", "0", "0", "0", "1"],
    ]
    counts = {row["queue"]: (row["paused"], row["waiting"], row["cancelled"]) for row in shell("queues", "--json").json}
    assert counts == {"a": (False, 1, 0), "b": (True, 0, 1)}


def test_pause_and_resume_print_whether_they_changed_anything(shell: Shell) -> None:
    steps = (["queues", "pause", "--create"], ["queues", "pause"], ["queues", "resume"], ["queues", "resume"])
    changed = [shell(*words, "q", "--json").json["changed"] for words in steps]

    assert changed == [True, False, True, False]
    assert "unchanged" in shell("queues", "resume", "q").out


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "--queue"),
        ("count", "--queue"),
        ("peek",),
        ("queues", "pause"),
        ("queues", "resume"),
        ("queues", "forget"),
    ],
)
def test_a_queue_that_is_not_there_is_not_found_and_one_like_it_is_named(shell: Shell, words: tuple[str, ...]) -> None:
    shell.put("mine", queue="video")
    code, out, err = shell(*words, "vidoe")

    assert (code, out) == (3, "")
    assert err == "holdfast: queue vidoe does not exist; did you mean video?\n"


def test_a_share_of_a_queue_that_does_not_exist_is_weighted_only_on_request(shell: Shell) -> None:
    shell.put("mine", queue="video")
    code, out, err = shell("limits", "share", "vidoe", "acme", "3")

    assert (code, out) == (3, "")
    assert err == "holdfast: queue vidoe does not exist; did you mean video?\n"
    assert [queue.name for queue in shell.client.queues()] == ["video"]

    assert shell("limits", "share", "vidoe", "acme", "3", "--create").code == 0
    assert [queue.name for queue in shell.client.queues()] == ["video", "vidoe"]


def test_without_one_like_it_the_queues_that_there_are_are_named(shell: Shell) -> None:
    assert "queue video does not exist; there are no queues" in shell("queues", "pause", "video").err
    shell.put("mine", queue="mail")
    assert "queue video does not exist; existing queues: mail" in shell("queues", "pause", "video").err


def test_a_queue_is_forgotten_when_it_is_empty(shell: Shell) -> None:
    shell.put("mine", queue="mail")
    code, _, err = shell("queues", "forget", "mail")
    assert (code, "queue mail is not empty (1 waiting)" in err) == (1, True)
    shell.client.cancel("mine")
    shell.client.delete("mine")

    assert shell("queues", "forget", "mail").rows == [["mail", "forgotten"]]
    assert shell("queues").out == ""
    assert shell("queues", "forget", "mail", "--json").code == 3


def test_queues_show_how_many_workers_serve_them(shell: Shell) -> None:
    shell.put("mine", queue="a")
    sign_of_life(shell, "node/one")
    sign_of_life(shell, "node/two")

    assert shell("queues").rows[0][:3] == ["a", "active", "2"]


# Workers and nodes


def test_workers_are_listed_with_what_they_need_and_hold(shell: Shell) -> None:
    shell.put("mine")
    Hand(shell.client).take()
    sign_of_life(shell, "node/worker", "mine")

    (row,) = shell("workers").rows
    needs = ["2023-11-14T22:13:20.000Z", "7", "tasks", "a b", "3000000", "1.5"]
    assert [row[0], row[1], *row[3:]] == ["node/worker", "live", *needs, "mine"]
    (worker,) = shell("workers", "--json").json
    (job,) = worker["jobs"]
    assert (job["id"], job["attempt"], job["executor"], job["task"]) == ("mine", 1, "node/worker.1", "tasks.add")
    shown = shell.on_a_terminal("workers", columns=200)
    assert all(words in shown for words in ("live", "2.9 MiB", "1.5s", "mine"))


def test_numbers_and_ages_are_whole_on_a_narrow_terminal(shell: Shell) -> None:
    shell.client.store.run(commands.renew("node/worker", [], about=json.dumps(ABOUT), queues=["q" * 90]))

    shown = shell.on_a_terminal("workers", columns=80)

    assert all(words in shown for words in ("node/worker", "live", " ago", "tasks", "2.9 MiB", "1.5s", "qqq"))


def test_a_silent_worker_can_be_forgotten_and_a_live_one_cannot(shell: Shell) -> None:
    sign_of_life(shell, "node/live")
    silence(shell, "node/silent")

    assert {row[0]: row[1] for row in shell("workers").rows} == {"node/live": "live", "node/silent": "silent"}
    assert shell("workers", "forget", "node/live").code == 1
    assert shell("workers", "forget", "node/silent").rows == [["node/silent", "forgotten"]]
    assert [row[0] for row in shell("workers").rows] == ["node/live"]
    code, _, err = shell("workers", "forget", "node/lieve")
    assert (code, err) == (3, "holdfast: worker node/lieve does not exist; did you mean node/live?\n")


def test_nodes_are_the_sum_of_their_workers(shell: Shell) -> None:
    sign_of_life(shell, "east/one")
    sign_of_life(shell, "east/two")
    silence(shell, "west/one")

    rows = shell("nodes").rows
    assert [[row[0], row[1], *row[3:]] for row in rows] == [
        ["east", "live", "2", "0", "a b", "6000000", "3.0"],
        ["west", "silent", "1", "0", "", "0", "0.0"],
    ]
    nodes = shell("nodes", "--json").json  # the two were seen in any order
    assert [sorted(node["workers"]) for node in nodes] == [["east/one", "east/two"], ["west/one"]]


# Settings


def test_settings_are_listed_with_bounds_default_and_meaning(shell: Shell) -> None:
    rows = {row[0]: row[1:] for row in shell("config").rows}

    assert rows["lease"][:5] == ["30s", "30s", "1s", "1h", "default"]
    assert rows["lease"][5].startswith("how long")
    assert shell("config", "list", "retries").rows[0][:3] == ["retries", "3", "3"]
    assert shell("config", "list", "lease", "--json").json[0]["value"] == 30


def test_settings_are_set_and_reset_for_all_queues_or_one(shell: Shell) -> None:
    shell.put("mine", queue="video")

    assert shell("config", "set", "lease=1m30s", "retries=5").rows[0][:2] == ["lease", "1m30s"]
    assert shell("config", "set", "lease=45", "--queue", "video").rows[0][:2] == ["lease", "45s"]
    of_queue = {row[0]: (row[1], row[5]) for row in shell("config", "--queue", "video").rows}
    assert (of_queue["lease"], of_queue["retries"]) == (("45s", "queue"), ("5", "global"))
    assert shell("config", "reset", "lease", "--queue", "video").rows[0][1] == "1m30s"
    assert shell("config", "reset", "lease", "retries").rows[0][1] == "30s"
    assert all(row[5] == "default" for row in shell("config").rows)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("set", "leese=1m"), "unknown setting 'leese'; did you mean lease?"),
        (("set", "lease=1d"), "lease is '1d'; it must be from 1s to 1h"),
        (("set", "lease=soon"), "lease is 'soon'"),
        (("set", "retries=many"), "retries: expected a number from 0 to 1000, got 'many'"),
        (("set", "retries=1001"), "from 0 to 1000"),
        (("set", "lease"), "NAME=VALUE"),
        (("set",), "NAME=VALUE"),
        (("reset",), "expected NAME"),
        (("reset", "leese"), "did you mean lease?"),
        (("list", "leese"), "did you mean lease?"),
        (("set", "events=1000", "--queue", "video"), "applies to all queues"),
        (("sett", "lease=1m"), "sett"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_words(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    code, out, err = shell("config", *words)

    assert (code, out) == (2, "")
    assert expected in err


def test_configuring_an_unknown_queue_prints_a_note(shell: Shell) -> None:
    shell.put("mine", queue="video")

    assert shell("config", "--queue", "vidoe").code == 3
    code, _, err = shell("config", "set", "lease=1m", "--queue", "vidoe")
    assert (code, err) == (0, "holdfast: queue vidoe has no jobs yet; did you mean video?\n")
    assert shell("config", "--queue", "vidoe").code == 0
