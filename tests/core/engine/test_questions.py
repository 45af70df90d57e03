"""Questions about an analysed slide, against the core's own answers."""

from pathlib import Path

import numpy as np
import pytest

from spt_core import bundled, load_model, read_tokens
from spt_core.engine.protocol import (
    AskWithout,
    CheckFaithfulness,
    FailureKind,
    FaithfulnessChecked,
    MapTissue,
    Predicted,
    TissueMapped,
    WithoutAnswered,
    Working,
)
from spt_core.insight.faithfulness import faithfulness
from spt_core.insight.predicting import predict, read_for
from tests.core.engine.pipe import of
from tests.core.insight.conftest import finish


@pytest.fixture(scope="module")
def features(analysed):
    return analysed[-1].features


def test_tissue_map(engine, features):
    end = engine.answer(MapTissue(features, "s"))[-1]
    assert isinstance(end, TissueMapped)
    found, tokens = end.tissue_map, read_tokens(features)
    np.testing.assert_array_equal(found.xy, tokens.xy)
    assert found.labels.shape == found.outlier_score.shape == (len(tokens),)
    count = found.labels.max() + 1
    assert len(found.kinds.centres) == len(found.kinds.rgb) == count
    assert (found.labels[found.typical] == np.arange(count)).all()
    # Each patch is nearer to its own kind's middle than to most others'.
    middles = np.stack([tokens.x[found.labels == k].mean(axis=0) for k in range(count)])
    far = np.linalg.norm(tokens.x[:, None] - middles, axis=2)
    assert (far.argmin(axis=1) == found.labels).mean() > 0.8
    # The same slide again keeps its colours.
    again = engine.answer(MapTissue(features, "s"))[-1].tissue_map
    assert sorted(again.kinds.numbers) == sorted(found.kinds.numbers)
    np.testing.assert_array_equal(again.kinds.rgb, found.kinds.rgb)


def test_without_a_region(engine, analysed, features, model):
    loaded = load_model(model)
    tokens = read_for(loaded, features)
    # Two rectangles around whole patches; the second overlaps the first.
    left, top = tokens.xy.min(axis=0)
    right, bottom = tokens.xy.max(axis=0) + 128
    half = (left + right) / 2
    one = [[left, top], [half, top], [half, bottom], [left, bottom]]
    two = [[left, top], [half - 300, top], [half - 300, bottom], [left, bottom]]
    region = (np.array(one, float), np.array(two, float))
    seen = engine.answer(AskWithout(features, "s", model, region))
    end = seen[-1]
    assert isinstance(end, WithoutAnswered), end
    gone = tokens.xy[:, 0] + 64 < half
    assert end.what_if.removed == gone.sum()
    np.testing.assert_array_equal(end.removed, gone)
    after = predict(loaded, tokens.take(np.flatnonzero(~gone)))
    np.testing.assert_allclose(
        end.what_if.after.probabilities, after.probabilities, rtol=1e-5
    )
    np.testing.assert_allclose(
        end.what_if.before.probabilities,
        of(analysed, Predicted)[-1].prediction.probabilities,
        rtol=1e-5,
    )
    assert of(seen, Working)


def test_a_region_of_nothing_or_of_everything_is_told(engine, features, model):
    for l0_size, kind in (
        (10.0, FailureKind.NOTHING_DRAWN),
        (1e6, FailureKind.ALL_DRAWN),
    ):
        square = [[0, 0], [l0_size, 0], [l0_size, l0_size], [0, l0_size]]
        region = (np.array(square, float),)
        end = engine.answer(AskWithout(features, "s", model, region))[-1]
        assert end.kind == kind


def test_faithfulness(engine, features, model):
    seen = engine.answer(CheckFaithfulness(features, "s", model))
    end = seen[-1]
    assert isinstance(end, FaithfulnessChecked), end
    loaded = load_model(model)
    expected, _ = finish(faithfulness(loaded, read_for(loaded, features)))
    found = end.faithfulness
    assert (found.class_name, found.patches) == (expected.class_name, expected.patches)
    for name in ("removed", "most_first", "random", "least_first"):
        values = getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name), values, atol=1e-5)
    assert found.area == pytest.approx(expected.area, abs=1e-5)
    assert len(of(seen, Working)) > 1


def test_missing_features_are_told(engine, model, tmp_path):
    missing = tmp_path / "gone.h5"

    def questions(title):
        yield MapTissue(missing, title)
        yield AskWithout(missing, title, model, ())
        yield CheckFaithfulness(missing, title, model)

    for request in questions(""):
        end = engine.answer(request)[-1]
        assert end.kind == FailureKind.FEATURES
        assert "gone.h5" in end.reason
    for request in questions("Biopsy 7"):
        end = engine.answer(request)[-1]
        assert "Biopsy 7" in end.reason
        assert "gone" not in end.reason


def test_features_of_another_kind_are_told_by_the_title(engine, features):
    model = Path(bundled.SLIDE_MODEL)
    end = engine.answer(AskWithout(features, "Biopsy 7", model, ()))[-1]
    assert end.kind == FailureKind.MODEL
    assert "The tokens of Biopsy 7 do not fit" in end.reason
