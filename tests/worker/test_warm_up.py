"""The warm-up jobs of a zygote leave nothing behind in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from holdfast import current_job
from holdfast.worker.runners.child import warm_up

def look():
    print(os.fstat(1).st_ino, os.fstat(2).st_ino, id(sys.stdout), id(sys.stderr), os.listdir(sys.argv[1]))
    return current_job().id

print(look())
warm_up(sys.argv[1] + "/warm-up")
print(look())
"""


def test_a_warm_up_leaves_streams_files_and_the_job_of_the_process_as_they_were(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=True)

    lines = ran.stdout.splitlines()
    assert lines[:2] == lines[2:]
    assert lines[1] == "detached"
    assert ran.stderr == ""
