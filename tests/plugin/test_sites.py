"""Where a slide is from: asked where a model needs it, and learned in the window."""

import json
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from napari_spt.analysis.site_panel import LEARN, NOT_SAID
from spt_core.bundled import slide_model_path
from spt_core.insight.results import RemarkKind, Verdict
from spt_core.learning.model_card import read_model_card
from tests.plugin.dock_tools import open_slide, wait_ended


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
    choose(dock, "here")
    assert dock.state.site == "here"
    dock.session.begin()
    said = wait_ended(qtbot, dock).prediction
    assert {one.kind: one.value for one in said.remarks}[
        RemarkKind.STANDARDISED_BY_SITE
    ] == "here"
    assert not np.array_equal(said.embedding, unsaid.embedding)
    # The slides whose site is not said are what a new one is learned from.
    assert dock.site.analysed() == []
    choose(dock, NOT_SAID)
    assert dock.site.analysed() == [dock.state.analysis.features]
    dock.site.learn("there")
    qtbot.waitUntil(lambda: "there" in listed(dock), timeout=60_000)
    assert dock.state.site == "there"
    assert dock.site.list.currentText() == "there"
    sites = {one.name: one for one in read_model_card(site_model).standardising.sites}
    assert sites["there"].added
    assert sites["there"].slides == 1
    dock.session.begin()
    own = wait_ended(qtbot, dock).prediction
    kinds = {one.kind: one.value for one in own.remarks}
    assert kinds[RemarkKind.STANDARDISED_BY_SITE] == "there"
    assert "torch" not in sys.modules
