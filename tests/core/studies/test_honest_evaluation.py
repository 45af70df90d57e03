"""What an evaluation claims is so: splits, patients, absent classes, intervals."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from spt_core import load_model, write_tokens
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.learning.model_file import save_model
from spt_core.studies.evaluation import evaluate
from spt_core.studies.evaluation_report import page
from spt_core.studies.methods import CALIBRATED, OWN
from spt_core.studies.table import PATIENTS
from spt_core.tokens import read_labels
from tests.core.insight.conftest import changed, finish, made_slide, trained_otherwise
from tests.made_tokens import grid_tokens


def cohort_of(folder, rows, *, header="slide,label,patient", noise=()):
    """Slides of the classes ``a`` and ``b`` as ``rows`` (name, class, other cells).

    Slides named in ``noise`` look like the other class.
    """
    rng = np.random.default_rng(5)
    lines = [header]
    for number, (name, label, *cells) in enumerate(rows):
        looks = "ab".index(label) ^ (name in noise)
        x, _ = made_slide(looks, rng)
        tokens = grid_tokens(x, name=name, slide_fingerprint=f"{folder.name}-{number}")
        write_tokens(folder / "features" / f"{name}.h5", tokens)
        lines.append(",".join((name, label, *cells)))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder / "features", read_labels(folder / "labels.csv")


def found_of(events):
    return finish(events)[0]


def test_a_split_is_honoured(tmp_path):
    """The slides of ``val`` look like the other class: asked or voting, they would
    spoil every score."""
    rows = [
        (f"s{i:02d}", "ab"[i % 2], f"p{i}", ("train", "val", "test")[i // 2 % 3])
        for i in range(36)
    ]
    spoiled = {name for name, *_, split in rows if split == "val"}
    features, labels = cohort_of(
        tmp_path, rows, header="slide,label,patient,split", noise=spoiled
    )
    found = found_of(evaluate("mean", features, labels))
    assert (found.slides, found.learned_from, found.folds) == (12, 12, None)
    assert found.row("kNN").values["accuracy"].mean == 1
    assert found.row("linear").values["accuracy"].mean == 1
    asked = {one["slide"] for one in found.predictions}
    assert len(asked) == 12
    text = page(found, "mean")
    assert "'val' took no part" in text
    assert "folds" not in text.split("|")[0]
    in_folds = found_of(evaluate("mean", features, labels, folds=2, ignore_split=True))
    assert in_folds.slides == 36
    assert in_folds.row("kNN").values["accuracy"].mean < 0.9


def test_a_split_without_test_or_with_new_classes_is_a_sentence(tmp_path):
    rows = [(f"s{i}", "ab"[i % 2], f"p{i}", "train" if i else "val") for i in range(8)]
    header = "slide,label,patient,split"
    features, labels = cohort_of(tmp_path, rows, header=header)
    with pytest.raises(InputError, match="no slide of it is 'test'"):
        finish(evaluate("mean", features, labels))
    rows = [(f"s{i}", "ab"[i > 5], f"p{i}", "test" if i > 5 else "") for i in range(8)]
    features, labels = cohort_of(tmp_path / "new", rows, header=header)
    with pytest.raises(InputError, match="split 'train' has the label b"):
        finish(evaluate("mean", features, labels))


def test_slides_of_train_may_vote_though_the_model_learned_them(tmp_path, mean_model):
    rows = [
        (f"s{i:02d}", "ab"[i % 2], f"p{i}", "test" if i > 11 else "train")
        for i in range(20)
    ]
    features, labels = cohort_of(tmp_path, rows, header="slide,label,patient,split")
    prints = frozenset(f"{tmp_path.name}-{i}" for i in range(12))
    changed(mean_model, objective="classify")
    trained_otherwise(mean_model, slide_fingerprints=prints)
    found = found_of(evaluate(mean_model, features, labels))
    assert (found.slides, found.learned_from, found.left_out) == (8, 12, 0)
    # A temperature of slides that the classifier learned would be too sure.
    assert not any(row.method == CALIBRATED for row in found.rows)
    assert any("No temperature could be fitted" in one for one in found.remarks)


def test_slides_that_chose_the_epoch_are_named(tmp_path, mean_model):
    rows = [(f"s{i:02d}", "ab"[i % 2], f"p{i}") for i in range(12)]
    features, labels = cohort_of(tmp_path, rows)
    prints = frozenset(f"{tmp_path.name}-{i}" for i in (0, 3, 4))
    trained_otherwise(mean_model, choice_fingerprints=prints)
    found = found_of(evaluate(mean_model, features, labels, folds=2))
    assert any("3 of the tested slides chose the model's epoch" in one
               for one in found.remarks)  # fmt: skip


def test_without_patients_the_report_does_not_speak_of_them(tmp_path):
    rows = [(f"s{i:02d}", "ab"[i % 2]) for i in range(24)]
    features, labels = cohort_of(tmp_path, rows, header="slide,label")
    found = found_of(evaluate("mean", features, labels, folds=2))
    assert found.patients is None
    text = page(replace(found, remarks=()), "mean")
    assert "patient" not in text
    assert "24 slides, classes a, b" in text
    assert any("patients are not known" in one for one in found.remarks)
    assert not any(row.level == PATIENTS for row in found.rows)


def test_patients_have_rows_of_their_own(tmp_path):
    """20 patients with four slides each, one of which is misleading: a patient's mean
    is right though a quarter of the slides is wrong."""
    rows = [(f"s{i:02d}{j}", "ab"[i % 2], f"p{i}") for i in range(20) for j in range(4)]
    wrong = {name for name, *_ in rows if name.endswith("3")}
    features, labels = cohort_of(tmp_path, rows, noise=wrong)
    found = found_of(evaluate("mean", features, labels, folds=4))
    assert (found.slides, found.patients, found.mixed_patients) == (80, 20, 0)
    slides = found.row("kNN").values["accuracy"]
    patients = found.row("kNN", level=PATIENTS).values["accuracy"]
    assert slides.mean == pytest.approx(0.75, abs=0.08)
    assert patients.mean > 0.95
    assert slides.low <= slides.mean <= slides.high
    assert slides.high - slides.low > 0


def test_patients_of_two_labels_are_counted_and_left_out_of_their_rows(tmp_path):
    rows = [(f"s{i:02d}", "ab"[i % 2], f"p{i % 12}") for i in range(24)]
    rows += [("x0", "a", "both"), ("x1", "b", "both")]
    features, labels = cohort_of(tmp_path, rows)
    found = found_of(evaluate("mean", features, labels, folds=2))
    assert found.mixed_patients == 1
    assert any("1 patients have slides of different labels" in r for r in found.remarks)


def test_few_patients_in_a_class_are_said(tmp_path):
    rows = [(f"s{i:02d}", "b" if i < 3 else "a", f"p{i}") for i in range(20)]
    features, labels = cohort_of(tmp_path, rows)
    found = found_of(evaluate("mean", features, labels, folds=3))
    few = [one for one in found.remarks if "very few" in one]
    assert few == ["Class b has 3 patients: its scores rest on very few."]


def test_a_vote_for_an_absent_class_is_an_error(tmp_path, mean_model):
    """A model of three classes that answers ``c`` to every slide is never right of
    slides of ``a`` and ``b``, whichever of these it finds likelier."""
    changed(mean_model, classes=("a", "b", "c"))
    head = torch.nn.Linear(mean_model.encoder.dim, 3)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([1.0, 0.0, 5.0]))
    mean_model.classifier = head
    rows = [(f"s{i:02d}", "ab"[i % 2], f"p{i}") for i in range(20)]
    features, labels = cohort_of(tmp_path, rows)
    found = found_of(evaluate(mean_model, features, labels, folds=2))
    assert found.row(OWN).values["accuracy"].mean == 0
    assert found.row("kNN").values["accuracy"].mean > 0.9
    assert set(found.predictions[0]) == {"slide", "label", "a", "b", "c"}


def test_several_models_are_runs_of_one_table(tmp_path, mean_model):
    rows = [(f"s{i:02d}", "ab"[i % 2], f"p{i}") for i in range(20)]
    features, labels = cohort_of(tmp_path, rows)
    one = found_of(evaluate([mean_model], features, labels, folds=2))
    two = found_of(evaluate([mean_model] * 3, features, labels, folds=2, repeats=2))
    assert (two.models, two.repeats) == (3, 2)
    assert "drawn 2 times" in page(two, "x")
    assert "3 models" in page(two, "x")
    assert one.row("kNN").values["accuracy"].mean == pytest.approx(
        two.row("kNN").values["accuracy"].mean, abs=0.1
    )


def test_labels_that_say_nothing_score_about_chance(tmp_path):
    """Noise labels: over draws of the folds, no method may claim anything."""
    rng = np.random.default_rng(2)
    rows = [(f"s{i:02d}", "ab"[rng.integers(2)], f"p{i}") for i in range(40)]
    noise = {name for name, *_ in rows if rng.random() < 0.5}
    features, labels = cohort_of(tmp_path, rows, noise=noise)
    found = found_of(evaluate("mean", features, labels, folds=5, repeats=4))
    for method in ("kNN", "linear"):
        score = found.row(method).values["accuracy"]
        assert score.low < 0.5 < score.high
        assert abs(score.mean - 0.5) < 0.2


def run(*words):
    return main([str(word) for word in words])


def test_pooling_is_evaluated_by_name_and_slides_are_named_on_request(tmp_path, capsys):
    rows = [(f"JANE{i:02d}", "ab"[i % 2], f"p{i}") for i in range(12)]
    features, _ = cohort_of(tmp_path, rows)
    labels = tmp_path / "labels.csv"
    for word in ("mean", "max"):
        out = tmp_path / word
        assert run("evaluate", word, features, "--labels", labels, "--folds", 2,
                   "--out", out) == 0  # fmt: skip
        assert "JANE" not in (out / "predictions.csv").read_text()
    report = json.loads((tmp_path / "mean" / "evaluation.json").read_text())
    score = report["rows"][0]["values"]["accuracy"]
    assert set(score) == {"mean", "sd", "low", "high"}
    assert (report["draws"], report["seed"]) == (2000, 0)
    out = tmp_path / "named"
    assert run("evaluate", "mean", features, "--labels", labels, "--folds", 2,
               "--repeats", 3, "--include-slide-name", "--out", out) == 0  # fmt: skip
    with (out / "predictions.csv").open() as file:
        assert {row["slide"] for row in csv.DictReader(file)} == {r[0] for r in rows}


def test_labels_of_patients_and_tcga_names_by_command(tmp_path, capsys):
    rows = [(f"TCGA-A1-A{i // 2:03d}-01Z-00-DX{i}", "ab"[i // 2 % 2])
            for i in range(16)]  # fmt: skip
    features, _ = cohort_of(tmp_path, rows, header="slide,label")
    words = ["evaluate", "mean", features, "--folds", 2]
    assert run(*words, "--labels", tmp_path / "labels.csv", "--out", tmp_path / "one",
               "--patient-from", "tcga") == 0  # fmt: skip
    text = (tmp_path / "one" / "evaluation.md").read_text(encoding="utf-8")
    assert "16 slides of 8 patients" in text
    assert "TCGA-A1-A000 (2)" in capsys.readouterr().err
    table = tmp_path / "slides.csv"
    table.write_text(
        "slide,patient\n" + "".join(f"{n},q{i // 2}\n" for i, (n, _) in enumerate(rows))
    )
    labels = tmp_path / "patients.csv"
    labels.write_text(
        "patient,label\n" + "".join(f"q{i},{'ab'[i % 2]}\n" for i in range(8))
    )
    assert run(*words, "--labels", labels, "--slide-table", table,
               "--out", tmp_path / "two") == 0  # fmt: skip
    text = (tmp_path / "two" / "evaluation.md").read_text(encoding="utf-8")
    assert "16 slides of 8 patients" in text


def test_embeddings_for_other_programs(tmp_path, mean_model):
    rows = [(f"JANE{i:02d}", "ab"[i % 2], f"p{i}") for i in range(4)]
    features, _ = cohort_of(tmp_path, rows)
    path = tmp_path / "model.safetensors"
    save_model(path, mean_model)
    assert run("embed", features, "--model", path, "--out", tmp_path / "h.npz") == 0
    assert run("embed", features, "--model", "mean", "--include-slide-name",
               "--out", tmp_path / "h.csv") == 0  # fmt: skip
    stored = np.load(tmp_path / "h.npz")
    assert not any("JANE" in name for name in stored["slide"])
    with (tmp_path / "h.csv").open() as file:
        named = {row.pop("slide"): list(map(float, row.values()))
                 for row in csv.DictReader(file)}  # fmt: skip
    assert list(named) == [name for name, *_ in rows]
    np.testing.assert_allclose(list(named.values()), stored["embedding"], rtol=1e-5)
    assert load_model(path).encoder.name == "mean"
    assert run("embed", features, "--model", "mean", "--out", tmp_path / "h.txt") == 1
