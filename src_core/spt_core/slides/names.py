"""Which files are slides, and what a slide is called."""

from pathlib import Path

# What openslide reads, then what tifffile and zarr read beside it.
OPENSLIDE_ENDINGS = (
    ".svs",
    ".tif",
    ".tiff",
    ".ndpi",
    ".vms",
    ".vmu",
    ".scn",
    ".mrxs",
    ".svslide",
    ".bif",
    ".czi",
    ".dcm",
)
SLIDE_ENDINGS = (
    ".ome.tiff",
    ".ome.tif",
    ".ome.btf",
    ".ome.zarr",
    ".zarr",
    ".qptiff",
    ".btf",
    *OPENSLIDE_ENDINGS,
)
_SEPARATORS = frozenset("/\\:")


def is_slide_name(path: Path) -> bool:
    """Whether the name's ending is one that slides have."""
    return path.name.lower().endswith(SLIDE_ENDINGS)


def slide_name(name: str | Path) -> str:
    """Strip the folder and a known slide ending, and nothing else.

    TCGA names contain dots, so that ``Path.stem`` would cut too much.
    """
    text = _last_part(name)
    # A name that is no UTF-8 has parts that no file and no screen takes.
    if not text.isascii():
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text[: len(text) - len(slide_ending(text))]


def slide_ending(name: str | Path) -> str:
    """The known slide ending of a name; none of what else follows a dot in it."""
    text = _last_part(name)
    lower = text.lower()
    if lower.endswith(SLIDE_ENDINGS):
        for ending in SLIDE_ENDINGS:
            if lower.endswith(ending) and len(text) > len(ending):
                return text[-len(ending) :]
    return ""


def _last_part(name: str | Path) -> str:
    # Tables have a million names, most of which are no paths.
    if isinstance(name, str) and name != "." and not _SEPARATORS.intersection(name):
        return name
    return Path(name).name
