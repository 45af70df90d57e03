"""Every command takes other tools' features as they are."""

import csv

import numpy as np
import pytest

from spt_core import load_model
from spt_core.cli import main
from spt_core.encoder_terms import terms_of
from spt_core.events import finish
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import train
from spt_core.studies.slide_mapping import map_slides
from spt_core.studies.study import study
from spt_core.studies.study_check import check_study
from spt_core.studies.study_finding import stops
from spt_core.studies.study_measure import measure_study
from spt_core.studies.study_settings import StudySettings
from spt_core.studies.study_stages import link_features
from spt_core.tokens import read_tokens
from spt_core.tokens.finding import features_in
from tests.foreign_cohort import KINDS, SLIDES, write_foreign_cohort

TINY = {"architecture": {"dim": 16, "depth": 1, "heads": 2}, "model": "small"}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def features(kind, tmp_path_factory):
    return write_foreign_cohort(tmp_path_factory.mktemp(kind), kind)


@pytest.fixture(scope="module")
def labels(kind, features):
    above = features.parents[1] if kind == "trident" else features.parent
    return above / "labels.csv"


@pytest.fixture(scope="module")
def model(kind, tmp_path_factory):
    """A tiny model of other slides in the same form."""
    folder = tmp_path_factory.mktemp("other")
    other = write_foreign_cohort(folder, kind, seed=1, prefix="t", people="q")
    settings = TrainSettings(
        features=str(other),
        labels=str(folder / "labels.csv"),
        objective="classify",
        out=str(folder / "run"),
        steps=2,
        device="cpu",
        **TINY,
    )
    finish(train(settings))
    return folder / "run" / "best.safetensors"


def said_of_places(said, kind):
    """Positions are off where nobody knows them, and that is said."""
    told = "12 of 12 feature files do not say where their patches lie" in said
    assert told is (kind == "bare")


def test_benchmark(kind, features, labels, tmp_path, capsys):
    words = ["benchmark", features, "--labels", labels, "--out", tmp_path / "out",
             "--methods", "mean", "abmil", "--folds", "2", "--steps", "2",
             "--workers", "1", "--device", "cpu"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    said = "".join(capsys.readouterr())
    said_of_places(said, kind)
    assert "12 labelled slides of 6 patients" in said
    assert (tmp_path / "out" / "report" / "report.html").exists()


def test_study(kind, features, tmp_path):
    settings = StudySettings(
        goal="pretrain", features=str(features), out=str(tmp_path), steps=2,
        device="cpu", workers=1, model="small",
    )  # fmt: skip
    found = check_study(settings)
    assert not stops(found)
    assert any("12 slides were found" in one.says for one in found)
    (time,) = measure_study(settings)
    assert "Learning takes about" in time.says
    if kind not in ("bare", "lazyslide"):  # the others are read by the same paths
        return
    result = finish(study(settings))
    assert load_model(result.model).card.training.slides == SLIDES


def test_evaluate(kind, features, labels, model, tmp_path, capsys):
    words = ["evaluate", model, features, "--labels", labels, "--folds", "2",
             "--out", tmp_path / "out", "--device", "cpu"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    said_of_places("".join(capsys.readouterr()), kind)


def test_embed_and_the_map_of_slides(kind, features, model, tmp_path, capsys):
    out = tmp_path / "out.csv"
    words = ["embed", features, "--model", "mean", "--include-slide-name"]
    assert main([str(word) for word in [*words, "--out", out]]) == 0
    said_of_places("".join(capsys.readouterr()), kind)
    with out.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    read = {one.facts.name: one for one in map(read_tokens, features_in(features))}
    assert [row[0] for row in rows] == sorted(read)
    h = np.array([row[1:] for row in rows], float)
    means = np.stack([read[name].x.mean(axis=0) for name in sorted(read)])
    np.testing.assert_allclose(h, means, atol=1e-5)
    found = finish(map_slides(features, load_model(model)))
    assert found.names == tuple(sorted(read))
    assert found.classes == ("a", "b")


def test_features_beside_slides_are_written_as_ours(kind, features, tmp_path):
    """A study of slides encodes those that have none; these lie in one folder."""
    assert link_features(features, tmp_path) == SLIDES
    assert link_features(features, tmp_path) == 0
    for path in features_in(features):
        theirs, ours = read_tokens(path), read_tokens(tmp_path / f"{path.stem}.h5")
        np.testing.assert_array_equal(ours.x, theirs.x)
        np.testing.assert_array_equal(ours.p, theirs.p)
        assert ours.facts.has_positions is theirs.facts.has_positions


def test_terms_of_the_encoder_are_said(tmp_path, capsys):
    """Of a model when it is trained, and of a map when it is written."""
    features = write_foreign_cohort(tmp_path, "trident")
    run = tmp_path / "run"
    words = ["train", features, "--objective", "classify", "--model", "small",
             "--labels", tmp_path / "labels.csv", "--out", run, "--steps", "2",
             "--dim", "16", "--depth", "1", "--heads", "2",
             "--device", "cpu"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    terms = f"go for this too: {', '.join(terms_of('uni_v1'))}."
    assert terms in " ".join("".join(capsys.readouterr()).split())
    words = ["heatmap", run / "best.safetensors", features / "s00.h5", "--out",
             tmp_path / "map.png", "--device", "cpu"]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert f"the patch encoder uni_v1 {terms}" in said
