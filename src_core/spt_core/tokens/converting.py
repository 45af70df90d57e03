"""Writing features in the forms of other tools."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from spt_core.errors import InputError
from spt_core.tokens import layout
from spt_core.tokens.feature_file import coords_attributes, write_tokens
from spt_core.tokens.h5_writing import written_h5
from spt_core.tokens.tokens import Tokens

OURS, TRIDENT, CLAM, STAMP = FORMS = ("spt", "trident", "clam", "stamp")


_NO_NAME, _LONGEST_NAME = re.compile(r"[^\w.-]"), 100


def with_slide_mpp(tokens: Tokens, slide_mpp: float) -> Tokens:
    """Coordinates in level-0 pixels of a known size, where a file had micrometres."""
    facts = tokens.facts
    if "xy" not in facts.assumed or not facts.mpp or not facts.patch_um:
        return tokens
    scale = facts.mpp / slide_mpp
    side = max(1, round(facts.patch_um / slide_mpp))
    rest = tuple(one for one in facts.assumed if one != "xy")
    facts = replace(
        facts, l0_patch_xy=(side, side), l0_step_xy=(side, side), assumed=rest
    )
    xy = np.rint(tokens.xy * scale).astype(np.int64)
    return replace(tokens, xy=xy, facts=facts)


def write_as(
    form: str, folder: Path, tokens: Tokens, slide_mpp: float | None = None
) -> Path:
    """Write one slide's features in a tool's form; the features are the same bytes.

    Parameters
    ----------
    slide_mpp
        Micrometres per level-0 pixel, which STAMP's coordinates need.

    Returns
    -------
    The file of features.
    """
    facts = tokens.facts
    if form == OURS:
        path = folder / f"{facts.name}{layout.ENDING}"
        write_tokens(path, tokens)
        return path
    if not facts.has_positions:
        raise InputError(
            f"{facts.name}: it is not known where its patches lie, which {form} needs."
        )
    if form == STAMP:
        return _as_stamp(folder, tokens, slide_mpp)
    if form == TRIDENT:
        # The encoder's name is from a file that anybody may have written.
        encoder = _NO_NAME.sub("_", facts.encoder or "unknown")[:_LONGEST_NAME]
        path = folder / f"features_{encoder}" / f"{facts.name}.h5"
        patches = folder / "patches" / f"{facts.name}_patches.h5"
        attributes = coords_attributes(facts)
    elif form == CLAM:
        path = folder / "h5_files" / f"{facts.name}.h5"
        patches = folder / "patches" / f"{facts.name}.h5"
        side = (facts.l0_patch_xy or (0, 0))[0]
        attributes = {"patch_size": side, "patch_level": 0, "downsample": (1.0, 1.0)}
        attributes |= {"name": facts.name}
    else:
        raise InputError(f"There is no form {form!r}: choose of {', '.join(FORMS)}.")
    with written_h5(path, tokens.x.nbytes + 16 * len(tokens)) as file:
        file.create_dataset(layout.FEATURES, data=tokens.x)
        coords = file.create_dataset(
            layout.COORDS, data=tokens.xy.astype(np.int32 if form == CLAM else np.int64)
        )
        if form == TRIDENT:
            coords.attrs.update(attributes)
    with written_h5(patches, 16 * len(tokens)) as file:
        file.create_dataset(layout.COORDS, data=tokens.xy).attrs.update(attributes)
    return path


def _as_stamp(folder: Path, tokens: Tokens, slide_mpp: float | None) -> Path:
    facts = tokens.facts
    if facts.patch_um is None or facts.patch_size is None:
        raise InputError(
            f"{facts.name}: STAMP needs the size of patches: give --mpp and "
            "--patch-size."
        )
    if "xy" in facts.assumed and facts.mpp:
        um = tokens.xy * facts.mpp
    elif slide_mpp is not None or facts.l0_patch_xy is not None:
        l0_mpp = slide_mpp or facts.patch_um / (facts.l0_patch_xy or (1, 1))[0]
        um = tokens.xy * l0_mpp
    else:
        raise InputError(f"{facts.name}: STAMP needs micrometres: give --slide-mpp.")
    path = folder / f"{facts.name}.h5"
    with np.errstate(over="ignore"):
        x = tokens.x.astype(np.float16)
    if not np.isfinite(x).all():
        raise InputError(
            f"{facts.name}: STAMP keeps features in half precision, and some are too "
            "large for it."
        )
    with written_h5(path, x.nbytes + 8 * len(x)) as file:
        file.create_dataset("feats", data=x)
        file.create_dataset(layout.COORDS, data=um.astype(np.float32))
        file.attrs.update(
            {
                "extractor": facts.encoder or "unknown",
                "unit": "um",
                "tile_size_um": float(facts.patch_um),
                "tile_size_px": int(facts.patch_size),
                "feat_type": "tile",
            }
        )
    return path
