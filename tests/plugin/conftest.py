"""A sample slide, an engine for all tests of a run, and the dock in a real viewer."""

import atexit
import os
import shutil
import subprocess

import pytest
from qtpy.QtCore import QCoreApplication, QEvent

from napari_spt.parts.settings import remember

SIDE = 4096


def _own_screen() -> None:
    """A screen of its own for each process of pytest-xdist: windows share no focus."""
    if "PYTEST_XDIST_WORKER" not in os.environ or shutil.which("Xvfb") is None:
        return
    told, tells = os.pipe()
    command = ["Xvfb", "-displayfd", str(tells), "-screen", "0", "1280x1024x24"]
    screen = subprocess.Popen(
        [*command, "-nolisten", "tcp"], pass_fds=[tells], stderr=subprocess.DEVNULL
    )
    os.close(tells)
    with os.fdopen(told) as number:
        os.environ["DISPLAY"] = f":{number.readline().strip()}"
    atexit.register(screen.terminate)


_own_screen()


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """A small synthetic slide, painted once."""
    from spt_core.sample import write_sample_slide

    path = tmp_path_factory.mktemp("sample") / "sample.tif"
    for _ in write_sample_slide(path, kind="glandular", size=SIDE, seed=3, workers=1):
        pass
    return path


@pytest.fixture(scope="session")
def engine(qapp):
    """The engine stays between tests: its imports take seconds."""
    from napari_spt.parts.post import post

    post().enter(0)
    yield post()
    post().close()


@pytest.fixture
def open_dock(make_napari_viewer, engine):
    """Open the dock through the manifest; all is closed afterwards."""
    docks = []

    def opened(**options):
        remember("asked_default_reader", True)
        viewer = make_napari_viewer(**options)
        _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")
        docks.append((viewer, dock))
        return viewer, dock

    yield opened
    for viewer, dock in docks:
        if not dock.is_closed:
            viewer.window.remove_dock_widget(dock)
        assert dock.is_closed
        dock.deleteLater()
    docks.clear()
    # What is to be deleted is deleted only when events are looked at.
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents()
