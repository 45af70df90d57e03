"""``make attack``: every mutator at length, and a table of how the cases ended.

``python -m tests.attack [SCALE] [KIND ...]``: SCALE 1 is 3,800 cases.
"""

import sys
import tempfile
from pathlib import Path

import torch

from spt_core import proving
from tests.attack import (
    engine_lines,
    feature_files,
    foreign_files,
    forks,
    label_tables,
    model_files,
    run_folders,
    slide_files,
)
from tests.attack.test_model_files import good_encoder
from tests.made_slides import picture, write_ome_zarr, write_svs, write_tiff


def feature_cases(folder, count):
    good = feature_files.good_file(folder / "good.h5")
    return feature_files.cases(good, folder, 11, count)


def foreign_cases(folder, count):
    return foreign_files.cases(folder, 18, count)


def model_cases(folder, count):
    good = model_files.good_model(folder / "good.safetensors")
    return model_files.cases(good, model_files.use_model, folder, 12, count)


def encoder_cases(folder, count):
    good = good_encoder(folder / "good.safetensors")
    return model_files.cases(good, model_files.use_encoder, folder, 13, count)


def label_cases(folder, count):
    return label_tables.cases(folder, 14, count)


def slide_cases(folder, count):
    """Read as the window reads them, by a helper where openslide does."""
    slides = [folder / name for name in ("a.tif", "b.svs", "c.tif", "d.ome.zarr")]
    write_tiff(slides[0], picture(700, 600), levels=2)
    write_svs(slides[1], picture(700, 600))
    write_tiff(slides[2], picture(500, 400), levels=1, tile=None)
    write_ome_zarr(slides[3], picture(300, 200))
    for path in real_slides():
        slides.append(path)
    for name, case in slide_files.cases(slides, folder, 15, count):

        def guarded(case=case):
            proving.switch_on()
            return case()

        yield name, guarded


def real_slides():
    """Small DICOM and NDPI files, where SPT_TEST_SLIDES names a folder of them."""
    import os

    folder = os.environ.get("SPT_TEST_SLIDES")
    if not folder:
        return []
    return [
        path
        for ending in ("dcm", "ndpi")
        for path in sorted(Path(folder).rglob(f"*.{ending}"))
        if path.stat().st_size < 4_000_000
    ][:4]


def line_cases(folder, count):
    return engine_lines.cases(folder, 16, count)


def run_cases(folder, count):
    return run_folders.cases(folder, 17, count)


# kind: its cases, and how many of them
KINDS = {
    "features": (feature_cases, 700),
    "foreign": (foreign_cases, 600),
    "models": (model_cases, 500),
    "encoders": (encoder_cases, 300),
    "labels": (label_cases, 700),
    "slides": (slide_cases, 400),
    "lines": (line_cases, 400),
    "runs": (run_cases, 200),
}


def main(scale="1", *kinds):
    torch.set_num_threads(1)
    table = forks.Table()
    for kind in kinds or KINDS:
        make, count = KINDS[kind]
        with tempfile.TemporaryDirectory() as folder:
            for name, case in make(Path(folder), max(1, int(count * float(scale)))):
                seconds = 120 if kind == "slides" else forks.SECONDS
                table.add(kind, name, *forks.run(case, seconds=seconds))
        sys.stdout.write(f"{table}\n\n")
        sys.stdout.flush()
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
