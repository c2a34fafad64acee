"""Ids and prefixes of redis-work-queue: any bytes, shown as text. Bytes that are not UTF-8 become surrogates."""

from __future__ import annotations

from holdfast.errors import Invalid


def to_bytes(value: str | bytes, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Invalid(f"expected {what} as text or bytes, got {type(value).__name__}")
    return value.encode("utf-8", "surrogateescape")


def to_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
