"""A study's result in a real viewer: words, table, mistakes, and where it leads."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from qtpy.QtCore import QPoint, Qt
from qtpy.QtGui import QDesktopServices
from qtpy.QtTest import QTest

from napari_spt.analysis.desk import desk_of
from napari_spt.analysis.session import Session
from napari_spt.parts.settings import remember
from napari_spt.slide_map.dock import maps_of
from napari_spt.training.model_terms import terms_words
from napari_spt.training.result_panel import ResultPanel
from napari_spt.training.result_words import site_words
from spt_core.bundled import encoder_path
from spt_core.learning.model_card import read_model_card
from spt_core.slides import slide_name
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_report import read_study_report
from spt_core.studies.study_settings import StudySettings
from tests.plugin.dock_tools import jargon_in, words_of
from tests.plugin.made_study import write_made_study
from tests.plugin.test_slide_map import write_features
from tests.plugin.test_training_dock import open_train  # noqa: F401


@pytest.fixture(scope="module")
def study(tmp_path_factory, sample):
    folder = tmp_path_factory.mktemp("made")
    (folder / "features").mkdir()
    (folder / "slides").mkdir()
    names = ["s0", "s1", "s2", slide_name(sample), "s4", "s5"]
    prints = {name: f"print {number}" for number, name in enumerate(names)}
    (folder / "slides" / sample.name).symlink_to(sample)
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["slide", "label"])
        for number, name in enumerate(names):
            write_features(folder / "features", name, number % 2, prints[name])
            writer.writerow([name, "ab"[number % 2]])
    return write_made_study(
        folder / "study",
        folder / "features",
        folder / "slides",
        folder / "labels.csv",
        prints,
    )


@pytest.fixture
def shown(make_napari_viewer, study, qtbot, engine):
    remember("asked_default_reader", True)
    viewer = make_napari_viewer(show=True)
    viewer.window.resize(1200, 900)
    panel = ResultPanel(viewer)
    viewer.window.add_dock_widget(panel, name="Result")
    assert not panel.empty.isHidden()
    panel.show(study.path)
    qtbot.waitUntil(lambda: bool(panel.slides.files), timeout=20_000)
    yield viewer, panel
    dock = desk_of(viewer).dock
    if dock is not None:
        viewer.window.remove_dock_widget(dock)
        dock.deleteLater()


def click_cell(panel, row, column):
    place = panel.matrix.visualItemRect(panel.matrix.item(row, column)).center()
    viewport = panel.matrix.viewport()
    QTest.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=QPoint(place))


def test_words_come_first_and_the_table_has_intervals(shown):
    _, panel = shown
    assert "Better than averaging patches by 10 points" in panel.headline.text()
    assert not panel.empty.isVisible()
    cells = [
        [panel.table.item(row, column).text() for column in range(3)]
        for row in range(panel.table.rowCount())
    ]
    assert cells == [
        ["Your model", "80 %", "40 to 95"],
        ["Averaging patches", "70 %", "40 to 95"],
        ["Largest values", "60 %", "40 to 95"],
        ["Attention pooling (ABMIL)", "75 %", "40 to 95"],
    ]
    assert "took 32 steps" in panel.rest.text()
    assert "attention pooling" in panel.words.text()
    assert "off by 20 points" in panel.calibration_says.text()
    assert "5 rounds" in panel.headline.text()
    assert "80\u00a0% right, as the mean over labels" in panel.words.text()


def test_no_jargon(shown):
    """The report's own sentences are for researchers; the window's are for all."""
    _, panel = shown
    click_cell(panel, 1, 1)
    panel.show_card()
    words = words_of(panel) + words_of(panel.card)
    panel.card.close()
    assert jargon_in(words) == set()
    assert "too few patients to rule out chance" in " ".join(words)


def test_a_site_that_wins_is_said(shown, study):
    _, panel = shown
    assert panel.site.isVisible()
    assert "knows the site better than the label" in panel.site_says.text()
    report = read_study_report(study.path)
    object.__setattr__(report, "site_knn", 0.2)
    assert "With so few slides" in site_words(report)
    object.__setattr__(report, "answers", report.answers * 20)
    assert "label better than the site" in site_words(report)


def test_a_click_on_the_matrix_lists_the_most_wrong_first(shown):
    _, panel = shown
    click_cell(panel, 0, 1)
    listed = [panel.cell.item(n).text() for n in range(panel.cell.count())]
    # Slides 0, 2 and 4 are of class a and answered b, the last one most surely.
    assert [words.partition(" ")[0] for words in listed] == ["s4", "s2", "s0"]
    click_cell(panel, 0, 0)
    assert panel.cell_says.text().startswith("0 slides")
    assert not panel.cell.isVisible()


def test_a_slide_of_the_list_opens_with_its_attention(
    shown, qtbot, monkeypatch, sample, study
):
    viewer, panel = shown
    begun = []
    monkeypatch.setattr(Session, "begin", lambda self: begun.append(self.state))
    click_cell(panel, 1, 1)
    row = next(
        n
        for n in range(panel.cell.count())
        if panel.cell.item(n).text().startswith(slide_name(sample))
    )
    qtbot.wait(100)  # the list has just come
    place = panel.cell.visualItemRect(panel.cell.item(row)).center()
    assert panel.cell.itemAt(place) is panel.cell.item(row)
    QTest.mouseClick(panel.cell.viewport(), Qt.MouseButton.LeftButton, pos=place)
    qtbot.waitUntil(lambda: len(begun) == 1, timeout=20_000)
    (state,) = begun
    assert state.model == study.model
    assert state.source.path.name == sample.name
    assert len(viewer.layers) == 1


def test_one_click_hands_the_model_over(shown, study):
    viewer, panel = shown
    QTest.mouseClick(panel.use_model, Qt.MouseButton.LeftButton)
    dock = desk_of(viewer).dock
    assert dock.state.model == study.model
    assert dock.model.list.currentData() == str(study.model)
    # Again: the same dock comes forward.
    QTest.mouseClick(panel.use_model, Qt.MouseButton.LeftButton)
    assert desk_of(viewer).dock is dock


def test_card_terms_and_report_are_one_click_away(shown, study, monkeypatch):
    _, panel = shown
    opened = []
    monkeypatch.setattr(
        QDesktopServices, "openUrl", staticmethod(lambda url: opened.append(url))
    )
    QTest.mouseClick(panel.open_report, Qt.MouseButton.LeftButton)
    assert Path(opened[0].toLocalFile()) == study.report / "report.html"
    QTest.mouseClick(panel.about, Qt.MouseButton.LeftButton)
    assert panel.card.isVisible()
    panel.card.close()
    QTest.mouseClick(panel.terms, Qt.MouseButton.LeftButton)
    assert panel.licence.isVisible()
    said = " ".join(words_of(panel.licence))
    card = read_model_card(study.model)
    assert card.licence in said
    assert "bundled: CC BY 4.0" in said  # what it sees patches through
    panel.licence.close()
    bound = replace(
        card,
        tokens=replace(card.tokens, encoder="uni"),
        encoder_terms=("no commercial use",),
    )
    assert "no commercial use" in terms_words(bound)[-1]


def test_an_encoder_of_patches_is_used_in_a_new_study(open_train, tmp_path, study):  # noqa: F811
    folder = StudyFolder(tmp_path / "patches")
    settings = StudySettings.read(study.settings)
    folder.begin(replace(settings, out=str(folder.path), goal="patches", features=None))
    shutil.copyfile(encoder_path(), folder.encoder)
    folder.report.mkdir()
    said = [
        "A patch encoder was trained on 6 slides without labels. Nothing is claimed of "
        "how good it is: encode slides with it to measure it.",
        "It took 9 steps. Use it by 'spt study OTHER --encoder x', or 'spt encode'.",
    ]
    result = {"says": said, "goal": "patches", "method": "classify", "rows": []}
    (folder.report / "result.json").write_text(json.dumps(result))
    _, dock = open_train()
    dock.open_study(str(folder.path))
    assert dock.draft.aim == "patches"
    dock.result.show(folder.path)
    panel = dock.result
    assert panel.use_model.isHidden()
    assert not panel.use_encoder.isHidden()
    assert jargon_in(words_of(panel)) == set()
    panel.show_terms()
    assert any("CC BY 4.0" in words for words in words_of(panel.licence))
    panel.licence.close()
    panel.use_encoder.click()
    assert dock.study is None
    assert dock.draft.aim == "both"
    assert dock.draft.settings().encode.encoder == str(folder.encoder)
    assert dock.draft.slides == settings.slides


def test_the_map_of_its_slides_is_a_tab_beside_the_dock(
    open_train,  # noqa: F811
    study,
    qtbot,
    engine,
    recwarn,
):
    """Asked twice, it is the same map; napari has nothing to say of how we found it."""
    viewer, dock = open_train()
    dock.open_study(str(study.path))
    dock.result.show(study.path)
    dock.result.see_map.click()
    (found,) = maps_of(viewer)
    dock.result.see_map.click()
    assert maps_of(viewer) == [found]
    assert found.sources.sources.model == study.model
    assert not [one for one in recwarn if "Private attribute" in str(one.message)]
    viewer.window.remove_dock_widget(found)
    assert maps_of(viewer) == []
    found.deleteLater()


def test_without_a_result_it_says_so(make_napari_viewer, tmp_path, qtbot):
    panel = ResultPanel(make_napari_viewer())
    qtbot.addWidget(panel)
    panel.show(tmp_path)
    assert "no result yet" in panel.empty.text()
    assert panel.headline.isHidden()
