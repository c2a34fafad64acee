"""The last heartbeat of jobs, and stalled jobs, from the command line."""

from __future__ import annotations

from holdfast.store import commands
from tests.support.shells import Shell, wait_until


def test_stalled_jobs_are_listed_counted_shown_and_released(shell: Shell) -> None:
    shell.put("quick", queue="mail")
    shell.put("slow", queue="mail")
    for counter, lease in ((1, 1000), (2, 600_000)):
        request = commands.claim_args(["mail"], counter=counter, limit=1, lease=lease)
        shell.client.store.run(commands.claim("node/worker.1", request))
    shell.client.store.run(commands.renew("node/worker", [], executors=[], about="{}", queues=["mail"]))
    assert shell("show", "slow", "--json").json["stalled"] is False
    wait_until(lambda: shell.client.stalled().total == 1)

    assert [row[0] for row in shell("jobs", "--stalled").rows] == ["quick"]
    assert shell("jobs", "--stalled", "-Q", "elsewhere").out == ""
    assert shell("count", "--stalled", "--json").json == {"count": 1}
    shown = shell("show", "quick", "--json").json
    assert shown["stalled"] is True
    assert shown["heartbeat_at"] == shown["claimed_at"]
    text = shell("show", "quick").out
    assert "last heartbeat" in text
    assert "its worker let the lease end" in text
    [worker] = shell("workers", "--json").json
    assert worker["stalled"] == 1
    assert {each["id"]: each["stalled"] for each in worker["jobs"]} == {"quick": True, "slow": False}
    assert all(each["heartbeat_at"] for each in worker["jobs"])

    assert shell("release", "--all", "--stalled", "--yes").code == 0
    assert [shell.client.get(id).state for id in ("quick", "slow")] == ["waiting", "running"]
