"""When leases were last renewed, and when they will be, in memory that the supervisor and its executors share."""

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
            os.write(descriptor, struct.pack("dd", -math.inf, 0))  # not yet: just after a boot, zero would be recent
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 16)

    def beat(self, interval: float) -> None:
        """Leases were renewed, and will be again after so many seconds."""
        self._memory[:16] = struct.pack("dd", boot_time(), interval)

    @property
    def has_stopped(self) -> bool:
        """Whether four renewals have not come: as many as there are in a lease."""
        last, interval = struct.unpack("dd", self._memory[:16])
        return bool(boot_time() - last > 4 * interval)

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)
