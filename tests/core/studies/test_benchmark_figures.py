"""What a benchmark's figures are drawn from, against others' computations."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.studies.benchmark_curves import (
    confusion,
    mean_roc,
    roc_curve,
    variant_places,
)
from spt_core.studies.benchmark_maps import (
    attention_figure,
    position_figure,
    slide_places,
)
from spt_core.studies.benchmark_positions import position_similarity
from spt_core.studies.benchmark_result import AttentionExample
from spt_core.studies.scores import OutOfFold
from spt_core.studies.svg import Plot


def made_run(seed, n=80, classes=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    # Rounded, so that many shares are alike.
    shares = np.round(rng.dirichlet(np.ones(classes), n) + 0.3 * np.eye(classes)[y], 1)
    return OutOfFold(y, rng.integers(-1, 3, n), shares)


def test_roc_is_scikit_learns():
    run = made_run(0)
    positive = run.y == 1
    false, true = roc_curve(positive, run.shares[:, 1])
    wanted = metrics.roc_curve(positive, run.shares[:, 1], drop_intermediate=False)
    np.testing.assert_allclose(false, wanted[0])
    np.testing.assert_allclose(true, wanted[1])


def test_the_mean_area_is_that_of_the_folds():
    runs = [made_run(1), made_run(2)]
    _, area = mean_roc(runs, 2)
    wanted = [
        metrics.roc_auc_score(y == 2, shares[:, 2])
        for run in runs
        for _, y, shares in run.parts()
    ]
    assert area == pytest.approx(np.mean(wanted))
    curve, _ = mean_roc(runs, 2)
    assert (curve[0], curve[-1]) == (0, 1)
    assert (np.diff(curve) >= 0).all()
    assert mean_roc([OutOfFold(np.zeros(4, int), np.zeros(4, int), runs[0].shares[:4])],
                    1) is None  # fmt: skip


def test_confusion_is_scikit_learns():
    runs = [made_run(3), made_run(4)]
    wanted = [
        metrics.confusion_matrix(
            run.y[run.fold >= 0],
            run.shares[run.fold >= 0].argmax(axis=1),
            labels=range(3),
        )
        for run in runs
    ]
    np.testing.assert_allclose(confusion(runs, 3), np.mean(wanted, axis=0))


def test_maps_keep_neighbours_and_are_the_same_again():
    rng = np.random.default_rng(0)
    group = np.arange(40) % 2
    h = 8 * np.eye(2)[group] @ rng.normal(size=(2, 16)) + rng.normal(size=(40, 16))
    places = slide_places(h)
    assert metrics.silhouette_score(places, group) > 0.5
    np.testing.assert_array_equal(places, slide_places(h))
    # Lengths of embeddings do not count, as they do not for the neighbours' votes.
    np.testing.assert_allclose(places, slide_places(h * 7), atol=1e-3)


@pytest.mark.parametrize("n", [6, 7, 31])
def test_maps_of_few_slides(n):
    h = np.random.default_rng(n).normal(size=(n, 5))
    assert slide_places(h).shape == (n, 2)


@pytest.mark.parametrize(
    "h", [np.zeros((0, 4)), np.ones((5, 4)), np.ones((20, 4)), np.full((9, 4), np.nan)]
)
def test_there_is_no_map_of_nothing(h):
    assert slide_places(h).shape == (0, 2)


def test_positions_are_as_alike_as_the_encoder_has_them():
    torch.manual_seed(0)
    encoder = SlideEncoder(8, dim=12, depth=1, heads=2)
    found = position_similarity(encoder, side=9, squares=3)
    assert found.shape == (3, 3, 9, 9)
    for a, row in enumerate((1, 4, 7)):
        for b, col in enumerate((1, 4, 7)):
            here = encoder.positions(torch.tensor([row, col])).detach().double()
            assert found[a, b, row, col] == pytest.approx(1, abs=1e-5)
            for at in ((0, 0), (3, 8), (8, 2)):
                there = encoder.positions(torch.tensor(at)).detach().double()
                wanted = here @ there / (here.norm() * there.norm())
                assert found[a, b, *at] == pytest.approx(float(wanted), abs=1e-5)
    svg = position_figure(found)
    assert ">4</text>" in svg
    assert svg.count("data:image/png") == 2


def test_variants_stand_by_their_numbers():
    linear = variant_places(["2 layers", "8 layers", "4 layers"])
    assert linear == {"2 layers": 2, "8 layers": 8, "4 layers": 4}
    doubled = variant_places(["16", "no limit", "64", "256"])
    assert doubled == {"16": 4, "64": 6, "256": 8, "no limit": 10}
    assert variant_places(["a", "b"]) == {"a": 0, "b": 1}


def test_attention_is_drawn_however_large_or_small_the_grid():
    for p in (np.zeros((1, 2), int), np.array([[0, 0], [900, 3]])):
        svg = attention_figure(AttentionExample("s", p, np.ones(len(p)), "a", "m"))
        assert "Attention of m on s" in svg
    none = AttentionExample("s", np.zeros((0, 2), int), np.zeros(0), "a", "m")
    assert attention_figure(none) == ""


def test_words_in_plots_are_text():
    plot = Plot(10, 10)
    plot.text(1, 1, "<b>&")
    assert "&lt;b&gt;&amp;" in plot.svg('"<i>')
    assert "<i>" not in plot.svg('"<i>')
