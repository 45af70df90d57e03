"""What files and users named is shown as it is: no markup, no picture, no link."""

from types import SimpleNamespace

import numpy as np
import pytest
from napari.utils.notifications import notification_manager
from qtpy.QtCore import Qt
from qtpy.QtGui import QTextDocument
from qtpy.QtWidgets import QLabel, QWidget

from napari_spt.analysis.bars import ClassBars
from napari_spt.analysis.legend_parts import Classes, ClassPart
from napari_spt.analysis.model_panel import CardDialog
from napari_spt.parts.notices import show_error
from napari_spt.parts.widgets import plain_tip, text
from napari_spt.slide_map.slide_list import SlideList
from napari_spt.training.matrix import Matrix

NASTY = "<img src='//host/x.png'> <b>benign</b> <a href='file:///'>y</a>"


def seen(words):
    """What Qt draws of words whose kind it guesses."""
    drawn = QTextDocument()
    drawn.setHtml(words)
    return drawn.toPlainText()


def labels_of(widget):
    """What the labels of a widget draw."""
    for label in widget.findChildren(QLabel):
        is_plain = label.textFormat() == Qt.TextFormat.PlainText
        yield label.text() if is_plain else seen(label.text())


@pytest.mark.usefixtures("qapp")
def test_classes_slides_and_models_are_called_what_they_are_called():
    bars = ClassBars()
    bars.show_shares({NASTY: 1.0})
    words = (NASTY,) * 3
    card = SimpleNamespace(
        title=NASTY, purpose=NASTY, learned_from=NASTY, how_well=NASTY, details=[]
    )
    parent = QWidget()
    parts = {
        bars: 1,
        ClassPart(Classes(NASTY, words, ((0, 0, 0),) * 3)): 4,
        CardDialog(card, parent): 4,
    }
    for part, count in parts.items():
        assert sum(NASTY in one for one in labels_of(part)) == count
    label = text(NASTY)
    assert (label.text(), label.textFormat()) == (NASTY, Qt.TextFormat.PlainText)


@pytest.mark.usefixtures("qapp")
def test_tooltips_say_names():
    listed, matrix = SlideList("Slides"), Matrix()
    listed.show_slides([0], [NASTY])
    matrix.show_counts(np.ones((1, 1), np.int64), [NASTY])
    tips = [listed.item(0).toolTip(), matrix.item(0, 0).toolTip()]
    tips.append(matrix.horizontalHeaderItem(0).toolTip())
    assert all(NASTY in seen(tip) for tip in tips)
    assert plain_tip("a & b\nc") == "a & b\nc"


def test_notices_hold_no_tag():
    notification_manager.records.clear()
    show_error(f"{NASTY} cannot be opened.")
    assert "<" not in notification_manager.records[-1].message
