"""What comes with the package: it loads anywhere, unchanged, and knows its limits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from spt_core import bundled, load_model
from spt_core.card_file import read_record
from spt_core.cli import main
from spt_core.commands.predict import prediction_record
from spt_core.errors import InputError
from spt_core.insight.predicting import predict, read_for, temperature
from spt_core.patches import EncodeSettings, encode_slide, find_card, load_encoder
from spt_core.patches.encoder_card import read_encoder_card
from spt_core.sample.cohort import write_sample_cohort
from tests.events import run_through
from tests.slides_folder import FOLDER, needs

REAL_SLIDES = [
    FOLDER / "slides" / "CMU-1-Small-Region.svs",
    FOLDER / "slides" / "tcga-cr-7395-01a-01-ts1.svs",
    FOLDER / "slides" / "test3-DAPI.ndpi",
    *(FOLDER / "sections" / f"her2st_C{i}.tif" for i in (2, 3, 4, 5)),
]
LATER = REAL_SLIDES[-3:]
HERE = Path(bundled.__file__).parent


def test_both_are_small():
    assert bundled.encoder_path().stat().st_size < 6e6
    assert bundled.slide_model_path().stat().st_size < 6e6


def test_the_encoder_says_what_it_is():
    stated = read_record(bundled.encoder_path())
    card = read_encoder_card(bundled.encoder_path())
    assert card.architecture == "mobilenetv2"
    assert "diagnosis" in stated["notice"]
    assert "CC BY 4.0" in card.licence
    names = " ".join(one.name for one in card.data)
    for source in ("ImageNet", "BreaKHis", "oral", "CMU", "TCGA", "sample"):
        assert source in names
    assert "her2st" not in json.dumps(stated)
    assert all(one.licence for one in card.data)
    assert card.training.method == "simclr"
    for name in ("measured", "speed"):
        assert card.more[name]


def test_every_source_of_the_card_is_among_the_licences():
    text = bundled.licences()
    for word in ("BreaKHis", "CC BY 4.0", "MIT", "CC0", "TCGA", "Spanhol", "ImageNet"):
        assert word in text
    assert "diagnosis" in text


def test_it_is_the_default_and_ready(capsys):
    assert EncodeSettings().encoder == bundled.ENCODER
    encoder = load_encoder(bundled.ENCODER)
    assert (encoder.card.dim, encoder.card.patch_size, encoder.card.mpp) == (
        1280,
        128,
        0.5,
    )
    assert find_card("bundled").weights == "bundled"
    assert main(["encoders"]) == 0
    assert "[ready]" in capsys.readouterr().out.splitlines()[0]
    assert main(["encoders", "get", "bundled"]) == 0
    with torch.inference_mode():
        out = encoder(torch.zeros((2, 128, 128, 3), dtype=torch.uint8), 128)
    assert out.shape == (2, 1280)
    assert torch.isfinite(out).all()


def test_the_slide_model_fits_the_encoder():
    model = load_model(bundled.slide_model_path())
    assert model.classes == ["glandular", "large-cell", "small-cell"]
    assert model.card.tokens.encoder == bundled.ENCODER
    assert model.card.tokens.encoder_sha256 == load_encoder("bundled").sha256
    assert model.card.demonstration is True
    assert "synthetic" in model.card.about
    # Its temperature was measured to help nothing, so its numbers are scores.
    assert model.card.calibration.error_after > 0.01
    assert temperature(model) is None


@pytest.mark.parametrize("name", [bundled.ENCODER_FILE, bundled.SLIDE_MODEL_FILE])
def test_a_changed_file_is_refused(name, tmp_path, monkeypatch):
    shutil.copytree(HERE, tmp_path / "b")
    monkeypatch.setattr(bundled, "_HERE", tmp_path / "b")
    ask = {
        bundled.ENCODER_FILE: lambda: load_encoder("bundled"),
        bundled.SLIDE_MODEL_FILE: bundled.slide_model_path,
    }[name]
    ask()
    content = bytearray((tmp_path / "b" / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / "b" / name).write_bytes(content)
    with pytest.raises(InputError, match="hash differs"):
        ask()
    (tmp_path / "b" / name).unlink()
    with pytest.raises(InputError, match="missing"):
        ask()


ALONE = """
import socket, sys

def refuse(*args, **kwargs):
    raise RuntimeError("the network was asked for")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from spt_core import bundled
from spt_core.learning.model_card import read_model_card
from spt_core.patches.encoder_card import read_encoder_card
assert read_encoder_card(bundled.encoder_path()).name == "bundled"
assert read_model_card(bundled.slide_model_path()).classes
assert "torch" not in sys.modules
from spt_core import load_model
from spt_core.patches import load_encoder
model = load_model(bundled.slide_model_path())
print(load_encoder("bundled").sha256, len(model.classes))
"""


def test_both_load_with_no_network_home_or_cache(tmp_path):
    env = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "SYSTEMROOT", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    }
    env |= {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [load_encoder("bundled").sha256, "3"]
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not list(tmp_path.rglob("*.pth"))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    run_through(write_sample_cohort(folder, slides=3, size=4096, seed=4711))
    return folder


def test_sample_slides_are_named(sample, tmp_path, capsys):
    """``spt predict`` without a model: each class once, all of them right."""
    slides = sorted(sample.glob("*.tif"))
    assert (
        main(["predict", *map(str, slides), "--json", "--features", str(tmp_path)]) == 0
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {r["slide"]: r for r in lines if r["event"] == "prediction"}
    truth = dict(
        line.split(",")[:2]
        for line in (sample / "labels.csv").read_text().splitlines()[1:]
    )
    assert {name: one["answer"] for name, one in found.items()} == truth
    assert all(one["number"] == "uncalibrated score" for one in found.values())
    # The heatmap asks the same model of the same features.
    features = tmp_path / f"{slides[0].stem}.h5"
    out = tmp_path / "map.geojson"
    assert main(["heatmap", str(features), "--out", str(out), "--no-class-map"]) == 0
    assert out.exists()


@pytest.mark.parametrize(
    "path",
    [
        # one section of four is enough for every day
        pytest.param(p, marks=(needs(p), *[pytest.mark.slow] * (p in LATER)))
        for p in REAL_SLIDES
    ],
    ids=lambda path: path.name,
)
def test_no_class_is_named_of_a_real_slide(path, tmp_path):
    settings = EncodeSettings(slide_mpp=0.5 if "tcga" in path.name else None)
    _, result = run_through(encode_slide(path, tmp_path, settings))
    model = load_model(bundled.slide_model_path())
    found = predict(model, read_for(model, result.path))
    assert found.verdict == "unlike"
    assert found.answer is None
    assert found.probabilities is None
    record = prediction_record(found, slide="x")
    assert "No class is named" in record["sentence"]
    for name in model.classes:
        assert name not in json.dumps(record)
    assert np.isfinite(found.attention).all()
