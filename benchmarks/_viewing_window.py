"""One napari window that is told what to do, line by line, and answers with times.

It runs in our environment and in a peer's, so it imports nothing of ours but to switch
it off.
"""

import json
import os
import sys
import time

import napari
import numpy as np
import psutil
from qtpy.QtWidgets import QApplication


def open_slide(viewer, plugin, path, side):
    if plugin == "memory":
        # calloc'ed zeros cost no memory until they are written
        data = [np.zeros((side // s, side // s, 3), np.uint8) for s in (1, 4, 16, 64)]
        viewer.add_image(data, rgb=True, multiscale=True, contrast_limits=(0, 255))
        return
    if plugin == "unguarded":
        from spt_core import proving

        proving.switch_on = lambda: None
        plugin = "napari-spt"
    viewer.open(path, plugin=plugin)


def on_screen(viewer):
    """Let everything be drawn, and read the pixels back."""
    QApplication.processEvents()
    return viewer.screenshot(canvas_only=True, flash=False)


def main() -> None:
    plugin, path, side = sys.argv[1], sys.argv[2], int(sys.argv[3])
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    on_screen(viewer)
    camera = viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera
    process = psutil.Process(os.getpid())
    empty = process.memory_info().rss
    peak = empty
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        start = time.perf_counter()
        if command["do"] == "open":
            viewer.layers.clear()
            start = time.perf_counter()
            open_slide(viewer, plugin, path, side)
            shot = on_screen(viewer)
            if plugin != "memory":
                assert shot[..., :3].std() > 2, "nothing on the screen"
        elif command["do"] == "view":
            layer = viewer.layers[0]
            scale = layer.scale[-1]
            camera.zoom = command["zoom"] / scale
            camera.center = (0, command["y"] * scale, command["x"] * scale)
            on_screen(viewer)
        elif command["do"] == "size":
            shot = on_screen(viewer)
            print(json.dumps({"height": shot.shape[0], "width": shot.shape[1]}))
            sys.stdout.flush()
            continue
        elif command["do"] == "quit":
            break
        seconds = time.perf_counter() - start
        peak = max(peak, process.memory_info().rss)
        answer = {"ms": seconds * 1e3, "mb": (peak - empty) / 1e6}
        print(json.dumps(answer), flush=True)
    viewer.close()


if __name__ == "__main__":
    main()
