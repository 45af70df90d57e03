"""Bad model and encoder files: a sentence each, in no time."""

import sys
import time

import numpy as np
import pytest
import torch

from spt_core import load_model
from spt_core.errors import InputError
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.encoder_file import save_encoder
from spt_core.patches.registry import build_module, load_encoder
from tests.attack import forks
from tests.attack.model_files import (
    cases,
    good_model,
    put_together,
    taken_apart,
    use_encoder,
    use_model,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="forks and limits")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def good_encoder(path):
    module = build_module("small-random")
    card = EncoderCard("mine", 64, 64, 1.0, architecture="small-random")
    save_encoder(path, module.state_dict(), card)
    return path


@LINUX
@pytest.mark.parametrize(
    ("kind", "make", "use"),
    [("model", good_model, use_model), ("encoder", good_encoder, use_encoder)],
)
def test_every_bad_file_is_a_sentence(tmp_path, kind, make, use):
    good = make(tmp_path / "good.safetensors")
    assert use(good)
    table = forks.Table()
    for name, case in cases(good, use, tmp_path, seed=2, count=30):
        table.add(kind, name, *forks.run(case))
    assert not table.failed, str(table)
    assert table.counts[kind]["sentence"] > 12


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("depth", 1_000_000),
        ("dim", 10_000_000),
        ("heads", 5),
        ("heads", 0.5),
        ("heads", 4.0),
        ("heads", 0),
        ("in_dim", 15),
    ],
)
def test_an_impossible_architecture_is_refused_at_once(tmp_path, option, value):
    import json

    good = good_model(tmp_path / "good.safetensors")
    header, data = taken_apart(good)
    card = json.loads(header["__metadata__"]["card"])
    card["architecture"][option] = value
    header["__metadata__"]["card"] = json.dumps(card)
    put_together(tmp_path / "bad.safetensors", header, data)
    began = time.perf_counter()
    with pytest.raises(InputError, match=r"bad\.safetensors"):
        load_model(tmp_path / "bad.safetensors")
    assert time.perf_counter() - began < 1.0


def test_every_architecture_passes_its_own_check(tmp_path):
    for name in ("small", "mean", "max", "abmil", "clam", "dsmil", "transmil", "hipt"):
        assert use_model(good_model(tmp_path / f"{name}.safetensors", name))


def test_an_encoder_whose_answers_overflow_is_refused(tmp_path):
    path = good_encoder(tmp_path / "e.safetensors")
    header, data = taken_apart(path)
    large = np.frombuffer(data, "<f4") * np.float32(1e30)
    put_together(path, header, large.tobytes())
    with pytest.raises(InputError, match="NaN or infinity"):
        load_encoder(str(path))
