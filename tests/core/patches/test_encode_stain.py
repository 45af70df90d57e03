"""Encoding with the stains of all slides made alike."""

import dataclasses

import numpy as np
import pytest
import tifffile
import torch

from spt_core import encode_slide, open_slide, read_tokens
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.patches import (
    EncodeSettings,
    PartialTokens,
    SlideResult,
    encode_slides,
    load_encoder,
    slide_tasks,
)
from spt_core.slides.grid import lay_grid
from spt_core.slides.stain import slide_stains
from spt_core.slides.tissue import find_tissue
from tests.core.patches.conftest import (
    SETTINGS,
    make_slide,
    pixels_encoder,
    run_through,
)
from tests.core.stained import BLUE, PINK, amounts, on_glass, rendered, write_slide

MACENKO = dataclasses.replace(SETTINGS, stain="macenko")
# 64 pixels at 0.5 µm are level-0 pixels: nothing is resampled.
FINE = {"patch_size": 64, "target_mpp": 0.5}


@pytest.fixture(scope="module")
def laboratories(tmp_path_factory):
    """The same tissue, stained twice."""
    folder = tmp_path_factory.mktemp("laboratories")
    mixed = on_glass(amounts(1100, 1300))
    blue = write_slide(folder / "blue.tif", rendered(mixed, BLUE, (0.9, 1.1)))
    pink = write_slide(folder / "pink.tif", rendered(mixed, PINK, (1.2, 0.8)))
    return blue, pink


def tokens_of(paths, out, settings, encoder=None):
    tasks = slide_tasks(paths, out)
    _, results = run_through(encode_slides(tasks, settings, encoder=encoder))
    assert [r.status for r in results] == ["done"] * len(tasks)
    return [read_tokens(task.out) for task in tasks]


def test_the_encoder_sees_each_slide_in_the_reference(laboratories, tmp_path):
    """One encoder, several slides: each by its own stains, and not by another's."""
    settings = dataclasses.replace(MACENKO, **FINE)
    seen = tokens_of(laboratories, tmp_path, settings, pixels_encoder(64))
    for path, tokens in zip(laboratories, seen, strict=True):
        slide = open_slide(path)
        tissue = find_tissue(slide)
        stains = slide_stains(slide, tissue, lay_grid(slide, tissue, **FINE))
        pixels = tifffile.imread(path)
        for x, (left, top) in zip(tokens.x[::17], tokens.xy[::17], strict=True):
            patch = pixels[top : top + 64, left : left + 64]
            want = stains.normalised(patch).transpose(2, 0, 1).ravel()
            np.testing.assert_allclose(x, want, atol=0.02)
        assert tokens.facts.stain == "macenko"
    blue, pink = (tokens.x.reshape(len(tokens), 3, -1) for tokens in seen)
    both = np.intersect1d(*(_places(tokens) for tokens in seen), return_indices=True)
    before = [tifffile.imread(path).astype(float) for path in laboratories]
    assert np.abs(before[0] - before[1])[300:800, 300:1000].mean() > 12
    assert np.abs(blue[both[1]] - pink[both[2]]).mean() < 4


def _places(tokens):
    return tokens.xy[:, 0] * 100_000 + tokens.xy[:, 1]


def test_features_of_two_laboratories_come_nearer(laboratories, tmp_path):
    far = {}
    for settings in (SETTINGS, MACENKO):
        blue, pink = tokens_of(laboratories, tmp_path / settings.stain, settings)
        _, i, j = np.intersect1d(_places(blue), _places(pink), return_indices=True)
        assert len(i) > 20
        far[settings.stain] = np.linalg.norm(blue.x[i] - pink.x[j], axis=1).mean()
    assert far["macenko"] < 0.4 * far["none"]


def test_the_encoder_itself_stays_as_it_was(laboratories, tmp_path):
    """What ran with one slide's stains encodes the next as if nothing had been."""
    encoder = load_encoder("small-random")
    tokens_of(laboratories[:1], tmp_path / "a", MACENKO, encoder)
    (after,) = tokens_of(laboratories[1:], tmp_path / "b", SETTINGS, encoder)
    (fresh,) = tokens_of(laboratories[1:], tmp_path / "c", SETTINGS)
    np.testing.assert_allclose(after.x, fresh.x, atol=1e-5)


def test_going_on_shows_the_same_colours(laboratories, tmp_path):
    few = dataclasses.replace(MACENKO, batch_size=8)
    events = encode_slide(laboratories[0], tmp_path / "a", few)
    next(e for e in events if isinstance(e, PartialTokens))
    events.close()
    assert not (tmp_path / "a" / "blue.h5").exists()
    again, result = run_through(encode_slide(laboratories[0], tmp_path / "a", few))
    (whole,) = tokens_of(laboratories[:1], tmp_path / "b", MACENKO)
    tokens = read_tokens(result.path)
    np.testing.assert_array_equal(tokens.xy, whole.xy)
    np.testing.assert_allclose(tokens.x, whole.x, atol=1e-5)
    assert not any(isinstance(e, Note) and "colours" in e.message for e in again)


def test_stained_otherwise_is_never_mixed(laboratories, tmp_path):
    some = dataclasses.replace(SETTINGS, batch_size=4)
    events = encode_slide(laboratories[0], tmp_path, some)
    next(e for e in events if isinstance(e, PartialTokens))
    events.close()
    with pytest.raises(InputError, match=r"unfinished work.*stain"):
        run_through(encode_slide(laboratories[0], tmp_path, MACENKO))
    run_through(encode_slide(laboratories[0], tmp_path, SETTINGS))
    with pytest.raises(InputError, match=r"stain none there, macenko here.*--redo"):
        run_through(encode_slide(laboratories[0], tmp_path, MACENKO))
    plain = read_tokens(tmp_path / "blue.h5")
    redo = dataclasses.replace(MACENKO, redo=True)
    assert run_through(encode_slide(laboratories[0], tmp_path, redo))[1].status == (
        "done"
    )
    stained = read_tokens(tmp_path / "blue.h5")
    assert stained.facts.stain == "macenko"
    assert np.abs(stained.x - plain.x).max() > 1e-3
    again = run_through(encode_slide(laboratories[0], tmp_path, MACENKO))[1]
    assert again.status == "skipped"


def test_a_slide_of_one_stain_is_left_and_that_is_said(tmp_path):
    path = make_slide(tmp_path / "s.tif", 1200, 1000)
    events, result = run_through(encode_slide(path, tmp_path / "a", MACENKO))
    said = [e.message for e in events if isinstance(e, Note)]
    why = "s is encoded in its own colours: it shows one stain, or none, rather than"
    assert [why in one for one in said] == [True]
    assert why in result.notes[0]
    (plain,) = tokens_of([path], tmp_path / "b", SETTINGS)
    tokens = read_tokens(result.path)
    np.testing.assert_allclose(tokens.x, plain.x, atol=1e-5)
    assert tokens.facts.stain == "macenko"
    facts = read_tokens(tmp_path / "a" / "s.h5").facts
    assert facts.stain == "macenko"  # what was asked for
    assert facts.stain_done.startswith("none: it shows one stain")


def test_unknown_stains_are_refused_by_the_core():
    with pytest.raises(InputError, match=r"'reinhard'.* none, macenko"):
        EncodeSettings(stain="reinhard")
    with pytest.raises(InputError, match="There is no stain normalisation"):
        dataclasses.replace(SETTINGS, stain="")


def test_the_command(laboratories, tmp_path, capsys):
    options = ["--encoder", "small-random", "--patch-size", "64", "--target-mpp", "1"]
    encode = ["encode", str(laboratories[1]), "--out", str(tmp_path), *options]
    assert main([*encode, "--stain", "macenko"]) == 0
    assert read_tokens(tmp_path / "pink.h5").facts.stain == "macenko"
    capsys.readouterr()
    assert main(encode) == 1
    assert "stain macenko there, none here" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*encode, "--stain", "reinhard"])
    assert "reinhard" in capsys.readouterr().err


def test_workers_make_the_same_of_it(laboratories, tmp_path):
    from spt_core.patches.local_workers import encode_in_processes

    tasks = slide_tasks(laboratories, tmp_path / "w")
    events, results = run_through(encode_in_processes(tasks, MACENKO, workers=1))
    assert [r.status for r in results] == ["done", "done"]
    assert sum(isinstance(e, SlideResult) for e in events) == 2
    here = tokens_of(laboratories, tmp_path / "h", MACENKO)
    for task, tokens in zip(tasks, here, strict=True):
        there = read_tokens(task.out)
        torch.testing.assert_close(
            torch.from_numpy(there.x), torch.from_numpy(tokens.x), atol=1e-4, rtol=1e-4
        )
