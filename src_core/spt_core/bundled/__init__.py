"""The patch encoder and the slide model that come with the package.

Nothing is fetched: both are files beside this one, and their hashes are checked
whenever one is asked for. ``MODEL_LICENSES.md`` names what they were made from, on
which terms.
Works without torch, so that a window can tell what there is.
"""

import hashlib
from pathlib import Path

from spt_core.errors import InputError

# By these names commands and settings ask for them.
ENCODER = "bundled"
SLIDE_MODEL = "bundled"

ENCODER_FILE = "encoder.safetensors"
SLIDE_MODEL_FILE = "slide_model.safetensors"
LICENCES_FILE = "MODEL_LICENSES.md"
HASHES_FILE = "SHA256SUMS"

_HERE = Path(__file__).parent


def encoder_path() -> Path:
    """The bundled patch encoder's file, checked."""
    return _checked(ENCODER_FILE)


def slide_model_path() -> Path:
    """The bundled slide model's file, checked: a demonstration on synthetic tissue."""
    return _checked(SLIDE_MODEL_FILE)


def licences() -> str:
    """Every source of the two, and its terms, for a person to read."""
    return (_HERE / LICENCES_FILE).read_text(encoding="utf-8")


def _checked(name: str) -> Path:
    path = _HERE / name
    again = "Install napari-spt again."
    if not path.is_file():
        raise InputError(f"The file {path} of the package is missing. {again}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _stated_hashes().get(name):
        raise InputError(
            f"The file {path} is not the one that came with the package: its hash "
            f"differs. {again}"
        )
    return path


def _stated_hashes() -> dict[str, str]:
    lines = (_HERE / HASHES_FILE).read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line)}
