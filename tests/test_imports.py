"""Importing is quick: it loads nothing that can wait until it is needed. `make bench ARGS=imports` measures it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LATER = ("asyncio", "redis", "ssl", "subprocess", "tempfile", "logging", "click", "rich")


def _run(*line: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV"))}
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_program_that_declares_tasks_loads_neither_the_redis_client_nor_asyncio(tmp_path: Path) -> None:
    program = f"""
        import sys
        from holdfast import Holdfast
        jobs = Holdfast("redis://localhost")
        @jobs.task
        def add(x: int, y: int) -> int:
            return x + y
        add.bind(1, 2)
        print([name for name in {LATER} if name in sys.modules])
    """
    output = _run(sys.executable, "-I", "-c", "if True:" + program, folder=tmp_path)
    assert output == "[]\n"


def test_the_planner_is_loaded_with_the_first_plan(tmp_path: Path) -> None:
    program = """
        import sys
        from holdfast import Holdfast
        import holdfast.cli.program
        jobs = Holdfast("redis://localhost")
        jobs.plan, jobs.aplan
        print([name for name in sys.modules if name.startswith("holdfast.planning")])
    """
    assert _run(sys.executable, "-I", "-c", "if True:" + program, folder=tmp_path) == "[]\n"


def test_a_test_run_that_does_not_use_holdfast_does_not_load_it(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import sys\n"
        "def test_own(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.hasplugin('holdfast')\n"
        "    assert [name for name in sys.modules if name.partition('.')[0] == 'holdfast'] == []\n"
    )
    assert "1 passed" in _run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path)


def test_loading_the_redis_client_does_not_count_as_time_in_which_the_store_did_not_answer(
    tmp_path: Path, server_url: str, namespace: str
) -> None:
    program = f"""
        import sys
        from holdfast import Holdfast
        from holdfast.store import deadline
        jobs = Holdfast({server_url!r}, namespace={namespace!r})
        begin = deadline.Deadline.__init__
        def begin_and_look(self, *args, **kwargs):
            print("redis" in sys.modules)
            begin(self, *args, **kwargs)
        deadline.Deadline.__init__ = begin_and_look
        jobs.task(len, name="len")
        jobs.tasks["len"].enqueue([])
    """
    output = _run(sys.executable, "-I", "-c", "if True:" + program, folder=tmp_path)
    assert output == "True\n"
