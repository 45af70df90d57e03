"""Putting a model file into the package: its card completed, its hash written down."""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save

from spt_core import bundled
from spt_core.card_file import stated_card

PACKAGE = Path(bundled.__file__).parent


def run(*words: object) -> None:
    """One ``spt`` command; the script ends where it fails."""
    from spt_core.cli import main

    command = [str(word) for word in words]
    print("spt", *command, flush=True)
    if main(command):
        raise SystemExit(1)


def install(source: Path, name: str, /, **said: Any) -> Path:
    """Copy a file into the package with more on its card; note its hash."""
    card = {**(stated_card(source) or {}), **said}
    content = save(load_file(source), {"card": json.dumps(card, ensure_ascii=False)})
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
