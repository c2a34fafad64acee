"""Memory and CPU of a job over time: up to 60 points, further apart the longer the job runs.

The worker adds its samples to a `Series` and stores it as text; the client reads that as a `JobUsage`.
"""

from __future__ import annotations

import msgspec

MAX_POINTS = 60
FIRST_STEP = 2.0  # seconds that a point stands for, at first


class JobUsage(msgspec.Struct, frozen=True):
    """Memory and CPU of an attempt. Each point covers `every` seconds; the last one may cover less.

    Memory that processes share is counted proportionally. Samples are seconds apart, so a short peak may be missed.
    """

    attempt: int
    seconds: float  # covered by the samples
    every: float
    memory: list[int]  # bytes, the maximum of the samples
    cpu: list[float]  # busy processors: 1.0 is one core
    cpu_seconds: float

    @property
    def peak_memory(self) -> int:
        """The highest memory use of all samples, in bytes."""
        return max(self.memory, default=0)

    @property
    def mean_cpu(self) -> float:
        return self.cpu_seconds / self.seconds if self.seconds else 0.0


class _Text(msgspec.Struct):
    """The stored form: memory in KiB, CPU in thousandths of a processor."""

    seconds: float
    every: float
    cpu_seconds: float
    kib: list[int]
    permille: list[int]


class Series:
    """The growing samples of one attempt."""

    def __init__(self) -> None:
        self.step = FIRST_STEP
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._memory: list[int] = []
        self._cpu: list[float] = []  # seconds

    def add(self, seconds: float, memory: int, cpu_seconds: float) -> None:
        """Add a sample: seconds since the last one, memory now, CPU time since then."""
        began, self.seconds = self.seconds, self.seconds + seconds
        self.cpu_seconds += cpu_seconds
        while self.seconds > MAX_POINTS * self.step:
            self._merge()
        while len(self._memory) * self.step < self.seconds:
            self._memory.append(0)
            self._cpu.append(0.0)
        for point in range(int(began / self.step), len(self._memory)):
            first, last = max(began, point * self.step), min(self.seconds, (point + 1) * self.step)
            self._memory[point] = max(self._memory[point], memory)
            self._cpu[point] += cpu_seconds * (last - first) / seconds

    def _merge(self) -> None:
        """Merge every two points into one."""
        self.step *= 2
        self._memory = [max(self._memory[at : at + 2]) for at in range(0, len(self._memory), 2)]
        self._cpu = [sum(self._cpu[at : at + 2]) for at in range(0, len(self._cpu), 2)]

    def text(self) -> bytes:
        lengths = [min(self.step, self.seconds - point * self.step) for point in range(len(self._cpu))]
        return msgspec.json.encode(
            _Text(
                round(self.seconds, 2),
                self.step,
                round(self.cpu_seconds, 2),
                [memory // 1024 for memory in self._memory],
                [round(1000 * cpu / length) for cpu, length in zip(self._cpu, lengths, strict=True)],
            )
        )


def read_usage(attempt: int, text: bytes) -> JobUsage | None:
    """Read the text that a worker stored; return None if another release wrote it in another form."""
    try:
        stored = msgspec.json.decode(text, type=_Text)
    except msgspec.MsgspecError:
        return None
    memory, cpu = [1024 * kib for kib in stored.kib], [permille / 1000 for permille in stored.permille]
    return JobUsage(attempt, stored.seconds, stored.every, memory, cpu, stored.cpu_seconds)
