"""Where a slide is from: asked where a model needs it, and learned in the window."""

import json
import sys

import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from napari_spt.analysis.site_dialog import TAKEN
from napari_spt.analysis.site_panel import KNOWN, LEARN, NOT_SAID, UNKNOWN
from spt_core.bundled import slide_model_path
from spt_core.insight.results import RemarkKind, Verdict
from spt_core.learning.model_card import read_model_card
from spt_core.sample import write_sample_slide
from tests.plugin.dock_tools import SLOW, jargon_in, open_slide, wait_ended, words_of


@pytest.fixture
def site_model(tmp_path):
    """The bundled model as one that knows a site; written without torch."""
    path = tmp_path / "model.safetensors"
    with safe_open(slide_model_path(), "np") as file:
        metadata = file.metadata()
    tensors = load_file(slide_model_path())
    (mean,) = (name for name in tensors if name.endswith("mean_token_centre"))
    prefix = mean.removesuffix("mean_token_centre")
    width = len(tensors[mean])
    tensors[f"{prefix}site_mean"] = np.full((1, width), 0.3, np.float32)
    tensors[f"{prefix}site_std"] = np.ones((1, width), np.float32)
    (name,) = (key for key, text in metadata.items() if '"training"' in text)
    card = json.loads(metadata[name])
    card["standardising"] = {
        "kind": "site",
        "sites": [{"name": "here", "slides": 5, "tokens": 500, "added": False}],
        "sites_from": "labels",
    }
    save_file(tensors, path, {**metadata, name: json.dumps(card)})
    return path


def ticks(dialog):
    items = [dialog.list.item(row) for row in range(dialog.list.count())]
    return [(one.text(), one.checkState() == Qt.CheckState.Checked) for one in items]


def listed(dock):
    return [dock.site.list.itemText(row) for row in range(dock.site.list.count())]


def choose(dock, words):
    index = dock.site.list.findText(words)
    dock.site.list.setCurrentIndex(index)
    dock.site.list.activated.emit(index)


def test_a_site_is_chosen_and_learned(open_dock, sample, site_model, qtbot):
    viewer, dock = open_dock(show=True)
    open_slide(viewer, sample)
    assert not dock.site.isVisible()  # the bundled model needs none
    dock.model.choose(site_model)
    assert dock.site.isVisible()
    assert listed(dock) == [NOT_SAID, "here", LEARN]
    dock.session.begin()
    unsaid = wait_ended(qtbot, dock).prediction
    assert unsaid.verdict == Verdict.UNLIKE
    assert RemarkKind.SITE_NOT_NAMED in [one.kind for one in unsaid.remarks]
    assert not dock.run.no_fit.isVisible()
    assert not dock.site.again.isVisible()
    choose(dock, "here")
    assert dock.state.site == "here"
    assert dock.site.again.isVisible()
    dock.session.begin()
    assert not dock.site.again.isVisible()
    said = wait_ended(qtbot, dock).prediction
    assert {one.kind: one.value for one in said.remarks}[
        RemarkKind.STANDARDISED_BY_SITE
    ] == "here"
    assert not np.array_equal(said.embedding, unsaid.embedding)
    choose(dock, LEARN)
    dialog = dock.site.dialog
    assert ticks(dialog) == [("sample (here)", False)]
    assert not dialog.learn.isEnabled()
    dialog.reject()
    choose(dock, NOT_SAID)
    choose(dock, LEARN)
    dialog = dock.site.dialog
    assert ticks(dialog) == [("sample", True)]
    QTest.keyClicks(dialog.name, "here")
    assert (dialog.trouble.text(), dialog.learn.isEnabled()) == (TAKEN, False)
    dialog.name.clear()
    QTest.keyClicks(dialog.name, " there")
    assert not dialog.trouble.isVisible()
    QTest.keyClick(dialog.name, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "there" in listed(dock), timeout=SLOW)
    assert dock.state.site == "there"
    assert dock.site.list.currentText() == "there"
    assert dock.site.again.isVisible()
    sites = {one.name: one for one in read_model_card(site_model).standardising.sites}
    assert sites["there"].added
    assert sites["there"].slides == 1
    dock.session.begin()
    own = wait_ended(qtbot, dock).prediction
    kinds = {one.kind: one.value for one in own.remarks}
    assert kinds[RemarkKind.STANDARDISED_BY_SITE] == "there"
    assert "torch" not in sys.modules


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A slide of another laboratory."""
    path = tmp_path_factory.mktemp("elsewhere") / "elsewhere.tif"
    for _ in write_sample_slide(path, kind="glandular", size=4096, seed=8, workers=1):
        pass
    return path


def analysed(qtbot, viewer, dock, path):
    layer = open_slide(viewer, path)
    dock.session.begin()
    wait_ended(qtbot, dock)
    return layer


def test_two_slides_of_two_sites(open_dock, sample, elsewhere, site_model, qtbot):
    """Only what is ticked is measured, and each slide is judged as of its own site."""
    viewer, dock = open_dock(show=True)
    dock.model.choose(site_model)
    one = analysed(qtbot, viewer, dock, sample)
    analysed(qtbot, viewer, dock, elsewhere)
    choose(dock, LEARN)
    dialog = dock.site.dialog
    assert ticks(dialog) == [("sample", True), ("elsewhere", True)]
    assert not jargon_in(words_of(dialog))
    dialog.list.item(0).setCheckState(Qt.CheckState.Unchecked)
    QTest.keyClicks(dialog.name, "there")
    QTest.mouseClick(dialog.learn, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "there" in listed(dock), timeout=SLOW)
    sites = {one.name: one for one in read_model_card(site_model).standardising.sites}
    assert sites["there"].slides == 1
    assert dock.state.site == "there"
    # Of the other slide nothing was said.
    dock.tracker.pick(one)
    assert dock.state.site is None
    assert dock.site.list.currentText() == NOT_SAID
    # One that a site was measured by is known, and not taken for a new one's.
    dock.tracker.pick(next(la for la in dock.state.layers if la is not one))
    choose(dock, "there")
    dock.state.state_site(None)
    dock.site.refresh()
    assert dock.site.list.currentText() == f"there ({KNOWN})"
    choose(dock, LEARN)
    assert ticks(dock.site.dialog) == [
        ("sample", True),
        ("elsewhere (there)", False),
    ]
    dock.site.dialog.reject()
    # What was said for another model stays in sight, and can be learned.
    dock.tracker.pick(one)
    dock.state.state_site("nowhere")  # a long name, with what is said of it
    dock.site.refresh()
    assert dock.site.list.currentText() == f"nowhere ({UNKNOWN})"
    assert UNKNOWN in dock.site.list.toolTip()  # of a long name the list cuts it off
    # The dock is no wider for it: what it holds would be cut off at its right.
    QApplication.processEvents()
    assert dock.scroll.widget().width() <= dock.scroll.viewport().width()
    choose(dock, LEARN)
    assert dock.site.dialog.name.text() == "nowhere"
    assert ticks(dock.site.dialog)[0] == ("sample", True)
    dock.site.dialog.reject()
