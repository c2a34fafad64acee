"""The embedded server of a project."""

from __future__ import annotations

from holdfast.records.table import Table, field

SERVER = Table(
    "server",
    field("home", str, "directory of its data", lambda status: str(status.home)),
    field("socket", str, "socket on which it listens"),
    field("running", bool, "whether it is running"),
    field("data_bytes", int, "size of its data on disk"),
    field("pid", int | None, "its process id"),
    field("version", str | None, "its version"),
    field("uptime", int | None, "seconds since it started"),
    field("clients", int | None, "number of connected clients"),
    field("memory_bytes", int | None, "memory that it uses"),
)
STARTED = Table("server", field("url", str, "its address"), name="StartedServer")
STOPPED = Table("server", field("stopped", bool, "whether it was running"), name="StoppedServer")
