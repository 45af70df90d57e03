"""What looks at embeddings: neighbours, spread, rank, a linear head, statistics."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spt_core.learning.linear_head import fit_linear_head
from spt_core.learning.statistics import QUANTILES, _summary, distance
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
        for name, value in _summary("embedding", points).items()
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
