"""The pixels that are learned from, sampled into memory once."""

from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.patches.encoder import resized
from spt_core.patches.reading import read_patches
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.tiles import Origin
from spt_core.slides import open_slide
from spt_core.slides.grid import lay_grid
from spt_core.slides.source import Pixels
from spt_core.slides.tissue import find_tissue

# A slide's patches are read larger than views, so that crops have room to move.
ROOM = 1.5
# Tiles finer than the views by more than this are kept coarser.
FINEST = 2.5
_READERS = 4
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class TilePool:
    """Tiles in memory, and whose they are.

    Attributes
    ----------
    tiles
        (h, w, 3) uint8 each, of various sizes.
    um : (n,)
        Micrometres per pixel of each.
    slide, patient : (n,)
        Their numbers.
    known : (n,)
        Whether its patient is known.
    label : (n,)
        Class numbers, -1 where unknown.
    """

    tiles: list[Pixels]
    um: NDArray[np.float64]
    slide: NDArray[np.int64]
    patient: NDArray[np.int64]
    known: NDArray[np.bool_]
    label: NDArray[np.int64]
    slide_count: int
    patient_count: int

    def __len__(self) -> int:
        return len(self.tiles)

    @property
    def nbytes(self) -> int:
        return sum(tile.nbytes for tile in self.tiles)

    @cached_property
    def by_patient(self) -> list[list[NDArray[np.int64]]]:
        """Of each known patient the tiles of each slide."""
        found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for tile in np.flatnonzero(self.known):
            found[int(self.patient[tile])][int(self.slide[tile])].append(int(tile))
        return [
            [np.array(tiles, np.int64) for tiles in slides.values()]
            for slides in found.values()
        ]

    @cached_property
    def without_patient(self) -> NDArray[np.int64]:
        """Tiles whose patient is unknown."""
        return np.flatnonzero(~self.known)


def fill_pool(
    origins: Sequence[Origin], settings: PatchTrainSettings
) -> Generator[Note | Progress, None, TilePool]:
    """Read tiles and sample slides until all is read or the memory is full.

    Slides and tiles take turns by slide, so that a memory too small for all holds a
    fair share of each. What cannot be read is reported and left out.
    """
    rng = np.random.default_rng([settings.seed, 31])
    budget = _Budget(int(settings.memory_gb * 1e9))
    tiles = _in_turns([one for one in origins if not one.is_slide], rng)
    slides = [one for one in origins if one.is_slide]
    kept: list[tuple[Origin, Pixels, float]] = []
    bad: list[str] = []
    done, total = 0, len(tiles) + len(slides)
    for slide in slides:
        # Whatever comes later keeps its share of the memory.
        share = budget.left // max(1, len(slides) + bool(tiles) - done)
        try:
            um, patches, notes = _sample_slide(slide, settings, share, rng)
        except (InputError, OSError) as error:
            bad.append(f"{slide.path.name}: {error}")
        else:
            for note in notes:
                yield Note(note)
            kept += [(slide, patch, um) for patch in patches if budget.take(patch)]
        done += 1
        yield Progress(done, total, message="reading slides")
    unsaid = sum(one.mpp is None for one in tiles)
    if unsaid and settings.tile_mpp is None:
        yield Note(
            f"{unsaid} tiles do not say how large their pixels are: {settings.mpp:g} "
            "µm is assumed. --tile-mpp or a column mpp says it."
        )
    with ThreadPoolExecutor(_READERS) as readers:
        for start in range(0, len(tiles), _AT_ONCE):
            part = tiles[start : start + _AT_ONCE]
            if budget.refused:
                budget.refused += len(part)
                continue
            read = readers.map(lambda one: _read_tile(one, settings), part)
            for tile, result in zip(part, read, strict=True):
                if isinstance(result, str):
                    bad.append(result)
                elif budget.take(result[0]):
                    kept.append((tile, *result))
            done += len(part)
            yield Progress(done, total, message="reading tiles")
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        yield Note(f"Left out: {'; '.join(bad[:5])}{more}.")
    if budget.refused:
        yield Note(
            f"{budget.refused} tiles and patches are left out: --memory "
            f"{settings.memory_gb:g} GB is full."
        )
    if len(kept) < 2:
        raise InputError("There are fewer than two patches to learn from.")
    return _pool(kept)


class _Budget:
    """Bytes that may still be kept."""

    def __init__(self, size: int) -> None:
        self.left, self.refused = size, 0

    def take(self, pixels: Pixels) -> bool:
        if pixels.nbytes > self.left:
            self.refused += 1
            return False
        self.left -= pixels.nbytes
        return True


def _in_turns(origins: list[Origin], rng: np.random.Generator) -> list[Origin]:
    """Tiles in random order, one of each slide before a second of any."""
    order = [origins[i] for i in rng.permutation(len(origins))]
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Origin]] = []
    for one in order:
        ranked.append((seen[one.slide], len(ranked), one))
        seen[one.slide] += 1
    return [one for *_, one in sorted(ranked, key=lambda item: item[:2])]


def _read_tile(
    tile: Origin, settings: PatchTrainSettings
) -> tuple[Pixels, float] | str:
    try:
        with Image.open(tile.path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        return f"{tile.path.name}: {error}"
    mpp = settings.mpp or 1.0
    um = tile.mpp or settings.tile_mpp or mpp
    coarser = mpp / um / FINEST
    if coarser > 1:
        height, width = (max(1, round(side / coarser)) for side in pixels.shape[:2])
        whole = Image.fromarray(pixels)
        small = whole.resize((width, height), Image.Resampling.BILINEAR)
        pixels, um = np.asarray(small), um * coarser
    # A copy: the decoder's own array may not be written to, and torch minds.
    return np.array(pixels), um


def _sample_slide(
    origin: Origin, settings: PatchTrainSettings, share: int, rng: np.random.Generator
) -> tuple[float, list[Pixels], tuple[str, ...]]:
    """Micrometres per pixel, and patches spread at random over the tissue."""
    slide = open_slide(origin.path, origin.mpp or settings.slide_mpp)
    side = round(ROOM * (settings.view_size or 1))
    mpp = settings.mpp or 1.0
    grid = lay_grid(slide, find_tissue(slide), patch_size=side, target_mpp=mpp)
    if len(grid) == 0:
        raise InputError("no tissue was found on it")
    most = min(
        settings.patches_per_slide, len(grid), max(1, share // (3 * side * side))
    )
    rows = np.sort(rng.permutation(len(grid))[:most]).astype(np.int64)
    shape = (side, side)
    if grid.is_whole:
        width, height = grid.lv_size_xy
        shape = (round(height), round(width))
    patches: list[Pixels] = []
    for row in rows:  # one by one: they lie far apart
        out = np.empty((1, *shape, 3), np.uint8)
        if read_patches(slide, grid, np.array([row]), out)[0]:
            patches.append(_at_side(out, side))
    return mpp, patches, grid.notes


def _at_side(pixels: Pixels, side: int) -> Pixels:
    planes = resized(torch.from_numpy(pixels), side)  # (1, 3, side, side)
    return np.ascontiguousarray(planes[0].permute(1, 2, 0).numpy())


def _pool(kept: Sequence[tuple[Origin, Pixels, float]]) -> TilePool:
    slides = {
        name: i for i, name in enumerate(dict.fromkeys(o.slide for o, *_ in kept))
    }
    patients = {
        name: i for i, name in enumerate(dict.fromkeys(o.patient for o, *_ in kept))
    }
    names = sorted({o.label for o, *_ in kept if o.label})
    return TilePool(
        [pixels for _, pixels, _ in kept],
        np.array([um for *_, um in kept]),
        np.array([slides[o.slide] for o, *_ in kept]),
        np.array([patients[o.patient] for o, *_ in kept]),
        np.array([o.known for o, *_ in kept]),
        np.array([names.index(o.label) if o.label else -1 for o, *_ in kept]),
        len(slides),
        len(patients),
    )
