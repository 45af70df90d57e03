"""The pixels that are learned from: in memory at a time, renewed while training.

A :class:`TileSource` knows all tiles and all patches of the slides' tissue, in a fixed
order that the seed decides. A window of them is in memory; after each epoch it moves on
(:mod:`window`), and what comes next is read in a thread meanwhile. What is in memory in
an epoch is a function of the seed and the epoch alone.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.patches.training.pixels import (
    SlideTissue,
    Tile,
    find_slide_tissue,
    measure_tile,
    read_slide_patches,
    read_tile,
)
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.tiles import Origin
from spt_core.patches.training.window import Window, held_in
from spt_core.slides.source import Pixels

_READERS = 4
_AT_ONCE = 64
_SHOWN = 5
# A slide's number and a row of its grid; or -1 and a tile's number.
_Key = tuple[int, int]
_TILES = -1
_Read = dict[_Key, Pixels | None]  # None: it cannot be read


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
        Their numbers, the same in every epoch.
    known : (n,)
        Whether its patient is known.
    label : (n,)
        Class numbers, -1 where unknown.
    item : (n,)
        Its number among :attr:`TileSource.whose`.
    """

    tiles: list[Pixels]
    um: NDArray[np.float64]
    slide: NDArray[np.int64]
    patient: NDArray[np.int64]
    known: NDArray[np.bool_]
    label: NDArray[np.int64]
    item: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tiles)

    @property
    def nbytes(self) -> int:
        return sum(tile.nbytes for tile in self.tiles)

    @property
    def slide_count(self) -> int:
        return len(np.unique(self.slide))

    @property
    def patient_count(self) -> int:
        return len(np.unique(self.patient))

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


class TileSource:
    """All that may be learned from, and what of it is in memory in which epoch.

    Parameters
    ----------
    slides, slide_windows
        Slides with the order of their patches, and how many are in memory.
    tiles, tile_window
        Tiles in their order, and how many are in memory.

    Attributes
    ----------
    unreadable
        What was found to be damaged when its turn came.
    """

    def __init__(
        self,
        slides: Sequence[SlideTissue],
        slide_windows: Sequence[Window],
        tiles: Sequence[Tile],
        tile_window: Window,
    ) -> None:
        self.slides, self.slide_windows = slides, slide_windows
        self.tiles, self.tile_window = tiles, tile_window
        self.unreadable: list[str] = []
        origins = [one.origin for one in slides] + [one.origin for one in tiles]
        self._slide_numbers = _numbers(one.slide for one in origins)
        self._patient_numbers = _numbers(one.patient for one in origins)
        self._classes = _numbers(sorted({one.label for one in origins if one.label}))
        self._first_item = np.cumsum([0, *(window.held for window in slide_windows)])
        self._held: _Read = {}
        self._prints: dict[int, str] = {}
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="next patches")
        self._ahead: tuple[int, Future[_Read]] | None = None
        self._pool: tuple[int, TilePool] | None = None
        self._closed = False

    @cached_property
    def count(self) -> int:
        """How many are in memory in the first epoch."""
        return len(self.at(0))

    @property
    def is_renewed(self) -> bool:
        """Whether there is more than what is in memory at first."""
        return any(w.fresh for w in (*self.slide_windows, self.tile_window))

    @cached_property
    def whose(self) -> NDArray[np.int64]:
        """(items, 3): patient, slide and own number of each item.

        An item is a tile, or one of the places in memory for patches of a slide.
        """
        owners = [
            one.origin
            for one, window in zip(self.slides, self.slide_windows, strict=True)
            for _ in range(window.held)
        ]
        owners += [tile.origin for tile in self.tiles]
        rows = [
            (self._patient_numbers[one.patient], self._slide_numbers[one.slide], item)
            for item, one in enumerate(owners)
        ]
        return np.array(rows, np.int64).reshape(-1, 3)

    def at(self, epoch: int) -> TilePool:
        """What is in memory in an epoch; the next one's is read meanwhile."""
        if self._pool is None or self._pool[0] != epoch:
            if self._ahead is not None and self._ahead[0] == epoch:
                self._held |= self._ahead[1].result()
            for _ in self.read_for(epoch):
                pass
            self._pool = epoch, self._made(epoch)
            if self.is_renewed:
                wanted = self._missing(epoch + 1)
                self._ahead = epoch + 1, self._reading.submit(self._read_all, wanted)
        return self._pool[1]

    def close(self) -> None:
        """Read nothing more ahead."""
        self._closed = True
        self._reading.shutdown(wait=True, cancel_futures=True)

    def read_for(self, epoch: int) -> Iterator[int]:
        """Bring what an epoch needs into memory; tell how many are read each time."""
        for part in self._read(self._missing(epoch)):
            self._held |= part
            yield len(part)

    def fingerprints(self, epoch: int) -> frozenset[str]:
        """Of all slides and tiles whose pixels were in memory up to an epoch."""
        used = range(self.tile_window.used(epoch))
        for number in used:
            if number not in self._prints:  # of epochs before a run was resumed
                self._read_tile(number)
        tiles = (self._prints[number] for number in used)
        return frozenset((*(one.fingerprint for one in self.slides), *tiles)) - {""}

    def patients(self, epoch: int) -> list[str]:
        """The names of their patients, where somebody stated them."""
        used = self.tiles[: self.tile_window.used(epoch)]
        origins = [one.origin for one in self.slides] + [one.origin for one in used]
        return sorted({one.patient for one in origins if one.patient_stated})

    def _keys(self, epoch: int) -> list[tuple[int, _Key]]:
        """What is in memory in an epoch, each with its item's number."""
        found: list[tuple[int, _Key]] = []
        for number, window in enumerate(self.slide_windows):
            rows = self.slides[number].order[window.at(epoch)]
            first = int(self._first_item[number])
            found += [(first + i, (number, int(row))) for i, row in enumerate(rows)]
        first = int(self._first_item[-1])
        tiles = np.sort(self.tile_window.at(epoch)).tolist()
        return found + [(first + tile, (_TILES, tile)) for tile in tiles]

    def _missing(self, epoch: int) -> list[_Key]:
        return [key for _, key in self._keys(epoch) if key not in self._held]

    def _made(self, epoch: int) -> TilePool:
        keys = self._keys(epoch)
        self._held = {key: self._held[key] for _, key in keys}
        kept = [
            (item, self._of(key), pixels)
            for item, key in keys
            if (pixels := self._held[key]) is not None
        ]
        origins = [one.origin for _, one, _ in kept]
        return TilePool(
            [pixels for *_, pixels in kept],
            np.array([one.um for _, one, _ in kept]),
            np.array([self._slide_numbers[one.slide] for one in origins], np.int64),
            np.array([self._patient_numbers[one.patient] for one in origins], np.int64),
            np.array([one.known for one in origins], bool),
            np.array(
                [self._classes[one.label] if one.label else -1 for one in origins],
                np.int64,
            ),
            np.array([item for item, *_ in kept], np.int64),
        )

    def _of(self, key: _Key) -> SlideTissue | Tile:
        number, index = key
        return self.tiles[index] if number == _TILES else self.slides[number]

    def _read_all(self, keys: Sequence[_Key]) -> _Read:
        found: _Read = {}
        for part in self._read(keys):
            found |= part
        return found

    def _read(self, keys: Sequence[_Key]) -> Iterator[_Read]:
        """Slide by slide, and tiles some at a time."""
        by_slide: dict[int, list[int]] = defaultdict(list)
        for number, index in keys:
            by_slide[number].append(index)
        tiles = by_slide.pop(_TILES, [])
        jobs: list[Callable[[], _Read]] = [
            partial(self._read_slide, number, rows) for number, rows in by_slide.items()
        ]
        jobs += [
            partial(self._read_tiles, tiles[start : start + _AT_ONCE])
            for start in range(0, len(tiles), _AT_ONCE)
        ]
        with ThreadPoolExecutor(_READERS) as readers:
            yield from readers.map(lambda job: {} if self._closed else job(), jobs)

    def _read_slide(self, number: int, rows: list[int]) -> _Read:
        slide = self.slides[number]
        try:
            patches = read_slide_patches(slide, rows)
        except (InputError, OSError) as error:
            self.unreadable.append(f"{slide.origin.path.name}: {error}")
            patches = [None] * len(rows)
        return {(number, row): one for row, one in zip(rows, patches, strict=True)}

    def _read_tiles(self, numbers: list[int]) -> _Read:
        return {(_TILES, number): self._read_tile(number) for number in numbers}

    def _read_tile(self, number: int) -> Pixels | None:
        tile = self.tiles[number]
        try:
            pixels, self._prints[number] = read_tile(tile)
        except InputError as error:
            self._prints[number] = ""
            self.unreadable.append(f"{tile.origin.path.name}: {error}")
            return None
        return pixels


def fill_pool(
    origins: Sequence[Origin], settings: PatchTrainSettings
) -> Generator[Note | Progress, None, TileSource]:
    """Find what there is, and read what the first epoch needs.

    Slides and tiles take turns by slide, so that a memory too small for all holds a
    fair share of each. What cannot be read is reported and left out.
    """
    rng = np.random.default_rng([settings.seed, 31])
    pictures = _in_turns([one for one in origins if not one.is_slide], rng)
    bad: list[str] = []
    slides: list[SlideTissue] = []
    scans = [one for one in origins if one.is_slide]
    for done, origin in enumerate(scans, start=1):
        try:
            slides.append(find_slide_tissue(origin, settings, rng))
        except (InputError, OSError) as error:
            bad.append(f"{origin.path.name}: {error}")
        else:
            for note in slides[-1].grid.notes:
                yield Note(note)
        yield Progress(done, len(scans), message="opening slides")
    tiles = _measured(pictures, settings, bad)
    unsaid = sum(one.mpp is None for one in pictures)
    if unsaid and settings.tile_mpp is None:
        yield Note(
            f"{unsaid} tiles do not say how large their pixels are: {settings.mpp:g} "
            "µm is assumed. --tile-mpp or a column mpp says it."
        )
    source = TileSource(slides, *_windows(slides, tiles, settings))
    done, total = 0, sum(window.held for window in source.slide_windows)
    total += source.tile_window.held
    for count in source.read_for(0):
        done += count
        yield Progress(done, total, message="reading patches")
    bad += source.unreadable
    source.unreadable = []
    if bad:
        more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        yield Note(f"Left out: {'; '.join(bad[:_SHOWN])}{more}.")
    left_out = _left_out(source, settings)
    if left_out:
        turns = " They take turns." if settings.refresh else ""
        yield Note(
            f"{left_out} tiles and patches are left out at a time: --memory "
            f"{settings.memory_gb:g} GB is full.{turns}"
        )
    if source.count < 2:
        raise InputError("There are fewer than two patches to learn from.")
    return source


def _windows(
    slides: Sequence[SlideTissue], tiles: Sequence[Tile], settings: PatchTrainSettings
) -> tuple[list[Window], Sequence[Tile], Window]:
    """How much of each slide, and of the tiles, is in memory."""
    memory = int(settings.memory_gb * 1e9)
    counts, held = _shared_memory(slides, tiles, settings.patches_per_slide, memory)
    pairs = zip(slides, counts, strict=True)
    waiting = held < len(tiles) or any(n < len(one.order) for one, n in pairs)
    if waiting and settings.refresh:
        # What is read ahead has its place in the same memory.
        memory = int(memory / (1 + settings.refresh))
        counts, held = _shared_memory(slides, tiles, settings.patches_per_slide, memory)
    return (
        [
            Window.of(len(one.order), count, settings.refresh)
            for one, count in zip(slides, counts, strict=True)
        ],
        tiles,
        Window.of(len(tiles), held, settings.refresh),
    )


def _shared_memory(
    slides: Sequence[SlideTissue], tiles: Sequence[Tile], most: int, memory: int
) -> tuple[list[int], int]:
    """Patches of each slide, and tiles, that are in memory at a time."""
    counts: list[int] = []
    for done, slide in enumerate(slides):
        # Whatever comes later keeps its share of the memory.
        share = memory // (len(slides) + bool(tiles) - done)
        count = min(most, len(slide.order), max(1, share // slide.patch_bytes))
        counts.append(count)
        memory -= count * slide.patch_bytes
    return counts, held_in([tile.nbytes for tile in tiles], max(0, memory))


def _left_out(source: TileSource, settings: PatchTrainSettings) -> int:
    """Tiles and patches that memory has no room for at a time."""
    wanted = [min(settings.patches_per_slide, len(one.order)) for one in source.slides]
    wanted.append(len(source.tiles))
    windows = (*source.slide_windows, source.tile_window)
    return sum(wanted) - sum(window.held for window in windows)


def _measured(
    pictures: Sequence[Origin], settings: PatchTrainSettings, bad: list[str]
) -> list[Tile]:
    found: list[Tile] = []
    with ThreadPoolExecutor(_READERS) as readers:
        measured = readers.map(partial(measure_tile, settings=settings), pictures)
        for origin, tile in zip(pictures, measured, strict=True):
            if isinstance(tile, str):
                bad.append(f"{origin.path.name}: {tile}")
            else:
                found.append(tile)
    return found


def _in_turns(origins: list[Origin], rng: np.random.Generator) -> list[Origin]:
    """Tiles in random order, one of each slide before a second of any."""
    order = [origins[i] for i in rng.permutation(len(origins))]
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Origin]] = []
    for one in order:
        ranked.append((seen[one.slide], len(ranked), one))
        seen[one.slide] += 1
    return [one for *_, one in sorted(ranked, key=lambda item: item[:2])]


def _numbers(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
