"""The pytest plugin: a server for the test session, and the user's app on it, with a namespace for each test.

    [tool.pytest.ini_options]
    holdfast_app = "tasks:jobs"

    def test_signup_sends_a_mail(holdfast_app): ...

pytest loads this in every run, also of projects that never use it. So nothing of Holdfast is imported before it is
needed; and this is a module beside the package, because importing one of the package would import what users import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.testing import Workbench

MISSING = """\
holdfast_app needs to know your app. Name it in pyproject.toml, as `module:name`,

    [tool.pytest.ini_options]
    holdfast_app = "tasks:jobs"

or define a fixture `holdfast_target` that returns it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_app", "the Holdfast app whose jobs tests run: module, or module:name")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A task that a test calls as a function finds no checkpoint of the test before."""
    if "holdfast.running.running_job" in sys.modules:
        from holdfast.testing.direct_call import forget_running_job

        forget_running_job()


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[str]:
    """The URL of a server that runs as long as the tests. Define your own to use another."""
    from holdfast.testing import running_server

    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def holdfast_target(pytestconfig: pytest.Config) -> Holdfast:
    """The app whose jobs tests run. Define your own if it is not to be found in a module."""
    from holdfast.entrypoints.loading import load_app

    path = pytestconfig.getini("holdfast_app")
    if not path:
        pytest.fail(MISSING, pytrace=False)
    return load_app(path)


@pytest.fixture
def holdfast_app(holdfast_target: Holdfast, holdfast_server: str) -> Iterator[Workbench]:
    """A workbench: the app in a namespace of this test's own, whose jobs run when the test says so."""
    from holdfast.testing import use

    with use(holdfast_target, holdfast_server) as bench:
        yield bench
