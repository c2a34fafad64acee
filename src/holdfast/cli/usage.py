"""What a job uses of its machine, for people: its peak, its mean, and a small curve of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.cli.output import Output
from holdfast.cli.text import length, size
from holdfast.job.usage import JobUsage

BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 30
Record = dict[str, Any]


def usage_record(usage: JobUsage | None) -> Record | None:
    if usage is None:
        return None
    return {
        "attempt": usage.attempt,
        "seconds": usage.seconds,
        "peak_memory_bytes": usage.peak_memory,
        "mean_cpu": round(usage.mean_cpu, 3),
        "cpu_seconds": usage.cpu_seconds,
        "every_seconds": usage.every,
        "memory_bytes": usage.memory,
        "cpu": usage.cpu,
    }


def described_usage(used: Record, output: Output) -> str:
    """Memory and CPU, on two lines; on a terminal, with a curve."""
    memory, cpu = (curve(used[name]) if output.mode == "table" else "" for name in ("memory_bytes", "cpu"))
    times = f"{length(used['cpu_seconds'])} in {length(used['seconds'])}"
    lines = (
        f"memory {size(used['peak_memory_bytes'])} at most {memory}",
        f"CPU {used['mean_cpu']:.0%} of a core, {times} {cpu}",
    )
    return "\n".join(line.rstrip() for line in lines)


def curve(values: Sequence[float]) -> str:
    """A line of bars, from nothing to the highest value; of many values, some are put together."""
    together = -(-len(values) // MOST_BARS) or 1
    highest = [max(values[at : at + together]) for at in range(0, len(values), together)]
    top = max(highest, default=0) or 1
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in highest)
