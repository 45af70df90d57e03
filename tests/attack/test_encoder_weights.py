"""Weights of patch encoders that fit by their shapes alone."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from spt_core.errors import InputError
from spt_core.patches.encoder_card import EncoderCard, encoder_metadata
from spt_core.patches.obtaining import keep_encoder
from spt_core.patches.registry import build_module, load_encoder
from spt_core.patches.store import stored_file
from spt_core.weights_file import read_weights

CARD = EncoderCard("mine", 64, 64, 0.5, architecture="small-random")


def written(path, card=CARD, **other):
    weights = {**build_module("small-random").state_dict(), **other}
    save_file(weights, path, encoder_metadata(card))
    return path


@pytest.mark.parametrize(
    "kind", [torch.int64, torch.uint8, torch.bool, torch.complex64]
)
def test_weights_of_another_kind_are_refused(tmp_path, kind):
    path = written(tmp_path / "e.safetensors", **{"0.bias": torch.ones(16).to(kind)})
    with pytest.raises(InputError, match="another kind for 0"):
        load_encoder(str(path))


def test_weights_too_large_for_their_place_are_refused(tmp_path):
    large = torch.full((16,), 1e300, dtype=torch.float64)
    path = written(tmp_path / "e.safetensors", **{"0.bias": large})
    with pytest.raises(InputError, match="NaN or infinity"):
        load_encoder(str(path))


def test_another_length_than_the_card_states_is_a_sentence(tmp_path):
    path = written(tmp_path / "e.safetensors", replace(CARD, dim=65))
    encoder = load_encoder(str(path)).to(torch.device("cpu"))
    with pytest.raises(InputError, match="its card states 65"):
        encoder(torch.zeros(2, 64, 64, 3, dtype=torch.uint8), 64)


@pytest.mark.parametrize("size", ["patch_size", "input_size", "resize_to"])
def test_no_patch_fills_the_memory(size):
    with pytest.raises(InputError, match="is not possible"):
        replace(CARD, **{size: 2**16})


def test_a_table_of_numbers_is_no_weights(tmp_path):
    torch.save({1: torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="holds no weights"):
        read_weights(tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("pos_embed", torch.zeros(1, 101, 1)),
        ("blocks.0.mlp.fc1.weight", torch.zeros(768)),
        ("reg_token", torch.tensor(1.0)),
        ("norm.bias", torch.full((192,), torch.nan)),
    ],
)
def test_damaged_weights_are_not_kept(tmp_path, monkeypatch, name, tensor):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path / "cache"))
    encoder = "vit_tiny_patch16_224"
    weights = dict(build_module(encoder).state_dict())
    torch.save({**weights, name: tensor}, tmp_path / "w.pt")
    with pytest.raises(InputError):
        keep_encoder(encoder, tmp_path / "w.pt")
    assert not stored_file(encoder).exists()
