"""Evaluation: the same code path as prediction, honest folds, calibration."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from spt_core import load_model, read_tokens
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.insight.calibration import softmax
from spt_core.insight.predicting import Patient, predict
from spt_core.insight.results import RemarkKind
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.model_card import Stage
from spt_core.learning.model_file import save_model
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import train
from spt_core.studies.evaluation import evaluate
from spt_core.studies.folds import patient_folds
from spt_core.studies.methods import OWN
from spt_core.studies.scores import METRICS, OutOfFold, fold_scores
from spt_core.studies.unseen import known_slides
from spt_core.tokens import read_labels
from tests.core.insight.conftest import changed, finish, trained_otherwise, write_cohort


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Slides of the trained model's kind that it has not seen."""
    folder = tmp_path_factory.mktemp("fresh")
    return write_cohort(folder, slides=24, seed=7, prefix="new", people="other")


@pytest.fixture(scope="module")
def evaluated(fresh, model_path):
    model = load_model(model_path)
    labels = read_labels(fresh / "labels.csv")
    found, _ = finish(evaluate(model, fresh / "features", labels, folds=2, repeats=2))
    return found


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_scikit_learns(classes):
    rng = np.random.default_rng(classes)
    y = np.arange(60) % classes
    shares = softmax(rng.normal(size=(60, classes)) + np.eye(classes)[y])
    run = OutOfFold(y, np.zeros(60, int), shares)
    found = {metric: fold_scores(run, metric)[0] for metric in METRICS}
    predicted = shares.argmax(1)
    kind = "binary" if classes == 2 else "macro"
    assert found["accuracy"] == pytest.approx(balanced_accuracy_score(y, predicted))
    assert found["f1"] == pytest.approx(f1_score(y, predicted, average=kind))
    scored = shares[:, 1] if classes == 2 else shares
    expected = roc_auc_score(y, scored, multi_class="ovr", average="macro")
    assert found["auc"] == pytest.approx(expected)


def test_a_learned_model_does_well_by_every_method(evaluated):
    methods = {row.method for row in evaluated.rows}
    assert methods == {"kNN", "linear", OWN, f"{OWN}, calibrated"}
    assert {row.embedding for row in evaluated.rows} == {"whole", "windows"}
    for row in evaluated.rows:
        if row.embedding == "whole":
            assert row.values["accuracy"].mean > 0.85, row
    assert evaluated.slides == 24
    assert evaluated.patients == 12


def test_the_own_classifier_is_what_predict_says(evaluated, fresh, model_path):
    model = load_model(model_path)
    labels = read_labels(fresh / "labels.csv").by_slide
    right = []
    for path in sorted((fresh / "features").glob("*.h5")):
        found = predict(model, read_tokens(path))
        right.append(found.classes[found.top] == labels[path.stem].label)
    own = evaluated.row(OWN).values["accuracy"].mean
    assert own == pytest.approx(np.mean(right), abs=0.02)


def test_folds_share_no_patient_and_every_slide_is_asked_once():
    patients = [f"p{number // 3}" for number in range(30)]
    y = np.repeat(np.arange(10) % 2, 3)
    asked_by_seed = []
    for seed in range(3):
        asked = []
        for learn, out in patient_folds(y, patients, 5, seed):
            assert not {patients[i] for i in learn} & {patients[i] for i in out}
            assert set(y[out]) == {0, 1}
            asked.append(tuple(out))
        assert sorted(i for out in asked for i in out) == list(range(30))
        asked_by_seed.append(sorted(asked))
    assert asked_by_seed[0] != asked_by_seed[1]


def test_slides_trained_on_are_left_out(trained, fresh, model_path, tmp_path):
    model = load_model(model_path)
    labels = read_labels(trained / "labels.csv")
    with pytest.raises(InputError, match="nothing is left"):
        finish(evaluate(model, trained / "features", labels, folds=3))
    both = tmp_path / "both"
    both.mkdir()
    lines = ["slide,label,patient"]
    for folder in (trained, fresh):
        for path in (folder / "features").glob("*.h5"):
            (both / path.name).write_bytes(path.read_bytes())
        lines += (folder / "labels.csv").read_text().splitlines()[1:]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    found, events = finish(
        evaluate(model, both, read_labels(tmp_path / "labels.csv"), folds=2)
    )
    assert (found.slides, found.left_out) == (24, 28)
    assert any("28 slides are left out" in str(event) for event in events)


def tuned_on(folder, start, out, objective="classify"):
    settings = TrainSettings(
        features=str(folder / "features"),
        labels=str(folder / "labels.csv"),
        objective=objective,
        out=str(out),
        init=str(start),
        epochs=1,
        batch_size=8,
        device="cpu",
        validate_epochs=10_000,
    )
    return load_model(finish(train(settings))[0].last)


def key_beside(path):
    return bytes.fromhex((path / "patients.key").read_text())


def test_what_a_model_began_from_is_not_forgotten(trained, fresh, model_path, tmp_path):
    first = tuned_on(fresh, model_path, tmp_path / "first", "simclr")
    found = tuned_on(fresh, tmp_path / "first" / "last.safetensors", tmp_path / "run")
    assert [stage.objective for stage in found.stages()] == [
        "classify",
        "simclr",
        "classify",
    ]
    one = read_tokens(trained / "features" / "slide004.h5")
    labels = read_labels(trained / "labels.csv")
    for model in (first, found):
        assert predict(model, one).trained_on
        with pytest.raises(InputError, match="nothing is left"):
            finish(evaluate(model, trained / "features", labels, folds=3))
    key = key_beside(tmp_path / "run")
    assert key == key_beside(trained / "run")
    assert found.trained_on_patient("person1", key)
    assert found.trained_on_patient("other1", key)
    assert not found.trained_on_patient("nobody", key)


def test_patients_under_a_key_that_is_not_at_hand_are_not_checked(
    fresh, model_path, trained, tmp_path
):
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes(model_path.read_bytes())
    found = tuned_on(fresh, alone, tmp_path / "run")
    key = key_beside(tmp_path / "run")
    assert not found.trained_on_patient("person1", key)
    assert found.trained_on_patient("person1", key_beside(trained / "run"))
    one = read_tokens(trained / "features" / "slide004.h5")
    one = replace(one, facts=replace(one.facts, slide_fingerprint="another"))
    (said,) = predict(found, one, patient=Patient("person1", key)).remarks
    assert said.kind == RemarkKind.PATIENT_NOT_CHECKED
    cohort = open_cohort(fresh / "features", read_labels(fresh / "labels.csv"))
    new = [
        replace(slide, facts=replace(slide.facts, slide_fingerprint=slide.name))
        for slide in cohort
    ]
    known = known_slides(found, Cohort(new), None)
    assert not known.learned
    (remark,) = known.remarks
    assert "Give --patients-key" in remark
    strangers = Cohort([replace(slide, patient="nobody") for slide in new])
    known = known_slides(found, strangers, key)
    assert not known.learned
    (remark,) = known.remarks
    assert "under another key" in remark


def test_slides_seen_without_labels_are_remarked_and_stay(fresh, mean_model):
    cohort = open_cohort(fresh / "features", read_labels(fresh / "labels.csv"))
    prints = [slide.fingerprint() for slide in cohort]
    earlier = Stage("simclr", frozenset(prints[2:10]), frozenset(), same_key=True)
    changed(mean_model, objective="classify")
    trained_otherwise(
        mean_model, slide_fingerprints=frozenset(prints[:4]), earlier=(earlier,)
    )
    known = known_slides(mean_model, cohort, None)
    assert known.learned == set(range(4))
    assert known.seen == set(range(4, 10))
    labels = read_labels(fresh / "labels.csv")
    found, _ = finish(evaluate(mean_model, fresh / "features", labels, folds=2))
    assert (found.slides, found.left_out) == (20, 4)
    said = " ".join(found.remarks)
    assert "trained, without labels, on 6 of these slides" in said
    assert "4 slides are left out" in said
    changed(mean_model, objective="simclr")
    trained_otherwise(mean_model, earlier=(replace(earlier, objective="supcon"),))
    assert known_slides(mean_model, cohort, None).learned == set(range(2, 10))


def test_a_model_that_does_not_say_what_it_began_from(fresh, mean_model):
    cohort = open_cohort(fresh / "features", read_labels(fresh / "labels.csv"))
    trained_otherwise(mean_model, from_pretrained=True)
    (remark,) = known_slides(mean_model, cohort, None).remarks
    assert "does not say what that was trained on" in remark
    trained_otherwise(mean_model, earlier=())
    assert known_slides(mean_model, cohort, None).remarks == ()


def test_command_writes_a_report_without_names_and_calibrates(
    fresh, model_path, tmp_path, capsys
):
    model = load_model(model_path)
    with torch.no_grad():  # overconfident
        model.classifier.weight.mul_(20)
    lines = (fresh / "labels.csv").read_text().splitlines()
    for number in (1, 2, 3, 4):  # four slides of which the labels are wrong
        flipped = {"a": "b", "b": "a"}[lines[number].split(",")[1]]
        lines[number] = ",".join((lines[number].split(",")[0], flipped, "other0"))
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(lines))
    bold, calm = tmp_path / "bold.safetensors", tmp_path / "calm.safetensors"
    save_model(bold, model)
    words = ["evaluate", bold, fresh / "features", "--labels", labels]
    words += ["--folds", 2, "--out", tmp_path / "report", "--calibrate", calm]
    assert main([str(word) for word in words]) == 0
    assert "| kNN | whole |" in capsys.readouterr().out
    report = json.loads((tmp_path / "report" / "evaluation.json").read_text())
    card = load_model(calm).card.calibration
    assert card.temperature == report["temperature"] > 1
    assert card.error_before > 0.1
    assert card.error_after < card.error_before
    one = read_tokens(fresh / "features" / "new000.h5")
    assert predict(load_model(calm), one).calibrated
    assert not predict(load_model(bold), one).calibrated
    with (tmp_path / "report" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    for path in (tmp_path / "report").iterdir():
        text = path.read_text(encoding="utf-8")
        assert "new0" not in text
        assert "other" not in text


def test_a_temperature_that_does_not_help_is_not_kept(fresh, model_path, tmp_path):
    """Of a model that is right and sure of it: any doubt added is too much."""
    model = load_model(model_path)
    with torch.no_grad():
        model.classifier.weight.mul_(20)
    sure, same = tmp_path / "sure.safetensors", tmp_path / "same.safetensors"
    save_model(sure, model)
    words = ["evaluate", sure, fresh / "features", "--labels", fresh / "labels.csv"]
    words += ["--folds", 2, "--out", tmp_path / "report", "--calibrate", same]
    assert main([str(word) for word in words]) == 0
    card = load_model(same).card.calibration
    assert card.error_after >= card.error_before
    assert card.temperature is None
    one = read_tokens(fresh / "features" / "new000.h5")
    assert not predict(load_model(same), one).calibrated
    page = (tmp_path / "report" / "evaluation.md").read_text(encoding="utf-8")
    assert "does not lower the calibration error" in page
    with (tmp_path / "report" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert min(max(float(row["a"]), float(row["b"])) for row in rows) > 0.99


def test_unlabelled_models_have_no_own_row(fresh, model_path):
    model = load_model(model_path)
    model.classifier = None
    labels = read_labels(fresh / "labels.csv")
    found, _ = finish(evaluate(model, fresh / "features", labels, folds=2))
    assert {row.method for row in found.rows} == {"kNN", "linear"}
    assert found.temperature is None
    assert len(found.predictions) == 24


def test_too_many_folds_is_a_sentence(fresh, model_path):
    labels = read_labels(fresh / "labels.csv")
    with pytest.raises(InputError, match="fewer than the 40 folds"):
        finish(evaluate(load_model(model_path), fresh / "features", labels, folds=40))
