"""``make attack``: many slides and many analyses in one process, which must not grow.

``python -m tests.attack.soak [COUNT]`` opens, reads and closes COUNT slides in this
process, then lets one engine analyse COUNT times. Memory, descriptors and threads at
the end are compared with those after the first fifth: what is only filled once, such
as a cache, is full by then.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from spt_core import open_slide, proving
from spt_core.engine.protocol import Analysed
from tests.attack.kills import say
from tests.core.engine.pipe import Pipe, analysis, of
from tests.core.insight.slides import make_model, make_slide
from tests.core.patches.conftest import tissue_picture
from tests.made_slides import write_ome_zarr, write_svs, write_tiff

# More is growth. Allocators give back in large pieces, so some megabytes come and go.
MOST_BYTES, MOST_OTHERS = 48 * 2**20, 4
COLUMNS = ("MB", "descriptors", "threads")


def measured(pid=None):
    process = psutil.Process(pid)
    with process.oneshot():
        return (
            process.memory_info().rss,
            process.num_fds() if hasattr(process, "num_fds") else 0,
            process.num_threads(),
        )


def slides(folder, count):
    """Yields after each slide that was opened, read and closed."""
    pixels = tissue_picture(1500, 1200)
    kinds = [folder / name for name in ("a.svs", "b.tif", "c.tif", "d.ome.zarr")]
    write_svs(kinds[0], pixels)
    write_tiff(kinds[1], pixels, levels=2)
    write_tiff(kinds[2], pixels, levels=1, tile=None)
    write_ome_zarr(kinds[3], pixels)
    proving.switch_on()
    for number in range(count):
        source = kinds[number % len(kinds)]
        path = folder / f"s{number}{''.join(source.suffixes)}"
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, path)
        slide = open_slide(path)
        for level, array in enumerate(slide.pyramid):
            height, width = array.shape[:2]
            slide.read(level, 0, 0, min(512, width), min(512, height))
        slide.close()
        yield measured()
    proving.switch_off()


def analyses(folder, count):
    """Yields after each analysis by one engine, with the engine's measures."""
    slide = make_slide(folder)
    model = make_model(folder / "model.safetensors")
    pipe = Pipe(folder / "arrays")
    try:
        for number in range(count):
            request = analysis(slide, folder / f"features{number}", model=model)
            found = pipe.answer(request, seconds=120)
            if not of(found, Analysed):
                raise RuntimeError(f"analysis {number} ended with {found[-1]}")
            yield measured(pipe.process.pid)
    finally:
        pipe.close()


def grown(name, work, count):
    """Let it work; the columns that grew."""
    found = list(work)
    early = found[count // 5]
    last = found[-1]
    limits = (MOST_BYTES, MOST_OTHERS, MOST_OTHERS)
    for when, values in (("a fifth", early), ("the end", last)):
        cells = (values[0] // 2**20, *values[1:])
        say(f"{name} {count}, at {when}: " + shown(cells))
    return [
        f"{name}: {column} grew"
        for column, before, after, most in zip(
            COLUMNS, early, last, limits, strict=True
        )
        if after > before + most
    ]


def shown(cells):
    pairs = zip(COLUMNS, cells, strict=True)
    return ", ".join(f"{value} {column}" for column, value in pairs)


def main(count="200"):
    count = int(count)
    wrong = []
    for name, work in (("slides", slides), ("analyses", analyses)):
        with tempfile.TemporaryDirectory() as folder:
            wrong += grown(name, work(Path(folder), count), count)
    for one in wrong:
        say(one)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
