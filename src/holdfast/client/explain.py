"""Why jobs are not running."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import errors
from holdfast.job.explanation import Explanation, read_explanation, unreachable
from holdfast.names import check_id
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands import MAX_EXPLAINED
from holdfast.store.deadline import Deadline

TIMEOUT_BUDGET = 1.0  # seconds that a timeout may take longer to say why


def explain(self: Stores, id: str, /) -> Steps[Explanation]:
    """Explain why a job is not running, by the rules by which the store hands out jobs.

    print(jobs.explain(job.id).text)  # no live worker serves queue mail; they serve default

    Raises:
        JobNotFound: no job has this id.
    """
    [found] = yield from explain_many(self, [id])
    if found is None:
        raise errors.JobNotFound(f"job {id} does not exist; it may have been deleted")
    return found


def explain_many(self: Stores, ids: Sequence[str]) -> Steps[list[Explanation | None]]:
    """Explain why each of some jobs is not running; None for each that does not exist."""
    wanted, found = [check_id(id) for id in ids], list[Explanation | None]()
    for first in range(0, len(wanted), MAX_EXPLAINED):
        rows = yield commands.explain(wanted[first : first + MAX_EXPLAINED])
        found += [None if row is None else read_explanation(row, self.store.address.home) for row in rows]
    return found


def explain_timeout(self: Stores, id: str, state: str) -> Steps[Explanation | None]:
    """Explain why a job has not ended in time: asked once, with little time, and never an error of its own."""
    try:
        [row] = yield commands.explain([id]).within(Deadline(TIMEOUT_BUDGET))
        return None if row is None else read_explanation(row, self.store.address.home)
    except errors.StoreUnavailable as error:
        return unreachable(id, state, str(error))
    except errors.HoldfastError:
        return None
