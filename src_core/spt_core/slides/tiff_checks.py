"""What is plainly wrong with a TIFF, seen without any library."""

import struct
from pathlib import Path
from typing import BinaryIO

# Each costs its readers time; a slide has some tens, or some hundreds of channels.
_MOST_DIRECTORIES = 20_000
_WIDTH, _LENGTH, _TILE_WIDTH, _TILE_LENGTH = 256, 257, 322, 323
_TILE_OFFSETS = 324
_NDPI = 65420
_KINDS = {3: "H", 4: "I", 16: "Q"}
# Ten metres of the finest scanners, and what is laid out in seconds.
_LARGEST_SIDE, _LARGEST_TILE = 2**26, 2**16


def wrong_with(path: Path) -> str:
    """A few words; none where nothing is wrong, or the file is no TIFF.

    Looks at the chain of directories, and at the sizes of pictures and tiles.
    """
    try:
        with path.open("rb") as file:
            return _wrong(file)
    except (OSError, struct.error, OverflowError):
        return ""  # too short, or cut off: those who read it in earnest will say so


def _wrong(file: BinaryIO) -> str:
    head = file.read(16)
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or len(head) < 8:
        return ""
    (magic,) = struct.unpack(order + "H", head[2:4])
    if magic == 42:
        count, entry, pointer, inline = "H", 12, "I", 4
        (at,) = struct.unpack(order + "I", head[4:8])
    elif magic == 43 and len(head) == 16:
        count, entry, pointer, inline = "Q", 20, "Q", 8
        (at,) = struct.unpack(order + "Q", head[8:16])
    else:
        return ""
    seen: set[int] = set()
    while at:
        if at in seen:
            return "its directories run in a circle"
        seen.add(at)
        if len(seen) > _MOST_DIRECTORIES:
            return (
                f"it lists more than {_MOST_DIRECTORIES:,} pictures, as no slide does"
            )
        file.seek(at)
        (entries,) = struct.unpack(order + count, file.read(struct.calcsize(count)))
        if entries > 65_535:
            return ""
        data = file.read(entries * entry)
        if len(data) < entries * entry:
            return ""
        sizes: dict[int, int] = {}
        tiles: int | None = None
        for start in range(0, len(data), entry):
            tag, kind = struct.unpack_from(order + "HH", data, start)
            if tag == _NDPI:
                return ""  # its pointers are of another kind
            if tag == _TILE_OFFSETS:
                (tiles,) = struct.unpack_from(order + pointer, data, start + 4)
            if tag in (_WIDTH, _LENGTH, _TILE_WIDTH, _TILE_LENGTH) and kind in _KINDS:
                if inline == 4 and kind == 16:
                    continue
                place = start + entry - inline
                (sizes[tag],) = struct.unpack_from(order + _KINDS[kind], data, place)
        if what := _wrong_sizes(sizes) or _too_few(tiles, sizes):
            return what
        (at,) = struct.unpack(order + pointer, file.read(struct.calcsize(pointer)))
    return ""


def _too_few(tiles: int | None, sizes: dict[int, int]) -> str:
    """Readers show white or black where a picture lists no tile, and say nothing."""
    sides = (_WIDTH, _LENGTH, _TILE_WIDTH, _TILE_LENGTH)
    if tiles is None or not all(side in sizes for side in sides):
        return ""
    width, length, tile_width, tile_length = (sizes[side] for side in sides)
    needed = -(-width // tile_width) * -(-length // tile_length)
    if tiles >= needed:
        return ""
    return (
        f"a picture of {width} × {length} pixels has {needed:,} tiles, and it lists "
        f"{tiles:,}"
    )


def _wrong_sizes(sizes: dict[int, int]) -> str:
    for tag in (_WIDTH, _LENGTH):
        if tag in sizes and not 0 < sizes[tag] <= _LARGEST_SIDE:
            return f"it states a picture with a side of {sizes[tag]} pixels"
    for tag in (_TILE_WIDTH, _TILE_LENGTH):
        if tag in sizes and not 0 < sizes[tag] <= _LARGEST_TILE:
            return f"it states tiles with a side of {sizes[tag]} pixels"
    return ""
