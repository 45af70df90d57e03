"""Feature files of made-up tokens, for the learning benchmarks."""

from pathlib import Path

import h5py
import numpy as np

TOKENS, DIM, SIDE = 2000, 512, 45


def write_sparse_slide(path: Path) -> None:
    """2,000 tokens of 512 in half precision, whose bytes the disk does not hold.

    The features are allocated and never written, so that reading them reads a hole of
    the file: as many bytes travel as from a real one.
    """
    p = np.stack(np.divmod(np.arange(TOKENS), SIDE), axis=1)
    with h5py.File(path, "w", libver="latest") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.CONTIGUOUS)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((TOKENS, DIM))
        kind = h5py.h5t.py_create(np.dtype("float16"))
        h5py.h5d.create(file.id, b"features", kind, space, plist)
        coords = file.create_dataset("coords", data=p[:, ::-1] * 512)
        file.create_dataset("g_rc", data=p)
        coords.attrs.update(patch_size=256, patch_size_level0=512, overlap=0)
        file.attrs.update(
            spt_version="0", encoder="made-up", mpp=0.5, slide_fingerprint=path.stem
        )


def write_sparse_cohort(folder: Path, slides: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(slides):
        write_sparse_slide(folder / f"slide{number:05d}.h5")
    return folder
