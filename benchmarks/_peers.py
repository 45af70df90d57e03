"""Environments for other people's software, each its own, made once."""

import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path


def peer_python(name: str, requirements: list[str]) -> Path:
    """Give the interpreter of an environment that holds ``requirements``."""
    folder = user_cache_path("napari-spt", appauthor=False) / "benchmark-peers" / name
    python = folder / "bin" / "python"
    done = folder / "installed"
    text = "\n".join(requirements)
    if done.exists() and done.read_text() == text:
        return python
    uv = [sys.executable, "-m", "uv"]
    subprocess.run(
        [*uv, "venv", "-q", "--clear", "-p", sys.executable, folder], check=True
    )
    subprocess.run(
        [
            *uv,
            "pip",
            "install",
            "-q",
            "--compile-bytecode",
            "-p",
            python,
            *requirements,
        ],
        check=True,
    )
    done.write_text(text)
    return python
