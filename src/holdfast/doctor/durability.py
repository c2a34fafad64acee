"""Checks of durability: what survives a power cut, a kill, a failover or a restart."""

from __future__ import annotations

from holdfast.doctor.probe import ServerFacts
from holdfast.doctor.result import (
    Result,
    Version,
    danger,
    info_of,
    note,
    ok,
    server_version,
    settings_of,
    unknown,
    warning,
)

_FSYNC = {
    "always": ok("Neither a power cut nor a kill -9 loses acknowledged writes (appendfsync always)."),
    "everysec": note(
        "A power cut may lose the last second, two at worst; a kill -9 usually nothing (appendfsync everysec).",
        "Set appendfsync always if that is too much; every call then waits for the disk.",
    ),
    "keeper": note(
        "A power cut may lose the last second, two at worst; a kill -9 nothing (embedded: its keeper syncs).",
        "Run a separate server with appendfsync always if that is too much.",
    ),
    "orphan": warning(
        "A power cut may lose the last half minute; a kill -9 nothing (embedded: its keeper died, so nothing syncs).",
        "Run holdfast server start: it starts another keeper, as does every program that connects without a URL.",
    ),
    "no": warning(
        "A power cut may lose the last half minute; a kill -9 nothing (appendfsync no).", "Set appendfsync everysec."
    ),
}
_ENABLE_AOF = "Run CONFIG SET appendonly yes, and set it in the configuration file too."


def persistence(facts: ServerFacts) -> Result:
    info, settings = info_of(facts), settings_of(facts)
    if info.get("aof_enabled") == "1":
        fsync = settings.get("appendfsync", "no" if facts.is_embedded else "")
        if facts.is_embedded and fsync == "no":
            fsync = "keeper" if facts.is_kept else "orphan"
        return _FSYNC.get(fsync) or unknown("How much a power cut loses", "settings")
    if settings.get("save") == "":
        return danger("Nothing is written to disk: a restart of the server loses all jobs.", _ENABLE_AOF)
    changes = info.get("rdb_changes_since_last_save", "0")
    return warning(
        f"There are snapshots at most: a power cut or kill -9 loses all changes since the last one, now {changes}.",
        _ENABLE_AOF,
    )


def disk(facts: ServerFacts) -> Result:
    info = info_of(facts)
    if info.get("aof_last_write_status", "ok") != "ok":
        return danger(
            "The last write to the append-only file failed: the server refuses all writes.",
            "Check the server's log, and the free space on its disk.",
        )
    writes = {"rdb_last_bgsave_status": "snapshot", "aof_last_bgrewrite_status": "rewrite"}
    if failed := [name for field, name in writes.items() if info.get(field, "ok") != "ok"]:
        return warning(
            f"The last {' and the last '.join(failed)} failed: files grow, and the server may refuse writes.",
            "Check the server's log, the free space on its disk, and its memory: a snapshot needs some to fork.",
        )
    return ok("The last writes to disk succeeded.")


def truncated(facts: ServerFacts) -> Result:
    if info_of(facts).get("aof_enabled") != "1":
        return ok("There is no append-only file that could be truncated.")
    if facts.settings is None:
        return unknown("What a truncated file does at the next start", "settings")
    if facts.settings.get("aof-load-truncated") == "no":
        return note(
            "After a power cut that truncates the append-only file, the server does not start by itself.",
            "Set aof-load-truncated yes, or be prepared to run redis-check-aof --fix.",
        )
    return ok("A truncated append-only file loads without its last command, which was not yet acknowledged as durable.")


def replicas(facts: ServerFacts) -> Result:
    settings, connected = settings_of(facts), int(info_of(facts).get("connected_slaves", 0))
    required = int(settings.get("min-replicas-to-write", 0))
    if connected < required:
        return warning(
            f"{connected} of at least {required} replicas are connected: the server refuses all writes.",
            "Start the replicas, or lower min-replicas-to-write.",
        )
    if connected == 0:
        return note(
            "There is no replica: if this machine or its disk is lost, so are all jobs.",
            "Add a replica, or back up the server's files.",
        )
    if required:
        lag = settings.get("min-replicas-max-lag", "10")
        return ok(f"A failover may lose the last writes, but at most {lag} s of them (min-replicas-to-write).")
    return note(
        "Replication is asynchronous: a failover may lose the last writes, without bound if the network is split.",
        "Set min-replicas-to-write 1 and min-replicas-max-lag 10: a primary without replicas then refuses writes.",
    )


def acl(facts: ServerFacts) -> Result:
    """Some servers replay the append-only file as the user `default`, and silently skip what it may not do."""
    name, version, text = server_version(info_of(facts))
    if info_of(facts).get("aof_enabled") != "1" or not _replays_as_default(name, version):
        return ok("A restart restores what functions wrote, regardless of the rights of the user default.")
    may_write = True if facts.user == "default" and facts.default_may_write is None else facts.default_may_write
    if may_write is None:
        return unknown("Whether a restart loses what functions wrote", "default_may_write")
    if may_write:
        return ok("A restart restores what functions wrote: the user default has the rights to write it.")
    return danger(
        f"At a restart {name} {text} drops what functions wrote, as the user default may not write it: jobs are lost.",
        "Grant it the rights; nobody can log in as it all the same: user default off resetpass ~* &* +@all. Or use"
        " Redis 8.6, Valkey 8.1.10 or 9.1.2.",
    )


def _replays_as_default(name: str, version: Version) -> bool:
    """Whether loading checks rights (redis 14541, valkey 3983). Measured: Redis 7.0.15 does, Valkey 9.1.2 does not."""
    return version < (8, 6) if name == "Redis" else version < (9, 1, 2) and not (8, 1, 10) <= version < (8, 2)
