"""A job seen from inside: the methods of `current_job()`."""

from __future__ import annotations

from holdfast.running.current import current_job
from holdfast.running.link import DetachedLink, Link
from holdfast.running.running_job import RunningJob

__all__ = ["DetachedLink", "Link", "RunningJob", "current_job"]
