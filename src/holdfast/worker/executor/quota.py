"""How many jobs an executor may still run: by its own limit, and by the supervisor's grants."""

from __future__ import annotations

from holdfast.worker.attempt import Attempt
from holdfast.worker.settings import Pool

NO_LIMIT = 1 << 30


class Quota:
    """Counts the jobs that began to run; one that is requeued before that does not count."""

    def __init__(self, pool: Pool) -> None:
        self._own = NO_LIMIT if pool.max_jobs_per_executor is None else pool.max_jobs_per_executor
        self._granted = NO_LIMIT if pool.max_jobs is None else 0  # none before the first grant
        self._ran = 0

    @property
    def is_granted(self) -> bool:
        """Whether the worker has a limit (`max_jobs`), of which the supervisor grants a part."""
        return self._granted < NO_LIMIT

    def left(self, running: int) -> int:
        """Return how many jobs may be claimed while others are running."""
        return max(0, min(self._own, self._granted) - self._ran - running)

    def grant(self, count: int) -> None:
        self._granted += count

    def count(self, attempt: Attempt) -> bool:
        """Count an attempt that has ended. Return whether it uses up a part of the grant."""
        has_begun = attempt.pid is not None
        self._ran += has_begun
        return has_begun and self.is_granted

    def is_used_up(self, running: int) -> bool:
        """Return whether its own limit is reached once all running jobs have ended: then it is replaced."""
        return self._ran + running >= self._own

    def return_unused(self, running: int) -> int:
        """Return the number of granted jobs that will not run, and give them up."""
        unused = max(0, self._granted - self._ran - running) if self.is_granted else 0
        self._granted -= unused
        return unused
