"""Debian's Chromium, driven by playwright: where it is found, how it is started, and why it cannot be.

make browser        # installs it, and runs the tests of this folder
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 120_000  # milliseconds: the machine may be busy
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP holdfast.test 127.0.0.1",  # an origin over plain http that is not local
)


def executable() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def why_missing() -> str | None:
    """Return why browser tests cannot run here, or None."""
    if os.environ.get("HOLDFAST_BROWSER") == "0":
        return "HOLDFAST_BROWSER is 0"
    return None if executable() else "no Chromium in PATH; `make browser` installs it"


@contextmanager
def launched(**options: Any) -> Iterator[Browser]:
    """Start Chromium without a window."""
    from playwright.sync_api import sync_playwright

    is_root = os.getuid() == 0  # which Chromium's sandbox refuses
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), args=[*FLAGS, *(["--no-sandbox"] if is_root else [])], **options
        )
        yield browser
        browser.close()


def required() -> None:
    """Skip the test if there is no browser; fail if `make browser` or CI just installed it."""
    reason = why_missing()
    if reason and os.environ.get("HOLDFAST_BROWSER") == "1":
        pytest.fail(f"no browser: {reason}")
    if reason:
        pytest.skip(f"browser tests: {reason}")


def install() -> None:
    """Install Chromium if it is missing, this is Debian, and we may."""
    if executable() is not None:
        return
    if os.getuid() or not Path("/usr/bin/apt-get").exists():
        sys.exit("install Chromium: `apt-get install chromium`, as root, on Debian")
    for command in ("update", "install --yes --no-install-recommends chromium"):
        subprocess.run(["apt-get", "--quiet", *command.split()], check=True)


if __name__ == "__main__":
    install()
