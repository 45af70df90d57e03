"""One sample slide: to any path, or kept in the user's cache for File > Open Sample."""

import os
from collections.abc import Generator
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from spt_core._version import __version__
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.sample.cohort import SITES, SIZE, check_size, make_sites
from spt_core.sample.layout import SlideSpec, plan
from spt_core.sample.slide_file import painters, write_slide
from spt_core.sample.stain import batch_of
from spt_core.sample.tissue import TUMOURS
from spt_core.sample.truth import truth_paths, write_truth


def write_sample_slide(
    path: str | Path,
    *,
    kind: str = "glandular",
    size: int | tuple[int, int] = SIZE,
    seed: int = 0,
    marks: bool = True,
    workers: int | None = None,
) -> Generator[Progress, None, Path]:
    """Write one slide and its truth; yields progress, returns the slide's path.

    Parameters
    ----------
    path
        Where to write it; the ending is ``.tif`` (or ``.tiff``).
    kind
        The tumour: ``glandular``, ``small-cell`` or ``large-cell``.
    size
        Pixels of 0.5 um: one number, or (width, height).
    seed
        The same seed gives the same bytes, whatever ``workers`` is.
    marks
        Whether folds, bubbles, pen marks and dust may lie on the slide.
    workers
        Processes that paint; None: one per core, 1: this process.
    """
    path = Path(path)
    if kind not in TUMOURS:
        raise InputError(
            f"There is no sample tumour {kind!r}: choose {', '.join(TUMOURS)}."
        )
    if path.suffix.lower() not in (".tif", ".tiff"):
        raise InputError(f"A sample slide is a TIFF: {path.name} must end in .tif.")
    width, height = (size, size) if isinstance(size, int) else size
    for side in (width, height):
        check_size(side)
    rng = np.random.default_rng((seed, 14))
    site = make_sites(SITES, seed)[int(rng.integers(SITES))]
    spec = SlideSpec(width, height, kind, batch_of(site, rng), seed, marks)
    write_truth(path, spec, plan(spec))
    with painters(workers) as pool:
        return (yield from write_slide(path, spec, pool))


def sample_slide(
    kind: str = "glandular",
    *,
    size: int = SIZE,
    seed: int = 0,
    cache: str | Path | None = None,
    workers: int | None = None,
) -> Generator[Progress, None, Path]:
    """A sample slide in the user's cache: written the first time, then reused.

    Yields progress while it is written and nothing when it exists already; returns its
    path. Slides are written completely or not at all, so one that exists is complete.
    """
    cache = cache or os.environ.get("NAPARI_SPT_CACHE") or _cache()
    folder = Path(cache) / "samples"
    # Another version may paint differently.
    path = folder / __version__ / f"{kind}-{size}-{seed}.tif"
    if path.exists() and all(p.exists() for p in truth_paths(path)):
        return path
    return (
        yield from write_sample_slide(
            path, kind=kind, size=size, seed=seed, workers=workers
        )
    )


def _cache() -> Path:
    return user_cache_path("napari-spt", appauthor=False)
