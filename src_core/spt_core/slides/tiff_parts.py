"""The other files of an OME-TIFF that is kept in several.

tifffile opens whatever the XML names, waits for ever at a pipe, and shows black where a
file is missing.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import tifffile

from spt_core.slides.slide_errors import Reason, SlideError


def refuse_lost_parts(tiff: tifffile.TiffFile, path: Path) -> None:
    """Refuse an OME-TIFF whose other files are not all beside it.

    Raises
    ------
    SlideError
        With the first that is missing.
    """
    if not tiff.is_ome or not tiff.ome_metadata:
        return
    for name in _others(tiff.ome_metadata, path.name):
        is_beside = Path(name).name == name and "\\" not in name
        if not is_beside or not (path.parent / name).is_file():
            raise SlideError(
                Reason.DAMAGED,
                f"{path.name} is one of several files that belong together, and "
                f"{name} is not beside it. Copy it into the same folder, or export "
                "the slide as one file.",
            )


def _others(xml: str, own_name: str) -> Iterator[str]:
    root = ElementTree.fromstring(xml)
    own = root.get("UUID")
    for one in root.iterfind(".//{*}TiffData/{*}UUID"):
        name = one.get("FileName")
        if name is None or one.text == own or name.lower() == own_name.lower():
            continue
        yield name
