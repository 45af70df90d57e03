"""Calls from threads reach a busy window, every one, and nothing else is called."""

import subprocess
import sys

import pytest
from qtpy import API_NAME

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


@pytest.mark.skipif(API_NAME != "PySide6", reason="others keep what they connect")
def test_calls_from_a_thread_come_through():
    done = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "all taken"
    assert done.stderr == ""


def test_opening_a_slide_makes_them_safe(make_napari_viewer, sample):
    from superqt.utils import _ensure_thread

    make_napari_viewer().open(sample, plugin="napari-spt")
    if API_NAME == "PySide6":
        assert _ensure_thread.Future.__module__ == "napari_spt.parts.window_calls"
