"""Fields of a job: names and texts that programs store with it, and that Holdfast does not interpret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.constants import MAX_FIELD, MAX_FIELDS
from holdfast.errors import Invalid, TooBig
from holdfast.names import check_name, check_text


def check_fields(what: str, value: Any) -> dict[str, str]:
    """Return a copy of fields that can be stored.

    Raises:
        Invalid: it is not a dict of names and texts.
        TooBig: a text is over 4 KiB, or there are more than 64.
    """
    if not isinstance(value, Mapping):
        raise Invalid(f'{what} is {value!r:.200}; it must be a dict of texts, such as {{"ticket": "17"}}')
    fields = {
        check_name(name, "the name of a field"): check_text(text, f"field {name}") for name, text in value.items()
    }
    for name, text in fields.items():
        if (size := len(text.encode())) > MAX_FIELD:
            raise TooBig(f"field {name} is {size} bytes (limit {MAX_FIELD}); store a reference")
    return check_number(what, fields)


def check_number(what: str, fields: dict[str, str]) -> dict[str, str]:
    """Return the fields, or raise TooBig if there are more than a job can have."""
    if len(fields) > MAX_FIELDS:
        raise TooBig(f"{what} has {len(fields)} fields (limit {MAX_FIELDS})")
    return fields


def check_removed(names: Sequence[str]) -> list[str]:
    """Return the names of fields to remove.

    Raises:
        Invalid: it is not a list of names.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise Invalid(f'remove is {names!r:.200}; it must be a list of names, such as ["ticket"]')
    return [check_name(name, "the name of a field") for name in names]
