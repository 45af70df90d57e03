"""The key of the HMACs by which a model knows the patients that it learned from."""

import secrets
from pathlib import Path

from spt_core.errors import InputError
from spt_core.files import refuse_no_file, written_whole

KEY_FILE = "patients.key"
# A shorter one could be guessed, and with it the patients.
_LEAST_BYTES, _USUAL_BYTES, _MOST_BYTES = 16, 32, 1024


def new_key() -> bytes:
    return secrets.token_bytes(_USUAL_BYTES)


def read_key(path: Path) -> bytes:
    """Read a key.

    Raises
    ------
    InputError
        Where the file is empty, too short or none of ours.
    """
    refuse_no_file(path)
    try:
        with path.open("rb") as file:
            text = file.read(2 * _MOST_BYTES)
        key = bytes.fromhex(text.decode("ascii").strip())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError:
        raise InputError(
            f"{path} is no key of a training run or a study: it is not hexadecimal."
        ) from None
    if len(key) < _LEAST_BYTES:
        what = "is empty" if not key else "is too short to be a key"
        raise InputError(
            f"{path} {what}, so patients cannot be known again by it. Put the key back "
            "from a copy, or begin a new run in another folder."
        )
    return key


def write_key(path: Path, key: bytes) -> None:
    """Write a key that only its owner may read."""
    with written_whole(path, private=True) as temporary:
        temporary.write_text(key.hex(), encoding="ascii")
