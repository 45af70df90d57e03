"""Prediction while a slide is being encoded."""

import numpy as np
import pytest

from spt_core import load_model
from spt_core.errors import InputError
from spt_core.insight.growing import moments, predict_slide
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.results import Prediction, Verdict
from spt_core.insight.wording import prediction_sentence
from spt_core.patches import EncodeSettings
from spt_core.patches.settings import PartialTokens
from tests.core.insight.conftest import finish
from tests.core.insight.slides import NAME, SETTINGS, make_model, make_slide
from tests.made_slides import write_tiff

QUICK = EncodeSettings(batch_size=16, device="cpu")


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    return make_slide(tmp_path_factory.mktemp("slide"))


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    return load_model(make_model(tmp_path_factory.mktemp("model") / "m.safetensors"))


def test_moments_double_and_start_early():
    assert list(moments(20_000))[:4] == [128, 256, 512, 1024]
    assert list(moments(4000)) == [50, 100, 200, 400, 800, 1600, 3200]
    assert list(moments(400)) == [16, 32, 64, 128, 256]
    assert list(moments(10)) == []


def test_predictions_grow_to_the_whole(slide, small_model, tmp_path):
    last, events = finish(predict_slide(small_model, slide, tmp_path, QUICK))
    grown = [event for event in events if isinstance(event, Prediction)]
    counts = [one.seen for one in grown]
    assert len(counts) >= 3
    assert counts == sorted(set(counts))
    assert counts[0] <= QUICK.batch_size
    assert all(one.total == last.total and not one.is_whole for one in grown)
    assert all("Seen so far" in prediction_sentence(one) for one in grown)
    assert not any(isinstance(event, PartialTokens) for event in events)
    # Each was made of places that the finished slide has too, from all over it.
    whole = {tuple(place) for place in last.p}
    for one in grown:
        assert {tuple(place) for place in one.p} <= whole
        assert (np.ptp(one.p, axis=0) >= 0.6 * np.ptp(last.p, axis=0)).all()
    # The last is what the feature file gives.
    again = predict(small_model, read_for(small_model, tmp_path / f"{NAME}.h5"))
    assert last.is_whole
    np.testing.assert_array_equal(last.attention, again.attention)
    np.testing.assert_array_equal(last.probabilities, again.probabilities)


def test_closing_keeps_what_is_done(slide, small_model, tmp_path):
    work = predict_slide(small_model, slide, tmp_path, QUICK)
    first = next(event for event in work if isinstance(event, Prediction))
    work.close()
    assert (tmp_path / f"{NAME}.h5.partial").exists()
    last, events = finish(predict_slide(small_model, slide, tmp_path, QUICK))
    again = next(event for event in events if isinstance(event, Prediction))
    assert again.seen >= first.seen
    assert last.is_whole


def test_an_empty_slide_gets_a_result(small_model, tmp_path):
    path = tmp_path / "glass.tif"
    glass = np.full((1500, 1500, 3), 240, np.uint8)
    write_tiff(path, glass, mpp_xy=(0.5, 0.5), levels=2)
    found, _ = finish(predict_slide(small_model, path, tmp_path / "f", QUICK))
    assert found.verdict == Verdict.EMPTY
    assert "No tissue" in prediction_sentence(found)


def test_a_slide_that_cannot_be_encoded_is_not_called_empty(small_model, tmp_path):
    path = tmp_path / "unknown.tif"
    write_tiff(path, np.full((900, 900, 3), 240, np.uint8), mpp_xy=None, levels=1)
    with pytest.raises(InputError, match="how large its pixels are"):
        finish(predict_slide(small_model, path, tmp_path / "f", QUICK))


def test_settings_are_the_models(small_model):
    from spt_core.insight.growing import settings_for

    found = settings_for(small_model, EncodeSettings(slide_mpp=0.3, patch_size=999))
    assert (found.encoder, found.patch_size) == (SETTINGS.encoder, SETTINGS.patch_size)
    assert (found.target_mpp, found.slide_mpp) == (SETTINGS.target_mpp, 0.3)
