"""The views of training on the open slide, as settings move."""

from dataclasses import replace

import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest

from napari_spt.analysis.layers import VIEWS
from napari_spt.training.views_panel import ViewsPanel
from spt_core.learning.views import ViewSettings, slide_views, view_generator
from spt_core.slides import slide_name
from spt_core.tokens import TokenFacts, Tokens, write_tokens
from tests.plugin.dock_tools import open_slide, words_of
from tests.plugin.test_training_dock import open_train  # noqa: F401

STEP = 128


@pytest.fixture(scope="module")
def features(tmp_path_factory, sample):
    """Features of the sample and of another slide before it."""
    folder = tmp_path_factory.mktemp("features")
    grid = np.stack(np.meshgrid(range(3, 30), range(2, 28), indexing="ij"), -1)
    cells = grid.reshape(-1, 2)
    for name in ("a-slide", slide_name(sample)):
        facts = TokenFacts(
            name=name,
            encoder="made up",
            mpp=0.5,
            patch_size=128,
            l0_patch_xy=(STEP, STEP),
            l0_step_xy=(STEP, STEP),
            g_origin=(3, 2),
        )
        x = np.zeros((len(cells), 4), np.float32)
        p = cells - cells.min(axis=0)
        tokens = Tokens(x, p, cells[:, ::-1] * STEP, facts)
        write_tokens(folder / f"{name}.h5", tokens)
    return folder, cells


@pytest.fixture
def opened(make_napari_viewer, sample, features, qtbot):
    viewer = make_napari_viewer(show=True)
    chosen = {"settings": ViewSettings()}
    panel = ViewsPanel(viewer, lambda: chosen["settings"])
    viewer.window.add_dock_widget(panel)
    assert "Open a slide" in panel.says.text()
    panel.use_features(features[0])
    slide = open_slide(viewer, sample)
    QTest.mouseClick(panel.shown, Qt.MouseButton.LeftButton)
    panel.shown.setChecked(True)
    qtbot.waitUntil(lambda: panel.views is not None, timeout=10_000)
    yield viewer, panel, slide, chosen
    panel.close_panel()


def layer_of(viewer):
    ours = [one for one in viewer.layers if one.metadata["spt"].get("map") == VIEWS]
    return ours[0] if ours else None


def expected(settings, cells, epoch):
    """The views of training: the sample is the second slide of its folder."""
    p = cells - cells.min(axis=0)
    return slide_views(p, view_generator(0, epoch, 1), settings)


def test_the_layer_shows_the_views_of_training(opened, features):
    viewer, panel, slide, chosen = opened
    _, cells = features
    for settings in (
        ViewSettings(),
        ViewSettings(crop_area=(30, 60)),
        ViewSettings(mask=False, crop=False),
    ):
        chosen["settings"] = settings
        panel.refresh()
        data = np.asarray(layer_of(viewer).data)
        for view, rows in enumerate(expected(settings, cells, panel.epoch)):
            shown = np.argwhere(data == view + 1)
            np.testing.assert_array_equal(np.unique(cells[rows], axis=0), shown)
            assert f"view {view + 1} has {len(rows):,}" in panel.says.text()
    assert "none is in both" in panel.says.text()
    chosen["settings"] = ViewSettings(split=False, crop=False, mask=False)
    panel.refresh()
    assert (np.asarray(layer_of(viewer).data) == 3).sum() == len(cells)
    # It lies where the patches are: the first one's corner is the slide's pixel.
    layer = layer_of(viewer)
    first = np.asarray(layer.data_to_world((3 - 0.5, 2 - 0.5)))
    corner = np.asarray(slide.data_to_world((3 * STEP - 0.5, 2 * STEP - 0.5)))
    np.testing.assert_allclose(first, corner, rtol=1e-6)


def test_another_draw_is_another_epoch(opened, features):
    viewer, panel, _, chosen = opened
    before = np.asarray(layer_of(viewer).data).copy()
    QTest.mouseClick(panel.again, Qt.MouseButton.LeftButton)
    assert panel.epoch == 1
    rows = expected(chosen["settings"], features[1], 1)
    np.testing.assert_array_equal(panel.views.rows[0], rows[0])
    assert not np.array_equal(before, layer_of(viewer).data)
    assert panel.says.text().startswith("Draw 2")


def test_it_follows_a_slider(opened, features):
    """Drawn anew in the same layer; benchmarks/views_preview.py says how quickly."""
    viewer, panel, _, chosen = opened
    layer = layer_of(viewer)
    for number in range(5):
        area = (50 + 10 * number, 200 + 10 * number)
        chosen["settings"] = replace(chosen["settings"], crop_area=area)
        panel.refresh()
        rows = expected(chosen["settings"], features[1], 0)
        np.testing.assert_array_equal(panel.views.rows[1], rows[1])
        assert (np.asarray(layer.data) == 2).sum() == len(rows[1])
    assert layer_of(viewer) is layer


def test_in_the_dock_they_are_those_of_the_study(open_train, sample, features, qtbot):  # noqa: F811
    viewer, dock = open_train(show=True)
    folder, cells = features
    dock.draft.set(features=str(folder), out=str(folder / "none"))
    dock.tabs.show_page("Views")
    open_slide(viewer, sample)
    panel = dock.views.panel
    QTest.mouseClick(panel.shown, Qt.MouseButton.LeftButton)
    panel.shown.setChecked(True)
    qtbot.waitUntil(lambda: panel.views is not None, timeout=10_000)
    dock.views.advanced.open()
    dock.views.advanced.forms["views"]["mask_keep"].value = (0.4, 0.6)
    settings = dock.draft.settings().views
    assert settings.mask_keep == (0.4, 0.6)
    data = np.asarray(layer_of(viewer).data)
    for view, rows in enumerate(expected(settings, cells, 0)):
        shown = np.argwhere(data == view + 1)
        np.testing.assert_array_equal(np.unique(cells[rows], axis=0), shown)
    # A suggested size of crops is taken once.
    qtbot.waitUntil(lambda: panel.suggestion is not None, timeout=10_000)
    dock.draft.set(views={"crop_area": (7.0, 9.0)})
    QTest.mouseClick(panel.accept, Qt.MouseButton.LeftButton)
    assert dock.draft.view_settings.crop_area == panel.suggestion
    assert not panel.accept.isEnabled()


def test_a_size_of_crops_is_suggested(opened, qtbot):
    _, panel, _, _ = opened
    qtbot.waitUntil(lambda: panel.suggestion is not None, timeout=10_000)
    low, high = panel.suggestion
    assert f"{low:.0f} to {high:.0f}" in panel.suggests.text()
    with qtbot.waitSignal(panel.crop_accepted) as accepted:
        QTest.mouseClick(panel.accept, Qt.MouseButton.LeftButton)
    assert accepted.args == [low, high]
    assert not any("token" in words for words in words_of(panel))


def test_hidden_and_closed_it_leaves_nothing(opened):
    viewer, panel, _, _ = opened
    panel.shown.setChecked(False)
    assert layer_of(viewer) is None
    panel.shown.setChecked(True)
    assert layer_of(viewer) is not None
    panel.close_panel()
    assert layer_of(viewer) is None


def test_without_features_the_tissue_is_found(make_napari_viewer, sample, qtbot):
    viewer = make_napari_viewer(show=True)
    panel = ViewsPanel(viewer, ViewSettings)
    panel.shown.setChecked(True)
    qtbot.addWidget(panel)
    open_slide(viewer, sample)
    qtbot.waitUntil(lambda: panel.views is not None, timeout=20_000)
    assert layer_of(viewer) is not None
    panel.close_panel()
