"""Models have names: never two by one, renamed and removed by the mouse."""

import shutil

import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication, QLineEdit

from napari_spt.analysis.model_names import labels, named_model
from napari_spt.parts.settings import remember, remembered
from spt_core.bundled import slide_model_path
from spt_core.engine.protocol import Failed, FailureKind
from spt_core.insight.model_words import ModelWords, read_model_words
from spt_core.learning.model_card import ModelCard
from tests.made_slides import picture, write_svs
from tests.plugin.dock_tools import begun, open_slide, sent


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Files as training leaves them: all called best, and not for demonstration."""
    from dataclasses import replace

    paths = []
    for study in ("lung", "breast", "breast/again"):
        path = tmp_path / study / "models" / "best.safetensors"
        path.parent.mkdir(parents=True)
        shutil.copy(slide_model_path(), path)
        paths.append(path)

    def plain(path):
        words = read_model_words(path)
        card: ModelCard = replace(words.card, demonstration=False, title="")
        return ModelWords(words.path, card)

    monkeypatch.setattr("napari_spt.analysis.model_panel.read_model_words", plain)
    remember("recent_models", [str(path) for path in paths])
    return paths


@pytest.fixture
def dock(models, open_dock, tmp_path):
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    write_svs(tmp_path / "a.svs", picture(700, 500))
    open_slide(viewer, tmp_path / "a.svs")
    return dock


def names(dock):
    return [dock.model.list.itemText(row) for row in range(dock.model.list.count())]


def test_no_two_are_called_best(dock, models):
    said = names(dock)
    assert len(set(said)) == len(said)
    assert said[1:4] == ["lung", "breast", "again"]
    assert not any("best" in one for one in said)
    dock.model.choose(models[1])
    assert "glandular" in dock.model.doubt.text()
    assert "breast" in dock.model.doubt.text()
    assert str(models[1]) in dock.model.list.toolTip()


def test_one_title_and_many_files(models):
    from dataclasses import replace

    made = [named_model(read_model_words(path)) for path in models]
    alike = [replace(one, title="Lung v2") for one in made]
    said = labels(alike)
    assert len(set(said)) == 3
    assert all(one.startswith("Lung v2") for one in said)
    same = [replace(one, study="s", path=models[0]) for one in alike]
    assert len(set(labels(same))) == 3


def test_renamed_and_removed(dock, models, qtbot):
    dock.model.choose(models[0])
    assert dock.model.more.isEnabled()
    dock.model.rename_action.trigger()
    line = dock.model.naming.findChild(QLineEdit)
    line.clear()
    qtbot.keyClicks(line, "Frozen sections")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert dock.model.list.currentText() == "Frozen sections"
    assert dock.state.model_name == "Frozen sections"
    dock.model.remove_action.trigger()
    assert "Frozen sections" not in names(dock)
    assert models[0].exists()
    assert str(models[0]) not in remembered("recent_models")
    assert dock.state.model is not None
    # What came with the package can be neither.
    assert not dock.model.more.isEnabled()


def test_without_another_model_it_says_what_can_be_done(open_dock, tmp_path, qtbot):
    viewer, dock = open_dock(show=True)
    write_svs(tmp_path / "a.svs", picture(700, 500))
    layer = open_slide(viewer, tmp_path / "a.svs")
    said = dock.model.doubt.text()
    for part in ("map the tissue", "open one", "the Train dock"):
        assert part in said
    analysis = begun(dock, layer)
    failed = Failed(FailureKind.OTHER_ENCODER, "an encoder")
    dock.state.apply(analysis, sent(failed, tmp_path))
    QApplication.processEvents()
    assert dock.run.no_fit.isVisible()
    assert dock.run.map_tissue.text() == "Map the tissue"
    dock.model.doubt.linkActivated.emit("tissue")
    assert dock.state.model is None
    assert dock.run.analyse.text() == "Map the tissue"
    # One button of that name at a time.
    assert dock.run.map_tissue.isHidden()
