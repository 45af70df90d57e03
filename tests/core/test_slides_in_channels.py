"""Stimulated Raman and fluorescence slides from file to answer, as any other slide."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

from spt_core import encode_slide, open_slide, read_tokens
from spt_core.cli import main
from spt_core.engine.analyse import analyse
from spt_core.engine.loaded import LoadedModels
from spt_core.engine.protocol import Analyse
from spt_core.engine.steering import Steering
from spt_core.errors import InputError
from spt_core.insight.growing import settings_for
from spt_core.learning.cohort import open_cohort
from spt_core.learning.model_card import read_model_card
from spt_core.learning.model_file import load_model
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import train
from spt_core.patches.settings import EncodeSettings
from spt_core.patches.training.pixels import find_slide_tissue, read_slide_patches
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.tiles import Origin
from spt_core.tokens import layout
from tests.core.learning.runs import TINY
from tests.core.patches.conftest import SETTINGS, make_slide, pixels_encoder
from tests.events import run_through
from tests.made_channels import DYES, MPP, SIDE, dye_slide, raman_slide

# 64 pixels at 0.5 µm are level-0 pixels: nothing is resampled.
FINE = replace(SETTINGS, patch_size=64, target_mpp=MPP)
PATCH = ("--encoder", "small-random", "--patch-size", "64", "--target-mpp", "1")


def encoded(path, out, settings, encoder=None):
    events = encode_slide(path, out, settings, encoder=encoder)
    _, result = run_through(events)
    return result, read_tokens(result.path)


def seen_and_there(tokens, picture):
    """Each patch as the encoder saw it, and cut from ``picture`` (3, y, x)."""
    seen = tokens.x.reshape(-1, 3, 64, 64)
    there = [picture[:, y : y + 64, x : x + 64] for x, y in tokens.xy]
    return seen, np.stack(there)


def test_the_encoder_sees_raman_channels_by_their_formula(tmp_path):
    path = tmp_path / "raman.ome.tif"
    ch2, ch3 = raman_slide(path).astype(float) / 2**16
    want = np.clip([ch3 - ch2 + 5000 / 2**16, ch2, ch3], 0, 1) * 255
    settings = replace(FINE, channels="SRH", stain="macenko")
    result, tokens = encoded(path, tmp_path, settings, pixels_encoder(64))
    seen, there = seen_and_there(tokens, want)
    assert np.abs(seen - there).max() <= 0.51
    # The disc, and not the dark around it.
    assert 0.45 < len(tokens) / (SIDE // 64) ** 2 < 0.75
    facts = tokens.facts
    assert (facts.channels, facts.channels_done) == ("srh", "0 to 65536")
    assert facts.stain == "macenko"
    assert facts.stain_done == "none: its colours are channels, not stains"
    assert any("its colours are channels" in note for note in result.notes)


def test_named_raman_channels_need_not_be_asked_for(tmp_path):
    path = tmp_path / "raman.ome.tif"
    stored = raman_slide(path, names=("CH3", "CH2"))
    channels = open_slide(path).channels
    assert [one.name for one in channels] == ["CH3", "CH2"]
    np.testing.assert_array_equal(np.asarray(channels[1].pyramid[0]), stored[1])
    _, tokens = encoded(path, tmp_path, SETTINGS)
    assert tokens.facts.channels == "srh"
    assert tokens.facts.stain_done is None


def test_three_of_four_dyes_are_chosen(tmp_path):
    path = tmp_path / "dyes.zarr"
    chosen = dye_slide(path)[[3, 0, 1]].astype(float)
    channels = open_slide(path, channels="Cy5,DAPI,FITC").channels
    assert [one.name for one in channels] == list(DYES)
    low, high = np.percentile(chosen, (1, 99.9), axis=(1, 2))[..., None, None]
    want = np.clip((chosen - low) / (high - low), 0, 1) * 255
    settings = replace(FINE, channels="Cy5,DAPI,FITC")
    _, tokens = encoded(path, tmp_path, settings, pixels_encoder(64))
    seen, there = seen_and_there(tokens, want)
    assert np.abs(seen - there).max() <= 0.51
    assert tokens.facts.channels == "Cy5,DAPI,FITC"
    ranges = zip(("Cy5", "DAPI", "FITC"), low.ravel(), high.ravel(), strict=True)
    said = ", ".join(f"{name} {a:.6g} to {b:.6g}" for name, a, b in ranges)
    assert tokens.facts.channels_done == said


def test_a_slide_is_the_same_slide_whatever_is_asked_for(tmp_path):
    path = tmp_path / "dyes.zarr"
    dye_slide(path)
    kinds = (None, "DAPI", "Cy5,FITC")
    assert len({open_slide(path, channels=one).fingerprint for one in kinds}) == 1


def test_features_of_other_channels_are_not_taken_for_finished(tmp_path):
    path = tmp_path / "dyes.zarr"
    dye_slide(path)
    asked = replace(SETTINGS, channels="DAPI,FITC")
    encoded(path, tmp_path, asked)
    result, _ = encoded(path, tmp_path, replace(SETTINGS, channels="DAPI, FITC"))
    assert result.status == "skipped"
    for other in ("Cy5", None):
        with pytest.raises(InputError, match="channels DAPI,FITC"):
            encoded(path, tmp_path, replace(SETTINGS, channels=other))
    _, tokens = encoded(path, tmp_path, replace(SETTINGS, redo=True))
    assert tokens.facts.channels.startswith("colours DAPI #")
    assert encoded(path, tmp_path, SETTINGS)[0].status == "skipped"


def test_what_cannot_be_asked_for_is_said(tmp_path):
    path = tmp_path / "dyes.zarr"
    dye_slide(path)
    with pytest.raises(InputError, match=r"no channel 'Cy7'.*1 DAPI, 2 FITC, 3 TRITC"):
        encoded(path, tmp_path, replace(SETTINGS, channels="Cy7"))
    with pytest.raises(InputError, match="one to three"):
        EncodeSettings(channels="1,2,3,4")


def test_info_lists_the_channels_that_can_be_asked_for(tmp_path, capsys):
    dye_slide(tmp_path / "dyes.zarr")
    assert main(["info", str(tmp_path / "dyes.zarr")]) == 0
    listed = "  channels      1 DAPI, 2 FITC, 3 TRITC, 4 Cy5\n"
    assert listed in capsys.readouterr().out


def test_features_that_do_not_state_their_channels_still_load(tmp_path):
    for name in ("old", "new"):
        make_slide(tmp_path / f"{name}.tif", 1200, 1200)
        encoded(tmp_path / f"{name}.tif", tmp_path / "features", SETTINGS)
    assert read_tokens(tmp_path / "features" / "new.h5").facts.channels == "rgb"
    with h5py.File(tmp_path / "features" / "old.h5", "a") as file:
        del file.attrs[layout.CHANNELS]
    assert read_tokens(tmp_path / "features" / "old.h5").facts.channels is None
    assert len(open_cohort(tmp_path / "features")) == 2
    # And are not encoded again.
    again, _ = encoded(tmp_path / "old.tif", tmp_path / "features", SETTINGS)
    assert again.status == "skipped"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Raman slides of two classes, encoded and learned from by the commands."""
    folder = tmp_path_factory.mktemp("raman")
    lines = ["slide,label"]
    for number in range(6):
        label = "dim" if number % 2 else "bright"
        most = {"dim": 9000, "bright": 26000}[label]
        raman_slide(folder / f"s{number}.ome.tif", number, most=most)
        lines.append(f"s{number},{label}")
    (folder / "labels.csv").write_text("\n".join(lines))
    slides = [str(path) for path in sorted(folder.glob("*.ome.tif"))]
    out = str(folder / "features")
    assert main(["encode", *slides, "--out", out, "--channels", "srh", *PATCH]) == 0
    settings = TrainSettings(
        features=out,
        objective="classify",
        out=str(folder / "run"),
        labels=str(folder / "labels.csv"),
        model="small",
        architecture=TINY,
        epochs=3,
        batch_size=6,
        device="cpu",
    )
    _, result = run_through(train(settings))
    return folder, result.last


def test_the_card_says_the_recipe_and_slides_are_opened_by_it(
    trained, tmp_path, capsys
):
    folder, model = trained
    assert read_model_card(model).tokens.channels == "srh"
    new = tmp_path / "new.ome.tif"
    raman_slide(new, seed=9, most=26000)
    kept = tmp_path / "features"
    words = ["predict", str(model), str(new), "--features", str(kept)]
    assert main(words) == 0
    assert read_tokens(kept / "new.h5").facts.channels == "srh"
    report = tmp_path / "report.html"
    words = ["heatmap", str(model), str(new), "--features", str(kept)]
    assert main([*words, "--out", str(report)]) == 0
    assert report.exists()
    capsys.readouterr()
    assert main(["info", str(folder / "features")]) == 0
    assert "  channels      srh" in capsys.readouterr().out


def test_stained_slides_and_other_channels_are_refused_by_the_model(
    trained, tmp_path, capsys
):
    _, model = trained
    stained = make_slide(tmp_path / "stained.tif", 1200, 1200)
    assert main(["predict", str(model), str(stained)]) != 0
    assert "is a picture in colour" in capsys.readouterr().err
    _, tokens = encoded(stained, tmp_path / "rgb", SETTINGS)
    with pytest.raises(InputError, match=r"channels rgb \(the model takes srh\)"):
        load_model(model).refuse_unlike(tokens.facts, tokens.dim)
    with pytest.raises(InputError, match="takes the channels srh, not DAPI"):
        settings_for(load_model(model), EncodeSettings(channels="DAPI"))


def test_features_of_stains_and_of_channels_are_never_mixed(trained, tmp_path):
    folder, _ = trained
    mixed = tmp_path / "features"
    make_slide(tmp_path / "stained.tif", 1200, 1200)
    encoded(tmp_path / "stained.tif", mixed, SETTINGS)
    for number in (0, 1):
        name = f"s{number}.h5"
        (mixed / name).write_bytes((folder / "features" / name).read_bytes())
    with pytest.raises(InputError, match=r"stained: channels rgb \(most have srh\)"):
        open_cohort(mixed)


def test_an_analysis_is_by_the_models_recipe_or_the_one_asked_for(trained, tmp_path):
    _, model = trained
    dyes = tmp_path / "dyes.zarr"
    dye_slide(dyes)
    raman = tmp_path / "raman.ome.tif"
    raman_slide(raman, seed=9)

    def ask(slide, **options):
        request = Analyse(slide, "mine", tmp_path / "kept", **options)
        _, end = run_through(analyse(request, LoadedModels(), Steering()))
        return read_tokens(end.features).facts.channels

    assert ask(raman, model=model) == "srh"
    plain = {"encoder": "small-random"}
    assert ask(dyes, channels="Cy5,DAPI", **plain) == "Cy5,DAPI"
    assert ask(dyes, channels="DAPI", **plain) == "DAPI"
    assert ask(dyes, **plain).startswith("colours ")
    with pytest.raises(InputError, match=r"mine has 4 separate channels"):
        ask(dyes, model=model)
    with pytest.raises(InputError, match=r"mine has no channel 'CD3'"):
        ask(dyes, channels="CD3", **plain)


def test_a_patch_encoder_learns_from_the_channels_asked_for(tmp_path):
    path = tmp_path / "raman.ome.tif"
    raman_slide(path)
    settings = PatchTrainSettings(
        (str(path),), "simclr", str(tmp_path), mpp=MPP, view_size=64, channels="srh"
    )
    origin = Origin(path, True, "raman", "raman", known=False)
    tissue = find_slide_tissue(origin, settings, np.random.default_rng(0))
    (seen,) = read_slide_patches(tissue, [0])
    x, y = tissue.grid.l0_xy[0]
    want = open_slide(path, channels="srh").read(0, x, y, *seen.shape[1::-1])
    assert np.array_equal(seen, want)
