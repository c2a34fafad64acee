"""Tags, scopes and tracked jobs from the command line."""

from __future__ import annotations

import pytest

from tests.support.shells import Shell


def enqueue(shell: Shell, id: str, *words: str) -> None:
    assert shell("enqueue", "any.task", "--id", id, *words).out == f"{id}\n"


def test_a_job_is_enqueued_with_tags_and_a_scope_and_shown_with_them(shell: Shell) -> None:
    enqueue(shell, "one", "--tag", "urgent", "-t", "two words", "--scope", "/tenant/7")

    job = shell("show", "one", "--json").json
    assert (job["tags"], job["scope"], job["tracked"]) == (["urgent", "two words"], "/tenant/7", False)
    assert [row["tags"] for row in shell("jobs", "--json").json] == [["urgent", "two words"]]
    facts = shell("show", "one").rows
    assert ["scope", "/tenant/7"] in facts
    assert facts[facts.index(["tags", "urgent"]) + 1] == ["", "two words"]


def test_tags_are_listed_by_use_and_counted_by_name(shell: Shell) -> None:
    enqueue(shell, "one", "-t", "all", "-t", "some")
    enqueue(shell, "two", "-t", "all")

    assert shell("tags").rows == [["all", "2"], ["some", "1"]]
    assert shell("tags", "--min", "2").rows == [["all", "2"]]
    assert shell("tags", "-n", "1", "--json").json == [{"tag": "all", "jobs": 2}]
    assert shell("tags", "some", "none").rows == [["some", "1"], ["none", "0"]]


def test_scopes_are_listed_level_by_level(shell: Shell) -> None:
    enqueue(shell, "one", "--scope", "/tenant/7")
    enqueue(shell, "two", "--scope", "/tenant/7/import")
    enqueue(shell, "three", "--scope", "/tenants")

    assert shell("scopes").rows == [["/tenant", "2"], ["/tenants", "1"]]
    assert shell("scopes", "/tenant").rows == [["/tenant/7", "2"]]
    assert shell("scopes", "/tenant/7", "--json").json == [{"scope": "/tenant/7/import", "jobs": 1}]
    assert shell("scopes", "tenant").code == 2


def test_jobs_are_tagged_and_untagged_by_id_or_from_a_pipe(shell: Shell) -> None:
    enqueue(shell, "one", "-t", "old")
    enqueue(shell, "two")

    assert shell("tag", "one", "-t", "new", "-t", "newer").rows == [["one", "tagged"]]
    assert shell("tag", "-t", "new", stdin=shell("jobs", "--oldest").out).rows == [
        ["one", "unchanged"],
        ["two", "tagged"],
    ]
    assert shell("untag", "one", "two", "-t", "new").rows == [["one", "untagged"], ["two", "untagged"]]
    assert shell("show", "one", "--json").json["tags"] == ["old", "newer"]
    code, out, err = shell("tag", "none", "two", "-t", "x")
    assert (code, out) == (3, "two\ttagged\n")
    assert "job none does not exist" in err
    code, _, err = shell("tag", "one", *(word for number in range(31) for word in ("-t", str(number))))
    assert code == 1
    assert "job one would have more than 32 tags; remove some first (untag)" in err
    assert shell("tag", "one").code == 2
    assert shell("tag", "one", "-t", "a\nb").code == 2


def test_all_matching_jobs_are_tagged_and_untagged(shell: Shell) -> None:
    enqueue(shell, "one", "-t", "old")
    enqueue(shell, "two")
    code, _, err = shell("tag", "--all", "-t", "new")
    assert code == 2
    assert "tag all jobs: 2 jobs. Confirm with --yes." in err
    assert shell("tag", "--all", "--id-prefix", "o", "-t", "new", "--yes").rows == [["tagged", "1"]]
    assert shell("tag", "--all", "-t", "new", "--yes", "--json").json == {"tagged": 1, "unchanged": 1}
    assert shell("untag", "--all", "-t", "old", "--yes").rows == [["untagged", "1"]]
    assert shell("untag", "--all", "-t", "old", "-t", "new", "--yes").rows == [["untagged", "2"]]
    assert shell("tag", "one", "--state", "failed", "-t", "x").code == 2
    assert [row[1] for row in shell("operations").rows] == ["untag", "untag", "tag", "tag"]


def test_many_tags_of_many_jobs_are_added_in_parts(shell: Shell) -> None:
    ids = [f"j{number:04}" for number in range(1000)]
    shell("enqueue", "any.task", "--id", "j0000")
    tags = [word for number in range(9) for word in ("-t", str(number))]
    code, out, _ = shell("tag", *tags, stdin="\n".join(ids))
    assert (code, out) == (3, "j0000\ttagged\n")


def test_a_moved_job_keeps_its_tags_unless_others_are_given(shell: Shell) -> None:
    enqueue(shell, "one", "-t", "old")
    shell("move", "one", "--to", "other")
    assert shell("show", "one", "--json").json["tags"] == ["old"]
    shell("move", "--all", "-Q", "other", "--to", "more", "--new-tag", "new", "--yes")
    assert shell("show", "one", "--json").json["tags"] == ["new"]


def test_tracked_jobs_are_listed_with_those_that_were_deleted(shell: Shell) -> None:
    enqueue(shell, "one", "-t", "a", "-t", "b")
    enqueue(shell, "two")

    assert shell("track", "one", "two").rows == [["one", "tracked"], ["two", "tracked"]]
    assert ["tracked", "yes"] in shell("show", "one").rows
    shell("cancel", "two")
    shell("delete", "two")
    assert [(row["id"], row["state"], row["tags"]) for row in shell("tracked", "--json").json] == [
        ("one", "waiting", ["a", "b"]),
        ("two", "deleted", None),
    ]
    assert [row[:1] + row[3:4] + row[5:] for row in shell("tracked").rows] == [
        ["one", "waiting", "a, b"],
        ["two", "deleted", ""],
    ]
    assert shell("track", "two").code == 3
    assert shell("untrack", "one", "two").rows == [["one", "untracked"], ["two", "untracked"]]
    assert shell("untrack", "two").code == 3
    assert shell("tracked").out == ""


@pytest.mark.parametrize(
    "words", [("schedules", "add", "often", "any.task", "--every", "1h"), ("items", "put", "q", "x")]
)
def test_schedules_and_items_take_tags_and_scopes(shell: Shell, words: tuple[str, ...]) -> None:
    shell(*words, "-t", "a", "--tag", "b", "--scope", "/s")
    if words[0] == "schedules":
        shell("schedules", "trigger", "often")
    [job] = shell("jobs", "--json").json
    assert (job["tags"], job["scope"]) == (["a", "b"], "/s")
