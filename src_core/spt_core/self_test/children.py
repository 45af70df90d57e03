"""What is asked in processes of their own: a window, the engine, other devices.

The core imports neither Qt nor napari, and a driver that ends its process is to end
none but its own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from threading import Timer
from typing import Any

from spt_core.self_test.finding import Finding, doubtful, failed, in_one_line, ok
from spt_core.self_test.work import work_on

_WINDOW_SECONDS, _ENGINE_SECONDS, _DEVICE_SECONDS = 120, 120, 180
_ENGINE = ("-P", "-m", "spt_core.engine")
_INSTALL = "pip install 'napari-spt[all]'"

# Each part prints a line of its own, so that one that ends the process hides no other.
_ASK_WINDOW = """
import json
def say(name, ask):
    try:
        print(json.dumps({name: ask()}), flush=True)
    except BaseException as error:
        print(json.dumps({name + " error": f"{type(error).__name__}: {error}"}), flush=True)
def manifest():
    from npe2 import PluginManifest
    found = PluginManifest.from_distribution("napari-spt")
    return len(found.contributions.commands or [])
def qt():
    import qtpy, qtpy.QtCore
    return f"{qtpy.API_NAME} {qtpy.PYSIDE_VERSION or qtpy.PYQT_VERSION}, Qt {qtpy.QT_VERSION}"
def napari():
    import napari
    return napari.__version__
def display():
    from qtpy.QtWidgets import QApplication
    application = QApplication([])
    screen = application.primaryScreen()
    size = screen.size()
    return f"{application.platformName()}, {size.width()} x {size.height()} px, scale {screen.devicePixelRatio():g}"
for ask in (manifest, qt, napari, display):
    say(ask.__name__, ask)
"""  # noqa: E501


def window() -> Iterator[Finding]:
    """Whether napari, Qt, the plugin and a display are there."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ASK_WINDOW],
            capture_output=True,
            text=True,
            timeout=_WINDOW_SECONDS,
            check=False,
        )
        lines, ended = done.stdout.splitlines(), done.returncode
    except subprocess.TimeoutExpired as error:
        lines, ended = str(error.stdout or "").splitlines(), None
    said: dict[str, Any] = {}
    for line in lines:
        if line.startswith("{"):
            said.update(json.loads(line))
    yield from judged_window(said, ended)


def judged_window(said: dict[str, Any], ended: int | None) -> Iterator[Finding]:
    """Judge what the process said before it ended, with which exit code."""
    if "napari" in said:
        yield ok("napari", said["napari"])
    else:
        found = said.get("napari error", "it cannot be imported")
        yield doubtful("napari", found, f"For the window, {_INSTALL}")
    if said.get("manifest"):
        yield ok("plugin", f"found, with {said['manifest']} commands")
    else:
        found = said.get("manifest error", "its manifest is empty")
        yield failed("plugin", found, f"Install it again: {_INSTALL}")
    if "qt" in said:
        yield ok("Qt", said["qt"])
    else:
        found = said.get("qt error", "it cannot be imported")
        yield doubtful("Qt", found, f"For the window, {_INSTALL}")
        return
    if "display" in said:
        yield ok("display", said["display"])
        return
    how = "it took too long" if ended is None else f"Qt ended with {ended}"
    yield doubtful(
        "display",
        said.get("display error", f"no window can be opened here ({how})"),
        "Commands need none. For the window log in at the computer's own screen; on "
        "Linux Qt also needs libxcb-cursor0.",
    )


def engine(folder: Path) -> Iterator[Finding]:
    """Whether the process that works for the window gets ready, and ends."""
    start = time.perf_counter()
    errors = folder / "errors.txt"
    arrays = folder / "arrays"
    arrays.mkdir()
    command = [sys.executable, *_ENGINE, "--folder", str(arrays)]
    with errors.open("wb") as log:
        child = subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    late = Timer(_ENGINE_SECONDS, child.kill)
    late.start()
    try:
        ready = _waits_for_ready(child)
        seconds = time.perf_counter() - start
        if child.stdin is not None:
            child.stdin.close()  # which ends it
        child.wait()
    finally:
        late.cancel()
        child.kill()
        if child.stdout is not None:
            child.stdout.close()
    if ready:
        yield ok("engine", f"ready after {seconds:.1f} s")
        return
    words = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = words[-1] if words else f"it ended with {_ended(child.returncode)}"
    yield failed("engine", last, "The analysis in the window needs it: report this.")


def _waits_for_ready(child: subprocess.Popen[bytes]) -> bool:
    return any(b'"ready"' in line.lower() for line in child.stdout or ())


def on_device(name: str, folder: Path) -> list[Finding]:
    """The work on a device, in a process of its own: a driver may end it."""
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    try:
        return pool.submit(work_on, name, folder).result(_DEVICE_SECONDS)
    except BrokenProcessPool:
        found, advice = "the process was ended", "Update the driver of the GPU"
    except TimeoutError:
        found, advice = f"nothing after {_DEVICE_SECONDS} s", "Restart the computer"
        for process in list((pool._processes or {}).values()):
            process.kill()
    except Exception as error:  # noqa: BLE001
        found, advice = in_one_line(error), "Report it"
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [failed(f"work on {name}", found, f"{advice}; until then --device cpu.")]


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            pass
    return str(code)
