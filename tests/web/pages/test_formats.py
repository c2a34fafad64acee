"""Values as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.records.formatting import json_text
from holdfast.web.pages import formats

NOW = datetime(2026, 11, 16, 10, 42, 18, tzinfo=UTC)  # a Monday


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.0002, "< 1 ms"), (0.004, "4 ms"), (0.212, "212 ms"), (1, "1 s"), (2.44, "2.4 s"), (12.4, "12 s"),
        (59.6, "1 min"), (65, "1 min 05 s"), (842, "14 min 02 s"), (3600, "1 h"), (7_800, "2 h 10 min"),
        (45_120, "12 h 32 min"), (86_400, "1 d"), (273_600, "3 d 4 h"), (None, "unknown"), (-5, "-5 s"),
    ],
)  # fmt: skip
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


def test_a_short_duration_has_one_unit_and_is_not_rounded_up() -> None:
    found = [
        formats.short_duration(each) for each in (0.4, 38, 59.9, 119, 7_199, 86_399, 300_000, timedelta(minutes=14))
    ]
    assert found == ["0 s", "38 s", "59 s", "1 min", "1 h", "23 h", "3 d", "14 min"]


def test_numbers_have_separators_and_no_more_digits_than_tell_something() -> None:
    found = [formats.number(each) for each in (0, 1973, 1_284_107, 2.44, 0.05, 12.6, 9_007_199_254_740_993, None)]
    assert found == ["0", "1,973", "1,284,107", "2.4", "0.05", "13", "9,007,199,254,740,993", "unknown"]


def test_only_all_is_100_percent_and_only_nothing_is_0_percent() -> None:
    found = [formats.percent(each) for each in (0, 0.0001, 0.003, 0.062, 0.72, 0.9999, 1, None)]
    assert found == ["0 %", "< 0.1 %", "0.3 %", "6.2 %", "72 %", "> 99 %", "100 %", "unknown"]


def test_sizes_are_in_their_largest_unit() -> None:
    assert [formats.size(each) for each in (0, 512, 4_198, 512 << 20, 41 << 30)] == [
        "0 B", "512 B", "4.1 KiB", "512 MiB", "41.0 GiB",
    ]  # fmt: skip


def test_times_are_relative_in_lists_and_as_short_as_they_are_clear() -> None:
    def at(**ago: float) -> datetime:
        return NOW - timedelta(**ago)

    assert [formats.ago(each, NOW) for each in (at(seconds=38), at(hours=-2), at())] == [
        "38 s ago",
        "in 2 h",
        "0 s ago",
    ]
    assert formats.span(at(days=3), NOW) == "3 d"
    found = [formats.clock(each, NOW) for each in (at(seconds=26), at(hours=12), at(days=9), at(days=400))]
    assert found == ["10:41:52", "Sun 22:42:18", "7 Nov 10:42", "12 Oct 2025"]
    found = [formats.to_minute(each, NOW) for each in (at(seconds=26), at(hours=12), at(days=9), at(days=400))]
    assert found == ["10:41", "Sun 22:42", "7 Nov 10:42", "12 Oct 2025"]


def test_a_day_of_the_week_is_not_both_past_and_to_come() -> None:
    days = {day: formats.clock(NOW + timedelta(days=day), NOW).split()[0] for day in range(-8, 9) if day}
    names = [name for name in days.values() if name.isalpha()]
    assert names == ["Fri", "Sat", "Sun", "Tue", "Wed"]


def test_the_time_of_a_record_is_read_in_any_zone_and_written_in_utc() -> None:
    assert formats.iso("2026-11-16T11:41:52.123+01:00") == "2026-11-16T10:41:52.123Z"
    assert formats.exact("2026-11-16T10:41:52.123Z") == "Mon 16 Nov 2026, 10:41:52.123 UTC"


def test_json_is_shown_as_it_is_stored() -> None:
    text = '{"seed":9007199254740993,"ratio":1e400,"name":"\\u202e"}'
    assert formats.stored_json(text) == '{\n  "seed": 9007199254740993,\n  "ratio": 1e400,\n  "name": "\\u202e"\n}'
    assert formats.stored_json(b"not \xff JSON") == "not \\xff JSON"


@pytest.mark.parametrize("depth", [101, 900, 5000])
def test_json_that_is_nested_deeply_is_not_indented(depth: int) -> None:
    """Its size would be that of its indentation: hundreds of megabytes."""
    text = "[" * depth + "1," * 1000 + "1" + "]" * depth
    assert formats.stored_json(text) == text


def test_json_with_many_brackets_is_indented() -> None:
    text = '{"[[[[":[' + "[]," * 200 + '"\\"[["]}'
    assert formats.stored_json(text).count("\n") == 204
    value: list[Any] = [[]] * 200
    assert json_text(value, indent=2).count("\n") == 201
    for _ in range(100):
        value = [value]
    assert "\n" not in json_text(value, indent=2)


def test_a_long_text_is_cut() -> None:
    assert formats.cut("x" * 10, 10) == "x" * 10
    assert formats.cut("x" * 11, 10) == "x" * 9 + "…"


def test_lines_are_those_that_a_terminal_would_show() -> None:
    text = "one\r\n\r 1 %\r 2 %\n\x1b[1;32mgreen\x1b[0m \x1b]0;t\x07\n\nlong line\x85\x0b, still\nopen"
    assert formats.printed_lines(text, 20) == [
        "one",
        " 2 %",
        "green \x1b]0;t\x07",
        "",
        "long line\x85\x0b, still",
        "open",
    ]
    assert formats.printed_lines("12345\n", 3) == ["123"]
    assert formats.printed_lines("", 3) == []
