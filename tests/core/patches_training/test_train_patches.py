"""A run from tiles to an encoder file, whatever happens to it."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.models import resnet18

from spt_core import open_slide, read_tokens
from spt_core.card_file import read_record
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.patches import find_card, load_encoder
from spt_core.patches.encoder_card import read_encoder_card
from spt_core.patches.training import (
    PatchTrainSettings,
    resume_patches,
    train_patches,
)
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.patches.training.network import PatchNetwork, blocks, graph_floats
from spt_core.patches.training.start import load_start
from spt_core.training.alarms import DivergedError
from spt_core.training.knn import knn_probabilities, mean_class_accuracy
from spt_core.training.run_folder import key_in
from spt_core.training.signals import Validation
from spt_core.training.stages import patient_hmac
from tests.core.patches.conftest import make_slide
from tests.core.patches_training.made_tiles import picture, write_tiles
from tests.events import run_through as finish

# Colours say nothing here: take them away.
COLOURLESS = Augmentation(
    scale=(0.9, 1.1), stain=0.3, brightness=0.4, contrast=0.4, saturation=0.5, hue=180,
    grey=0.5, blur=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiles(tmp_path_factory.mktemp("made") / "data")


def quick(folder, out, **changes):
    plain = PatchTrainSettings(
        sources=(str(folder / "tiles"),),
        method="simclr",
        out=str(out),
        tables=(str(folder / "tiles.csv"),),
        arch="small-random",
        init="none",
        patch_size=48,
        mpp=0.5,
        view_size=40,
        epochs=3,
        batch_size=32,
        checkpoint_steps=2,
        device="cpu",
    )
    return replace(plain, **changes)


def knn(encoder, seed=99, a_kind=40):
    """Of new pictures, half of which vote."""
    rng = np.random.default_rng(seed)
    y = np.arange(3 * a_kind) % 3
    pixels = torch.from_numpy(np.stack([picture(kind, rng) for kind in y]))
    with torch.inference_mode():
        h = encoder(pixels, 56).numpy()
    half = len(y) // 2
    shares = knn_probabilities(h[:half], y[:half], h[half:], 3)
    return mean_class_accuracy(y[half:], shares.argmax(1))


@pytest.mark.parametrize(
    "method", ["simclr", pytest.param("hidisc", marks=pytest.mark.slow)]
)
def test_training_lifts_knn_accuracy(folder, tmp_path, method):
    settings = quick(
        folder, tmp_path / "run", method=method, epochs=40, learning_rate=3e-3,
        temperature=0.2, augmentation=COLOURLESS,
    )  # fmt: skip
    events, result = finish(train_patches(settings))
    before, after = (
        knn(load_encoder("small-random")),
        knn(load_encoder(str(result.encoder))),
    )
    assert before < 0.7
    assert after > before + 0.15
    looks = [event for event in events if isinstance(event, Validation)]
    assert looks[-1].knn is not None
    assert looks[-1].knn > before


def assert_bitwise(one, other):
    one, other = load_file(one), load_file(other)
    assert set(one) == set(other)
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.fixture(scope="module")
def undisturbed(folder, tmp_path_factory):
    return finish(train_patches(quick(folder, tmp_path_factory.mktemp("r") / "run")))


def test_the_same_seed_gives_the_same_encoder(undisturbed, folder, tmp_path):
    _, result = finish(train_patches(quick(folder, tmp_path / "run")))
    assert_bitwise(result.encoder, undisturbed[1].encoder)
    _, other = finish(train_patches(quick(folder, tmp_path / "other", seed=1)))
    with pytest.raises(AssertionError):
        assert_bitwise(result.encoder, other.encoder)


def test_a_stopped_run_goes_on_as_if_it_had_not_been(undisturbed, folder, tmp_path):
    events = train_patches(quick(folder, tmp_path / "run"))
    for event in events:
        if isinstance(event, Progress) and "loss" in event.message and event.done == 4:
            break
    events.close()
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert (state["status"], state["step"]) == ("stopped", 4)
    events, result = finish(resume_patches(tmp_path / "run"))
    steps = [e for e in events if isinstance(e, Progress) and "loss" in e.message]
    assert steps[0].done == 5
    assert_bitwise(result.encoder, undisturbed[1].encoder)
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]
    assert (tmp_path / "run" / "curve.png").exists()


def test_the_gradient_does_not_depend_on_the_micro_batch(undisturbed, folder, tmp_path):
    """With frozen statistics no layer mixes patches; so neither do micro-batches."""
    ends = []
    for name, size in (("whole", None), ("bits", 5)):
        settings = quick(
            folder, tmp_path / name, micro_batch=size, statistics="frozen", epochs=1
        )
        ends.append(finish(train_patches(settings))[1].encoder)
    one, other = map(load_file, ends)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-5)


def test_a_second_run_in_one_folder_is_refused(undisturbed, folder):
    again = quick(folder, undisturbed[1].run)
    with pytest.raises(InputError, match="spt train-patches --resume"):
        finish(train_patches(again))


def test_a_loss_that_is_no_number_stops_the_run(folder, tmp_path):
    wild = quick(folder, tmp_path / "run", learning_rate=1e30, epochs=6)
    with pytest.raises(DivergedError, match=r"in step \d+.*lower --learning-rate"):
        finish(train_patches(wild))
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert state["status"] == "failed"
    assert (tmp_path / "run" / "encoder.safetensors").exists()


def test_the_card_says_what_it_is_and_names_nobody(undisturbed, folder):
    path = undisturbed[1].encoder
    card = read_encoder_card(path)
    assert card.architecture == "small-random"
    assert (card.dim, card.patch_size, card.mpp) == (64, 48, 0.5)
    assert card.training.method == "simclr"
    assert (card.training.patches, card.training.patients) == (96, 12)
    stated = read_record(path)
    assert stated["kind"] == "spt-patch-encoder"
    assert "diagnosis" in stated["notice"]
    content = path.read_bytes()
    for name in (b"p3-1", b"s3-1", str(folder).encode(), b"tiles.csv"):
        assert name not in content
    assert find_card(str(path)).patch_size == 48
    encoder, run = load_encoder(str(path)), load_encoder(str(path.parent))
    assert encoder.sha256 == run.sha256
    assert encoder.sha256 != load_encoder("small-random").sha256


def test_the_card_knows_slides_and_patients_again(undisturbed, folder, tmp_path):
    training = read_encoder_card(undisturbed[1].encoder).training
    key = key_in(undisturbed[1].run)
    assert patient_hmac("p3", key) in training.patient_hmacs
    assert len(training.patient_hmacs) == 12
    assert len(training.slide_fingerprints) == 96  # each of the tiles
    (tmp_path / "renamed").mkdir()
    shutil.copy(folder / "tiles" / "p3-1.png", tmp_path / "renamed" / "x.png")
    slide = make_slide(tmp_path / "renamed" / "slide.tif", 1200, 1000)
    settings = quick(
        folder, tmp_path / "run", sources=(str(tmp_path / "renamed"),), tables=(),
        epochs=1, batch_size=4, patches_per_slide=4, init=str(undisturbed[1].encoder),
    )  # fmt: skip
    _, result = finish(train_patches(settings))
    card = read_encoder_card(result.encoder)
    own, earlier = card.stages()
    assert own.objective == earlier.objective == "patch encoder: simclr"
    assert not own.with_labels
    assert own.has_slide(open_slide(slide).fingerprint)
    # the picture, under whatever name
    assert len(own.slide_fingerprints & training.slide_fingerprints) == 1
    assert earlier.slide_fingerprints == training.slide_fingerprints
    # the key of the start's run is this one's too
    assert earlier.has_patient("p3", key_in(result.run))
    assert own.patient_hmacs == frozenset()  # nobody stated a patient


def test_public_collections_are_known_of_the_start(folder, tmp_path):
    assert find_card("resnet34").trained_on == ("ImageNet",)
    assert "TCGA-CR-7395" in find_card("bundled").trained_on
    assert load_start("mobilenetv2", "none", 0).card.trained_on == ()
    assert "BreaKHis" in load_start("mobilenetv2", "bundled", 0).card.trained_on


def test_hidisc_is_as_published_and_ours_is_an_option(folder, tmp_path):
    published = quick(folder, tmp_path / "a", method="hidisc", epochs=1)
    ours = replace(published, out=str(tmp_path / "b"), head="batchnorm",
                   temperature=0.7)  # fmt: skip
    for settings, head, temperature in (
        (published, "linear", 0.07), (ours, "batchnorm", 0.7)
    ):  # fmt: skip
        _, result = finish(train_patches(settings))
        stated = read_encoder_card(result.encoder).training.settings
        assert (stated["head"], stated["temperature"]) == (head, temperature)
        saved = torch.load(result.run / "checkpoint.pt", weights_only=True)
        shapes = [
            w.shape for n, w in saved["objective"].items() if n.endswith("0.weight")
        ]
        assert shapes[0] == ((128, 64) if head == "linear" else (64, 64))


def test_weights_without_a_card_and_other_files_are_told_apart(tmp_path, undisturbed):
    save_file({"a": torch.zeros(1)}, tmp_path / "bare.safetensors")
    with pytest.raises(InputError, match=r"without a card.*--encoder NAME"):
        load_encoder(str(tmp_path / "bare.safetensors"))
    save_file({"a": torch.zeros(1)}, tmp_path / "m.safetensors",
              {"card": json.dumps({"kind": "spt-slide-model"})})  # fmt: skip
    with pytest.raises(InputError, match="spt-slide-model, not a patch encoder"):
        load_encoder(str(tmp_path / "m.safetensors"))
    with pytest.raises(InputError, match="There is no file"):
        load_encoder(str(tmp_path / "none.safetensors"))


def test_half_precision_is_half_the_size(undisturbed, folder, tmp_path):
    _, half = finish(train_patches(quick(folder, tmp_path / "run", half=True)))
    full = load_file(undisturbed[1].encoder)
    for name, tensor in load_file(half.encoder).items():
        assert tensor.dtype == torch.float16
        torch.testing.assert_close(tensor.float(), full[name], rtol=1e-3, atol=1e-4)


def started(folder, out, start, **changes):
    return quick(folder, out, init=str(start), learning_rate=1e-3, **changes)


def test_frozen_blocks_and_statistics_stay(undisturbed, folder, tmp_path):
    start = undisturbed[1].encoder
    _, result = finish(train_patches(started(folder, tmp_path / "r", start, freeze=2)))
    old, new = load_file(start), load_file(result.encoder)
    same = {name for name in old if torch.equal(old[name], new[name])}
    # blocks: convolution, norm, convolution, norm, convolution
    assert {n for n in old if n.split(".")[0] in "01"} <= same
    assert {n for n in old if "running" in n} <= same
    assert "6.weight" not in same
    with pytest.raises(InputError, match="leaves nothing to learn"):
        finish(train_patches(started(folder, tmp_path / "x", start, freeze=5)))


def test_blending_is_between_the_start_and_what_was_learned(
    undisturbed, folder, tmp_path
):
    start = undisturbed[1].encoder
    _, whole = finish(train_patches(started(folder, tmp_path / "w", start)))
    _, some = finish(train_patches(started(folder, tmp_path / "s", start, blend=0.25)))
    old, new, between = map(load_file, (start, whole.encoder, some.encoder))
    for name in old:
        want = 0.75 * old[name] + 0.25 * new[name]
        torch.testing.assert_close(between[name], want, rtol=1e-5, atol=1e-6)


def test_staying_near_the_start_keeps_its_features(undisturbed, folder, tmp_path):
    start = undisturbed[1].encoder
    pixels = torch.from_numpy(
        np.stack([picture(k % 3, np.random.default_rng(k)) for k in range(30)])
    )
    moved = []
    for name, stay in (("free", 0.0), ("near", 50.0)):
        settings = started(folder, tmp_path / name, start, stay=stay, epochs=5)
        _, result = finish(train_patches(settings))
        with torch.inference_mode():
            old = load_encoder(str(start))(pixels, 56)
            new = load_encoder(str(result.encoder))(pixels, 56)
        cosine = torch.nn.functional.cosine_similarity(old, new)
        moved.append(float(1 - cosine.mean()))
    assert moved[1] < moved[0] / 2


def test_blocks_of_real_networks_come_in_order():
    parts = blocks(resnet18(weights=None))
    assert isinstance(parts[0], nn.Conv2d)
    assert len(parts) == 7  # convolution, norm, four stages, classifier
    network = PatchNetwork(resnet18(weights=None), 1000, (0,) * 3, (1,) * 3, freeze=4)
    free = {n.split(".")[1] for n, w in network.named_parameters() if w.requires_grad}
    assert free == {"layer3", "layer4", "fc"}
    frozen = PatchNetwork(resnet18(weights=None), 1000, (0,) * 3, (1,) * 3)
    x = torch.zeros(1, 3, 64, 64)
    assert graph_floats(network, x) < graph_floats(frozen, x) / 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "magic"}, "no method 'magic'. Choose one of: simclr, hidisc"),
        ({"views": 1}, "views must be at least 2, not 1"),
        ({"blend": 0.5}, "without a start"),
        ({"batch_size": 0}, "batch_size must be greater than 0, not 0"),
        ({"level_weights": (0, 0, 0)}, "weights"),
        ({"mpp": -1.0}, "mpp must be greater than 0, not -1"),
    ],
)
def test_settings_that_do_not_work_are_said(folder, tmp_path, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        quick(folder, tmp_path, **changes)


def test_missing_starts_are_said(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path))
    lost = quick(folder, tmp_path / "r", arch="mobilenetv2", init="imagenet")
    with pytest.raises(InputError, match="spt encoders get mobilenetv2"):
        finish(train_patches(lost))
    with pytest.raises(InputError, match="nor a file of weights"):
        finish(train_patches(replace(lost, init="nowhere.pth")))


def test_the_command_makes_an_encoder_that_encode_takes(folder, tmp_path, capsys):
    slide = make_slide(tmp_path / "slide.tif", 1200, 1000)
    out = tmp_path / "own.safetensors"
    command = [
        "train-patches", str(folder / "tiles"), str(slide), "--method", "hidisc",
        "--table", str(folder / "tiles.csv"), "--arch", "small-random", "--init",
        "none", "--patch-size", "48", "--view-size", "32", "--epochs", "1",
        "--patches-per-slide", "8", "--batch-size", "32", "--device", "cpu", "--json",
        "--out", str(out),
    ]  # fmt: skip
    assert main(command) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[-1]["event"] == "done"
    assert events[-1]["encoder"] == str(out)
    assert {"note", "progress", "patchepoch", "validation"} <= {
        event["event"] for event in events
    }
    features = tmp_path / "features"
    encode = ["encode", str(slide), "--encoder", str(out), "--out", str(features)]
    assert main(encode) == 0
    tokens = read_tokens(features / "slide.h5")
    assert tokens.facts.encoder == "own"
    assert (tokens.facts.patch_size, tokens.facts.mpp) == (48, 0.5)
    assert tokens.facts.encoder_sha256 == load_encoder(str(out)).sha256
    assert tokens.dim == 64
    assert main(command) == 1  # the run is there already
    assert main(["train-patches", "--resume", str(out)]) == 0
    assert main(["train-patches", str(folder)]) == 1
