"""Memory and CPU of a job over time, kept small: about 60 points, further apart the longer it runs.

The worker adds what it sees to a `Series`, and says it as text; whoever asks reads a `JobUsage`.
"""

from __future__ import annotations

import msgspec

MOST_POINTS = 60
FIRST_STEP = 2.0  # seconds that a point stands for, at first


class JobUsage(msgspec.Struct, frozen=True):
    """What an attempt used. Each point stands for `every` seconds; the last one, for what there was of them.

    Memory that processes share is counted by parts. It is looked at every few seconds, so a short peak may be missed.
    """

    attempt: int
    seconds: float  # in which it was looked at
    every: float
    memory: list[int]  # bytes: the most that was seen
    cpu: list[float]  # processors that it kept busy: 1.0 is all of one
    cpu_seconds: float

    @property
    def peak_memory(self) -> int:
        """Bytes."""
        return max(self.memory, default=0)

    @property
    def mean_cpu(self) -> float:
        return self.cpu_seconds / self.seconds if self.seconds else 0.0


class _Text(msgspec.Struct):
    """How it is kept: memory in KiB, CPU in thousandths of a processor."""

    seconds: float
    every: float
    cpu_seconds: float
    kib: list[int]
    permille: list[int]


class Series:
    """What one attempt uses, as it goes on."""

    def __init__(self) -> None:
        self.step = FIRST_STEP
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._memory: list[int] = []
        self._cpu: list[float] = []  # seconds

    def add(self, seconds: float, memory: int, cpu_seconds: float) -> None:
        """So many seconds have passed since the last look, or the start; so much is used now; and was, meanwhile."""
        began, self.seconds = self.seconds, self.seconds + seconds
        self.cpu_seconds += cpu_seconds
        while self.seconds > MOST_POINTS * self.step:
            self._merge()
        while len(self._memory) * self.step < self.seconds:
            self._memory.append(0)
            self._cpu.append(0.0)
        for place in range(int(began / self.step), len(self._memory)):
            first, last = max(began, place * self.step), min(self.seconds, (place + 1) * self.step)
            self._memory[place] = max(self._memory[place], memory)
            self._cpu[place] += cpu_seconds * (last - first) / seconds

    def _merge(self) -> None:
        """Make one point of each two."""
        self.step *= 2
        self._memory = [max(self._memory[at : at + 2]) for at in range(0, len(self._memory), 2)]
        self._cpu = [sum(self._cpu[at : at + 2]) for at in range(0, len(self._cpu), 2)]

    def text(self) -> bytes:
        lengths = [min(self.step, self.seconds - place * self.step) for place in range(len(self._cpu))]
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
    """What a worker said; None if one of another release said it in other words."""
    try:
        said = msgspec.json.decode(text, type=_Text)
    except msgspec.MsgspecError:
        return None
    memory, cpu = [1024 * kib for kib in said.kib], [permille / 1000 for permille in said.permille]
    return JobUsage(attempt, said.seconds, said.every, memory, cpu, said.cpu_seconds)
