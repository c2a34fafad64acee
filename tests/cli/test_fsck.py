"""`holdfast fsck`: what it prints, repairs and returns."""

from __future__ import annotations

from tests.support.shells import Shell
from tests.support.workers import until


def _damage(shell: Shell) -> None:
    shell("enqueue", "any.task", "--id", "one")
    store = shell.client.store
    store.execute("DEL", f"hf:{{{store.address.namespace}}}:q:default:waiting")


def test_a_healthy_store_has_no_findings_and_exit_code_0(shell: Shell) -> None:
    shell("enqueue", "any.task", "--id", "one")

    result = shell("fsck")

    assert (result.code, result.out) == (0, "")
    assert "checked" in result.err
    assert shell("fsck", "--json").json == []


def test_findings_are_listed_and_the_exit_code_is_1_until_they_are_repaired(shell: Shell) -> None:
    _damage(shell)

    found = shell("fsck")
    assert found.code == 1
    assert found.rows[0][:3] == ["not_indexed", "1", "0"]
    assert "holdfast fsck --repair" in found.err
    (record,) = shell("fsck", "--json").json
    assert (record["code"], record["count"], record["repaired"], record["examples"]) == ("not_indexed", 1, 0, ["one"])
    assert record["repair"] == "add it"

    repaired = shell("fsck", "--repair")
    assert repaired.code == 0
    assert repaired.rows[0][:3] == ["not_indexed", "1", "1"]
    assert "repaired 1 of 1 problem" in repaired.err
    assert shell("fsck").code == 0


def test_memory_is_listed_by_kind(shell: Shell) -> None:
    shell("enqueue", "any.task", "--id", "one")

    kinds = {row["kind"]: row for row in shell("fsck", "--memory", "--json").json}

    assert kinds["jobs"]["keys"] == 1
    assert kinds["jobs"]["bytes"] > 50
    assert {row[0] for row in shell("fsck", "--memory").rows} == set(kinds)


def test_the_history_has_what_upkeep_has_repaired(shell: Shell) -> None:
    _damage(shell)
    assert "0 times" in shell("fsck", "--history").err
    shell("config", "set", "check_rate", "1000")

    def repaired() -> bool:  # it checks once a second, and other keys of the server are in its way
        shell.client.upkeep()
        return bool(shell.client.check_history().findings)

    until(repaired)
    result = shell("fsck", "--history")

    assert result.code == 0
    assert result.rows[0][:3] == ["not_indexed", "1", "1"]


def test_only_one_of_the_modes_is_allowed(shell: Shell) -> None:
    assert shell("fsck", "--repair", "--memory").code == 2
    assert shell("fsck", "--history", "--memory").code == 2
