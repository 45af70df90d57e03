"""``make demo``: napari with a sample slide; or, without a display, a picture of it."""

import argparse
import logging
from pathlib import Path

import napari
from qtpy.QtCore import QTimer

_log = logging.getLogger("napari_spt.demo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--screenshot", type=Path, help="write a picture of the window and close it"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    _log.setLevel(logging.INFO)

    viewer = napari.Viewer(title="napari-spt")
    viewer.window.resize(1280, 800)
    _log.info("Opening a sample slide; the first time it is painted, in some seconds.")
    viewer.open_sample("napari-spt", "glandular")
    viewer.window.add_plugin_dock_widget("napari-spt", "Open slide…")
    if args.screenshot is not None:
        QTimer.singleShot(3000, lambda: _photograph(viewer, args.screenshot))
    napari.run()


def _photograph(viewer: napari.Viewer, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    viewer.screenshot(str(path), canvas_only=False, flash=False)
    _log.info("There is no display: the window's picture is in %s", path)
    viewer.close()


if __name__ == "__main__":
    main()
