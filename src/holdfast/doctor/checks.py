"""The checks of the doctor: what each fact about a server means, and what to do about it. Without I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.constants import MAX_EVENT_BYTES, MAX_FAILED_TASKS, MAX_FINGERPRINTS, MAX_GROUPS, MAX_TAGS
from holdfast.doctor.consistency import consistency
from holdfast.doctor.probe import FullQueue, ServerFacts, Undelivered
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
from holdfast.store import library

MIN_VERSION = (7, 0)
FULL = 0.8  # of memory, of clients, or of tags
SLOW, VERY_SLOW = 0.010, 0.250  # seconds
MAX_CLOCK_DIFFERENCE = 1.0  # seconds
MAX_NAMES = 10  # in one sentence

# The server


# The first release of each line whose Lua engine has no known escape (CVE-2025-49844).
_FIRST_SAFE = {
    "Redis": ((7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
    "Valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
}


def version(facts: ServerFacts) -> Result:
    name, version, text = server_version(info_of(facts))
    if version < MIN_VERSION:
        return danger(f"{name} {text} has no functions, which Holdfast needs.", "Use Redis 7.0, Valkey 7.2 or newer.")
    if not _is_safe(version, _FIRST_SAFE[name]):
        newest = ".".join(map(str, _FIRST_SAFE[name][-1]))
        return note(
            f"{name} {text} lets clients that may run scripts run any code (CVE-2025-49844), unless its package has the"
            " fix.",
            f"Use {name} {newest} or newer, or the latest package of your distribution.",
        )
    return ok(f"{name} {text} has everything that is needed.")


def _is_safe(version: Version, first_safe: Iterable[Version]) -> bool:
    """Return whether a version is at least the first safe one of its line, or of a line newer than all of those."""
    lines = {safe[:2]: safe for safe in first_safe}
    return version >= lines[version[:2]] if version[:2] in lines else version > max(lines.values())


def role(facts: ServerFacts) -> Result:
    if info_of(facts).get("role") == "slave":
        return danger(
            "This is a replica: it refuses writes, or loses them at the next synchronisation.",
            "Use the address of the primary.",
        )
    return ok("This is a primary.")


def cluster(facts: ServerFacts) -> Result:
    if info_of(facts).get("cluster_enabled") == "1":
        return note(
            "This is a cluster: a namespace is one slot, so all its jobs are on one node.",
            "To use several nodes, give each app its own namespace.",
        )
    return ok("This is a single server, not a cluster.")


# Durability: what survives a power cut, a kill, a failover or a restart

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
            fsync = "keeper" if facts.has_keeper else "orphan"
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
    """Return whether loading checks rights (redis 14541, valkey 3983): Redis 7.0.15 does, Valkey 9.1.2 does not."""
    return version < (8, 6) if name == "Redis" else version < (9, 1, 2) and not (8, 1, 10) <= version < (8, 2)


# Memory


def eviction(facts: ServerFacts) -> Result:
    info, advice = info_of(facts), "Set maxmemory-policy noeviction."
    policy, evicted = info.get("maxmemory_policy", "noeviction"), int(info.get("evicted_keys", 0))
    if policy.startswith("volatile"):
        return warning(
            f"A full server evicts keys that expire ({policy}): no jobs, but tracebacks, wake-ups and messages.",
            advice,
        )
    if policy != "noeviction":
        return danger(f"A full server evicts keys of jobs ({policy}): they are lost.", advice)
    if evicted:
        return warning(
            f"Nothing is evicted now, but {evicted} keys were since the server started: jobs may be missing.",
            "Compare the jobs with what you expect; ignore this if the keys belonged to other programs.",
        )
    return ok("Nothing is evicted: a full server refuses new jobs, and finishes those it has.")


def memory(facts: ServerFacts) -> Result:
    info = info_of(facts)
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if limit:
        usage = f"{used / limit:.0%} of maxmemory ({limit >> 20} MiB) is in use"
        if used > FULL * limit:
            return warning(f"{usage}: once it is full, new jobs are refused.", "Raise it, or delete old jobs.")
        return ok(f"{usage}.")
    total, resident = int(info.get("total_system_memory", 0)), int(info.get("used_memory_rss", 0))
    if total and resident > FULL * total:
        return warning(
            f"The server uses {resident / total:.0%} of the machine's memory, without a limit: the kernel may kill it.",
            "Set maxmemory to about two thirds of the memory, and delete old jobs.",
        )
    return note(
        "The server's memory has no limit: it grows until the kernel kills it.",
        "Set maxmemory to about two thirds of the memory it may use: a snapshot or rewrite needs the rest.",
    )


def pages(facts: ServerFacts) -> Result:
    if settings_of(facts).get("disable-thp") == "no":
        return note(
            "The server may use huge pages: snapshots and rewrites then copy far more memory, and calls take longer.",
            "Set disable-thp yes, and restart it.",
        )
    return ok("The server does not use transparent huge pages.")


def lazyfree(facts: ServerFacts) -> Result:
    if settings_of(facts).get("lazyfree-lazy-user-del") == "no":
        return note(
            "Deleting jobs with large payloads or results delays all other calls for a moment.",
            "Set lazyfree-lazy-user-del yes.",
        )
    return ok("Large values are freed in the background.")


# Clients


def clients(facts: ServerFacts) -> Result:
    info = info_of(facts)
    connected, limit = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    if limit and connected > FULL * limit:
        return warning(f"{connected} of {limit} clients are connected: others will be refused.", "Raise maxclients.")
    return ok(f"{connected} of {limit or 'any number of'} clients are connected.")


_OPEN = warning(
    "No password is needed: anyone who reaches the server's port may read, change and delete all jobs.",
    "Set requirepass or define users (ACL SETUSER), and put the password into HOLDFAST_URL.",
)


def access(facts: ServerFacts) -> Result:
    flags, settings = facts.default_flags, facts.settings
    is_open = not facts.has_password if flags is None else {"on", "nopass"} <= set(flags)
    if not is_open:
        return ok("Clients need a password.")
    if not _is_loopback(facts.host):
        return _OPEN
    if settings is None:
        return unknown("Whether other machines get access without a password", "settings")
    has_port = settings.get("port", "0") != "0" or settings.get("tls-port", "0") != "0"
    is_exposed = any(not _is_loopback(each.lstrip("-")) for each in settings.get("bind", "").split() or ["*"])
    if has_port and is_exposed and settings.get("protected-mode") == "no":
        return _OPEN
    return ok("No password is needed, but only programs on this machine have access.")


def _is_loopback(host: str) -> bool:
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clock(facts: ServerFacts) -> Result:
    clock = facts.clock
    assert clock is not None  # noqa: S101 - the table requires it
    if clock.went_back > 0:
        return warning(
            f"The server's clock went back by {clock.went_back:.3g} s: everything scheduled is late by that much.",
            "Let NTP slew the clock instead of stepping it; nothing is lost.",
        )
    if abs(clock.ahead) - clock.uncertain > MAX_CLOCK_DIFFERENCE:
        direction = "ahead of" if clock.ahead > 0 else "behind"
        return warning(
            f"The server's clock is {abs(clock.ahead):.3g} s {direction} ours, and so are jobs due at a given time.",
            "Run NTP on both; leases and delays use the server's clock only and are not affected.",
        )
    difference = max(abs(clock.ahead) + clock.uncertain, 0.001)
    return ok(f"The clocks of the server and of this machine agree within {difference:.3f} s.")


def latency(facts: ServerFacts) -> Result:
    ping, call = facts.ping or 0.0, facts.call
    times = f"A PING takes {_milliseconds(ping)}" + (f", a call {_milliseconds(call)}" if call is not None else "")
    slowest = max(ping, call or 0.0)
    if slowest < SLOW:
        return ok(f"{times}, at best.")
    level = warning if slowest >= VERY_SLOW else note
    return level(f"{times}, at best: a job costs about one call.", "Run workers closer to the server.")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms"


# Holdfast's own data


def libraries(facts: ServerFacts) -> Result:
    others = [name for name in facts.libraries or () if name != f"holdfast_{library.digest()}"]
    if not others:
        return ok("There are no function libraries of other releases.")
    return note(
        f"There are {len(others)} function libraries of other releases: {', '.join(others)}.",
        _advise_on_libraries(facts, others),
    )


def _advise_on_libraries(facts: ServerFacts, others: list[str]) -> str:
    if facts.may_remove_libraries is False:
        return (
            "This user may not remove them: grant it the right +function|delete, or use FUNCTION DELETE and the name."
        )
    undated = [name for name in others if name in facts.undated_libraries]
    advice = []
    if len(undated) < len(others):
        advice.append("Workers remove a library that no program has called for 30 days; FUNCTION DELETE does it now.")
    if undated:
        which = "These" if len(undated) == len(others) else f"Of these, {', '.join(undated)}"
        advice.append(
            f"{which} do not record when they were last called, so workers never remove them: use FUNCTION DELETE and"
            " the name once no program of that release runs."
        )
    return " ".join(advice)


def schema(facts: ServerFacts) -> Result:
    if facts.schema:
        return danger(
            f"Another release wrote the data of this namespace: {facts.schema}.",
            "Use the release of Holdfast that wrote the data, or another namespace.",
        )
    return ok("This release can read the data of this namespace.")


def limits(facts: ServerFacts) -> Result:
    names = facts.undefined_limits or ()
    if not names:
        return ok("All limits that jobs name are defined.")
    listed = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else "")
    return warning(
        f"Jobs name limits that are not defined, so they run without: {listed}.",
        "Define them (in the app, or with `holdfast limits set NAME SLOTS`), or correct the names where jobs are"
        " enqueued, and remove the wrong ones (`holdfast limits remove NAME`).",
    )


_NAMES_OF = {
    "g": (
        f"{MAX_GROUPS:,} failure groups",
        "Leave ids and other changing parts out of group names (`Fail(group=...)`).",
    ),
    "p": (f"{MAX_FINGERPRINTS:,} fingerprints", "Retry or delete failed jobs: `holdfast failures --by task`."),
    "t": (
        f"{MAX_FAILED_TASKS:,} tasks with failed jobs",
        "Retry or delete failed jobs: `holdfast failures --by queue`.",
    ),
}


def failures(facts: ServerFacts) -> Result:
    found = facts.failure_limits
    assert found is not None  # noqa: S101 - the table requires it
    if found.queues:
        listed = "; ".join(map(_describe_failed, found.queues[:MAX_NAMES]))
        is_full = any(queue.failed >= queue.most for queue in found.queues)
        level, lost = (warning, "are being deleted") if is_full else (note, "are deleted once there are more")
        return level(
            f"There are almost as many failed jobs as are kept, the oldest {lost}: {listed}.",
            "Retry or delete them (`holdfast failures`, `holdfast retry --all -Q NAME`), or change keep_failed_count"
            " (`holdfast config set`).",
        )
    if found.kinds:
        kinds = [_NAMES_OF[kind] for kind in found.kinds if kind in _NAMES_OF]
        return note(
            f"There are more than {' and '.join(name for name, _ in kinds)}: others are listed under `other`.",
            " ".join(dict.fromkeys(advice for _, advice in kinds)),
        )
    return ok("Failed jobs are far from the number that is kept.")


def _describe_failed(queue: FullQueue) -> str:
    size = f", about {queue.failed * queue.bytes / 2**20:,.0f} MiB" if queue.bytes else ""
    return f"queue {queue.name} has {queue.failed:,} of {queue.most:,}{size}"


def tags(facts: ServerFacts) -> Result:
    count = facts.tags or 0
    if count >= MAX_TAGS:
        return warning(
            f"There are {MAX_TAGS:,} tags, the maximum: new ones are stored as the tag `other`.",
            "Use a few tags for many jobs, and fields or scopes for what is different for each job. A tag is gone when"
            " its last job is deleted.",
        )
    if count >= FULL * MAX_TAGS:
        return note(
            f"There are {count:,} tags; at {MAX_TAGS:,}, new ones are stored as the tag `other`.",
            "Use a few tags for many jobs, and fields or scopes for what is different for each job.",
        )
    return ok("There is room for more tags.")


def events(facts: ServerFacts) -> Result:
    size, most = (facts.event_bytes or 0) >> 20, MAX_EVENT_BYTES >> 20
    if size * 2 < most:
        return ok(f"The events that are kept take {size} MiB.")
    return note(
        f"The events that are kept take {size} MiB: above {most} MiB the older half is deleted, and readers that lag"
        " get a gap.",
        "Use fewer tags on jobs that are enqueued together, or lower the setting events (`holdfast config set`).",
    )


def subscriptions(facts: ServerFacts) -> Result:
    found = facts.undelivered or ()
    if not found:
        return ok("The events of all subscriptions are delivered.")
    listed = "; ".join(map(_describe_undelivered, found[:MAX_NAMES]))
    more = f" and {len(found) - MAX_NAMES:,} more" if len(found) > MAX_NAMES else ""
    return warning(
        f"Handlers do not get their events: {listed}{more}.",
        "Start a worker of the app that declares the handler, in its newest release, and look for errors in its log; or"
        " remove what the code no longer has (`holdfast subscriptions remove NAME`), or pause it.",
    )


def _describe_undelivered(found: Undelivered) -> str:
    if found.is_damaged:
        return f"subscription {found.name} is damaged"
    delivers = "its worker is" if found.is_held else "no worker delivers it,"
    return f"subscription {found.name}: {delivers} {found.behind // 60:,} minutes behind"


class Check(NamedTuple):
    """A check; if the fact that it `needs` is missing, the finding is that what it is `about` is unknown."""

    code: str
    run: Callable[[ServerFacts], Result]
    needs: str
    about: str


CHECKS = (
    Check("version", version, "info", "The version"),
    Check("role", role, "info", "Whether this is a replica"),
    Check("cluster", cluster, "info", "Whether this is a cluster"),
    Check("persistence", persistence, "info", "How much a power cut or a kill -9 loses"),
    Check("disk", disk, "info", "Whether writes to disk failed"),
    Check("truncated", truncated, "info", "What a truncated file does at the next start"),
    Check("replicas", replicas, "info", "How much a failover loses"),
    Check("acl", acl, "info", "Whether a restart loses what functions wrote"),
    Check("eviction", eviction, "info", "Whether a full server evicts jobs"),
    Check("memory", memory, "info", "The use of memory"),
    Check("pages", pages, "settings", "Whether the server uses huge pages"),
    Check("lazyfree", lazyfree, "settings", "How large values are freed"),
    Check("clients", clients, "info", "The number of connected clients"),
    Check("access", access, "host", "Whether a password is needed"),
    Check("clock", clock, "clock", "The server's time"),
    Check("latency", latency, "ping", "The duration of a call"),
    Check("libraries", libraries, "libraries", "Whether there are function libraries of other releases"),
    Check("schema", schema, "schema", "Whether this release can read the data"),
    Check("limits", limits, "undefined_limits", "Whether all limits that jobs name are defined"),
    Check("failures", failures, "failure_limits", "Whether there are too many failed jobs"),
    Check("tags", tags, "tags", "The number of tags"),
    Check("events", events, "event_bytes", "The size of the events"),
    Check("consistency", consistency, "check_history", "Whether the data fits together"),
    Check("subscriptions", subscriptions, "undelivered", "Whether events are delivered to handlers"),
)
