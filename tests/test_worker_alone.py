"""Zygotes for one job, where the machine has nothing left."""

from __future__ import annotations

import asyncio
import socket

from holdfast.worker import zygote
from holdfast.worker.apart import Processes


def test_a_process_that_is_asked_of_a_dead_zygote_does_not_start() -> None:
    async def is_dead() -> bool:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own = Processes(ours)
        its.close()  # its guard could not fork it
        process = own.start(zygote.FORK)
        own.settle()
        process.close()
        own.close()
        return process.is_dead

    assert asyncio.run(is_dead())  # and nobody waits for it for ever
