"""What the tests of the analysis dock share."""

import numpy as np
from qtpy.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QWidget,
)

from napari_spt.analysis.display import Shown
from napari_spt.analysis.layers import SlideMaps
from napari_spt.analysis.state import Analysis
from napari_spt.slides.slide_source import SlideSource, key_of, slide_source

SLOW = 120_000
CONTROLS = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox)


def open_slide(viewer, path):
    (layer,) = viewer.open(str(path), plugin="napari-spt")
    return layer


def wait_ended(qtbot, dock, timeout=SLOW):
    """Wait until the shown analysis has ended."""
    qtbot.waitUntil(
        lambda: dock.shown is not None and not dock.shown.analysis.is_open,
        timeout=timeout,
    )
    return dock.shown.analysis


def known(viewer, dock, layer, l0_xy, step, attention=None, classes=None):
    """Let the dock show an analysis that ended with the given patches."""
    source = slide_source(layer)
    slide = SlideSource(
        source.name,
        source.path,
        source.mpp_xy,
        source.l0_size_xy,
        source.l0_bounds_xy,
    )
    l0_xy = np.asarray(l0_xy, np.int64)
    n = len(l0_xy)
    names = ["one kind", "another"]
    analysis = Analysis(slide, None)
    shown = Shown(analysis, layer, SlideMaps(viewer, layer, key_of(layer)))
    dock.work.analyses[key_of(layer)] = shown
    analysis.take("started", {"patches": n, "patch_l0": list(step)}, {})
    if attention is None:
        attention = np.arange(1, n + 1, dtype=np.float32)
    facts = {
        "seen": 1.0,
        "patches": n,
        "total": n,
        "classes": names,
        "probabilities": [0.8, 0.2],
        "verdict": "class",
        "sentences": ["One kind."],
    }
    arrays = {
        "l0_xy": l0_xy,
        "g_rc": l0_xy[:, ::-1] // np.asarray(step)[::-1],
        "attention": np.atleast_2d(attention) / np.sum(attention),
    }
    analysis.take("prediction", facts, arrays)
    if classes is None:
        classes = np.eye(2, dtype=np.float32)[np.arange(n) % 2]
    analysis.take(
        "class_map",
        {"classes": names},
        {"l0_xy": l0_xy, "probabilities": classes, "unsure": np.zeros(n, bool)},
    )
    analysis.take("done", facts, {})
    dock.work.show_all()
    dock.follow()
    return shown


def words_of(widget: QWidget) -> list[str]:
    """Every word that a widget shows or tells."""
    found = []
    for one in [widget, *widget.findChildren(QWidget)]:
        found += [one.toolTip(), one.accessibleName(), one.statusTip()]
        if isinstance(one, QLabel | QAbstractButton):
            found.append(one.text())
        if isinstance(one, QComboBox):
            found += [one.itemText(i) for i in range(one.count())]
        if isinstance(one, QAbstractSpinBox):
            found.append(one.text())
    return [words for words in found if words]


def controls_of(widget: QWidget) -> list[QWidget]:
    """What can be operated, without the inner parts of controls."""
    found = []
    for one in widget.findChildren(QWidget):
        if not isinstance(one, CONTROLS):
            continue
        above = one.parent()
        while above is not None and not isinstance(above, CONTROLS):
            above = above.parent()
        is_bar = type(one).__name__ == "QScrollBar"
        if above is None and not is_bar and not one.objectName().startswith("qt_"):
            found.append(one)
    return found
