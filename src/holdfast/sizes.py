"""Sizes of memory, as users write them: 512M, 2G, 1500000."""

from __future__ import annotations

import re

from holdfast.errors import Invalid

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TEXT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)


def size_in_bytes(value: str | int, *, what: str, least: int = 1 << 20) -> int:
    """Read a size. The units are powers of 1024.

    Raises:
        Invalid: it is no size, or too small.
    """
    found = _TEXT.fullmatch(str(value).strip())
    if isinstance(value, bool) or not found:
        raise Invalid(f'{what} is {value!r}; it must be a size in bytes, or text like "512M" or "2G"')
    size = round(float(found[1]) * _UNITS[found[2].upper()])
    if size < least:
        raise Invalid(f"{what} is {value!r}; it must be at least {size_words(least)}")
    return size


def size_words(size: int) -> str:
    """Say a size in MiB, by tenths unless it is a whole number of them."""
    mebibytes = size / (1 << 20)
    return f"{mebibytes:.0f} MiB" if mebibytes.is_integer() else f"{mebibytes:.1f} MiB"
