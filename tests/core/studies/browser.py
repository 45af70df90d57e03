"""A browser without a window, where this machine has one."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str:
    """A Chromium; the test is skipped without one. ``SPT_BROWSER`` names another."""
    found = [os.environ.get("SPT_BROWSER"), *(shutil.which(name) for name in NAMES)]
    for path in found:
        if path:
            return path
    pytest.skip("There is no Chromium on this machine.")


def loaded_by(page: Path, folder: Path) -> tuple[str, list[str]]:
    """A page as the browser holds it, and every address that it asked the network for.

    What browsers ask for themselves, such as the time, has no page as its origin.
    """
    log = folder / "net.json"
    done = subprocess.run(
        [
            find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-default-apps",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}",
            "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    events = json.loads(log.read_text(encoding="utf-8"))["events"]
    asked = [one["params"] for one in events if "initiator" in one.get("params", {})]
    return done.stdout, [
        one["url"] for one in asked if one["initiator"] != "not an origin"
    ]
