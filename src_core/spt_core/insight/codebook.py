"""Kinds of tissue kept in a file, so that the next slide is mapped with the same.

One file per patch encoder, as plain JSON: centres of kinds, with names and colours that
a person gave them.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.insight.tissue_map import Kinds
from spt_core.plain_data import json_of
from spt_core.slides.recipe import RGB_RECIPE
from spt_core.tokens.tokens import TokenFacts

KIND, FORMAT = "spt-tissue-kinds", 1
# What has no name and was found first goes first.
MOST_KEPT = 48


def codebook_file(folder: Path, facts: TokenFacts) -> Path:
    """The file of kinds that fit tokens: one per patch encoder, stain and channels."""
    said = [facts.encoder_sha256 or facts.encoder, facts.stain, facts.patch_um]
    if facts.channels not in (None, RGB_RECIPE):
        said.append(facts.channels)
    key = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
    return Path(folder) / f"kinds-{key}.json"


def read_codebook(path: Path) -> Kinds | None:
    """The kinds of a file; None where there is none yet.

    Raises
    ------
    InputError
        Where the file is another, or damaged.
    """
    try:
        record = json_of(Path(path))
        if record["kind"] != KIND or record["format"] != FORMAT:
            raise ValueError("another kind of file, or of a newer version")
        kinds = record["kinds"]
        centres = [(row, one) for row, k in enumerate(kinds) for one in k["centres"]]
        return Kinds(
            np.array([one["at"] for _, one in centres], np.float32),
            np.array([one["spread"] for _, one in centres], np.float32),
            np.array([row for row, _ in centres], np.int64),
            np.array([one["number"] for one in kinds], np.int64),
            tuple(str(one["name"]) for one in kinds),
            np.array([one["rgb"] for one in kinds], np.uint8).reshape(-1, 3),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{Path(path).name}: the kept kinds of tissue cannot be read ({error}). "
            "Move the file away to begin anew."
        ) from error


def write_codebook(path: Path, kinds: Kinds) -> None:
    rows = []
    for row, number in enumerate(kinds.numbers.tolist()):
        own = np.flatnonzero(kinds.kind == row)
        centres: list[dict[str, Any]] = [
            {
                "spread": float(f"{kinds.spread[one]:.6g}"),
                "at": [float(f"{value:.6g}") for value in kinds.centres[one]],
            }
            for one in own
        ]
        rows.append(
            {
                "number": number,
                "name": kinds.names[row],
                "rgb": kinds.rgb[row].tolist(),
                "centres": centres,
            }
        )
    with written_whole(Path(path)) as temporary:
        record = {"kind": KIND, "format": FORMAT, "kinds": rows}
        temporary.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")


def together(known: Kinds | None, found: Kinds) -> Kinds:
    """Known kinds, and those found that are not among them."""
    if known is None or len(known) == 0:
        return found
    new = ~np.isin(found.numbers, known.numbers)
    place = np.cumsum(new) - 1 + len(known)
    of_new = new[found.kind]
    both = Kinds(
        np.concatenate([known.centres, found.centres[of_new]]),
        np.concatenate([known.spread, found.spread[of_new]]),
        np.concatenate([known.kind, place[found.kind[of_new]]]),
        np.concatenate([known.numbers, found.numbers[new]]),
        (*known.names, *np.array(found.names, object)[new]),
        np.concatenate([known.rgb, found.rgb[new]]),
    )
    return _fewer(both, keep=found.numbers)


def _fewer(kinds: Kinds, keep: np.ndarray) -> Kinds:
    """At most so many kinds as are kept."""
    excess = len(kinds) - MOST_KEPT
    if excess <= 0:
        return kinds
    may_go = [
        row
        for row, number in enumerate(kinds.numbers.tolist())
        if not kinds.names[row] and number not in keep
    ][:excess]
    left = ~np.isin(np.arange(len(kinds)), may_go)
    place = np.cumsum(left) - 1
    of_left = left[kinds.kind]
    return replace(
        kinds,
        centres=kinds.centres[of_left],
        spread=kinds.spread[of_left],
        kind=place[kinds.kind[of_left]],
        numbers=kinds.numbers[left],
        names=tuple(np.array(kinds.names, object)[left]),
        rgb=kinds.rgb[left],
    )
