"""How much memory a job uses: its process and all that descend from it, wherever they went.

Memory that processes share is counted by parts, as Linux does (PSS, and what is swapped out). To find that takes some
milliseconds for each GiB, so it is asked for only where the cheap figure, which counts shared memory in full, is above
the limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.worker.system import is_server

_IN_FULL = re.compile(rb"^(?:VmRSS|VmSwap):\s+(\d+) kB", re.MULTILINE)
_BY_PARTS = re.compile(rb"^(?:Pss|SwapPss):\s+(\d+) kB", re.MULTILINE)


def used_by_tree(pid: int, most: int) -> int:
    """Return the bytes that a process and its descendants use; where it is at most `most`, some higher figure up to it.

    An embedded server that a job has started is nobody's.
    """
    everyone = [pid, *_descendants(pid)]
    in_full = [_sum(_IN_FULL, member, "status") for member in everyone]
    if sum(in_full) <= most:
        return sum(in_full)
    return sum(
        _sum(_BY_PARTS, member, "smaps_rollup") or whole for member, whole in zip(everyone, in_full, strict=True)
    )


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # it has ended
                for child in map(int, (thread / "children").read_text().split()):
                    if not is_server(child):
                        yield child
                        yield from _descendants(child)


def _sum(pattern: re.Pattern[bytes], pid: int, file: str) -> int:
    """The sum of some lines, in bytes; 0 if the process is gone, or another user's."""
    with suppress(OSError):
        return sum(map(int, pattern.findall(Path(f"/proc/{pid}/{file}").read_bytes()))) * 1024
    return 0
