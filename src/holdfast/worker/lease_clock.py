"""When leases were last renewed, and when they will be, in memory that the supervisor and its executors share."""

from __future__ import annotations

import math
import mmap
import os
import struct

from holdfast.worker.linux import boot_time


class LeaseClock:
    """Shows an executor that the whole worker was stopped, or its machine asleep.

    Then it claims nothing before the next renewal.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("holdfast-pulse", 0)
            os.write(
                descriptor, struct.pack("ddd", -math.inf, 0, -math.inf)
            )  # not yet: just after a boot, zero would be recent
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 24)

    def beat(self, interval: float, began: float) -> None:
        """Leases were renewed, by calls that were sent from `began` on, and will be again after so many seconds."""
        self._memory[:24] = struct.pack("ddd", boot_time(), interval, began)

    @property
    def renewed_at(self) -> float:
        """When the last renewal was begun."""
        (began,) = struct.unpack("d", self._memory[16:24])
        return float(began)

    @property
    def has_stopped(self) -> bool:
        """Whether four renewals have not come: as many as there are in a lease."""
        last, interval = struct.unpack("dd", self._memory[:16])
        return bool(boot_time() - last > 4 * interval)

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)
