"""The time of the last renewal of leases, in memory that the supervisor and its executors share."""

from __future__ import annotations

import math
import mmap
import os
import struct

from holdfast.worker.system import boot_time


class Pulse:
    """Shows an executor that the whole worker was stopped, or its machine asleep.

    Then it claims nothing before the next renewal.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("holdfast-pulse", 0)
            os.write(descriptor, struct.pack("d", -math.inf))  # not yet: on a machine just booted, zero would be recent
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 8)

    def beat(self) -> None:
        self._memory[:8] = struct.pack("d", boot_time())

    def age(self) -> float:
        """Seconds since the last renewal."""
        return boot_time() - float(struct.unpack("d", self._memory[:8])[0])
