"""How long the dock keeps the window: opening it, each live control, a look-alike.

20,000 patches, by the clock; the median of several. The same change made to a plain
napari image layer of the same size takes turns with the controls, as the limit.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATCHES, SIDE, STEP = 20_000, 150, 20
TIMES = 9


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def measure(folder: Path) -> None:
    import napari
    import numpy as np
    from _figures import Figures

    sys.path.insert(0, str(ROOT))
    from napari_spt.analysis.state import ComparedPatch
    from napari_spt.parts.settings import remember
    from spt_core.insight.similarity import LookAlikes
    from tests.made_slides import write_tiff
    from tests.plugin.dock_tools import known, map_of, open_slide

    remember("asked_default_reader", True)
    rng = np.random.default_rng(0)
    path = folder / "slide.tif"
    pixels = rng.integers(0, 255, (3200, 3200, 3)).astype(np.uint8)
    write_tiff(path, pixels, levels=2)
    viewer = napari.Viewer()
    figures = Figures("dock_controls", patches=PATCHES, seed=0)
    slide = open_slide(viewer, path)
    docks = []
    took = milliseconds(
        lambda: docks.append(
            viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")[1]
        )
    )
    figures.add("opening the dock", took, "ms", goal="< 300")
    dock = docks[0]
    rows, cols = np.divmod(np.arange(PATCHES), SIDE)
    places = np.stack([cols, rows], axis=1) * STEP
    attention = rng.random((4, PATCHES)).astype(np.float32)
    analysis = known(dock, slide, places, (STEP, STEP), folder, attention=attention)
    data = map_of(dock, "attention").data.copy()
    plain = viewer.add_image(data, name="plain", units=slide.units)
    controls = dock.view
    changes = {
        "opacity": lambda i: controls.opacity.setValue(30 + i),
        "smoothing": lambda i: controls.smoothing.setValue(5 + i),
        "range": lambda i: controls.high.setValue(2.0 + i / 2),
        "hide weak attention": lambda i: controls.weak.setChecked(i % 2 == 0),
    }
    for name, change in changes.items():
        ours, limit = [], []
        for i in range(TIMES):
            ours.append(milliseconds(lambda i=i, change=change: change(i)))
            data = plain.data + 1
            limit.append(milliseconds(lambda data=data: setattr(plain, "data", data)))
        took = statistics.median(ours)
        figures.add(name, took, "ms", goal="< 50")
        ratio = took / statistics.median(limit)
        figures.add(f"{name} / new data of a plain layer", ratio, "x")
    tokens = rng.normal(size=(PATCHES, 512)).astype(np.float32)
    analysis.look_alikes, analysis.look_alikes_xy = LookAlikes(tokens), places

    def show_alike(at: int) -> None:
        row = analysis.row_at((at, at))
        dock.state.show_likeness(ComparedPatch(analysis, row))

    like = [
        milliseconds(lambda at=at: show_alike(at))
        for at in range(200, 200 + 200 * TIMES, 200)
    ]
    figures.add("more like this", statistics.median(like), "ms", goal="< 100")
    figures.save()
    dock.shut_down()
    viewer.close()


def main() -> None:
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "NAPARI_SPT_CACHE": f"{folder}/cache",
            "NAPARI_SPT_CONFIG": f"{folder}/config",
            "NAPARI_CONFIG": f"{folder}/napari.yaml",
        }
        command = [sys.executable, __file__, folder]
        if shutil.which("xvfb-run"):
            environment["LIBGL_ALWAYS_SOFTWARE"] = "1"
            command = ["xvfb-run", "-a", "-s", "-screen 0 1280x800x24", *command]
        subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
