"""The feature files in a folder, whoever wrote them."""

from pathlib import Path

from spt_core.errors import InputError
from spt_core.tokens import layout
from spt_core.tokens.foreign import PT
from spt_core.tokens.lazyslide import is_lazyslide

# Where other tools keep features inside the folder that a user would name.
_INSIDE = ("h5_files", "pt_files")


def is_feature_file(path: Path) -> bool:
    """By its name: whether a file, or a folder of LazySlide's, may hold features."""
    if path.is_dir():
        return is_lazyslide(path)
    return path.name.endswith((layout.ENDING, PT))


def features_in(folder: Path) -> list[Path]:
    """The feature files of a folder, in order of name; empty where there are none.

    A folder of CLAM's or TRIDENT's features may be named as a whole, where it holds
    those of one encoder.
    """
    found = _plainly_in(folder)
    if found:
        return found
    for inside in _INSIDE:
        found = _plainly_in(folder / inside)
        if found:
            return found
    encoders = sorted(p for p in folder.glob("features_*") if p.is_dir())
    encoders += sorted(p for p in folder.glob("*/features_*") if p.is_dir())
    if len(encoders) > 1:
        names = ", ".join(str(p.relative_to(folder)) for p in encoders)
        raise InputError(
            f"{folder} holds features of several encoders: give one of {names}."
        )
    return _plainly_in(encoders[0]) if encoders else []


def _plainly_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    names = sorted(p for p in folder.iterdir() if p.name[0] != ".")
    for kind in (layout.ENDING, PT):
        # Links that lead nowhere too: whoever opens them says so.
        found = [p for p in names if p.name.endswith(kind) and not p.is_dir()]
        if found:
            return found
    return [p for p in names if is_lazyslide(p)]


def name_of(path: Path) -> str:
    """The slide that a feature file is of."""
    for ending in (layout.ENDING, PT, ".zarr"):
        if path.name.endswith(ending):
            return path.name.removesuffix(ending)
    return path.name
