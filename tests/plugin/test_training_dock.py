"""The training dock in a real viewer: data, goal, run; found again, and never lost."""

import csv
import json
import re
from dataclasses import asdict
from math import log10

import numpy as np
import pytest
from napari.settings import get_settings
from qtpy.QtCore import QCoreApplication, QEvent, QPoint, Qt
from qtpy.QtGui import QFontMetrics, QGuiApplication
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QLabel, QPushButton

from napari_spt.training import watching
from napari_spt.training.curves import Curves
from napari_spt.training.draft import free_folder
from napari_spt.training.labels_source import LabelsSource
from napari_spt.training.reading import Phase, StudyReader, phase_of
from napari_spt.training.run_words import progress_words
from napari_spt.training.words import cell_words, plain, until_words
from spt_core.engine.study_queue import QueuedStudy, StudyQueue
from spt_core.hints import settings_of
from spt_core.learning.details import LearningDetails
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.studies.study_finding import About, Finding, Rank
from spt_core.studies.study_folder import Request
from spt_core.studies.study_settings import StudySettings
from spt_core.tokens import write_tokens
from tests.core.studies.benchmarks import write_benchmark_cohort
from tests.core.test_tables import workbook
from tests.made_tokens import grid_tokens
from tests.plugin.dock_tools import controls_of, jargon_in, words_of
from tests.plugin.test_analysis_words import cut_off
from tests.plugin.training_tools import RecordedStudy, epochs, validation

SLOW = 60_000


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    return write_benchmark_cohort(folder, patients=24, slides_each=1, sites=2)


@pytest.fixture
def open_train(make_napari_viewer):
    """Open the dock through the manifest; all is closed afterwards."""
    docks = []

    def opened(viewer=None, **options):
        viewer = viewer or make_napari_viewer(**options)
        _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Train")
        docks.append((viewer, dock))
        return viewer, dock

    yield opened
    for viewer, dock in docks:
        if not dock.is_closed:
            viewer.window.remove_dock_widget(dock)
        assert dock.is_closed
        dock.deleteLater()
    docks.clear()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents()


@pytest.fixture
def recorded(tmp_path, cohort):
    study = RecordedStudy(
        tmp_path / "study", cohort / "features", cohort / "labels.csv"
    )
    yield study
    study.let_go()


# Data


def test_from_a_folder_to_a_list_of_findings(open_train, cohort, qtbot):
    _, dock = open_train()
    assert not dock.start.isEnabled()
    assert "Choose a folder" in dock.foot.why_not.text()
    dock.data.features.chosen.emit(str(cohort / "features"))
    assert dock.draft.aim == "pretrain"
    dock.data.labels.chosen.emit(str(cohort / "labels.csv"))
    assert dock.draft.aim == "both"  # where there are labels
    assert dock.goal.buttons["both"].isChecked()
    assert dock.data.lists["patient"].currentText() == "patient"
    qtbot.waitUntil(lambda: dock.start.isEnabled(), timeout=SLOW)
    ranks = {one.rank for one in dock.data.findings.found}
    assert ranks == {Rank.DOUBTFUL, Rank.FINE}  # 24 patients are few
    shown = dock.data.findings.parts[Rank.DOUBTFUL].text()
    assert "24 patients" in shown
    assert "Add slides of more patients" in shown
    assert dock.data.findings.parts[Rank.STOPS].isHidden()
    # What is asked too much of the data stops it, and says what to do.
    dock.draft.set(advanced={"folds": 20})
    assert not dock.start.isEnabled()
    qtbot.waitUntil(lambda: dock.data.findings.stops, timeout=SLOW)
    assert "Too few patients for 20 rounds" in dock.data.findings.parts[
        Rank.STOPS
    ].text().replace("&#8203;", "")
    assert not dock.start.isEnabled()
    assert "listed under Data" in dock.foot.why_not.text()


@pytest.mark.parametrize("about", About)
@pytest.mark.parametrize("rank", Rank)
def test_each_finding_is_shown_with_its_remedy(qtbot, rank, about):
    from napari_spt.training.findings_list import FindingsList

    shown = FindingsList()
    qtbot.addWidget(shown)
    shown.add(Finding(rank, about, "What was found.", "What to do."))
    words = shown.parts[rank].text()
    assert "What was found." in words
    assert "What to do." in words
    assert shown.stops == (rank is Rank.STOPS)
    shown.clear()
    assert all(part.isHidden() for part in shown.parts.values())


def test_columns_are_guessed_shown_and_changed(open_train, cohort, tmp_path):
    path = workbook(
        tmp_path / "cases.xlsx",
        "".join(
            f'<row r="{n}">'
            + "".join(
                f'<c r="{letter}{n}" t="inlineStr"><is><t>{cell}</t></is></c>'
                for letter, cell in zip("ABC", cells, strict=True)
            )
            + "</row>"
            for n, cells in enumerate(
                (
                    ("Case ID", "File name", "Diagnosis"),
                    ("p1", "a.svs", "x"),
                    ("p2", "b.svs", "y"),
                ),
                start=1,
            )
        ),
    )
    _, dock = open_train()
    dock.draft.set(features=str(cohort / "features"), out=str(tmp_path / "out"))
    dock.data.take_labels(str(path))
    lists = dock.data.lists
    assert [lists[name].currentText() for name in ("slide", "label", "patient")] == [
        "File name",
        "Diagnosis",
        "Case ID",
    ]
    assert "2 labelled slides: x 1, y 1." in dock.data.summary.text()
    # Columns of other names are written down as the command reads them.
    settings = dock.draft.prepared_settings()
    assert settings.labels == str(tmp_path / "out/labels.csv")
    with open(settings.labels, newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"slide": "a.svs", "label": "x", "patient": "p1"}
    lists["label"].setCurrentIndex(0)
    lists["label"].activated.emit(0)
    assert "Say which column" in dock.data.summary.text()
    assert not dock.start.isEnabled()
    lists["label"].setCurrentText("Case ID")
    lists["label"].activated.emit(1)
    assert dock.draft.labels.columns["label"] == "Case ID"


def test_labels_given_slide_by_slide(open_train, sample, tmp_path, qtbot):
    _, dock = open_train()
    dock.draft.set(slides=str(sample.parent), out=str(tmp_path / "out"))
    dock.data.by_hand.setChecked(True)
    table = dock.data.table
    qtbot.waitUntil(lambda: table.rowCount() == 1, timeout=SLOW)
    assert table.item(0, 0).text() == "sample"
    qtbot.waitUntil(lambda: not table.item(0, 0).icon().isNull(), timeout=SLOW)
    table.setCurrentCell(0, 1)
    table.paste("glandular\tp7\n")
    assert dock.draft.labels.table == {
        "sample": {"label": "glandular", "patient": "p7"}
    }
    assert dock.draft.aim == "both"
    settings = dock.draft.prepared_settings()
    with open(settings.labels, newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"slide": "sample", "label": "glandular", "patient": "p7"}
        ]
    dock.copy_command()
    assert str(tmp_path / "out/labels.csv") in dock.foot.command.text()
    # Patients are remembered nowhere else.
    assert "p7" not in str(dock.draft.labels.plain())


# Goal


def test_goals_settings_and_the_command(open_train, cohort, tmp_path):
    _, dock = open_train()
    dock.draft.set(features=str(cohort / "features"), out=str(tmp_path / "out"))
    dock.goal.buttons["classify"].click()
    assert "learns from labels" in dock.goal.doubt.text()
    dock.goal.buttons["finetune"].click()
    assert dock.goal.init.isVisibleTo(dock.goal)
    dock.goal.buttons["pretrain"].click()
    assert dock.draft.problem() == ""
    dock.goal.advanced.open()
    forms = dock.goal.advanced.forms
    forms["advanced"]["learning_rate"].value = 0.001
    dock.views.advanced.open()
    dock.views.advanced.forms["views"]["split_ratio"].value = 0.5
    forms["encode"]["stain"].value = "macenko"
    settings = dock.draft.settings()
    assert settings.learning_rate == 0.001
    assert settings.views.split_ratio == 0.5
    assert settings.encode.stain == "macenko"
    dock.copy_command()
    command = QGuiApplication.clipboard().text()
    assert command.startswith("spt study ")
    assert "--learning-rate 0.001" in command
    assert "--split-ratio 0.5" in command
    assert dock.foot.command.text() == command  # and it is shown
    # An effort is a set of settings; what was changed by hand stays.
    dock.draft.set(effort="quick")
    assert dock.draft.settings().steps == 30
    assert dock.draft.settings().learning_rate == 0.001
    assert forms["advanced"]["steps"].value == 30


def test_every_parameter_is_in_advanced_with_its_default(open_train):
    _, dock = open_train()
    dock.goal.advanced.build()
    dock.views.advanced.build()
    forms = {**dock.goal.advanced.forms, **dock.views.advanced.forms}
    offered = {row.name for form in forms.values() for row in form}
    elsewhere = {
        "goal", "slides", "features", "labels", "init",  # on the pages
        "slide_table",  # labels of patients are for the command
        "views",  # a study compares two
        "batch_size", "readers", "lanes", "threads", "redo",  # of reading slides
    }  # fmt: skip
    kinds = (StudySettings, LearningDetails, ViewSettings, EncodeSettings)
    known = {name for kind in kinds for name in settings_of(kind)}
    assert known - elsewhere <= offered
    for kind, part in (
        (LearningDetails, "details"),
        (ViewSettings, "views"),
    ):
        for name, setting in settings_of(kind).items():
            if name not in elsewhere:
                assert forms[part][name].value == setting.default, name
    shown = " ".join(words_of(dock.goal.advanced) + words_of(dock.views.advanced))
    assert "Temperature of SimCLR" in shown
    # What is asked in its turn is called a round in the whole window.
    assert "Rounds" in shown
    assert not re.search(r"\bfolds?\b", shown, re.IGNORECASE)
    assert "Usually: 0.07" in shown
    assert "Usually: 10, 10, 1" in shown
    # What is changed there is asked of the study, and remembered.
    dock.draft.set(features="here", out="there")
    forms["details"]["pretraining"].value = "vicreg"
    forms["details"]["vicreg_weights"].value = (25.0, 25.0, 1.0)
    settings = dock.draft.settings()
    assert settings.method == "ssspt-vicreg"
    assert settings.details.vicreg_weights == (25.0, 25.0, 1.0)
    dock.draft.details = {}
    dock.draft.take_remembered()
    assert dock.draft.details == {
        "pretraining": "vicreg",
        "vicreg_weights": (25.0, 25.0, 1.0),
    }


def test_what_was_chosen_is_remembered(open_train, cohort):
    viewer, dock = open_train()
    dock.draft.set(features=str(cohort / "features"))
    dock.data.take_labels(str(cohort / "labels.csv"))
    dock.draft.set(
        goal="classify", views={"split_ratio": 0.6, "crop_area": (9.0, 20.0)}
    )
    viewer.window.remove_dock_widget(dock)
    assert dock.is_closed
    _, again = open_train(viewer)
    assert again.draft.features == str(cohort / "features")
    assert again.draft.settings() == dock.draft.settings()


# Run


@pytest.mark.parametrize("points", [9, 18])
def test_numbers_beside_a_curve_can_be_read(qtbot, points, monkeypatch):
    curves = Curves()
    qtbot.addWidget(curves)
    font = curves.font()
    font.setPointSize(points)
    monkeypatch.setattr("napari_spt.training.curves.text_font", lambda _font: font)
    curves.use_colours("white", "black")
    below = curves.loss.getPlotItem().getAxis("bottom")
    assert below.minimumHeight() > QFontMetrics(font).height()
    beside = curves.loss.getPlotItem().getAxis("left")
    for least, most in ((0.62, 0.71), (0.5, 3.0), (1e-3, 9.0), (3.0, 3.9)):
        ((_, places),) = beside.logTickValues(log10(least), log10(most), 100, None)
        told = beside.logTickStrings(places, 1, 1)
        assert len(set(told)) >= 3
        assert all(least <= float(one) <= most for one in told)
    assert beside.logTickValues(0.0, 0.0, 100, None) == [(None, [0.0])]


def test_curves_of_a_recorded_stream(open_train, recorded, qtbot):
    recorded.say("running")
    recorded.tell(
        {"event": "note", "message": "Run 1: 24 slides in 5 folds."}, stage="check"
    )
    recorded.tell(
        *[{**one, "cell": "features, abmil, fold 2, seed 0"} for one in epochs([1.0])],
        stage="evaluate",
    )
    recorded.tell(*epochs([2.0, 1.0, 0.5]), validation(2, 0.8, 0.75))
    recorded.hold()
    _, dock = open_train(show=True)
    dock.open_study(str(recorded.folder.path))
    dock.tabs.show_page("Run")
    run = dock.run
    qtbot.waitUntil(lambda: run.curves is not None, timeout=SLOW)
    assert "Training your model" in run.stands.text()
    assert re.search(r"30 of 100 steps, .*done .*about \d\d:\d\d", run.says.text())
    assert "12.5 slides per second" in run.says.text()
    x, y = run.curves.loss_line.getOriginalDataset()
    assert list(x) == [1, 2, 3]
    assert list(y) == [2.0, 1.0, 0.5]
    assert run.curves.loss.getPlotItem().ctrl.logYCheck.isChecked()
    assert "best, step 2" in run.curves.loss_words.text()  # of what was held out
    assert "class: 75 %" in run.curves.near_words.text()
    assert "7 directions" in run.rank.text()
    assert run.alarm.isHidden()
    assert "24 slides in 5 rounds" in run.notes.text()
    # Without labels there is the site alone, and the end is that of a part.
    recorded.say("running", stage="pretrain")
    recorded.tell(*epochs([3.0]), validation(1, site_knn=0.6), stage="pretrain")
    qtbot.waitUntil(lambda: "site: 60 %" in run.curves.near_words.text(), timeout=SLOW)
    assert "class" not in run.curves.near_words.text()
    assert "this part done about" in run.says.text().replace("tomorrow ", "")
    recorded.say("running")
    # What comes is drawn; a step that is done again replaces what was.
    recorded.tell(
        *epochs([0.4], first=3),
        validation(3, 0.6, 0.5, spread=1e-6, site_knn=0.9),
    )
    qtbot.waitUntil(
        lambda: "best, step 3" in run.curves.loss_words.text(), timeout=SLOW
    )
    assert list(run.curves.loss_line.getOriginalDataset()[1]) == [2.0, 1.0, 0.4]
    assert "stopped telling them apart" in run.alarm.text()
    assert "lower learning rate" in run.alarm.text()
    assert "site is told better" in run.curves.near_words.text()
    # Another training is one choice away.
    run.which.setCurrentText("Measuring: ABMIL, round 2")
    run.which.activated.emit(run.which.currentIndex())
    assert list(run.curves.loss_line.getOriginalDataset()[1]) == [1.0]
    assert not dock.start.isVisible()


def test_the_views_page_takes_what_was_read_meanwhile(open_train, tmp_path, qtbot):
    study = RecordedStudy(tmp_path / "study", tmp_path / "later")
    study.say("running", stage="encode")
    study.hold()
    _, dock = open_train()
    dock.open_study(str(study.folder.path))
    qtbot.waitUntil(lambda: dock.run.last is not None, timeout=SLOW)
    assert dock.views.panel.features is None
    features = study.folder.features
    features.mkdir()
    study.say("running", stage="evaluate")  # the first file is not there yet
    panel = dock.views.panel
    qtbot.waitUntil(lambda: panel.features == features, timeout=SLOW)
    assert panel.suggestion is None
    tokens = grid_tokens(np.zeros((900, 4)), name="s")
    write_tokens(features / "s.h5", tokens)
    study.say("running", stage="train")
    qtbot.waitUntil(lambda: panel.suggestion is not None, timeout=SLOW)
    study.let_go()


def test_pause_is_acknowledged_at_once(open_train, recorded, qtbot):
    recorded.say("running")
    recorded.hold()
    _, dock = open_train()
    dock.open_study(str(recorded.folder.path))
    qtbot.waitUntil(lambda: dock.run.pause.isEnabled(), timeout=SLOW)
    dock.run.pause.click()
    assert "Pausing…" in dock.run.stands.text()
    assert not dock.run.pause.isEnabled()
    qtbot.waitUntil(lambda: recorded.folder.request() is Request.PAUSE, timeout=2_000)
    qtbot.wait(700)  # still, though it has not heard yet
    assert "Pausing…" in dock.run.stands.text()
    recorded.folder.clear_request()
    recorded.say("paused", request="pause")
    recorded.let_go()
    qtbot.waitUntil(lambda: "Paused." in dock.run.stands.text(), timeout=SLOW)
    assert dock.run.go_on.isVisibleTo(dock.run)
    assert not dock.run.pause.isVisibleTo(dock.run)


def test_stop_and_keep_is_asked_for(open_train, recorded, qtbot):
    recorded.say("running")
    recorded.hold()
    _, dock = open_train()
    dock.open_study(str(recorded.folder.path))
    qtbot.waitUntil(lambda: dock.run.stop.isEnabled(), timeout=SLOW)
    dock.run.keep_best.trigger()
    assert "Stopping…" in dock.run.stands.text()
    qtbot.waitUntil(
        lambda: recorded.folder.request() is Request.KEEP_BEST, timeout=2_000
    )
    # There was none yet: what is said stays in sight.
    recorded.folder.clear_request()
    recorded.say("stopped", stage="encode", message="There was no model to keep yet.")
    recorded.let_go()
    qtbot.waitUntil(lambda: "Stopped." in dock.run.stands.text(), timeout=SLOW)
    assert "no model to keep" in dock.run.says.text()
    assert dock.tabs.current != "Result"
    assert dock.run.go_on.isVisibleTo(dock.run)


@pytest.mark.parametrize("left_as", ["paused", "failed", "running"])
def test_what_nobody_does_can_be_stopped_or_discarded(
    open_train, recorded, qtbot, monkeypatch, left_as
):
    handed = []
    monkeypatch.setattr(
        watching, "hand_over_apart", lambda *asked: handed.append(asked)
    )
    run = recorded.folder.run(1)
    (run / "model").mkdir(parents=True)
    (run / "run.json").write_text('{"status": "begun"}')
    (run / "model/checkpoint.pt").write_bytes(b"")
    recorded.say(left_as)
    _, dock = open_train()
    dock.open_study(str(recorded.folder.path))
    qtbot.waitUntil(lambda: dock.run.stop.isEnabled(), timeout=SLOW)
    assert dock.run.go_on.isVisibleTo(dock.run)
    assert not dock.run.pause.isVisibleTo(dock.run)
    dock.run.keep_best.trigger()
    assert "Stopping…" in dock.run.stands.text()
    qtbot.waitUntil(lambda: bool(handed), timeout=SLOW)
    assert handed == [(recorded.folder, Request.KEEP_BEST)]
    qtbot.wait(700)
    assert "Stopping…" in dock.run.stands.text()
    assert recorded.folder.state().status == "stopping"
    # That came to nothing: it can still be discarded.
    recorded.say("failed", message="Its slides are gone.")
    qtbot.waitUntil(lambda: dock.run.discard.isEnabled(), timeout=SLOW)
    assert "Its slides are gone." in dock.run.says.text()
    dock.run.ask(Request.DISCARD)
    qtbot.waitUntil(lambda: "was discarded" in dock.run.stands.text(), timeout=SLOW)
    assert not run.exists()
    assert not dock.run.stop.isVisibleTo(dock.run)


def test_another_study_waits_and_leaves_the_queue(
    open_train, cohort, recorded, tmp_path, qtbot, monkeypatch
):
    monkeypatch.setattr(watching, "serve_apart", lambda queue: None)
    recorded.say("running")
    recorded.hold()
    _, dock = open_train()
    dock.queue.add(recorded.folder.path)
    dock.open_study(str(recorded.folder.path))
    qtbot.waitUntil(lambda: dock.run.pause.isEnabled(), timeout=SLOW)
    assert not dock.start.isVisibleTo(dock)
    dock.new_study()
    out = tmp_path / "second"
    dock.draft.set(features=str(cohort / "features"), goal="pretrain", out=str(out))
    qtbot.waitUntil(lambda: dock.start.isEnabled(), timeout=SLOW)
    dock.start.click()
    assert dock.study == out
    qtbot.waitUntil(lambda: "Waits for another study" in dock.run.stands.text())
    assert [one.folder.path for one in dock.queue.waiting()] == [
        recorded.folder.path,
        out,
    ]
    assert dock.run.pause.text() == "Leave the queue"
    dock.run.pause.click()
    qtbot.waitUntil(lambda: len(dock.queue.waiting()) == 1, timeout=SLOW)
    qtbot.waitUntil(lambda: dock.start.isVisibleTo(dock), timeout=SLOW)


def test_discard_asks_first(open_train, recorded, qtbot):
    recorded.say("running")
    recorded.hold()
    _, dock = open_train()
    dock.open_study(str(recorded.folder.path))
    qtbot.waitUntil(lambda: dock.run.discard.isEnabled(), timeout=SLOW)
    dock.run.discard.click()
    assert recorded.folder.request() is None
    (sure,) = (
        one for one in dock.run.question.findChildren(QPushButton)
        if one.text() == "Discard"
    )  # fmt: skip
    sure.click()
    assert "Discarding…" in dock.run.stands.text()
    qtbot.waitUntil(lambda: recorded.folder.request() is Request.DISCARD, timeout=2_000)


def test_found_again_and_what_became_of_it(open_train, recorded, qtbot):
    recorded.say("running")
    viewer, dock = open_train()
    dock.open_study(str(recorded.folder.path))
    dock.queue.add(recorded.folder.path)  # as when the power went
    file = dock.queue.file
    file.write_text(re.sub(r'"added": [\d.]+', '"added": 1.0', file.read_text()))
    viewer.window.remove_dock_widget(dock)
    _, again = open_train(viewer)
    assert again.study == recorded.folder.path
    assert again.tabs.current == "Run"
    qtbot.waitUntil(lambda: "broken off" in again.run.stands.text(), timeout=SLOW)
    assert "Nothing is lost" in again.run.says.text()
    assert again.run.go_on.isVisibleTo(again.run)
    again.queue.leave(recorded.folder.path)
    recorded.say("failed", message="There is no labels file x. Use 5 folds.")
    qtbot.waitUntil(lambda: "5 rounds" in again.run.says.text(), timeout=SLOW)
    recorded.say("failed", message="[Errno 28] No space left on device")
    qtbot.waitUntil(lambda: "disk is full" in again.run.says.text(), timeout=SLOW)
    recorded.say("finished", stage="report", message="Better by 8 points.")
    qtbot.waitUntil(lambda: "Finished" in again.run.stands.text(), timeout=SLOW)
    again.list.forgotten.emit(str(recorded.folder.path))
    assert again.study is None
    assert recorded.folder.settings.exists()


@pytest.mark.parametrize(
    ("status", "held", "wanted", "served", "before", "phase"),
    [
        (None, False, False, False, 0, Phase.NEW),
        (None, False, True, True, 1, Phase.WAITING),
        (None, False, True, True, 0, Phase.STARTING),
        ("paused", True, True, True, 0, Phase.STARTING),
        ("running", True, True, True, 0, Phase.RUNNING),
        ("pausing", True, False, True, 0, Phase.PAUSING),
        ("running", False, False, False, 0, Phase.LOST),
        ("running", False, True, False, 0, Phase.LOST),
        ("stopping", False, False, False, 0, Phase.STOPPING),
        ("failed", False, False, False, 0, Phase.FAILED),
        ("finished", False, False, True, 0, Phase.FINISHED),
    ],
)
def test_how_a_study_stands(recorded, status, held, wanted, served, before, phase):
    if status:
        recorded.say(status)
    state = recorded.folder.state()
    assert phase is phase_of(
        state, held=held, wanted=wanted, served=served, before=before
    )


def test_it_ended_though_nobody_took_note(recorded, tmp_path):
    """What starts studies was killed: what became of the study is in its folder."""
    queue = StudyQueue(tmp_path / "studies.json")
    reader = StudyReader(recorded.folder.path, queue)
    asked = QueuedStudy(str(recorded.folder.path), wanted=True, added=1000.0)
    queue.file.write_text(json.dumps([asdict(asked)]))
    recorded.say("finished", stage="report", when=2000.0)
    assert reader.look().phase is Phase.FINISHED
    # Asked again since, it has not begun.
    recorded.say("finished", stage="report", when=500.0)
    assert reader.look().phase is Phase.LOST


def test_events_of_no_numbers_end_no_watch(recorded, tmp_path):
    recorded.say("running")
    recorded.hold()
    epoch = epochs([2.0])[0]
    recorded.tell(
        {"event": "celldone", "cell": "c", "seconds": [], "when": {}},
        {**epoch, "step": 10**400},
        {**epoch, "loss": 10**400, "slides_per_second": float("nan")},
    )
    queue = StudyQueue(tmp_path / "studies.json")
    training = StudyReader(recorded.folder.path, queue).look().training
    assert training is not None
    assert (training.loss, training.rate) == ([], None)


def test_curves_of_patch_training(recorded, tmp_path):
    """Patches are another kind of thing to learn from, with epochs of their own."""
    recorded.say("running")
    recorded.hold()
    lines = [
        {**one, "event": "patchepoch", "patches_per_second": 80.0}
        for one in epochs([2.0, 1.5])
    ]
    for line in lines:
        del line["slides_per_second"]
    recorded.tell(*lines, validation(2, rank=5.0))
    look = StudyReader(
        recorded.folder.path, StudyQueue(tmp_path / "studies.json")
    ).look()
    assert look.training.loss == [(1.0, 2.0), (2.0, 1.5)]
    assert look.training.rank == [(2.0, 5.0)]
    assert "80 patches per second" in progress_words(look)


# Words, and whether everybody can use it


@pytest.fixture
def full(open_train, cohort, recorded, qtbot):
    """The dock with everything in it."""
    recorded.say("running")
    recorded.tell(*epochs([2.0, 1.0]), validation(2, 0.8, 0.75, spread=1e-6))
    recorded.tell({"event": "note", "message": "5 folds with --workers 2."})
    recorded.hold()
    viewer, dock = open_train(show=True)
    viewer.window.resize(1280, 800)
    dock.open_study(str(recorded.folder.path))
    dock.data._soon.stop()
    dock.data.findings.add(
        Finding(
            Rank.STOPS,
            About.FOLDS,
            "Too few patients for 5 folds in /a/very/long/path/that/has/no/spaces.csv.",
            "Ask for 2 folds, or use --ignore-split.",
        )
    )
    dock.goal.advanced.build()
    dock.views.advanced.build()
    qtbot.waitUntil(lambda: dock.run.curves is not None, timeout=SLOW)
    return viewer, dock


def test_no_jargon_outside_advanced(full):
    _, dock = full
    words = words_of(dock)
    for forms in (dock.goal.advanced, dock.views.advanced):
        for one in words_of(forms):
            words.remove(one)
    assert jargon_in(words) == set()
    assert not any(re.search(r"\s--[a-z]", one) for one in words)


def test_every_control_has_a_name_and_is_reached_by_tab(full):
    _, dock = full
    controls = controls_of(dock)
    assert len(controls) > 40
    for control in controls:
        named = control.accessibleName() or getattr(control, "text", str)()
        assert named, control
        assert control.focusPolicy() & Qt.FocusPolicy.TabFocus, named


@pytest.mark.parametrize(("theme", "times"), [("dark", 1), ("light", 1), ("dark", 2)])
def test_nothing_is_cut_off(full, qtbot, theme, times):
    viewer, dock = full
    viewer.theme = theme
    dock.goal.advanced.open()
    dock.views.advanced.open()
    settings = get_settings().appearance
    size = settings.font_size
    settings.font_size = times * size
    qtbot.wait(400)
    try:
        assert cut_off(dock) == []
    finally:
        settings.font_size = size
    assert viewer.window.geometry()[2] <= 1300


def test_the_wheel_changes_nothing(full, qtbot):
    _, dock = full
    dock.tabs.show_page("Goal")
    before = dock.goal.effort.currentIndex()
    from qtpy.QtCore import QPointF
    from qtpy.QtGui import QWheelEvent
    from qtpy.QtWidgets import QApplication

    for control in (dock.goal.effort, dock.list.list, dock.run.curves.loss):
        event = QWheelEvent(
            QPointF(5, 5), QPointF(control.mapToGlobal(QPoint(5, 5))), QPoint(0, -120),
            QPoint(0, -120), Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(control, event)
    assert dock.goal.effort.currentIndex() == before


def test_words():
    now = 1_700_000_000.0
    assert re.fullmatch(r"done about \d\d:\d\d", until_words(60, now))
    assert "tomorrow" in until_words(24 * 3600, now)
    assert re.search(r"done on \d\d \w+", until_words(5 * 24 * 3600, now))
    assert cell_words("features, mean, fold 1, seed 0") == "averaging patches, round 1"
    assert "--" not in plain("Use fewer --workers, or --ignore-split.")
    assert "fold" not in plain("5 folds; in a fold.")


def test_a_folder_beside_the_slides(tmp_path):
    slides = tmp_path / "lung" / "slides"
    slides.mkdir(parents=True)
    assert free_folder(slides) == tmp_path / "lung/lung-study"
    (tmp_path / "lung-study").mkdir()
    assert free_folder(tmp_path / "lung") == tmp_path / "lung-study-2"


def test_a_labels_file_that_is_gone_is_left_out(tmp_path):
    gone = LabelsSource.from_plain({"file": str(tmp_path / "no.csv"), "columns": {}})
    assert not gone.is_given


def test_labels_and_pages(full):
    """All pages of the dock are there, in their order."""
    _, dock = full
    assert list(dock.tabs.pages) == ["Data", "Goal", "Views", "Run", "Result"]
    assert all(isinstance(one, QLabel) for one in dock.data.findings.parts.values())
    QTest.qWait(1)
