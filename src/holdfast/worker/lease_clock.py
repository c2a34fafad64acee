"""The time of the last lease renewal, in memory shared by the supervisor and its executors."""

from __future__ import annotations

import math
import mmap
import os
import struct

from holdfast.worker.linux import boot_time


class LeaseClock:
    """Shows an executor that renewals have stopped: the worker was suspended, or the machine slept.

    Then the executor claims nothing until the next renewal.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            descriptor = os.memfd_create("holdfast-lease-clock", 0)
            os.write(descriptor, struct.pack("ddd", -math.inf, 0, -math.inf))  # never: after a boot, zero is recent
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 24)

    def renewed(self, interval: float, began: float) -> None:
        """Note a renewal whose first call was sent at `began`; the next follows after `interval` seconds."""
        self._memory[:24] = struct.pack("ddd", boot_time(), interval, began)

    @property
    def renewed_at(self) -> float:
        """When the first call of the last renewal was sent."""
        (began,) = struct.unpack("d", self._memory[16:24])
        return float(began)

    @property
    def has_stopped(self) -> bool:
        """Whether four renewals are missing: as many as there are in a lease."""
        last, interval = struct.unpack("dd", self._memory[:16])
        return bool(boot_time() - last > 4 * interval)

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)
