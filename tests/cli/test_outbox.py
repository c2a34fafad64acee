"""`holdfast outbox`: calls that wait on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.outbox.entry import Entry
from holdfast.outbox.outbox import Outbox
from holdfast.store import commands
from tests.support.new_job import NewJob
from tests.support.shells import Shell


@pytest.fixture
def outbox(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outbox:
    """The outbox that commands of the shell use, with two calls, of which the store will refuse the first."""
    folder = tmp_path / "outbox"
    monkeypatch.setenv("HOLDFAST_OUTBOX", str(folder))
    shell.environ["HOLDFAST_OUTBOX"] = str(folder)
    outbox = Outbox(folder, shell.client.address)
    shell.put("taken")
    for id in ("taken", "new"):
        job = NewJob(id=id, payload=b"{}", queue="default", task="t")
        outbox.add(Entry.of(commands.enqueue([job], on_exists="error"), now=1_700_000_000_000))
    return outbox


def test_calls_that_the_store_refuses_are_not_counted_as_sent(shell: Shell, outbox: Outbox) -> None:
    code, out, err = shell("outbox", "send")

    assert (code, out) == (1, "1\n")
    assert err.endswith("holdfast: calls that the store refused: 1; `holdfast outbox` lists them with the reason\n")
    assert [row[0] for row in shell("outbox").rows] == ["taken"]
    assert shell.client.get("new").state == "waiting"
    assert not outbox.has_entries


def test_refused_calls_are_counted_in_json(shell: Shell, outbox: Outbox) -> None:
    assert shell("outbox", "send", "--json").json == {"sent": 1, "refused": 1}
    assert shell("outbox", "send", "--json").json == {"sent": 0, "refused": 0}
    assert len(list(outbox.refused())) == 1
