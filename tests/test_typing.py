"""The types of the public face, as mypy sees them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "typing_cases.py"
IGNORED = re.compile(r"  # type: ignore\[(?P<code>[a-z-]+)\]$", re.MULTILINE)


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_calls_of_tasks_have_the_types_of_their_functions() -> None:
    checked = mypy(CASES)
    assert checked.stdout == ""
    assert checked.returncode == 0


def test_each_wrong_call_is_an_error_on_its_own_line(tmp_path: Path) -> None:
    text = CASES.read_text()
    expected = {
        (number, found["code"])
        for number, line in enumerate(text.splitlines(), start=1)
        if (found := IGNORED.search(line))
    }
    bare = tmp_path / "bare_cases.py"
    bare.write_text(IGNORED.sub("", text))

    reported = re.findall(r"bare_cases\.py:(\d+): error: .*\[([a-z-]+)\]$", mypy(bare).stdout, re.MULTILINE)
    assert {(int(number), code) for number, code in reported} == expected
    assert len(expected) > 15
