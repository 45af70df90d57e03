"""Putting a file of weights into the package, and its hash beside it."""

import hashlib
from pathlib import Path

from safetensors.torch import load_file, save

from spt_core import bundled

PACKAGE = Path(bundled.__file__).parent


def run(*words: object) -> None:
    """One ``spt`` command; the script ends where it fails."""
    from spt_core.cli import main

    command = [str(word) for word in words]
    print("spt", *command, flush=True)
    if main(command):
        raise SystemExit(1)


def install(source: Path, name: str, metadata: dict[str, str]) -> Path:
    """Copy a file into the package with another card; note its hash."""
    content = save(load_file(source), metadata)
    target = PACKAGE / name
    target.write_bytes(content)
    hashes = []
    for one in (bundled.ENCODER_FILE, bundled.SLIDE_MODEL_FILE):
        if (PACKAGE / one).exists():
            digest = hashlib.sha256((PACKAGE / one).read_bytes()).hexdigest()
            hashes.append(f"{digest}  {one}\n")
    (PACKAGE / bundled.HASHES_FILE).write_text("".join(hashes), encoding="ascii")
    print(f"{target}: {len(content) / 1e6:.2f} MB")
    return target
