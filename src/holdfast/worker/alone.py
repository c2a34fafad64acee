"""Running a job that may have killed its zygote or its executor: under a zygote of its own (see `zygote`).

Whatever it kills this time, only its own attempt crashes: it is charged, and its neighbours do not notice.
"""

from __future__ import annotations

from holdfast.outcome import Outcome
from holdfast.worker.apart import NO_PROCESS, Processes
from holdfast.worker.attempt import Attempt


class AloneRunner:
    """Runs each job in a process that is forked or spawned by a zygote for this job."""

    def __init__(self, processes: Processes, how: bytes) -> None:
        self._processes = processes
        self._how = how

    async def run(self, attempt: Attempt) -> Outcome:
        own = await self._processes.start_zygote()
        if own is None:
            return NO_PROCESS
        try:
            process = own.start(self._how)
            try:
                return await process.run(attempt, stays=False)
            finally:
                process.close()
        finally:
            own.close()

    def fork_no_more(self) -> None:
        """Nothing is forked ahead."""
