"""A task: a function with a name and options; its signature, its middleware, and a call of it."""

from __future__ import annotations

from holdfast.task.program import PROGRAM
from holdfast.task.task import AsyncTask, BoundCall, Task, make_task

__all__ = ["PROGRAM", "AsyncTask", "BoundCall", "Task", "make_task"]
