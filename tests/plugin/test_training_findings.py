"""What the dock finds of real files, by the check's own process, in a real viewer."""

import csv
from itertools import product

import numpy as np
import pytest

from spt_core.bundled import encoder_path
from spt_core.patches.encoder_card import read_encoder_card
from spt_core.studies.study_finding import About, Rank
from spt_core.tokens import TokenFacts, Tokens, write_tokens
from tests.made_slides import picture, write_svs
from tests.plugin.dock_tools import jargon_in, words_of
from tests.plugin.test_training_dock import SLOW, open_train  # noqa: F401


def write_labels(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("slide", "label", "patient", "site", "split"))
        writer.writerows(rows)
    return path


def encoded(folder, name):
    """Features of a slide as the study would make them."""
    card = read_encoder_card(encoder_path())
    cells = np.stack(np.divmod(np.arange(64), 8), axis=1)
    facts = TokenFacts(
        name=name,
        encoder=card.name,
        mpp=card.mpp,
        patch_size=card.patch_size,
        stain="none",
        l0_patch_xy=(128, 128),
        l0_step_xy=(128, 128),
        slide_fingerprint=name,
    )
    x = np.random.default_rng(0).normal(size=(64, card.dim)).astype(np.float32)
    tokens = Tokens(x, cells, cells[:, ::-1] * 128, facts)
    write_tokens(folder / f"{name}.h5", tokens)


@pytest.fixture
def cohort(tmp_path):
    """Twelve slides that can be used; one that cannot be read; one of no pixel size."""
    slides = tmp_path / "slides"
    slides.mkdir()
    rows = []
    for number in range(12):
        name = f"s{number:02}"
        write_svs(slides / f"{name}.svs", picture(480, 480))
        encoded(tmp_path / "out/features", name)
        rows.append([name, "ab"[number % 2], f"p{number}", "one", ""])
    (slides / "broken.svs").write_bytes(b"nothing")
    write_svs(slides / "bare.svs", picture(480, 480), mpp=None)
    rows += [["gone", "a", "p90", "one", ""], ["bare", "a", "p91", "two", ""]]
    rows[0][1] = ""  # a slide without a label
    return tmp_path, rows


def found_by(dock, qtbot):
    def is_done():
        return dock.data.is_looked_at and not dock.data.checker.is_at_work

    qtbot.waitUntil(is_done, timeout=SLOW)
    shown = {
        rank: part.text().replace("&#8203;", "").replace("\u200b", "")
        for rank, part in dock.data.findings.parts.items()
        if not part.isHidden()
    }
    for one in dock.data.findings.found:
        assert one.do or one.rank is Rank.FINE  # whatever is wrong has a remedy
    assert jargon_in(words_of(dock.data)) == set()
    return shown, {(one.rank, one.about) for one in dock.data.findings.found}


def test_findings_of_real_files(open_train, cohort, qtbot):  # noqa: F811
    folder, rows = cohort
    labels = write_labels(folder / "labels.csv", rows)
    _, dock = open_train()
    dock.draft.set(
        slides=str(folder / "slides"), out=str(folder / "out"), goal="classify"
    )
    dock.data.take_labels(str(labels))
    shown, found = found_by(dock, qtbot)
    doubtful, fine = shown[Rank.DOUBTFUL], shown[Rank.FINE]
    assert "1 of 14 slides cannot be read" in doubtful
    assert "1 slides have no usable pixel size (bare.svs)" in doubtful
    assert "slides of the labels are not there" in doubtful
    assert "1 of 12 slides have no label" in doubtful
    assert "There are 11 patients" in doubtful
    assert "13 slides were found and can be read" in fine
    assert "Pixels are 0.499" in fine
    assert "12 of 13 slides are read already" in fine
    assert "Classes by patients: a 5, b 6" in fine
    # All is read: what is left is to learn, and when that is done is measured.
    assert "Learning takes about" in fine
    assert "The study is done about" in fine
    assert {about for _, about in found} >= {
        About.SLIDES, About.PIXEL_SIZE, About.FEATURES, About.LABELS, About.CLASSES,
        About.PATIENTS, About.FOLDS, About.TIME,
    }  # fmt: skip
    assert dock.start.isEnabled()
    # A patient on both sides of a split stops it.
    for number, row in enumerate(rows):
        row[4] = ("train", "test")[number % 2]
    rows[3][2] = rows[2][2]
    write_labels(labels, rows)
    dock.data.again.click()
    shown, found = found_by(dock, qtbot)
    assert "patient p2 is in test and train" in shown[Rank.STOPS]
    assert not dock.start.isEnabled()
    # So does a class that is too small, and a class of one site is doubted.
    for number, row in enumerate(rows):
        row[4], row[2] = "", f"p{number}"
        row[1] = "c" if number == 3 else "ab"[number % 2]
        row[3] = "one" if number % 2 else ("one", "two")[number // 2 % 2]
    write_labels(labels, rows)
    dock.data.again.click()
    shown, found = found_by(dock, qtbot)
    assert "c has 1" in shown[Rank.STOPS]
    assert (Rank.DOUBTFUL, About.SITES) in found
    assert "are of one site" in shown[Rank.DOUBTFUL]


def test_labels_of_any_common_kind(open_train, tmp_path):  # noqa: F811
    _, dock = open_train()
    dock.draft.set(slides=str(tmp_path), out=str(tmp_path / "out"))
    for delimiter, encoding in product(",;\t", ("utf-8-sig", "utf-16", "cp1252")):
        take_labels_of(dock, tmp_path, delimiter, encoding)


def take_labels_of(dock, folder, delimiter, encoding):
    path = folder / "fälle.csv"
    lines = [("Datei", "Befund", "Case ID"), ("a.svs", "Größe", "p1")]
    lines += [("b.svs", "klein", "p2")]
    text = "".join(delimiter.join(line) + "\r\n" for line in lines)
    path.write_bytes(text.encode(encoding))
    dock.data._soon.stop()
    dock.data.take_labels(str(path))
    dock.data._soon.stop()
    lists = dock.data.lists
    assert lists["patient"].currentText() == "Case ID"
    for meaning, column in (("slide", "Datei"), ("label", "Befund")):
        assert lists[meaning].currentIndex() == 0  # a name that nobody can guess
        lists[meaning].setCurrentText(column)
        lists[meaning].activated.emit(lists[meaning].currentIndex())
        dock.data._soon.stop()
    assert "Größe 1, klein 1" in dock.data.summary.text()
