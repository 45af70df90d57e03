"""What says whose a slide is stands in no file that a dock writes but in labels.csv.

Identifiers are planted in a slide's name, its properties, its label pictures and in
tables of labels; then the docks work, and every file is searched, also while they do.
"""

import csv
import tempfile
import time
from pathlib import Path

import pytest
from qtpy.QtCore import QPoint, Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

from napari_spt.parts.settings import remember
from napari_spt.training import watching
from spt_core.engine.session_folder import PREFIX
from spt_core.insight.exporting import FORMATS
from tests.made_slides import picture, write_svs
from tests.plugin.dock_tools import open_slide, wait_ended
from tests.plugin.test_slide_map import open_map, write_features  # noqa: F401
from tests.plugin.test_training_dock import open_train  # noqa: F401

SLOW = 120_000
NAME, PATIENT, LABELS = "ZQNAME", "ZQPATIENT", "labels.csv"
# What write_svs plants beside them.
SECRETS = (PATIENT, "1234567", "b414003d", "Doe^", "DOE JANE")


class Kept:
    """All that was ever seen in the folders that docks write to: paths and contents."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders
        self.contents: dict[str, set[bytes]] = {}

    def look(self) -> None:
        folders = [*self.folders, *_session_folders()]
        for path in (one for folder in folders for one in folder.rglob("*")):
            try:
                content = path.read_bytes() if path.is_file() else b""
            except OSError:  # the engine's files come and go
                continue
            self.contents.setdefault(str(path), set()).add(content)

    def holding(self, word: str) -> set[Path]:
        """Files whose content or whose path below our folders has the word."""
        found = set()
        for place, contents in self.contents.items():
            if any(word.encode() in one for one in contents) or word in place:
                found.add(Path(place))
        return found


def _session_folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"))


@pytest.fixture
def slides(tmp_path):
    folder = tmp_path / "given" / "slides"
    folder.mkdir(parents=True)
    write_svs(folder / f"{NAME}0.svs", picture(1400, 1200), mpp=0.5)
    return folder


@pytest.fixture
def out(tmp_path, monkeypatch):
    for name in ("config", "cache", "exports", "study"):
        (tmp_path / "out" / name).mkdir(parents=True)
    monkeypatch.setenv("NAPARI_SPT_CONFIG", str(tmp_path / "out" / "config"))
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path / "out" / "cache"))
    return tmp_path / "out"


@pytest.fixture
def kept(out):
    return Kept(out)


def secrets_in(kept, *, but=()):
    return {
        (secret, path)
        for secret in SECRETS
        for path in kept.holding(secret)
        if path not in but
    }


def watched_until(kept, condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        QApplication.processEvents()
        kept.look()
        time.sleep(0.02)


def test_the_analysis_dock(open_dock, slides, out, kept, qtbot):
    viewer, dock = open_dock()
    open_slide(viewer, slides / f"{NAME}0.svs")
    dock.run.analyse.click()
    watched_until(kept, lambda: dock.state.analysis and not dock.state.analysis.is_open)
    analysis = wait_ended(qtbot, dock)
    assert analysis.failure is None
    assert analysis.prediction is not None
    endings = {ending for one in FORMATS for ending in one.endings}
    for ending in sorted(endings):
        dock.export.write(out / "exports" / f"{dock.export.proposed_name}{ending}")
        watched_until(kept, dock.export.export.isEnabled)
    kept.look()
    assert len(list((out / "exports").iterdir())) == len(endings)
    assert list((out / "cache").rglob("*.h5"))
    assert secrets_in(kept) == set()
    # The settings remember what was opened, and features are kept under no name.
    settings = out / "config" / "settings.json"
    assert kept.holding(NAME) <= {settings} | in_session(kept)


def in_session(kept):
    return {Path(p) for p in kept.contents if Path(p).parent.name.startswith(PREFIX)}


def test_the_train_dock(open_train, slides, out, kept, qtbot, monkeypatch):  # noqa: F811
    # What the study's own process writes is searched with the commands.
    monkeypatch.setattr(watching, "serve_apart", lambda queue: None)
    monkeypatch.setattr(tempfile, "tempdir", str(out / "temporary"))
    (out / "temporary").mkdir()
    study = out / "study" / "s"
    _, dock = open_train()
    dock.draft.set(slides=str(slides), out=str(study))
    dock.data.by_hand.setChecked(True)
    qtbot.waitUntil(lambda: dock.data.table.rowCount() == 1, timeout=SLOW)
    picture_there = dock.data.table.item(0, 0).icon
    qtbot.waitUntil(lambda: not picture_there().isNull(), timeout=SLOW)
    dock.data.table.setCurrentCell(0, 1)
    dock.data.table.paste(f"a\t{PATIENT}0\n")
    settings = dock.draft.prepared_settings()
    assert settings.labels == str(study / LABELS)
    assert dock.draft.checked_settings().labels != settings.labels
    kept.look()
    watching.begin_study(settings, dock.queue)
    dock._watch(study)
    qtbot.waitUntil(lambda: dock.run.last is not None, timeout=SLOW)
    kept.look()
    assert (out / "config" / "studies.json").exists()
    tables = {path for path in kept.holding(PATIENT) if path.name == LABELS}
    (temporary,) = tables - {study / LABELS}
    assert secrets_in(kept, but=tables) == set()
    assert kept.holding(NAME) == tables
    # What was written for looking at the data goes with the dock.
    dock.leave()
    assert not temporary.exists()
    assert (study / LABELS).exists()


def test_the_map_of_slides(open_map, slides, out, kept, qtbot):  # noqa: F811
    given = slides.parent
    (given / "features").mkdir()
    with (given / LABELS).open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["slide", "label", "patient", "site"])
        for i in range(9):
            write_features(given / "features", f"{NAME}{i}", i % 2, f"print {i}")
            table.writerow([f"{NAME}{i}", "ab"[i % 2], f"{PATIENT}{i}", "x"])
    remember("asked_default_reader", True)
    _, dock = open_map()
    dock.sources.choose_features(given)
    QTest.mouseClick(dock.draw, Qt.MouseButton.LeftButton)
    watched_until(kept, lambda: dock._asked is None)
    assert not dock.trouble.text()
    qtbot.waitUntil(lambda: bool(dock.files), timeout=SLOW)
    dock.view.plot.setFocus()
    dock.lists.choose(range(9))
    plain, named = out / "exports" / "plain.csv", out / "exports" / "named.csv"
    dock.lists.save_to(plain)
    dock.lists.named.setChecked(True)
    dock.lists.save_to(named)
    QTest.mouseMove(dock.view.plot, QPoint(5, 5))
    kept.look()
    assert len(plain.read_text().splitlines()) == 10
    assert list((out / "cache").rglob("*")), "places are kept"
    assert secrets_in(kept) == set()
    settings = out / "config" / "settings.json"
    assert kept.holding(NAME) <= {settings, named} | in_session(kept)
