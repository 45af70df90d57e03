"""What looks at embeddings: neighbours, spread, rank, a linear head, statistics."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spt_core.insight.predicting import _limit
from spt_core.learning.cohort import Cohort, CohortSlide
from spt_core.learning.linear_head import fit_linear_head
from spt_core.learning.statistics import (
    MEAN_TOKEN,
    QUANTILES,
    _summary,
    distance,
    training_statistics,
)
from spt_core.tokens import TokenFacts
from spt_core.training.curve import draw_curves
from spt_core.training.knn import knn_probabilities, mean_class_accuracy
from spt_core.training.signals import effective_rank, spread


def plain_knn(h_known, y_known, one, classes, k):
    cosines = [
        h @ one / np.linalg.norm(h) / np.linalg.norm(one) for h in np.asarray(h_known)
    ]
    shares = np.zeros(classes)
    for index in np.argsort(cosines)[::-1][:k]:
        shares[y_known[index]] += np.exp(cosines[index] / 0.07)
    return shares / shares.sum()


@pytest.mark.parametrize("known", [1, 2, 7, 40])
def test_knn_is_weighted_cosine_votes(known):
    rng = np.random.default_rng(known)
    h_known, h_asked = rng.normal(size=(known, 5)), rng.normal(size=(6, 5))
    y_known = rng.integers(0, 3, known)
    found = knn_probabilities(h_known, y_known, h_asked, 3)
    for row, one in zip(found, h_asked, strict=True):
        np.testing.assert_allclose(row, plain_knn(h_known, y_known, one, 3, 10))


def test_forbidden_neighbours_do_not_vote():
    h, y = np.eye(3), np.arange(3)
    forbidden = np.eye(3, dtype=bool)
    found = knn_probabilities(h, y, h, 3, forbidden=forbidden)
    np.testing.assert_allclose(np.diag(found), 0)
    nobody = knn_probabilities(h, y, h, 3, forbidden=np.ones((3, 3), bool))
    np.testing.assert_allclose(nobody, 1 / 3)


def test_mean_class_accuracy_counts_classes_alike():
    y, predicted = np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0])
    assert mean_class_accuracy(y, predicted) == 0.5


def test_spread_and_rank():
    rng = np.random.default_rng(0)
    same = np.ones((20, 8))
    assert spread(same) == pytest.approx(0, abs=1e-12)
    assert effective_rank(same) == 1
    assert spread(rng.normal(size=(2000, 8))) == pytest.approx(1, abs=0.05)
    assert effective_rank(rng.normal(size=(5000, 8))) == pytest.approx(8, abs=0.1)
    line = rng.normal(size=(50, 1)) * np.ones((1, 8))
    assert effective_rank(line) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_linear_head_is_the_logistic_regression(classes):
    rng = np.random.default_rng(0)
    y = np.arange(60) % classes
    h = rng.normal(size=(60, 4)) * [1, 5, 0.1, 1] + 0.5 * y[:, None] + 3
    head = fit_linear_head(h, y, [f"p{n}" for n in range(60)])
    found = head(torch.from_numpy(h).float()).softmax(-1).detach().numpy()
    matches = []
    for strength in (0.01, 0.1, 1.0, 10.0):
        plain = make_pipeline(
            StandardScaler(),
            LogisticRegression(C=strength, max_iter=2000, class_weight="balanced"),
        ).fit(h, y)
        matches.append(np.abs(plain.predict_proba(h) - found).max() < 1e-4)
    assert sum(matches) == 1


def test_few_slides_fit_a_head_too():
    h = np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 1.0]])
    head = fit_linear_head(h, np.array([0, 1, 0]), ["a", "b", "c"])
    assert head.weight.shape == (2, 2)


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_distances_are_those_of_slides_left_out(n):
    rng = np.random.default_rng(n)
    axes = rng.normal(size=(6, 6))
    points = rng.normal(size=(n, 6)) @ axes
    statistics = {
        name: torch.as_tensor(value, dtype=torch.float32)
        for name, value in _summary("embedding", points, range(n)).items()
    }
    quantiles = statistics["embedding_quantiles"]
    assert len(quantiles) == len(QUANTILES)
    assert torch.isfinite(quantiles).all()
    if n == 100:
        fresh = torch.from_numpy(rng.normal(size=(500, 6)) @ axes)
        far = distance(statistics, "embedding", fresh)
        # new slides of the same kind lie where the quantiles say
        assert 0.4 < (far < quantiles[0]).float().mean() < 0.6
        assert 0.85 < (far < quantiles[2]).float().mean() <= 1
        assert (distance(statistics, "embedding", fresh + 50) > quantiles[-1]).all()


def test_curves_are_drawn(tmp_path):
    path = tmp_path / "curve.png"
    draw_curves(path, {"loss": ([1, 2, 3], [3.0, 2.0, 1.5]), "knn": ([], [])})
    assert path.read_bytes().startswith(b"\x89PNG")
    draw_curves(path, {"loss": ([1], [2.0])})
    draw_curves(path, {})


def made_up_slides(rng, patients, axes, *, slides=4, within=0.1):
    """Mean tokens (patients, slides, dim): patients differ, their slides hardly."""
    middle = rng.normal(size=(patients, 1, len(axes)))
    return (middle + within * rng.normal(size=(patients, slides, len(axes)))) @ axes


def cohort_of(means, patients, tokens=8):
    place = np.stack([np.arange(tokens)] * 2, axis=1).astype(np.int32)
    return Cohort(
        [
            CohortSlide(
                name=f"slide{number}",
                p=place,
                facts=TokenFacts(),
                source=SimpleNamespace(shape=(tokens, len(mean)), dtype=mean.dtype),
                x=np.repeat(mean[None], tokens, axis=0),
                patient=patient,
            )
            for number, (mean, patient) in enumerate(zip(means, patients, strict=True))
        ]
    )


def called_unlike(statistics, means):
    far = distance(statistics, MEAN_TOKEN, torch.from_numpy(means))
    limit = _limit(MEAN_TOKEN, statistics[f"{MEAN_TOKEN}_quantiles"])
    return float((far > limit).float().mean())


@pytest.mark.parametrize("seed", range(4))
def test_slides_of_new_patients_are_not_unlike(seed):
    """20 patients with 4 slides each, whose slides resemble each other."""
    rng = np.random.default_rng(seed)
    axes = rng.normal(size=(64, 64)) * np.geomspace(1, 0.05, 64)
    means = made_up_slides(rng, 20, axes).reshape(-1, 64)
    names = [f"patient{n // 4}" for n in range(80)]
    order = rng.permutation(80)
    means, names = means[order], [names[n] for n in order]
    new = made_up_slides(rng, 100, axes).reshape(-1, 64)
    by_patient = training_statistics(cohort_of(means, names), means)
    by_slide = training_statistics(cohort_of(means, [None] * 80), means)
    assert called_unlike(by_patient, new) <= 0.01
    assert called_unlike(by_slide, new) > 0.1
    assert called_unlike(by_patient, new + 20) == 1
    assert {name: value.shape for name, value in by_patient.items()} == {
        name: value.shape for name, value in by_slide.items()
    }


def test_slides_of_a_single_patient_are_left_out_one_by_one():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(12, 6))
    one = training_statistics(cohort_of(means, ["a"] * 12), means)
    each = training_statistics(cohort_of(means, [None] * 12), means)
    for name, value in one.items():
        torch.testing.assert_close(value, each[name])
