"""What a web process is: its release, its namespace, its server, and what its app has."""

from __future__ import annotations

from holdfast.records.table import Table, field, optional

ME = Table(
    "user",
    field("name", str, "name of the user"),
    field("role", str, "viewer, operator or admin"),
    field("queues", list[str] | None, "the queues that the user may see: names and patterns; null: all"),
    field("sees_data", bool, "whether the user may see payloads, results, errors, logs"),
)
APP_TASKS = Table(
    "task",
    field("task", str, "name of the task"),
    field("queue", str, "its queue"),
    name="AppTask",
)
INFO = Table(
    "info",
    field("version", str, "release of Holdfast"),
    field("namespace", str, "namespace of the jobs"),
    field("server", str | None, "name of the server with its version; null if it does not tell"),
    field("embedded", bool, "whether it is the embedded server of a project"),
    field("revision", int, "release of the app; 0: not numbered"),
    field("functions", bool, "whether the app has Lua of its own, whose functions can be called"),
    field("user", optional(ME), "who asks: name, role, queues (null: all), sees_data"),
)
