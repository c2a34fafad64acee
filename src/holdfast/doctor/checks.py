"""What the doctor thinks of each fact: one function per check, without I/O."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.doctor.probe import Facts
from holdfast.store import library

OLDEST = (7, 0)
FULL = 0.8  # of memory, or of clients
SLOW, VERY_SLOW = 0.010, 0.250  # seconds
CLOCKS_APART = 1.0  # seconds
MAX_NAMES = 10  # in one sentence

Version = tuple[int, ...]


class Judgement(NamedTuple):
    """How bad something is, what it means, and what to do: a sentence each. Nothing is to be done if all is well."""

    level: str
    means: str
    advice: str = ""


def unknown(about: str, question: str, right: str) -> Judgement:
    """Say what could not be known, for lack of which right."""
    return Judgement(
        "unknown",
        f"{about} could not be known: {question} was refused or failed.",
        f"Ask whoever runs the server, or give this user the right: {right}.",
    )


QUESTIONS = {  # fact -> how it is asked for, and the right to do so
    "info": ("INFO", "+info"),
    "settings": ("CONFIG GET", "+config|get"),
    "libraries": ("FUNCTION LIST", "+function|list"),
    "clock": ("TIME", "+time"),
    "ping": ("PING", "+ping"),
    "schema": ("a function of the library", "+fcall +function|load"),
    "undefined_limits": ("a function of the library", "+fcall +function|load"),
}


# The server


def flavour(info: Mapping[str, str]) -> tuple[str, Version, str]:
    """Return a server's name and version, as numbers and as it says it. Valkey also says which Redis it is like."""
    name, text = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    return name, tuple(int(number) for number in re.findall(r"\d+", text.partition("-")[0])), text


# The first release of each line whose Lua engine has no known way out of it (CVE-2025-49844).
_SAFE = {
    "Redis": ((7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
    "Valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
}


def version(facts: Facts) -> Judgement:
    name, version, text = flavour(_info(facts))
    if version < OLDEST:
        return Judgement(
            "danger",
            f"{name} {text} has no functions, which Holdfast is made of.",
            "Use Redis 7.0, Valkey 7.2 or newer.",
        )
    if not _is_safe(version, _SAFE[name]):
        return Judgement(
            "note",
            f"{name} {text} lets whoever may run scripts run any code (CVE-2025-49844), unless its package mends that.",
            f"Use {name} {_words(_SAFE[name][-1])} or newer, or the latest package of your distribution.",
        )
    return Judgement("ok", f"{name} {text} has all that is needed.")


def _is_safe(version: Version, first_safe: Iterable[Version]) -> bool:
    """Whether a version is as new as the first safe one of its line, or its line as new as the newest of those."""
    lines = {safe[:2]: safe for safe in first_safe}
    return version >= lines[version[:2]] if version[:2] in lines else version > max(lines.values())


def role(facts: Facts) -> Judgement:
    if _info(facts).get("role") == "slave":
        return Judgement(
            "danger",
            "This is a replica: it takes no writes, or forgets those that it takes.",
            "Use the address of the primary.",
        )
    return Judgement("ok", "This is a primary.")


def cluster(facts: Facts) -> Judgement:
    if _info(facts).get("cluster_enabled") == "1":
        return Judgement(
            "note",
            "This is a cluster: a namespace is one slot, so all its jobs are on one of its nodes.",
            "Give apps that are to be on different nodes namespaces of their own.",
        )
    return Judgement("ok", "This is one server, not a cluster.")


# What survives


_FSYNC = {
    "always": Judgement("ok", "Neither a power cut nor a kill -9 loses what was acknowledged (appendfsync always)."),
    "everysec": Judgement(
        "note",
        "A power cut may lose the last second, two at worst; a kill -9 usually nothing (appendfsync everysec).",
        "Set appendfsync always if that is too much; every call then waits for the disk.",
    ),
    "keeper": Judgement(
        "note",
        "A power cut may lose the last second, two at worst; a kill -9 nothing (embedded: its keeper syncs).",
        "Run a server of your own, with appendfsync always, if that is too much.",
    ),
    "orphan": Judgement(
        "warning",
        "A power cut may lose the last half minute; a kill -9 nothing (embedded: its keeper is dead, so nobody syncs).",
        "Run holdfast server start: it starts another keeper, as does every program that connects without a URL.",
    ),
    "no": Judgement(
        "warning",
        "A power cut may lose the last half minute; a kill -9 nothing (appendfsync no).",
        "Set appendfsync everysec.",
    ),
}


def persistence(facts: Facts) -> Judgement:
    info, settings = _info(facts), _settings(facts)
    if info.get("aof_enabled") == "1":
        synced = settings.get("appendfsync", "no" if facts.is_embedded else "")
        if facts.is_embedded and synced == "no":
            synced = "keeper" if facts.is_kept else "orphan"
        return _FSYNC.get(synced) or unknown("What a power cut loses", *QUESTIONS["settings"])
    changes = info.get("rdb_changes_since_last_save", "0")
    if settings.get("save") == "":
        return Judgement(
            "danger",
            "Nothing is written to disk: a restart of the server loses all jobs.",
            "Run CONFIG SET appendonly yes, and set it in the configuration file too.",
        )
    return Judgement(
        "warning",
        f"There are snapshots at most: a power cut or kill -9 loses what came after the last, now {changes} changes.",
        "Run CONFIG SET appendonly yes, and set it in the configuration file too.",
    )


def disk(facts: Facts) -> Judgement:
    info = _info(facts)
    if info.get("aof_last_write_status", "ok") != "ok":
        return Judgement(
            "danger",
            "The last write to the append-only file failed: the server refuses all writes.",
            "Look at the server's log, and at the space on its disk.",
        )
    failed = [
        words
        for field, words in (("rdb_last_bgsave_status", "snapshot"), ("aof_last_bgrewrite_status", "rewrite"))
        if info.get(field, "ok") != "ok"
    ]
    if failed:
        return Judgement(
            "warning",
            f"The last {' and the last '.join(failed)} failed: files grow, and the server may refuse writes.",
            "Look at the server's log, at the space on its disk, and at its memory: a snapshot needs some to fork.",
        )
    return Judgement("ok", "The last writes to disk went well.")


def truncated(facts: Facts) -> Judgement:
    if _info(facts).get("aof_enabled") != "1":
        return Judgement("ok", "There is no append-only file whose end could be torn.")
    if facts.settings is None:
        return unknown("What a torn file does at the next start", *QUESTIONS["settings"])
    if facts.settings.get("aof-load-truncated") == "no":
        return Judgement(
            "note",
            "After a power cut that tears the append-only file the server does not start by itself.",
            "Set aof-load-truncated yes, or be ready to run redis-check-aof --fix.",
        )
    return Judgement("ok", "A torn end of the append-only file is left out at the next start: it was not yet promised.")


def replicas(facts: Facts) -> Judgement:
    connected = int(_info(facts).get("connected_slaves", 0))
    least = int((facts.settings or {}).get("min-replicas-to-write", 0))
    if connected < least:
        return Judgement(
            "warning",
            f"{connected} of at least {least} replicas are connected: the server refuses all writes.",
            "Start the replicas, or lower min-replicas-to-write.",
        )
    if connected == 0:
        return Judgement(
            "note",
            "There is no replica: with this machine and its disk, all jobs are gone.",
            "Add a replica, or back its files up.",
        )
    if least:
        lag = (facts.settings or {}).get("min-replicas-max-lag", "10")
        return Judgement(
            "ok", f"A failover may lose the last writes, but no more than {lag} s of them (min-replicas-to-write)."
        )
    return Judgement(
        "note",
        "Replication is asynchronous: a failover may lose the last writes, without bound if the network is split.",
        "Set min-replicas-to-write 1 and min-replicas-max-lag 10: a primary without replicas then takes no writes.",
    )


def acl(facts: Facts) -> Judgement:
    """The append-only file is replayed as the user `default`; what it may not do was skipped, in silence."""
    name, version, text = flavour(_info(facts))
    if _info(facts).get("aof_enabled") != "1" or not _replays_as_default(name, version):
        return Judgement("ok", "What functions write comes back at a restart, whatever the user default may do.")
    may_write = True if facts.user == "default" and facts.default_may_write is None else facts.default_may_write
    if may_write is None:
        return unknown("Whether a restart loses what functions wrote", "ACL DRYRUN", "+acl|dryrun")
    if may_write:
        return Judgement("ok", "What functions write comes back at a restart: the user default may write it.")
    return Judgement(
        "danger",
        f"At a restart {name} {text} drops what functions wrote, for the user default may not write it: jobs are lost.",
        "Give it the rights, nobody can log in all the same: user default off resetpass ~* &* +@all; or use Redis 8.6,"
        " Valkey 8.1.10 or 9.1.2.",
    )


def _replays_as_default(name: str, version: Version) -> bool:
    """Whether loading checks rights (redis 14541, valkey 3983). Measured: Redis 7.0.15 does, Valkey 9.1.2 does not."""
    return version < (8, 6) if name == "Redis" else version < (9, 1, 2) and not (8, 1, 10) <= version < (8, 2)


# Memory


def eviction(facts: Facts) -> Judgement:
    info = _info(facts)
    policy, evicted = info.get("maxmemory_policy", "noeviction"), int(info.get("evicted_keys", 0))
    if policy.startswith("volatile"):
        return Judgement(
            "warning",
            f"A full server evicts keys that expire ({policy}): no job, but wake-ups and messages to workers.",
            "Set maxmemory-policy noeviction.",
        )
    if policy != "noeviction":
        return Judgement(
            "danger",
            f"A full server evicts keys of jobs ({policy}): they are lost.",
            "Set maxmemory-policy noeviction.",
        )
    if evicted:
        return Judgement(
            "warning",
            f"Nothing is evicted now, but {evicted} keys were since the server started: jobs may be missing.",
            "Compare the jobs with what you expect; if none of those keys was ours, nothing is to be done.",
        )
    return Judgement("ok", "Nothing is evicted: a full server refuses new jobs, and finishes those that it has.")


def memory(facts: Facts) -> Judgement:
    info = _info(facts)
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if limit:
        said = f"{used / limit:.0%} of maxmemory ({limit >> 20} MiB) is in use"
        if used > FULL * limit:
            return Judgement(
                "warning", f"{said}: when it is full, new jobs are refused.", "Raise it, or delete old jobs."
            )
        return Judgement("ok", f"{said}.")
    total, resident = int(info.get("total_system_memory", 0)), int(info.get("used_memory_rss", 0))
    if total and resident > FULL * total:
        return Judgement(
            "warning",
            f"The server has {resident / total:.0%} of the machine's memory, and no limit: the kernel may kill it.",
            "Set maxmemory, to about two thirds of the memory, and delete old jobs.",
        )
    return Judgement(
        "note",
        "The server's memory has no limit: it grows until the kernel kills it.",
        "Set maxmemory, to about two thirds of the memory that it may have: a snapshot or rewrite needs the rest.",
    )


def pages(facts: Facts) -> Judgement:
    if _settings(facts).get("disable-thp") == "no":
        return Judgement(
            "note",
            "The server may use huge pages: snapshots and rewrites then copy far more memory, and calls take longer.",
            "Set disable-thp yes, and restart it.",
        )
    return Judgement("ok", "The server does not use transparent huge pages.")


def lazyfree(facts: Facts) -> Judgement:
    if _settings(facts).get("lazyfree-lazy-user-del") == "no":
        return Judgement(
            "note",
            "Deleting jobs with large payloads or results holds up all other calls for a moment.",
            "Set lazyfree-lazy-user-del yes.",
        )
    return Judgement("ok", "Large values are freed in the background.")


# Clients


def clients(facts: Facts) -> Judgement:
    info = _info(facts)
    connected, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    if most and connected > FULL * most:
        return Judgement(
            "warning", f"{connected} of {most} clients are connected: soon others are refused.", "Raise maxclients."
        )
    return Judgement("ok", f"{connected} of {most or 'any number of'} clients are connected.")


def access(facts: Facts) -> Judgement:
    flags = facts.default_flags
    is_open = not facts.has_password if flags is None else {"on", "nopass"} <= set(flags)
    if not is_open:
        return Judgement("ok", "Nobody gets in without a password.")
    if not _is_loopback(facts.host):
        return _OPEN
    settings = facts.settings
    if settings is None:
        return unknown("Whether other machines get in without a password", *QUESTIONS["settings"])
    has_port = settings.get("port", "0") != "0" or settings.get("tls-port", "0") != "0"
    listens = any(not _is_loopback(each.lstrip("-")) for each in settings.get("bind", "").split() or ["*"])
    if has_port and listens and settings.get("protected-mode") == "no":
        return _OPEN
    return Judgement("ok", "No password is needed, but only programs on this machine get in.")


_OPEN = Judgement(
    "warning",
    "No password is needed: whoever reaches the server's port may read, change and delete all jobs.",
    "Set requirepass or users of its own (ACL SETUSER), and put the password into HOLDFAST_URL.",
)


def _is_loopback(host: str) -> bool:
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def clock(facts: Facts) -> Judgement:
    clock = facts.clock
    assert clock is not None  # noqa: S101, as the table says
    if clock.went_back > 0:
        return Judgement(
            "warning",
            f"The server's clock went back by {clock.went_back:.3g} s: what is due then comes so much later.",
            "Let NTP slew the clock instead of stepping it; nothing is lost.",
        )
    if abs(clock.ahead) - clock.uncertain > CLOCKS_APART:
        words = "ahead of" if clock.ahead > 0 else "behind"
        return Judgement(
            "warning",
            f"The server's clock is {abs(clock.ahead):.3g} s {words} ours: so are jobs that are due at a given time.",
            "Run NTP on both; leases and delays go by the server's clock alone and are right.",
        )
    apart = max(abs(clock.ahead) + clock.uncertain, 0.001)
    return Judgement("ok", f"The clocks of the server and of this machine agree within {apart:.3f} s.")


def latency(facts: Facts) -> Judgement:
    ping, call = facts.ping or 0.0, facts.call
    said = f"A PING takes {_milliseconds(ping)}" + (f", a call {_milliseconds(call)}" if call is not None else "")
    slowest = max(ping, call or 0.0)
    if slowest < SLOW:
        return Judgement("ok", f"{said}, at best.")
    level = "warning" if slowest >= VERY_SLOW else "note"
    return Judgement(level, f"{said}, at best: a job costs about one call.", "Run workers nearer to the server.")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms"


# What is ours


def libraries(facts: Facts) -> Judgement:
    others = [name for name in facts.libraries or () if name != f"holdfast_{library.digest()}"]
    if not others:
        return Judgement("ok", "There is no function library of another release.")
    return Judgement(
        "note",
        f"There are {len(others)} function libraries of other releases: {', '.join(others)}.",
        "When nothing of that release runs any more: FUNCTION DELETE and the name.",
    )


def schema(facts: Facts) -> Judgement:
    if facts.schema:
        return Judgement(
            "danger",
            f"The data of this namespace is of another release: {facts.schema}.",
            "Use the release of Holdfast that wrote the data, or another namespace.",
        )
    return Judgement("ok", "This release can read the data of this namespace.")


def limits(facts: Facts) -> Judgement:
    names = facts.undefined_limits or ()
    if not names:
        return Judgement("ok", "All limits that jobs take part in are defined.")
    named = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else "")
    return Judgement(
        "warning",
        f"Jobs take part in limits that nobody has defined, so they run without one: {named}.",
        "Define them (`holdfast limit NAME SLOTS`), or correct the names where jobs are enqueued, and forget the wrong "
        "ones (`holdfast unlimit NAME`).",
    )


def _info(facts: Facts) -> Mapping[str, str]:
    return facts.info or {}


def _settings(facts: Facts) -> Mapping[str, str]:
    return facts.settings or {}


def _words(version: Version) -> str:
    return ".".join(str(number) for number in version)
