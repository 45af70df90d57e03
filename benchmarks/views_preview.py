"""How long the window needs to draw the views of a slide anew, as a parameter moves."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import napari
import numpy as np
from _figures import Figures

ROOT = Path(__file__).parents[1]
# A slide of 40 x 20 mm, all of it tissue, in patches of 128 px at 0.5 um.
ROWS, COLS, STEP, TIMES = 312, 625, 128, 30


def measure(folder: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from qtpy.QtWidgets import QApplication

    from napari_spt.parts.settings import remember
    from spt_core.tokens import TokenFacts, Tokens, write_tokens
    from tests.made_slides import write_tiff
    from tests.plugin.dock_tools import open_slide

    remember("asked_default_reader", True)
    figures = Figures("views_preview", patches=ROWS * COLS, seed=0)
    # The slide itself is small: only where its patches are is looked at.
    slide = folder / "slide.tif"
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (ROWS * 4, COLS * 4, 3)).astype(np.uint8)
    write_tiff(slide, pixels, levels=2)
    p = np.stack(np.divmod(np.arange(ROWS * COLS), COLS), axis=1)
    facts = TokenFacts(
        name="slide", encoder="made-up", l0_patch_xy=(4, 4), l0_step_xy=(4, 4)
    )
    x = np.zeros((len(p), 1), np.float32)
    write_tokens(folder / "features/slide.h5", Tokens(x, p, p[:, ::-1] * 4, facts))
    viewer = napari.Viewer()
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Train")
    open_slide(viewer, slide)
    dock.draft.set(features=str(folder / "features"), out=str(folder / "none"))
    dock.tabs.choose("Views")
    panel = dock.views.panel
    panel.shown.setChecked(True)
    until = time.perf_counter() + 60
    while panel.views is None and time.perf_counter() < until:
        QApplication.processEvents()
    dock.data.stop()
    took = []
    for number in range(TIMES):
        dock.draft.views = {"crop_area": (50.0 + number, 300.0 + 10 * number)}
        began = time.perf_counter()
        panel.refresh()
        took.append(1e3 * (time.perf_counter() - began))
        QApplication.processEvents()
    figures.add("views drawn anew, median", statistics.median(took), "ms", goal="< 50")
    figures.add("views drawn anew, slowest", max(took), "ms")
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
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
