"""Calls from threads reach a busy window, every one, and nothing else is called."""

import subprocess
import sys
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from qtpy import API_NAME
from superqt.utils import _ensure_thread

from napari_spt.parts import window_calls
from napari_spt.parts.window_calls import LastingFuture, make_window_calls_safe

PYSIDE = pytest.mark.skipif(API_NAME != "PySide6", reason="a problem of PySide6")

# As napari's slicing thread does it, only more often; without the mending this ends
# within a second, by a crash or an error of an object that was never connected.
STORM = """
import sys, threading, time
from qtpy.QtCore import QCoreApplication, QTimer
from superqt import ensure_main_thread
from napari_spt.parts.window_calls import make_window_calls_safe

make_window_calls_safe()
application = QCoreApplication([])
taken, sent = [], []

@ensure_main_thread
def take(number):
    taken.append(number)

def send():
    for number in range(4000):
        take(number)
        sent.append(number)
        time.sleep(0.0005)

thread = threading.Thread(target=send)
busy, watch = QTimer(), QTimer()
busy.timeout.connect(lambda: sum(range(200)))
watch.timeout.connect(lambda: len(taken) == 4000 and application.quit())
busy.start(0)
watch.start(50)
thread.start()
application.exec()
thread.join()
assert taken == sent
print("all taken")
"""


@PYSIDE
def test_calls_from_a_thread_come_through():
    done = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "all taken"
    assert done.stderr == ""


@PYSIDE
def test_opening_a_slide_makes_them_safe(make_napari_viewer, sample):
    make_napari_viewer().open(sample, plugin="napari-spt")
    is_safe = window_calls.connections_keep_objects()
    assert is_safe or _ensure_thread.Future is LastingFuture


@pytest.fixture
def superqt(monkeypatch):
    """A superqt as it is before anything is mended in it."""
    module = SimpleNamespace(Future=Future)
    monkeypatch.setitem(sys.modules, _ensure_thread.__name__, module)
    return module


@PYSIDE
def test_futures_are_replaced_where_connections_do_not_keep_them(superqt):
    """A PySide6 that is mended needs nothing: window_calls.py can go then."""
    needs_it = not window_calls.connections_keep_objects()
    make_window_calls_safe()
    assert superqt.Future is (LastingFuture if needs_it else Future)


def test_nothing_is_replaced_where_connections_keep_objects(superqt, monkeypatch):
    monkeypatch.setattr(window_calls, "connections_keep_objects", lambda: True)
    make_window_calls_safe()
    assert superqt.Future is Future


def test_nothing_is_replaced_with_another_qt(superqt, monkeypatch):
    monkeypatch.delitem(sys.modules, "PySide6", raising=False)
    make_window_calls_safe()
    assert superqt.Future is Future


def test_nothing_is_replaced_in_a_superqt_with_futures_of_its_own(superqt):
    class Kept(Future):
        pass

    superqt.Future = Kept
    make_window_calls_safe()
    assert superqt.Future is Kept
