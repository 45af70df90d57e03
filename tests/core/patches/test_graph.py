"""The same encoder by ONNX Runtime: equal features, kept by hash, torch otherwise."""

import json

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from spt_core.patches import graph as graphs
from spt_core.patches import load_encoder
from spt_core.patches.encoder import TORCH
from spt_core.patches.store import encoders_folder
from tests.core.patches.test_encoders import pixels

CPU = torch.device("cpu")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def _wanted(monkeypatch):
    monkeypatch.setenv(graphs.SWITCH, "1")
    monkeypatch.setattr(graphs, "_GAIN", 0.0)  # whatever else this computer does
    monkeypatch.setattr(graphs, "FEWEST_PATCHES", 1)


def on_cpu(encoder):
    """It, and the graph by which it encodes a slide."""
    encoder.to(CPU)
    return encoder, encoder._graphs.for_slide(1)


def features(encoder, batch, size):
    with torch.inference_mode():
        return encoder(batch, size, way=encoder.way(1)).numpy()


def neighbours(x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.argsort(-(x @ x.T), axis=1)[:, 1]


def test_a_graph_gives_the_same_features_of_any_size_and_number():
    torch_alone = load_encoder("bundled")
    by_graph, graph = on_cpu(load_encoder("bundled"))
    assert graph is not None
    for count, size in ((1, 64), (12, 128), (3, 300)):
        batch = pixels(count, size)
        want, have = features(torch_alone, batch, size), features(by_graph, batch, size)
        cosine = (want * have).sum(1) / np.linalg.norm(want, axis=1)
        assert (cosine / np.linalg.norm(have, axis=1)).min() >= graphs.SAME
        if count > 3:
            np.testing.assert_array_equal(neighbours(want), neighbours(have))


def test_it_is_kept_by_hash_and_a_changed_one_is_made_again(monkeypatch):
    made = []
    export = graphs.export
    monkeypatch.setattr(
        graphs, "export", lambda *a, **k: (made.append(1), export(*a, **k))
    )
    encoder, _ = on_cpu(load_encoder("bundled"))
    on_cpu(load_encoder("bundled"))
    assert len(made) == 1
    file = encoders_folder() / "graphs" / f"{encoder.sha256}.onnx"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert on_cpu(load_encoder("bundled"))[1] is not None
    assert len(made) == 2
    # Where torch was quicker, that is known as well.
    facts = json.loads(file.with_suffix(".json").read_text())
    file.with_suffix(".json").write_text(json.dumps({**facts, "quicker": False}))
    assert on_cpu(load_encoder("bundled"))[1] is None
    assert len(made) == 2


def test_torch_remains_where_there_is_no_graph(monkeypatch):
    def refuse(*args, **rest):
        raise RuntimeError("cannot be exported")

    monkeypatch.setattr(graphs, "export", refuse)
    encoder, graph = on_cpu(load_encoder("bundled"))
    assert graph is None
    assert features(encoder, pixels(2, 64), 64).shape == (2, encoder.card.dim)
    assert on_cpu(load_encoder("small-random"))[1] is None


def test_one_that_gives_other_features_is_not_used(monkeypatch):
    monkeypatch.setattr(graphs.Graph, "__call__", lambda self, x: torch.randn(4, 1280))
    assert on_cpu(load_encoder("bundled"))[1] is None


def test_a_vision_transformer_exports_too(tmp_path):
    torch.manual_seed(0)
    name = "vit_tiny_patch16_224"
    model = timm.create_model(name, num_classes=0)
    save_file(model.state_dict(), tmp_path / "v.safetensors")
    encoder = load_encoder(name, tmp_path / "v.safetensors")
    want = features(encoder, pixels(2, 224), 224)
    assert encoder.way(1) == TORCH  # before it has a device
    encoder, graph = on_cpu(encoder)
    assert graph is not None
    np.testing.assert_allclose(features(encoder, pixels(2, 224), 224), want, atol=2e-3)


def test_the_way_is_the_slides_and_not_what_was_seen_before(monkeypatch):
    monkeypatch.setattr(graphs, "FEWEST_PATCHES", 100)
    encoder, graph = on_cpu(load_encoder("bundled"))
    assert graph is None
    assert encoder.way(99) == TORCH
    way = encoder.way(100)
    assert way != TORCH
    assert encoder.way(99) == TORCH
    assert encoder.knows(TORCH)
    assert encoder.knows(way)
    assert not encoder.knows(f"{way} of another computer")
    another = load_encoder("bundled").to(CPU)
    assert another.way(100) == way
    batch = pixels(2, 64)
    with torch.inference_mode():
        by_torch, by_graph = (encoder(batch, 64, way=w) for w in (TORCH, way))
    torch.testing.assert_close(by_graph, by_torch, rtol=1e-3, atol=1e-3)
    assert not torch.equal(by_graph, by_torch)
