"""The runners that give a job a process of its own, forked by the zygote.

    fork      a process for each job
    spawn     a process for each job, with an interpreter of its own that imports the app
    process   a process for many jobs, one after the other

An interrupted process gets SIGTERM; a second later it is killed, with its whole group.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.job.outcome import Outcome
from holdfast.worker.attempt import Attempt
from holdfast.worker.messages import FORK, REUSE, ProcessKind
from holdfast.worker.runners.job_process import NO_PROCESS, JobProcess
from holdfast.worker.runners.zygote_client import ZygoteClient


class ProcessRunner:
    """Runs jobs in processes of one kind.

    It has as many reused processes as jobs have run at once. A process for one job is forked ahead, when another job
    has ended: it is ready when the next job is claimed.
    """

    def __init__(self, zygote: ZygoteClient, kind: ProcessKind) -> None:
        self._zygote = zygote
        self._kind = kind
        self._waiting: list[JobProcess] = []
        self._forks_ahead = kind == FORK

    async def run(self, attempt: Attempt) -> Outcome:
        while self._waiting:
            process = self._waiting.pop()
            outcome = await self._run_in(process, attempt)
            if process.has_job or not process.is_dead or attempt.interrupt_reason:
                return outcome
            # It died of something else before it received the job, which has not started.
            attempt.pid = attempt.start_delay = None
        return await self._run_in(self._zygote.start(self._kind), attempt)

    async def _run_in(self, process: JobProcess, attempt: Attempt) -> Outcome:
        stays = False
        try:
            outcome = await process.run(attempt, stays=self._kind == REUSE)
            stays = self._kind == REUSE and not (process.is_dead or attempt.interrupt_reason)
            return outcome
        finally:
            if stays:
                self._waiting.append(process)
            else:
                process.close()
            if self._forks_ahead and process.has_job:
                self._fork_ahead()

    def _fork_ahead(self) -> None:
        with suppress(OSError):  # out of descriptors, for a while
            self._waiting.append(self._zygote.start(self._kind))

    def stop_forking_ahead(self) -> None:
        """Close the waiting processes, as no more jobs will be claimed. A claimed job gets a new process."""
        self._forks_ahead = False
        while self._waiting:
            self._waiting.pop().close()


class AloneRunner:
    """Runs each job under a zygote of its own: the job may have killed its zygote or its executor.

    Whichever process it kills this time, only its own attempt crashes, and no other job is affected.
    """

    def __init__(self, zygote: ZygoteClient, kind: ProcessKind) -> None:
        self._zygote = zygote
        self._kind = kind

    async def run(self, attempt: Attempt) -> Outcome:
        own = await self._zygote.start_zygote()
        if own is None:
            return NO_PROCESS
        try:
            process = own.start(self._kind)
            try:
                return await process.run(attempt, stays=False)
            finally:
                process.close()
        finally:
            own.close()

    def stop_forking_ahead(self) -> None:
        """Nothing is forked ahead."""
