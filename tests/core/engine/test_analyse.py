"""An analysis through the pipe: the same numbers as the core's, growing."""

from pathlib import Path

import numpy as np
import pytest

from spt_core import load_model, open_slide, read_tokens
from spt_core.engine import task
from spt_core.engine.analyse import map_classes
from spt_core.engine.failures import failed_by
from spt_core.engine.handlers import Handlers
from spt_core.engine.protocol import (
    Analysed,
    Cancel,
    ClassesMapped,
    Failed,
    FailureKind,
    MapTissue,
    Noticed,
    NoticeKind,
    Predicted,
    Started,
    Step,
    Working,
)
from spt_core.errors import InputError
from spt_core.insight.class_map import class_map
from spt_core.insight.predicting import predict, read_for
from spt_core.patches import job
from spt_core.slides import UnreadableRegionError
from spt_core.slides.grid import MissingPixelSizeError
from spt_core.slides.tissue import find_tissue
from spt_core.tokens.writing import PartialFeatures
from tests.core.engine.pipe import analysis, of
from tests.core.insight.conftest import finish
from tests.core.insight.slides import SECRETS, make_model
from tests.core.patches.conftest import tissue_picture
from tests.core.stained import BLUE, amounts, on_glass, rendered, write_slide
from tests.made_slides import damage_tile, write_tiff


def last_prediction(messages):
    return of(messages, Predicted)[-1].prediction


def test_a_whole_analysis(analysed, slide, model):
    kinds = [type(message) for message in analysed]
    assert kinds.index(Started) < kinds.index(Predicted) < kinds.index(ClassesMapped)
    assert kinds[-1] is Analysed
    started, last = of(analysed, Started)[0], analysed[-1]
    predictions = [one.prediction for one in of(analysed, Predicted)]
    maps = [one.class_map for one in of(analysed, ClassesMapped)]
    shares = [one.seen / one.total for one in predictions]
    assert len(shares) >= 4
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[-1] == 1.0
    assert predictions[-1].is_whole
    assert started.patches == predictions[-1].seen == predictions[-1].total
    tissue = find_tissue(open_slide(slide))
    np.testing.assert_array_equal(started.tissue.mask, tissue.mask)
    assert started.tissue.l0_scale_xy == tissue.l0_scale_xy
    assert started.mpp_xy == pytest.approx((0.5, 0.5))
    assert not started.mpp_from_user
    # The numbers are those that the core gives for the feature file.
    loaded = load_model(model)
    tokens = read_for(loaded, last.features)
    expected = predict(loaded, tokens)
    found = predictions[-1]
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-5)
    np.testing.assert_allclose(found.attention, expected.attention, rtol=1e-4)
    np.testing.assert_array_equal(found.xy, tokens.xy)
    np.testing.assert_array_equal(found.p, tokens.p)
    assert found.facts == tokens.facts
    assert found.verdict == expected.verdict
    assert found.remarks == expected.remarks
    drawn, _ = finish(class_map(loaded, tokens))
    np.testing.assert_allclose(maps[-1].probabilities, drawn.probabilities, atol=1e-5)
    np.testing.assert_array_equal(maps[-1].unsure, drawn.unsure)
    np.testing.assert_array_equal(maps[-1].xy, tokens.xy)
    # Each patch covers what the slide's pixel size says: 64 pixels of 1 µm at 0.5 µm.
    assert started.l0_patch_xy == (128, 128)
    assert last.reused is False


def test_growing_parts_are_parts_of_the_whole(analysed):
    *parts, whole = (one.prediction for one in of(analysed, Predicted))
    for part in parts:
        assert len(part.xy) == part.seen == part.attention.shape[1] < whole.total
        assert len(np.unique(part.xy, axis=0)) == len(part.xy)


def test_another_model_of_the_same_encoder_takes_the_kept_features(
    engine, analysed, slide, tmp_path
):
    other = make_model(tmp_path / "other.safetensors", seed=5)
    features = analysed[-1].features
    again = engine.answer(analysis(slide, features.parent, model=other))
    assert isinstance(again[-1], Analysed)
    assert again[-1].reused is True
    assert again[-1].features == features
    before, after = last_prediction(analysed), last_prediction(again)
    assert (before.probabilities != after.probabilities).all()
    assert of(again, Started)[0].patches == of(analysed, Started)[0].patches
    assert not any(one.step == Step.LOOKING for one in of(again, Working))


def test_a_slide_is_opened_once_and_its_grid_laid_once(
    slide, model, tmp_path, monkeypatch
):
    calls = []

    def counted(name, function):
        def call(*args, **options):
            calls.append(name)
            return function(*args, **options)

        return call

    for name in ("open_slide", "find_tissue", "lay_grid"):
        for module in (task, job):
            original = getattr(module, name)
            monkeypatch.setattr(module, name, counted(name, original))
    work = Handlers().start(analysis(slide, tmp_path, model=model))
    end, _ = finish(work)
    assert isinstance(end, Analysed)
    assert sorted(calls) == ["find_tissue", "lay_grid", "open_slide"]


def test_nothing_kept_names_the_slide(analysed):
    files = list(analysed[-1].features.parent.iterdir())
    assert len(files) == 2  # features and tissue
    for path in files:
        content = path.read_bytes()
        for secret in SECRETS:
            assert secret not in path.name
            assert secret.encode() not in content


def test_without_a_model_the_slide_is_encoded(engine, slide, tmp_path):
    seen = engine.answer(analysis(slide, tmp_path, encoder="small-random"))
    assert isinstance(seen[-1], Analysed), seen[-1]
    assert last_prediction(seen).probabilities is None
    assert last_prediction(seen).attention.shape[0] == 0
    assert not of(seen, ClassesMapped)


@pytest.fixture(scope="module")
def stained(tmp_path_factory):
    rgb = rendered(on_glass(amounts(900, 1000)), BLUE)
    return write_slide(tmp_path_factory.mktemp("stained") / "stained.tif", rgb)


def test_without_a_model_the_chosen_stain_takes_effect(engine, stained, tmp_path):
    def ask(stain):
        request = analysis(stained, tmp_path, encoder="small-random", stain=stain)
        return engine.answer(request)

    ends = {}
    for stain in (None, "macenko"):
        seen = ask(stain)
        assert isinstance(seen[-1], Analysed), seen[-1]
        assert not any("colours" in one.reason for one in of(seen, Noticed))
        ends[stain] = read_tokens(seen[-1].features)
    assert ends[None].facts.stain == "none"
    assert ends["macenko"].facts.stain == "macenko"
    assert np.abs(ends[None].x - ends["macenko"].x).max() > 1e-3
    end = ask("odd")[-1]
    assert end.kind == FailureKind.INPUT
    assert "no stain normalisation 'odd'" in end.reason


def test_a_slide_of_one_stain_is_left_and_called_by_its_name(engine, tmp_path):
    all_pink = on_glass(amounts(900, 1000)).sum(axis=-1, keepdims=True) * (0, 1)
    path = write_slide(tmp_path / "pink.tif", rendered(all_pink, BLUE))
    options = {"encoder": "small-random", "stain": "macenko"}
    seen = engine.answer(analysis(path, tmp_path / "f", **options))
    assert isinstance(seen[-1], Analysed), seen[-1]
    said = [one.reason for one in of(seen, Noticed)]
    assert any("pink.tif is encoded in its own colours" in one for one in said), said


def test_a_model_brings_its_own_stain(engine, stained, model, tmp_path):
    seen = engine.answer(analysis(stained, tmp_path, model=model, stain="macenko"))
    assert isinstance(seen[-1], Analysed), seen[-1]
    assert read_tokens(seen[-1].features).facts.stain == "none"


@pytest.fixture
def ask(engine, model, tmp_path):
    def ask(slide, **options):
        options = {"model": model, **options}
        return engine.answer(analysis(slide, tmp_path / "f", **options))

    return ask


GLASS = np.full((1500, 1500, 3), 240, np.uint8)


def test_no_tissue_is_told_with_the_mask(ask, tmp_path):
    write_tiff(tmp_path / "glass.tif", GLASS, levels=2)
    end = ask(tmp_path / "glass.tif")[-1]
    assert end.kind == FailureKind.NO_TISSUE
    assert end.reason == ""
    assert not end.tissue.mask.any()
    np.testing.assert_array_equal(
        end.tissue.l0_scale_xy,
        find_tissue(open_slide(tmp_path / "glass.tif")).l0_scale_xy,
    )


def test_a_slide_of_less_than_a_patch_is_told_with_the_mask(ask, tmp_path):
    write_tiff(tmp_path / "tiny.tif", GLASS[:90, :90], levels=1)
    end = ask(tmp_path / "tiny.tif")[-1]
    assert end.kind == FailureKind.TOO_SMALL
    assert end.tissue is not None


def test_a_missing_pixel_size_is_asked_for(ask, tmp_path):
    path = tmp_path / "unknown.tif"
    write_tiff(path, GLASS, mpp_xy=None, levels=1)
    assert ask(path)[-1].kind == FailureKind.NO_PIXEL_SIZE
    # Given one, the slide is looked at.
    assert ask(path, slide_mpp=0.5)[-1].kind == FailureKind.NO_TISSUE


def test_whose_pixel_size_it_is_is_told(ask, slide, tmp_path):
    path = tmp_path / "unknown.tif"
    write_tiff(path, tissue_picture(900, 800), mpp_xy=None, levels=1)
    (started,) = of(ask(path, slide_mpp=0.5, class_map=False), Started)
    assert (started.mpp_xy, started.mpp_from_user) == ((0.5, 0.5), True)
    # What the file says comes first.
    (started,) = of(ask(slide, slide_mpp=0.25, class_map=False), Started)
    assert started.mpp_xy == pytest.approx((0.5, 0.5))
    assert not started.mpp_from_user


def test_too_coarse_a_slide_is_told(ask, tmp_path):
    write_tiff(tmp_path / "coarse.tif", GLASS, mpp_xy=(4.0, 4.0), levels=1)
    end = ask(tmp_path / "coarse.tif")[-1]
    assert end.kind == FailureKind.TOO_COARSE
    assert end.values == pytest.approx({"mpp": 4.0, "target_mpp": 1.0})


def test_sentences_call_a_slide_by_its_title(ask, tmp_path):
    """A plain picture of the window is a file whose name is a hash."""
    name, title = "0f3a9c.tif", "Layer 0f3a9c.tif (RGB)"
    path = tmp_path / name
    path.write_bytes(b"nothing of the kind")
    for there in (path, tmp_path / "gone" / name):
        end = ask(there, title=title)[-1]
        assert end.kind == FailureKind.UNREADABLE
        assert end.reason.count(title) == end.reason.count(name) == 1
        assert str(tmp_path) not in end.reason
    # An empty title is none.
    end = ask(path, title=" ")[-1]
    assert end.reason.startswith(f"{name} is not a slide")
    # Notices, too.
    all_pink = on_glass(amounts(900, 1000)).sum(axis=-1, keepdims=True) * (0, 1)
    write_slide(path, rendered(all_pink, BLUE))
    encoding = {"model": None, "encoder": "small-random", "stain": "macenko"}
    (said,) = of(ask(path, title=title, **encoding), Noticed)
    assert said.kind == NoticeKind.OF_ENCODING
    assert said.reason.startswith(f"{title} is encoded in its own colours")


def test_enlarged_patches_are_noticed(ask, tmp_path):
    write_tiff(tmp_path / "s.tif", tissue_picture(900, 800), mpp_xy=(1.2, 1.2))
    (noticed,) = of(ask(tmp_path / "s.tif"), Noticed)
    assert noticed.kind == NoticeKind.UPSAMPLED
    assert noticed.values == pytest.approx({"slide_mpp": 1.2, "target_mpp": 1.0})


def test_errors_of_the_core_take_the_title():
    title = "Layer 0f3a9c.tif"
    request = analysis("/cache/0f3a9c.tif", "/f", title=title)
    region = UnreadableRegionError(request.slide, (1, 2), (3, 4), "broken")
    for error, kind, reason in (
        (region, FailureKind.UNREADABLE, f"{title}: the region at x 1"),
        (OSError(5, "bad", "/cache/0f3a9c.tif"), FailureKind.FILE_REFUSED, title),
        (OSError(5, "bad", "/else"), FailureKind.FILE_REFUSED, f"{Path('/else')}: bad"),
        (InputError("Too odd."), FailureKind.INPUT, "Too odd."),
        (MissingPixelSizeError("what"), FailureKind.NO_PIXEL_SIZE, ""),
        (KeyError("odd"), FailureKind.DEFECT, "KeyError: 'odd'"),
        (MemoryError(), FailureKind.OUT_OF_MEMORY, ""),
        (OSError(12, "no room"), FailureKind.OUT_OF_MEMORY, ""),
    ):
        failed = failed_by(error, request)
        assert failed.kind == kind
        assert failed.reason.startswith(reason)


def test_what_is_no_slide_or_no_model_is_told(ask, slide, tmp_path):
    (tmp_path / "no.svs").write_bytes(b"nothing of the kind")
    assert ask(tmp_path / "no.svs")[-1].kind == FailureKind.UNREADABLE
    assert ask(tmp_path / "missing.svs")[-1].kind == FailureKind.UNREADABLE
    assert ask(slide, model=tmp_path / "no.svs")[-1].kind == FailureKind.MODEL
    assert ask(slide, model=tmp_path / "none")[-1].kind == FailureKind.MODEL


def test_a_damaged_region_is_noticed_and_the_rest_goes_on(ask, slide, tmp_path):
    broken = tmp_path / "broken.svs"
    broken.write_bytes(slide.read_bytes())
    damage_tile(broken, page=2, tile=14)  # where tissue is looked for
    seen = ask(broken)
    assert isinstance(seen[-1], Analysed)
    assert any("cannot be decoded" in one.reason for one in of(seen, Noticed))
    key = seen[-1].features.stem
    assert not any(key in one.reason for one in of(seen, Noticed))


def test_patches_that_cannot_be_decoded_are_counted(ask, tmp_path):
    path = tmp_path / "broken.tif"
    write_tiff(path, tissue_picture(1500, 1400), mpp_xy=(0.5, 0.5), levels=3)
    damage_tile(path, page=1, tile=4)  # patches are read there, tissue is not
    seen = ask(path)
    assert isinstance(seen[-1], Analysed)
    noticed = {one.kind: one for one in of(seen, Noticed)}
    missing = of(seen, Started)[0].patches - last_prediction(seen).seen
    assert missing > 0
    assert noticed[NoticeKind.UNREADABLE_PARTS].values == {"patches": missing}


def test_unfinished_work_that_does_not_fit_is_begun_anew(ask, slide):
    first = ask(slide, class_map=False)
    features = first[-1].features
    features.unlink()
    with PartialFeatures(features, {"of": "another version"}, 64) as partial:
        partial.append(np.arange(3), np.ones((3, 64), np.float32))
    seen = ask(slide, class_map=False)
    assert of(seen, Started)[0].done == 0
    assert not of(seen, ClassesMapped)
    assert isinstance(seen[-1], Analysed)
    assert last_prediction(seen).probabilities == pytest.approx(
        last_prediction(first).probabilities, abs=1e-5
    )


def test_a_slide_in_work_elsewhere_is_told(ask, slide):
    features = ask(slide, class_map=False)[-1].features
    features.unlink()
    with PartialFeatures(features, {"of": "somebody else"}, 64):
        assert ask(slide)[-1].kind == FailureKind.IN_USE


def test_broken_kept_features_are_made_anew(ask, slide):
    features = ask(slide, class_map=False)[-1].features
    features.write_bytes(features.read_bytes()[:4000])
    end = ask(slide, class_map=False)[-1]
    assert isinstance(end, Analysed)
    assert end.reused is False


def test_an_unknown_request_fails_and_the_engine_goes_on(engine, ask, slide):
    stdin = engine.process.stdin
    stdin.write(b"this is no JSON\n[1, 2]\n")
    stdin.write(b'{"id": 9001, "type": "Dance", "value": {}}\n')
    stdin.write(b'{"id": 9002, "type": "MapTissue", "value": {"features": "f"}}\n')
    engine.say(Failed(FailureKind.DEFECT), 9003)
    engine.say(Cancel(9004))
    engine.say(MapTissue(Path("without a number.h5"), ""))
    for number in (9001, 9002, 9003):
        end = engine.finish(number)[-1].message
        assert end.kind == FailureKind.DEFECT
        assert end.reason
    assert isinstance(ask(slide)[-1], Analysed)


def test_a_patch_of_close_classes_is_sent_as_unsure(analysed, model):
    """What the window draws in grey, though its numbers are there."""
    loaded = load_model(model)
    for weight in loaded.classifier.parameters():
        weight.data.zero_()
    tokens = read_for(loaded, analysed[-1].features)
    *_, said = map_classes(loaded, tokens)
    assert isinstance(said, ClassesMapped)
    found = said.class_map
    assert found.unsure.all()
    assert (found.labels == -1).all()
    assert np.isfinite(found.probabilities).all(axis=1).any()


def test_a_slide_that_its_reader_does_not_survive_leaves_the_engine_alive(
    engine, slide, model, tmp_path
):
    bad = tmp_path / "crashes.tif"
    bad.write_bytes(slide.read_bytes())
    pid = engine.process.pid
    (failed,) = of(engine.answer(analysis(bad, tmp_path / "f", model=model)), Failed)
    assert failed.kind == FailureKind.UNREADABLE
    assert "crashes.tif" in failed.reason
    assert "does not survive it" in failed.reason
    good = engine.answer(analysis(slide, tmp_path / "f", model=model))
    assert isinstance(good[-1], Analysed)
    assert engine.process.pid == pid
    assert engine.process.poll() is None
