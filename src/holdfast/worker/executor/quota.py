"""How many jobs an executor may still start: by its own limit, and by what the supervisor has granted it."""

from __future__ import annotations

from holdfast.worker.attempt import Attempt
from holdfast.worker.settings import Pool

NO_LIMIT = 1 << 30


class Allowance:
    """A job counts if it began to run: one that is handed back before that may be claimed again."""

    def __init__(self, pool: Pool) -> None:
        self._own = NO_LIMIT if pool.max_jobs_per_executor is None else pool.max_jobs_per_executor
        self._granted = NO_LIMIT if pool.max_jobs is None else 0  # nothing, before the supervisor says so
        self._ran = 0

    @property
    def is_granted(self) -> bool:
        """Whether there is a limit for all executors, and each job is one that another cannot start."""
        return self._granted < NO_LIMIT

    def left(self, running: int) -> int:
        """How many may be claimed while so many run."""
        return max(0, min(self._own, self._granted) - self._ran - running)

    def grant(self, count: int) -> None:
        self._granted += count

    def count(self, attempt: Attempt) -> bool:
        """Count an attempt that has ended. Returns whether that uses up some of what was granted."""
        has_begun = attempt.pid is not None
        self._ran += has_begun
        return has_begun and self.is_granted

    def is_used_up(self, running: int) -> bool:
        """Whether its own limit is reached once all that runs has ended: then it is to be replaced."""
        return self._ran + running >= self._own

    def give_back(self, running: int) -> int:
        """Return what was granted and is not needed by those that run."""
        unused = max(0, self._granted - self._ran - running) if self.is_granted else 0
        self._granted -= unused
        return unused
