"""The pytest plugin: a server for the test session, and an app that uses it with a namespace for each test.

    [tool.pytest.ini_options]
    holdfast_app = "tasks:jobs"

    def test_signup_sends_a_mail(holdfast_app): ...

pytest loads this module in every run, also in projects that never use it. So Holdfast is imported only when needed, and
this module is outside of the package, whose import would load everything that users import.
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
the fixture holdfast_app needs your app. Name it in pyproject.toml as `module:name`,

    [tool.pytest.ini_options]
    holdfast_app = "tasks:jobs"

or define a fixture `holdfast_target` that returns it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_app", "the Holdfast app of the tests: `module` or `module:name`")
    parser.getgroup("holdfast").addoption(
        "--holdfast-url",
        metavar="URL",
        help="run tests on this server, in namespaces that are removed; default: one that starts for the session",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Discard checkpoints of the previous test, for tasks that are called as functions."""
    if "holdfast.running.running_job" in sys.modules:
        from holdfast.testing.direct_call import forget_running_job

        forget_running_job()


@pytest.fixture(scope="session")
def holdfast_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of the server of the test session: that of --holdfast-url, or one that starts and stops with it."""
    from holdfast.errors import HoldfastError
    from holdfast.testing.environment import check_server, running_server

    url = pytestconfig.getoption("--holdfast-url")
    if url == "":
        pytest.fail("--holdfast-url is empty; give the URL of a server, or omit the option", pytrace=False)
    if url is not None:
        problem = ""
        try:
            check_server(url)
        except HoldfastError as error:
            problem = str(error)
        if problem:  # outside of `except`, so that pytest does not show the errors that led here
            pytest.fail(f"--holdfast-url: {problem}", pytrace=False)
        yield url
        return
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def holdfast_target(pytestconfig: pytest.Config) -> Holdfast:
    """The app of the tests. Override this fixture if the app is not in a module."""
    from holdfast.entrypoints.loading import AppNotFound, load_app

    path = pytestconfig.getini("holdfast_app")
    if not path:
        pytest.fail(MISSING, pytrace=False)
    try:
        return load_app(path)
    except AppNotFound as error:
        problem = str(error)
    except ModuleNotFoundError as error:
        if error.name not in (path.partition(".")[0], path.partition(":")[0]):
            raise  # an import in the app
        problem = str(error)
    pytest.fail(f"holdfast_app = {path}: {problem}", pytrace=False)


@pytest.fixture
def holdfast_app(holdfast_target: Holdfast, holdfast_server: str) -> Iterator[Workbench]:
    """A workbench: the app in a namespace of this test, whose jobs run when the test runs them."""
    from holdfast.testing import use

    with use(holdfast_target, holdfast_server) as bench:
        yield bench
