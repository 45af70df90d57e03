"""What a folder of features is: whose, what is known of it, and what is missing."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.tokens.feature_file import TokenIndex, read_index
from spt_core.tokens.lazyslide_tiles import can_read_tiles

_FACTS = {
    "encoder": "encoder",
    "mpp": "pixel",
    "patch_size": "patch",
    "stain": "stain",
    "channels": "channels",
}
# What can be said of files that do not state it.
_OPTIONS = {"encoder": "--encoder", "mpp": "--mpp", "patch_size": "--patch-size"}
_SHOWN = 5


def describe_features(files: Sequence[Path]) -> dict[str, Any]:
    """Facts of feature files as plain data."""
    indices: list[TokenIndex] = []
    wrong: list[str] = []
    for path in files:
        try:
            indices.append(read_index(path))
        except InputError as error:
            wrong.append(str(error))
    facts = [index.facts for index in indices]
    about: dict[str, Any] = {
        "event": "features",
        "files": len(files),
        "unreadable": wrong,
        "tokens": sum(len(index.p) for index in indices),
        "dims": sorted({index.rows.shape[1] for index in indices}),
        "written_by": dict(Counter(one.source or "unknown" for one in facts)),
        "without_positions": sum(not one.has_positions for one in facts),
        "off_lattice": sum(one.off_lattice for one in facts),
        "own_colours": sum((one.stain_done or "").startswith("none") for one in facts),
        "assumed": sorted({name for one in facts for name in one.assumed}),
    }
    for name in _FACTS:
        stated = Counter(getattr(one, name) for one in facts)
        about[name] = [value for value, _ in stated.most_common()]
    return about


def feature_lines(title: str, about: dict[str, Any]) -> list[str]:
    """The same in words."""
    writers = ", ".join(
        who if len(about["written_by"]) == 1 else f"{who} ({count})"
        for who, count in about["written_by"].items()
    )
    dims = ", ".join(str(dim) for dim in about["dims"]) or "unknown"
    lines = [
        title,
        f"  features of   {about['files']} slides, {about['tokens']:,} patches, "
        f"{dims} numbers each",
        f"  written by    {writers or 'unknown'}",
    ]
    for name, label in _FACTS.items():
        known = [value for value in about[name] if value is not None]
        said = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in known)
        unit = {"mpp": " µm", "patch_size": " px"}.get(name, "")
        if not known:
            option = f" ({_OPTIONS[name]} gives it)" if name in _OPTIONS else ""
            lines.append(f"  {label:<13} not stated{option}")
        else:
            guess = ", guessed" if name in about["assumed"] else ""
            some = ", not by all" if None in about[name] else ""
            lines.append(f"  {label:<13} {said}{unit}{guess}{some}")
    if about["own_colours"]:
        lines.append(
            f"  own colours   {about['own_colours']}, which show no two stains"
        )
    if about["without_positions"]:
        lines.append(
            f"  positions     {about['without_positions']} of {about['files']} do not "
            "say where their patches lie: models see them without positions"
        )
        if "LazySlide" in about["written_by"] and not can_read_tiles():
            lines.append("                ('pip install pyarrow', and they are read)")
    elif "xy" in about["assumed"]:
        lines.append(
            "  positions     relative: maps need 'spt convert' with --slide-mpp"
        )
    else:
        lines.append("  positions     level-0 pixels")
    if about["off_lattice"]:
        lines.append(f"  off one grid  {about['off_lattice']}, nearest cells are taken")
    wrong = about["unreadable"]
    lines += [f"  cannot be read: {one}" for one in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        lines.append(f"  and {len(wrong) - _SHOWN} more that cannot be read")
    return lines
