"""The class map: windows, blending, and what it does not know."""

import numpy as np
import pytest

from spt_core.errors import InputError
from spt_core.insight.class_map import class_map, mean_window_embedding
from spt_core.insight.predicting import predict
from spt_core.insight.results import ClassMap, Verdict
from spt_core.insight.windows import (
    WindowSettings,
    slide_windows,
    windows_like_training,
)
from spt_core.learning.views import ViewSettings
from tests.core.insight.conftest import changed, finish, made_slide
from tests.made_tokens import DIM, grid_tokens


def test_windows_are_those_of_the_training():
    like = windows_like_training(ViewSettings(crop_area=(100, 400), max_tokens=64))
    assert (like.side, like.stride, like.limit, like.fewest) == (16, 4, 64, 10)
    unmasked = windows_like_training(ViewSettings(crop_area=(50, 78), mask=False))
    assert (unmasked.side, unmasked.limit) == (8, 64)


def test_windows_against_a_plain_search():
    rng = np.random.default_rng(0)
    p = np.argwhere(rng.random((37, 23)) < 0.4)
    settings = WindowSettings(side=8, stride=4, limit=64, fewest=3)
    found = slide_windows(p, settings)
    seen = {}
    for rows, middle in zip(found.members, found.g_middle, strict=True):
        off = np.abs(p - middle)
        assert set(rows) == set(np.flatnonzero((off < 4).all(axis=1)))
        seen[tuple(middle)] = rows
    for top in range(-8, 40, 4):
        for left in range(-8, 28, 4):
            inside = ((p >= (top, left)) & (p < (top + 8, left + 8))).all(axis=1)
            assert ((top + 3.5, left + 3.5) in seen) == (inside.sum() >= 3)
    covered = np.bincount(np.concatenate(found.members), minlength=len(p))
    assert (covered <= 4).all()


def test_two_halves_stitched_to_one_slide(mean_model):
    """Left half says a, right half b; the border is where it is."""
    tokens = grid_tokens(np.zeros((40 * 60, DIM)), cols=60)
    left = tokens.p[:, 1] < 30
    tokens.x[:, 0] = np.where(left, 1.0, -1.0)
    found, events = finish(class_map(mean_model, tokens))
    assert events[-1].done == events[-1].total == found.windows
    labels = found.labels
    off_border = np.abs(tokens.p[:, 1] - 29.5) > 2
    assert not found.unsure[off_border].any()
    assert (labels[off_border] == np.where(left, 0, 1)[off_border]).all()
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, rtol=1e-5)
    middle = found.probabilities[(tokens.p[:, 1] == 29) | (tokens.p[:, 1] == 30), 0]
    assert middle.mean() == pytest.approx(0.5, abs=0.1)


def test_learned_halves(model):
    """The same with the trained model and slides that it has not seen."""
    rng = np.random.default_rng(3)
    halves = [
        made_slide(kind, rng, n=32 * 32)[0].reshape(32, 32, DIM) for kind in (0, 1)
    ]
    tokens = grid_tokens(np.concatenate(halves, axis=1).reshape(-1, DIM), cols=64)
    found, _ = finish(class_map(model, tokens))
    truth = (tokens.p[:, 1] >= 32).astype(int)
    clear = np.abs(tokens.p[:, 1] - 31.5) > 8
    assert (found.labels == truth)[clear].mean() > 0.9


def test_a_patch_without_neighbours_is_unsure(mean_model):
    tokens = grid_tokens(np.ones((201, DIM)), cols=20)
    tokens.p[200] = (500, 500)
    found, _ = finish(class_map(mean_model, tokens))
    assert found.unsure.tolist() == [False] * 200 + [True]
    assert found.labels[200] == -1
    assert found.name_of(-1) == "unsure"


def test_close_classes_are_unsure_as_they_are_of_a_slide(mean_model):
    """The same margin: what would be undecided of a slide is unsure of a patch."""
    for first, margin, is_close in (
        (0.01, 0.1, True),
        (0.01, 0.0, False),
        (1, 1, True),
    ):
        x = np.zeros((200, DIM))
        x[:, 0] = first
        tokens = grid_tokens(x, cols=20)
        slide = predict(mean_model, tokens, margin=margin)
        found, _ = finish(class_map(mean_model, tokens, margin=margin))
        assert (slide.verdict == Verdict.UNDECIDED) is is_close
        assert (found.unsure == is_close).all()
        assert (found.close == is_close).all()
        assert (found.labels == (-1 if is_close else 0)).all()
        assert not found.alone.any()
        assert np.isfinite(found.probabilities).all()  # the numbers stay


def test_one_class_has_no_second():
    found = ClassMap(
        ("a",), np.zeros((3, 2), int), np.ones((3, 1), np.float32), False, 8, 4, 64, 1
    )
    assert found.labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_patch(mean_model, n):
    found, _ = finish(class_map(mean_model, grid_tokens(np.ones((n, DIM)))))
    assert found.probabilities.shape == (n, 2)
    assert found.unsure.all()


def test_models_without_classes_are_told_so(mean_model):
    mean_model.classifier = None
    with pytest.raises(InputError, match="names no classes"):
        next(class_map(mean_model, grid_tokens(np.ones((20, DIM)))))


def test_the_same_seed_gives_the_same_map(model):
    tokens = grid_tokens(made_slide(0, np.random.default_rng(1), n=900)[0])
    one, _ = finish(class_map(model, tokens, seed=1))
    two, _ = finish(class_map(model, tokens, seed=1))
    np.testing.assert_array_equal(one.probabilities, two.probabilities)


def test_mean_of_windows_of_a_mean_is_the_mean(mean_model):
    """Each window counts as the tokens that it stands for."""
    x = np.random.default_rng(0).normal(size=(333, DIM))
    changed(mean_model, views=ViewSettings(mask=False))
    found = mean_window_embedding(mean_model, grid_tokens(x, cols=21))
    np.testing.assert_allclose(found, x.mean(axis=0), atol=1e-5)
