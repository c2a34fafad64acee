"""The memory and CPU usage of a job for people: peak, mean, and a small chart of each."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli.output import Output
from holdfast.records.formatting import short_duration, short_size
from holdfast.records.table import Record

BARS = "▁▂▃▄▅▆▇█"
MAX_BARS = 30


def usage_lines(usage: Record, output: Output) -> str:
    """Return memory and CPU on two lines; on a terminal, each with a chart."""
    memory, cpu = (chart(usage[name]) if output.on_terminal else "" for name in ("memory_bytes", "cpu"))
    times = f"{short_duration(usage['cpu_seconds'])} in {short_duration(usage['seconds'])}"
    lines = (
        f"memory {short_size(usage['peak_memory_bytes'])} at most {memory}",
        f"CPU {usage['mean_cpu']:.0%} of a core, {times} {cpu}",
    )
    return "\n".join(line.rstrip() for line in lines)


def chart(values: Sequence[float]) -> str:
    """Return a line of bars from zero to the highest value; long series are condensed."""
    width = -(-len(values) // MAX_BARS) or 1
    highest = [max(values[start : start + width]) for start in range(0, len(values), width)]
    top = max(highest, default=0) or 1
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in highest)
