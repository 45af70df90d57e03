"""Prediction and its honesty."""

import csv
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.insight import results
from spt_core.insight.class_map import class_map, mean_window_embedding
from spt_core.insight.faithfulness import what_if
from spt_core.insight.predicting import Patient, predict, read_for
from spt_core.insight.wording import prediction_sentence
from spt_core.learning.model_card import Calibration
from spt_core.tokens import TokenFacts, read_tokens, write_tokens
from spt_core.training.stages import patient_hmac
from tests.core.insight.conftest import changed, finish, made_slide, trained_otherwise
from tests.made_tokens import DIM, grid_tokens


def test_result_types_maps_and_exploration_load_no_torch():
    code = (
        "import sys, spt_core.insight.results, spt_core.insight.maps, "
        "spt_core.insight.exploring, spt_core.insight.windows, "
        "spt_core.insight.calibration, spt_core.insight.geojson, "
        "spt_core.insight.overlay, spt_core.insight.exporting, "
        "spt_core.insight.tissue_map, spt_core.insight.wording; "
        "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_prediction_is_that_of_the_bare_weights(trained, model, model_path):
    """Recomputed from the file's own tensors with torch's plain attention."""
    tokens = read_for(model, trained / "features" / "slide003.h5")
    found = predict(model, tokens)
    h, attention = model.encoder.attend(
        torch.from_numpy(tokens.x), torch.from_numpy(tokens.p)
    )
    with safe_open(model_path, "pt") as file:
        weight, bias = file.get_tensor("class.weight"), file.get_tensor("class.bias")
    expected = torch.softmax((weight @ h + bias).double(), 0).numpy()
    np.testing.assert_allclose(found.probabilities, expected, rtol=1e-5)
    np.testing.assert_array_equal(found.attention, attention.numpy())
    np.testing.assert_array_equal(found.embedding, h.numpy())
    assert found.classes == ("a", "b")
    assert found.is_whole
    assert found.seen == len(tokens)


def test_learned_classes_of_new_slides(model):
    rng = np.random.default_rng(5)
    right = 0
    for number in range(20):
        x, _ = made_slide(number % 2, rng)
        found = predict(model, grid_tokens(x))
        right += found.answer == "ab"[number % 2]
        assert not found.trained_on
    assert right >= 18


def test_slides_like_and_unlike_the_training(model):
    rng = np.random.default_rng(6)
    alike = [predict(model, grid_tokens(made_slide(k % 2, rng)[0])) for k in range(20)]
    unlike = [
        predict(model, grid_tokens(made_slide(k % 2, rng, shift=1.5)[0]))
        for k in range(20)
    ]
    assert sum(one.verdict == results.Verdict.UNLIKE for one in alike) <= 1
    assert all(one.verdict == results.Verdict.UNLIKE for one in unlike)
    assert all(one.answer is None for one in unlike)
    assert prediction_sentence(unlike[0]).startswith(
        "Unlike the slides this model learned from."
    )


def test_close_classes_are_undecided(mean_model):
    x = np.zeros((40, DIM))
    x[:, 0] = 0.01
    found = predict(mean_model, grid_tokens(x))
    assert found.verdict == results.Verdict.UNDECIDED
    assert found.answer is None
    assert "ndecided" in prediction_sentence(found)
    assert predict(mean_model, grid_tokens(x), margin=0.0).answer == "a"


def test_scores_are_named_for_what_they_are(mean_model):
    tokens = grid_tokens(np.ones((40, DIM)) * 0.2)
    bare = predict(mean_model, tokens)
    assert "uncalibrated score" in prediction_sentence(bare)
    changed(mean_model, calibration=Calibration(temperature=2.0))
    calibrated = predict(mean_model, tokens)
    assert calibrated.calibrated
    assert "uncalibrated" not in prediction_sentence(calibrated)
    odds = np.log(bare.probabilities[0] / bare.probabilities[1])
    halved = np.log(calibrated.probabilities[0] / calibrated.probabilities[1])
    assert halved == pytest.approx(odds / 2)


def test_a_temperature_that_does_not_help_is_not_applied(mean_model):
    tokens = grid_tokens(np.ones((40, DIM)) * 0.2)
    bare = predict(mean_model, tokens)
    for before, after, helps in ((0.2, 0.1, True), (0.1, 0.1, False), (0, 0.1, False)):
        known = Calibration(temperature=2.0, error_before=before, error_after=after)
        changed(mean_model, calibration=known)
        found = predict(mean_model, tokens)
        assert found.calibrated is helps
        assert (found.probabilities == bare.probabilities).all() is not helps
        assert ("uncalibrated score" in prediction_sentence(found)) is not helps


def test_calibration_is_claimed_of_whole_slides_alone(mean_model):
    tokens = grid_tokens(np.ones((40, DIM)) * 0.2)
    known = Calibration(temperature=2.0, error_before=0.2, error_after=0.1)
    changed(mean_model, calibration=known)
    whole = predict(mean_model, tokens, total=40)
    part = predict(mean_model, tokens, total=41)
    assert whole.calibrated
    assert not part.calibrated
    assert (part.probabilities == whole.probabilities).all()  # by another name
    assert "uncalibrated score" in prediction_sentence(part)
    drawn, _ = finish(class_map(mean_model, tokens))
    assert not drawn.calibrated
    asked = what_if(mean_model, tokens, np.arange(40) < 10)
    assert asked.before.calibrated
    assert not asked.after.calibrated


def test_a_slide_or_patient_of_the_training_is_said(trained, model, mean_model):
    tokens = read_for(model, trained / "features" / "slide004.h5")
    found = predict(model, tokens)
    assert found.trained_on
    assert "trained on this very slide" in prediction_sentence(found)
    key = bytes.fromhex((trained / "run" / "patients.key").read_text())
    fresh = grid_tokens(made_slide(0, np.random.default_rng(9))[0])
    assert predict(model, fresh, patient=Patient("person1", key)).trained_on
    assert not predict(model, fresh, patient=Patient("nobody", key)).trained_on
    trained_otherwise(mean_model, patient_hmacs=frozenset({patient_hmac("x", b"k")}))
    assert not predict(mean_model, fresh, patient=Patient("x", b"other")).trained_on


@pytest.mark.parametrize("stored", [np.float16, np.float32, np.float64])
def test_a_device_without_double_precision_predicts(
    trained, model, no_double_on_the_device, stored
):
    tokens = read_for(model, trained / "features" / "slide004.h5")
    tokens = replace(tokens, x=tokens.x.astype(stored))
    found = predict(model, tokens)
    assert found.likeness is not None
    assert found.probabilities.dtype == np.float64
    finish(class_map(model, tokens, stride=8))
    assert np.isfinite(mean_window_embedding(model, tokens)).all()


def test_files_without_fingerprint_are_known_by_their_tokens(tmp_path, mean_model):
    """In the precision that the file holds, as training saw it."""
    from spt_core.learning.cohort import open_cohort

    x = np.random.default_rng(0).normal(size=(50, DIM)).astype(np.float16)
    tokens = grid_tokens(x)
    path = tmp_path / "other.h5"
    half = tokens.__class__(x, tokens.p, tokens.xy, tokens.facts)
    write_tokens(path, half)
    (slide,) = open_cohort([path])
    trained_otherwise(mean_model, slide_fingerprints=frozenset({slide.fingerprint()}))
    assert predict(mean_model, read_for(mean_model, path)).trained_on


@pytest.mark.parametrize(
    "change",
    [{"encoder": "another"}, {"mpp": 0.25}, {"patch_size": 224}, {"stain": "macenko"}],
)
def test_tokens_of_another_kind_are_refused(mean_model, change):
    tokens = grid_tokens(np.zeros((4, DIM)), **change)
    with pytest.raises(InputError, match="do not fit this model"):
        predict(mean_model, tokens)
    with pytest.raises(InputError, match="token length"):
        predict(mean_model, grid_tokens(np.zeros((4, DIM + 1))))


def test_an_empty_slide_says_so(model):
    found = predict(model, grid_tokens(np.zeros((0, DIM))))
    assert found.verdict == results.Verdict.EMPTY
    assert prediction_sentence(found).startswith("No tissue")
    assert found.attention.shape == (2, 0)


def test_one_token(model):
    found = predict(model, grid_tokens(np.ones((1, DIM))))
    assert found.attention.shape == (2, 1)
    assert found.probabilities.sum() == pytest.approx(1)
    assert found.likeness is None


def test_a_model_without_classes_still_attends(mean_model):
    mean_model.classifier = None
    found = predict(mean_model, grid_tokens(np.ones((9, DIM))))
    assert found.verdict == results.Verdict.NO_CLASSES
    assert found.probabilities is None
    assert "names no classes" in prediction_sentence(found)


def run_command(capsys, *words):
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


def test_command_writes_json_and_csv_under_pseudonyms(
    trained, model_path, tmp_path, capsys
):
    features = trained / "features"
    code, said = run_command(
        capsys, "predict", model_path, features, "--out", tmp_path / "out.json"
    )
    assert code == 0
    assert "slide000: " in said.out
    records = json.loads((tmp_path / "out.json").read_text())
    assert len(records) == 28
    assert "slide0" not in (tmp_path / "out.json").read_text()
    assert len({one["slide"] for one in records}) == 28
    assert all(one["slide"].startswith("slide-") for one in records)
    two = [features / "slide000.h5", features / "slide001.h5"]
    code, _ = run_command(
        capsys, "predict", model_path, *two, "--out", tmp_path / "out.csv",
        "--include-slide-name", "--labels", trained / "labels.csv",
    )  # fmt: skip
    assert code == 0
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["slide"] for row in rows] == ["slide000", "slide001"]
    assert float(rows[0]["a"]) == pytest.approx(records[0]["probabilities"]["a"])


def test_command_speaks_json_lines(trained, model_path, capsys):
    path = trained / "features" / "slide002.h5"
    code, said = run_command(capsys, "predict", "--json", model_path, path)
    assert code == 0
    (line,) = said.out.splitlines()
    record = json.loads(line)
    assert record["slide"] == "slide002"
    assert set(record["probabilities"]) == {"a", "b"}


def test_one_bad_file_does_not_stop_the_others(trained, model_path, tmp_path, capsys):
    bad = tmp_path / "bad.h5"
    tokens = read_tokens(trained / "features" / "slide000.h5")
    write_tokens(
        bad,
        tokens.__class__(tokens.x, tokens.p, tokens.xy, TokenFacts(encoder="x")),
    )
    good = trained / "features" / "slide001.h5"
    code, said = run_command(capsys, "predict", model_path, bad, good)
    assert code == 1
    assert "slide001: " in said.out
    assert "do not fit" in said.err


def test_wrong_usage_is_a_sentence(trained, model_path, capsys):
    path = trained / "features" / "slide001.h5"
    assert run_command(capsys, "predict", model_path, path, "--out", "x.txt")[0] == 1
    assert run_command(capsys, "predict", model_path, "nowhere")[0] == 1
    assert run_command(capsys, "predict", path, path)[0] == 1
