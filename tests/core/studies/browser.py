"""A browser without a window, where this machine has one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str:
    """A Chromium; the test is skipped without one. ``SPT_BROWSER`` names another."""
    named = os.environ.get("SPT_BROWSER")
    found = named or next(
        (path for name in NAMES if (path := shutil.which(name))), None
    )
    if not found:
        pytest.skip("There is no Chromium on this machine.")
    return found


def run_browser(page: Path, *options: str, folder: Path) -> str:
    """Open a page and return its standard output; every request is logged."""
    done = subprocess.run(
        [
            find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-default-apps", "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}", *options, page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
