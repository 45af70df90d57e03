"""Slides from broken disks, made from good ones."""

import random
import shutil
import struct

import numpy as np

from spt_core.errors import InputError
from spt_core.slides import UnreadableRegionError, open_slide
from spt_core.slides.tissue import find_tissue

# Tags of sizes, places and kinds, which readers divide by, allocate by and seek to.
TAGS = [
    254, 256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 317, 322, 323, 324, 325, 347,
]  # fmt: skip
ODD = [0, 1, 2, 3, 7, 255, 65_535, 2**31, 2**32 - 1]


def directories(content):
    """Where the directories of a classic, little-endian TIFF lie."""
    (at,) = struct.unpack_from("<I", content, 4)
    found = []
    while at and at not in found and at + 2 < len(content):
        found.append(at)
        (count,) = struct.unpack_from("<H", content, at)
        if at + 2 + count * 12 + 4 > len(content):
            break
        (at,) = struct.unpack_from("<I", content, at + 2 + count * 12)
    return found


def mutate(source, target, rng):
    """Write a damaged copy of a file; say how."""
    content = bytearray(source.read_bytes())
    is_tiff = content[:4] == b"II*\0"
    way = rng.randrange(5) if is_tiff else rng.randrange(2)
    how = ""
    if way == 0:
        content = content[: rng.randrange(len(content))]
        how = "cut"
    elif way == 1:
        for _ in range(rng.choice([1, 8, 64])):
            end = len(content) if rng.random() < 0.5 else min(len(content), 4000)
            content[rng.randrange(end)] ^= 1 << rng.randrange(8)
        how = "bits"
    else:
        at = rng.choice(directories(content))
        (count,) = struct.unpack_from("<H", content, at)
        if way == 2:  # a loop, or an end somewhere else
            target_at = rng.choice([at, 8, 0, len(content) - 1, 2**31])
            struct.pack_into("<I", content, at + 2 + count * 12, target_at)
            how = f"next {target_at}"
        else:
            wanted = rng.choice(TAGS)
            entries = [at + 2 + i * 12 for i in range(count)]
            tags = {struct.unpack_from("<H", content, e)[0]: e for e in entries}
            entry = tags.get(wanted) or rng.choice(entries)
            value = rng.choice(ODD)
            field, place = ("value", 8) if way == 3 else ("count", 4)
            struct.pack_into("<I", content, entry + place, value)
            tag = struct.unpack_from("<H", content, entry)[0]
            how = f"tag {tag} {field} {value}"
    target.write_bytes(content)
    return how


def damage_folder(source, target, rng):
    """The same of a folder: one of its files."""
    shutil.copytree(source, target)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    chosen = rng.choice(files)
    if chosen.suffix in ("", ".json") and rng.random() < 0.7:
        text = rng.choice(["", "{", "[]", "null", '{"zarr_format": 9}', "[" * 50_000])
        chosen.write_text(text)
        return f"{chosen.name} {text[:20]}"
    if rng.random() < 0.2:
        chosen.unlink()
        return f"{chosen.name} removed"
    return f"{chosen.name} {mutate(chosen, chosen, rng)}"


def cases(sources, folder, seed, count):
    rng = random.Random(seed)
    for number in range(count):
        source = rng.choice(sources)
        target = folder / f"bad{seed}-{number}{source.suffix}"
        damage = damage_folder if source.is_dir() else mutate
        how = damage(source, target, rng)
        yield f"{seed}/{number} {source.name} {how}", lambda path=target: look(path)


def look(path):
    """Open a slide, and look at all of it; whether what is seen is a picture."""
    slide = open_slide(path)
    try:
        for level, array in enumerate(slide.pyramid):
            height, width = array.shape[:2]
            seen = slide.read(level, 0, 0, min(64, width), min(64, height))
            if seen.dtype != np.uint8:
                return False
        find_tissue(slide)
    except UnreadableRegionError as error:
        raise InputError(str(error)) from None
    return True
