"""An analysis through the pipe: the same numbers as the core's, growing."""

from pathlib import Path

import numpy as np
import pytest

from napari_spt.analysis.state import Analysis
from napari_spt.slides.slide_source import SlideSource
from spt_core import load_model, open_slide, read_tokens
from spt_core.devices import with_back_off
from spt_core.engine.failures import explain
from spt_core.engine.memory_notes import MemoryNotes
from spt_core.engine.telling import map_of
from spt_core.errors import InputError
from spt_core.insight.class_map import class_map
from spt_core.insight.predicting import predict, read_for
from spt_core.slides import UnreadableRegionError
from spt_core.slides.grid import MissingPixelSizeError
from spt_core.slides.tissue import find_tissue
from spt_core.tokens.writing import PartialFeatures
from tests.core.engine.pipe import of
from tests.core.insight.conftest import finish
from tests.core.insight.slides import SECRETS, make_model
from tests.core.patches.conftest import tissue_picture
from tests.core.stained import BLUE, amounts, on_glass, rendered, write_slide
from tests.made_slides import damage_tile, write_tiff


def test_a_whole_analysis(engine, analysed, slide, model):
    kinds = [message["event"] for message in analysed]
    assert kinds.index("started") < kinds.index("prediction") < kinds.index("class_map")
    assert kinds[-1] == "done"
    started, last = of(analysed, "started")[0], analysed[-1]
    predictions, maps = of(analysed, "prediction"), of(analysed, "class_map")
    seen = [message["seen"] for message in predictions]
    assert len(seen) >= 4
    assert seen == sorted(seen)
    assert seen[0] < 0.2
    assert seen[-1] == 1.0
    assert started["patches"] == last["patches"] == last["total"]
    np.testing.assert_array_equal(
        engine.array(started, "mask"), find_tissue(open_slide(slide)).mask
    )
    # The numbers are those that the core gives for the feature file.
    loaded = load_model(model)
    tokens = read_for(loaded, last["features"])
    expected = predict(loaded, tokens)
    np.testing.assert_allclose(last["probabilities"], expected.probabilities, rtol=1e-5)
    np.testing.assert_allclose(
        engine.array(predictions[-1], "attention"), expected.attention, rtol=1e-4
    )
    np.testing.assert_array_equal(engine.array(predictions[-1], "l0_xy"), tokens.xy)
    np.testing.assert_array_equal(engine.array(predictions[-1], "g_rc"), tokens.g_rc)
    drawn, _ = finish(class_map(loaded, tokens))
    np.testing.assert_allclose(
        engine.array(maps[-1], "probabilities"), drawn.probabilities, atol=1e-5
    )
    np.testing.assert_array_equal(engine.array(maps[-1], "unsure"), drawn.unsure)
    # Each patch covers what the slide's pixel size says: 64 pixels of 1 µm at 0.5 µm.
    assert started["patch_l0"] == [128, 128]
    assert last["reused"] is False


def test_growing_parts_are_parts_of_the_whole(engine, analysed):
    whole = of(analysed, "prediction")[-1]["total"]
    for message in of(analysed, "prediction")[:-1]:
        xy = engine.array(message, "l0_xy")
        attention = engine.array(message, "attention")
        assert len(xy) == message["patches"] == attention.shape[1] < whole
        assert len(np.unique(xy, axis=0)) == len(xy)


def test_another_model_of_the_same_encoder_takes_the_kept_features(
    engine, analysed, slide, tmp_path
):
    other = make_model(tmp_path / "other.safetensors", seed=5)
    folder = analysed[-1]["features"].rsplit("/", 1)[0]
    again = engine.finish(
        engine.ask("analyse", slide=slide, model=other, features=folder)
    )
    assert again[-1]["event"] == "done"
    assert again[-1]["reused"] is True
    assert again[-1]["features"] == analysed[-1]["features"]
    assert again[-1]["probabilities"] != analysed[-1]["probabilities"]
    assert of(again, "started")[0]["patches"] == of(analysed, "started")[0]["patches"]
    assert not any("looking" in one["message"] for one in of(again, "progress"))


def test_nothing_kept_names_the_slide(analysed):
    folder = analysed[-1]["features"].rsplit("/", 1)[0]
    files = list(Path(folder).iterdir())
    assert len(files) == 2  # features and tissue
    for path in files:
        content = path.read_bytes()
        for secret in SECRETS:
            assert secret not in path.name
            assert secret.encode() not in content


def test_without_a_model_the_slide_is_encoded(engine, slide, tmp_path):
    seen = engine.finish(
        engine.ask("analyse", slide=slide, encoder="small-random", features=tmp_path)
    )
    assert seen[-1]["event"] == "done", seen[-1]
    assert seen[-1]["probabilities"] is None
    assert not of(seen, "class_map")
    assert engine.array(of(seen, "prediction")[-1], "attention").shape[0] == 0


@pytest.fixture(scope="module")
def stained(tmp_path_factory):
    rgb = rendered(on_glass(amounts(900, 1000)), BLUE)
    return write_slide(tmp_path_factory.mktemp("stained") / "stained.tif", rgb)


def test_without_a_model_the_chosen_stain_takes_effect(engine, stained, tmp_path):
    facts = {"encoder": "small-random", "features": tmp_path}
    ends = {}
    for stain in (None, "macenko"):
        seen = engine.finish(engine.ask("analyse", slide=stained, stain=stain, **facts))
        assert seen[-1]["event"] == "done", seen[-1]
        assert not any("colours" in one["sentence"] for one in of(seen, "note"))
        ends[stain] = read_tokens(seen[-1]["features"])
    assert ends[None].facts.stain == "none"
    assert ends["macenko"].facts.stain == "macenko"
    assert np.abs(ends[None].x - ends["macenko"].x).max() > 1e-3
    end = engine.finish(engine.ask("analyse", slide=stained, stain="odd", **facts))[-1]
    assert end["event"] == "failed"
    assert "no stain normalisation 'odd'" in end["sentence"]


def test_a_slide_of_one_stain_is_left_and_called_by_its_name(engine, tmp_path):
    all_pink = on_glass(amounts(900, 1000)).sum(axis=-1, keepdims=True) * (0, 1)
    path = write_slide(tmp_path / "pink.tif", rendered(all_pink, BLUE))
    facts = {"encoder": "small-random", "features": tmp_path / "f", "stain": "macenko"}
    seen = engine.finish(engine.ask("analyse", slide=path, **facts))
    assert seen[-1]["event"] == "done", seen[-1]
    said = [one["sentence"] for one in of(seen, "note")]
    assert any("pink.tif is encoded in its own colours" in one for one in said), said


def test_a_model_brings_its_own_stain(engine, stained, model, tmp_path):
    facts = {"model": model, "features": tmp_path, "stain": "macenko"}
    seen = engine.finish(engine.ask("analyse", slide=stained, **facts))
    assert seen[-1]["event"] == "done", seen[-1]
    assert read_tokens(seen[-1]["features"]).facts.stain == "none"


@pytest.fixture
def ask(engine, model, tmp_path):
    def ask(slide, **facts):
        facts = {"model": model, "features": tmp_path / "f", **facts}
        return engine.finish(engine.ask("analyse", slide=slide, **facts))

    return ask


GLASS = np.full((1500, 1500, 3), 240, np.uint8)


def test_no_tissue_is_a_sentence_with_the_mask(engine, ask, tmp_path):
    write_tiff(tmp_path / "glass.tif", GLASS, levels=2)
    end = ask(tmp_path / "glass.tif")[-1]
    assert (end["event"], end["kind"]) == ("failed", "no_tissue")
    assert "glass.tif" in end["sentence"]
    assert "--" not in end["sentence"]
    assert not engine.array(end, "mask").any()


def test_a_missing_pixel_size_is_asked_for(ask, tmp_path):
    write_tiff(tmp_path / "unknown.tif", GLASS, mpp_xy=None, levels=1)
    end = ask(tmp_path / "unknown.tif")[-1]
    assert (end["event"], end["kind"]) == ("failed", "no_pixel_size")
    # Given one, the slide is looked at.
    assert ask(tmp_path / "unknown.tif", slide_mpp=0.5)[-1]["kind"] == "no_tissue"


def test_too_coarse_a_slide_is_told(ask, tmp_path):
    write_tiff(tmp_path / "coarse.tif", GLASS, mpp_xy=(4.0, 4.0), levels=1)
    end = ask(tmp_path / "coarse.tif")[-1]
    assert (end["event"], end["kind"]) == ("failed", "magnification")
    assert "4 µm" in end["sentence"]
    assert "1 µm" in end["sentence"]


def test_sentences_call_a_slide_by_its_title(ask, tmp_path):
    """A plain picture of the window is a file whose name is a hash."""
    name, title = "0f3a9c.tif", "Layer 0f3a9c.tif (RGB)"
    path = tmp_path / name
    made = {
        "no_tissue": {},
        "no_pixel_size": {"mpp_xy": None},
        "magnification": {"mpp_xy": (4.0, 4.0)},
    }
    for kind, facts in made.items():
        write_tiff(path, GLASS, levels=1, **facts)
        end = ask(path, title=title)[-1]
        assert end["kind"] == kind
        assert end["sentence"].count(title) == end["sentence"].count(name) == 1
    path.write_bytes(b"nothing of the kind")
    for there in (path, tmp_path / "gone" / name):
        end = ask(there, title=title)[-1]
        assert end["kind"] == "unreadable"
        assert end["sentence"].count(title) == end["sentence"].count(name) == 1
        assert str(tmp_path) not in end["sentence"]
    # Notes, too; an empty title is none.
    write_tiff(path, tissue_picture(1500, 1500), mpp_xy=(1.2, 1.2), levels=1)
    notes = [one["sentence"] for one in of(ask(path, title=title), "note")]
    assert [one for one in notes if name in one] == [
        f"{title} has pixels of 1.2 µm: they are enlarged to 1 µm, and patches look "
        "blurred."
    ]
    write_tiff(path, GLASS, levels=1)
    assert f"found on {name}:" in ask(path, title=" ")[-1]["sentence"]


def test_errors_of_the_core_take_the_title():
    request = {"slide": "/cache/0f3a9c.tif", "title": "Layer 0f3a9c.tif"}
    region = UnreadableRegionError(Path(request["slide"]), (1, 2), (3, 4), "broken")
    for error, words in (
        (region, "Layer 0f3a9c.tif: the region at x 1"),
        (InputError("0f3a9c.tif and a0f3a9c.tif"), "Layer 0f3a9c.tif and a0f3a9c.tif"),
        (OSError(5, "bad", "/cache/0f3a9c.tif"), "file (Layer 0f3a9c.tif): bad"),
        (MissingPixelSizeError("what"), "Layer 0f3a9c.tif does not say"),
    ):
        assert words in explain(error, request).sentence


def test_what_is_no_slide_or_no_model_is_told(ask, slide, tmp_path):
    (tmp_path / "no.svs").write_bytes(b"nothing of the kind")
    assert ask(tmp_path / "no.svs")[-1]["kind"] == "unreadable"
    assert ask(tmp_path / "missing.svs")[-1]["kind"] == "unreadable"
    assert ask(slide, model=tmp_path / "no.svs")[-1]["kind"] == "model"
    assert ask(slide, model=tmp_path / "none")[-1]["kind"] == "model"


def test_a_damaged_region_is_a_note_and_the_rest_goes_on(ask, slide, tmp_path):
    broken = tmp_path / "broken.svs"
    broken.write_bytes(slide.read_bytes())
    damage_tile(broken, page=2, tile=14)  # of the level that is read
    seen = ask(broken)
    assert seen[-1]["event"] == "done"
    assert any("cannot be decoded" in one["sentence"] for one in of(seen, "note"))
    key = Path(seen[-1]["features"]).stem
    assert not any(key in one["sentence"] for one in of(seen, "note"))


def test_smaller_portions_are_told_once():
    """Where memory runs short while encoding, the person hears of it."""

    def work(size):
        if size > 4:
            raise MemoryError
        return size

    with MemoryNotes() as notes:
        assert list(notes.new()) == []
        with_back_off(work, 32)
        with_back_off(work, 32)
        (said,) = notes.new()
        assert said.event == "note"
        assert "smaller portions" in said.facts["sentence"]
        assert list(notes.new()) == []


def test_unfinished_work_that_does_not_fit_is_begun_anew(ask, slide):
    first = ask(slide, class_map=False)[-1]
    features = Path(first["features"])
    features.unlink()
    with PartialFeatures(features, {"of": "another version"}, 64) as partial:
        partial.append(np.arange(3), np.ones((3, 64), np.float32))
    seen = ask(slide, class_map=False)
    assert of(seen, "started")[0]["done"] == 0
    assert not of(seen, "class_map")
    assert seen[-1]["event"] == "done"
    assert seen[-1]["probabilities"] == pytest.approx(first["probabilities"], abs=1e-5)


def test_a_slide_in_work_elsewhere_is_told(ask, slide):
    features = Path(ask(slide, class_map=False)[-1]["features"])
    features.unlink()
    with PartialFeatures(features, {"of": "somebody else"}, 64):
        end = ask(slide)[-1]
    assert end["event"] == "failed"
    assert "another window" in end["sentence"]


def test_broken_kept_features_are_made_anew(ask, slide):
    features = Path(ask(slide, class_map=False)[-1]["features"])
    features.write_bytes(features.read_bytes()[:4000])
    end = ask(slide, class_map=False)[-1]
    assert end["event"] == "done"
    assert end["reused"] is False


def test_an_unknown_request_fails_and_the_engine_goes_on(engine, ask, slide):
    assert engine.finish(engine.ask("dance"))[-1]["kind"] == "other"
    engine.process.stdin.write(b"this is no JSON\n[1, 2]\n")
    assert ask(slide)[-1]["event"] == "done"


def test_a_patch_of_close_classes_is_sent_as_unsure(analysed, model):
    """What the window draws in grey, though its numbers are there."""
    loaded = load_model(model)
    for weight in loaded.classifier.parameters():
        weight.data.zero_()
    tokens = read_for(loaded, analysed[-1]["features"])
    *_, said = map_of(loaded, tokens)
    assert said.event == "class_map"
    assert said.arrays["unsure"].all()
    with_neighbours = np.isfinite(said.arrays["probabilities"]).all(axis=1)
    assert with_neighbours.any()
    shown = Analysis(SlideSource("", None, None, (1, 1)), None)
    shown.take(said.event, said.facts, said.arrays)
    assert (shown.class_reading.labels == len(loaded.classes) + 1).all()
