"""Getting encoders' weights onto a computer: from the hub, a file, or a packed folder.

A packed folder carries weights, with their checksums and licences, to a computer
without internet.
"""

import hashlib
import json
import shutil
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.files import written_whole
from spt_core.patches import weights
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.filling import matched
from spt_core.patches.known import KNOWN
from spt_core.patches.registry import find_card, find_encoder, module_for
from spt_core.patches.store import stored_file
from spt_core.plain_data import json_of
from spt_core.weights_file import (
    read_weights,
    refuse_misfit,
    refuse_no_numbers,
    unwrapped,
)

LIST = "encoders.json"
_CHUNK = 2**20


def get_encoder(name: str) -> Generator[Progress, None, Path]:
    """Fetch an encoder's weights from where its authors keep them."""
    card = find_card(name)

    def keep(state: dict[str, Tensor], path: Path) -> Path:
        return _keep(card, state, path)

    return (yield from weights.fetch(card, keep))


def keep_encoder(name: str, path: Path) -> Path:
    """Keep a file that the user has as the weights of a known encoder."""
    card = find_card(name)
    return _keep(card, read_weights(path), path)


def _keep(card: EncoderCard, state: Mapping[str, Tensor], path: Path) -> Path:
    """Check weights strictly, and keep them by the module's own names."""
    entry = find_encoder(card.name)
    state = unwrapped(state)
    with torch.device("meta"):
        module = module_for(entry, state, path)
    given = matched(module, state, path, entry.layouts)
    refuse_misfit(module, given, path)
    refuse_no_numbers(given, path)
    target = stored_file(card.name)
    with written_whole(target) as temporary:
        save_file({k: v.contiguous() for k, v in given.items()}, temporary)
    return target


def pack_encoders(folder: Path, names: Iterable[str] = ()) -> list[EncoderCard]:
    """Copy the weights that are here into a folder, with a list of their checksums.

    Parameters
    ----------
    names
        Of the encoders; all that are here, where none are given.
    """
    wanted = [find_card(name) for name in names]
    cards = wanted or [one.card for one in KNOWN.values()]
    there = [card for card in cards if stored_file(card.name).exists()]
    missing = [card.name for card in wanted if card not in there]
    if missing or not there:
        raise InputError(
            f"There are no weights of {', '.join(missing) or 'any encoder'} here to "
            "pack: 'spt encoders get NAME' fetches them."
        )
    listed = []
    for card in there:
        source = stored_file(card.name)
        with written_whole(folder / source.name) as temporary:
            shutil.copyfile(source, temporary)
        listed.append(
            {
                "name": card.name,
                "file": source.name,
                "sha256": file_hash(folder / source.name),
                "licence": card.licence,
                "terms": list(card.terms),
                "page": card.page,
            }
        )
    with written_whole(folder / LIST) as temporary:
        temporary.write_text(json.dumps({"encoders": listed}, indent=2), "utf-8")
    return there


def unpack_encoders(folder: Path, names: Iterable[str] = ()) -> list[str]:
    """Keep the weights of a packed folder, once their checksums are seen to be right.

    Returns
    -------
    Names of the encoders.
    """
    try:
        listed = json_of(folder / LIST)["encoders"]
        files = {str(one["name"]): one for one in listed}
        hashes = {name: str(one["sha256"]) for name, one in files.items()}
    except FileNotFoundError:
        raise InputError(
            f"{folder} is not a folder of 'spt encoders pack': it has no {LIST}."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} is not a folder of 'spt encoders pack' ({LIST}: {error})."
        ) from error
    wanted = list(names) or list(files)
    absent = [name for name in wanted if name not in files]
    if absent:
        raise InputError(f"{folder} holds {', '.join(files)}, not {', '.join(absent)}.")
    for name in wanted:
        # A name, never a path out of the folder.
        source = folder / Path(str(files[name]["file"])).name
        if not source.is_file() or file_hash(source) != hashes[name]:
            raise InputError(
                f"{source} is not as it was packed (its checksum differs): copy the "
                "folder again."
            )
    for name in wanted:
        keep_encoder(name, folder / Path(str(files[name]["file"])).name)
    return wanted


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
