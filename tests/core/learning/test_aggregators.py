"""The aggregators that slide models are compared with."""

import argparse
import math
from functools import partial

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from spt_core.errors import InputError
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.hipt import load_region_weights, regions_of
from spt_core.learning.model_card import (
    Architecture,
    ModelCard,
    TokenKind,
    TrainingSummary,
)
from spt_core.learning.model_file import SlideModel, load_model, save_model
from spt_core.learning.transmil import TransMil
from spt_core.training.objectives import Classify, build_objective

DIM, CLASSES = 24, 3
SMALL = {
    "abmil": {"dim": 16, "hidden": 8, "dropout": 0.25},
    "clam": {"dim": 16, "hidden": 8, "classes": CLASSES},
    "dsmil": {"dim": 16, "hidden": 8, "classes": CLASSES},
    "transmil": {"dim": 16, "heads": 2, "landmarks": 4},
    "hipt": {"dim": 24, "depth": 2, "heads": 6},
}
NAMES = sorted(SMALL)


def small(name, **changes):
    torch.manual_seed(0)
    return build_encoder(name, DIM, **{**SMALL[name], **changes})


def some_slide(n, *, seed=0, d=DIM, side=40):
    made = torch.Generator().manual_seed(seed)
    cells = torch.randperm(side * side, generator=made)[:n]
    return torch.randn(n, d, generator=made), torch.stack(
        [cells // side, cells % side], dim=1
    )


def padded(slides, length):
    x = torch.full((len(slides), length, DIM), 99.0)
    p = torch.full((len(slides), length, 2), 12345)
    mask = torch.zeros(len(slides), length, dtype=torch.bool)
    for row, (x_one, p_one) in enumerate(slides):
        # anywhere: nothing says that real tokens come first
        places = torch.randperm(length)[: len(x_one)].sort().values
        x[row, places], p[row, places], mask[row, places] = x_one, p_one, True
    return x, p, mask


# what all of them have in common


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_neither_the_embedding_nor_what_is_learned(name):
    made = small(name).eval()
    slides = [some_slide(n, seed=n) for n in (1, 2, 5, 40)]
    with torch.no_grad():
        together = made.for_objective(*padded(slides, 64))
        for found, (x, p) in zip(together, slides, strict=True):
            alone = made.for_objective(x[None], p[None])[0]
            torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(
                made(x[None], p[None])[0], alone[: made.dim], atol=1e-6, rtol=1e-5
            )


@pytest.mark.parametrize("name", NAMES)
def test_attention_sums_to_one_and_comes_with_the_same_embedding(name):
    made = small(name).eval()
    for n in (1, 2, 30, 37):
        x, p = some_slide(n, seed=n)
        h, attention = made.attend(x, p)
        assert attention.shape == (made.heads, n)
        assert (attention >= 0).all()
        torch.testing.assert_close(attention.sum(dim=1), torch.ones(made.heads))
        with torch.no_grad():
            torch.testing.assert_close(
                h, made(x[None], p[None])[0], atol=1e-5, rtol=1e-5
            )


@pytest.mark.parametrize("name", ["abmil", "clam", "dsmil", "hipt"])
def test_the_order_of_tokens_does_not_matter(name):
    """HIPT goes by places; TransMIL takes tokens in the order that they come in."""
    made = small(name).eval()
    x, p = some_slide(50)
    order = torch.randperm(50)
    h, attention = made.attend(x, p)
    other, its_attention = made.attend(x[order], p[order])
    torch.testing.assert_close(h, other, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(attention[:, order], its_attention, atol=1e-6, rtol=1e-4)
    if name != "hipt":
        moved = made.attend(x, p + torch.randint(0, 99, p.shape)).h
        torch.testing.assert_close(h, moved)


def test_transmil_takes_tokens_in_their_order():
    made = small("transmil").eval()
    x, p = some_slide(50)
    assert (made.attend(x, p).h - made.attend(x.flip(0), p).h).abs().max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_weight(name):
    made = small(name)
    objective = build_objective("classify", made, classes=CLASSES)
    slides = [some_slide(n, seed=n) for n in (30, 60, 80)]
    views = made.for_objective(*padded(slides, 90))[None]
    objective(views, labels=torch.tensor([0, 1, 2]))["loss"].backward()
    for where, weight in (*made.named_parameters(), *objective.named_parameters()):
        assert weight.grad is not None, where
        # A bias that all scores of a softmax share has no effect.
        if where != "score.bias":
            assert weight.grad.abs().sum() > 0, where


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_gives_the_same_embedding(name, tmp_path):
    made = small(name).eval()
    card = ModelCard(Architecture("other"), TokenKind(DIM), TrainingSummary(slides=1))
    save_model(tmp_path / "m.safetensors", SlideModel(made, card))
    loaded = load_model(tmp_path / "m.safetensors").encoder
    assert (loaded.name, loaded.config) == (name, made.config)
    assert not loaded.training
    x, p = some_slide(20)
    for one, other in zip(made.attend(x, p), loaded.attend(x, p), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_only_training_drops(name):
    made = small(name)
    x, p = some_slide(30)
    views = [made(x[None], p[None]) for _ in range(2)]
    assert torch.equal(*views) != made.has_dropout
    made.eval()
    assert torch.equal(made(x[None], p[None]), made(x[None], p[None]))


def test_options_are_those_of_the_model():
    with pytest.raises(InputError, match="abmil has no option depth"):
        build_encoder("abmil", DIM, depth=2)
    with pytest.raises(InputError, match="cannot be shared by 3 heads"):
        build_encoder("transmil", DIM, dim=16, heads=3)
    with pytest.raises(InputError, match="small has no option dropout"):
        build_encoder("small", DIM, dropout=0.1)


# abmil


def test_a_new_abmil_has_dropout_and_an_older_file_none(tmp_path):
    """Files from before dropout do not state it: nothing about them changes."""
    assert build_encoder("abmil", DIM).config["dropout"] == 0.25
    assert build_encoder("abmil", DIM, dropout=0.5).input[2].p == 0.5
    made = small("abmil", dropout=0.0)
    del made.config["dropout"]
    card = ModelCard(Architecture("abmil"), TokenKind(DIM), TrainingSummary(slides=1))
    save_model(tmp_path / "old.safetensors", SlideModel(made, card))
    model = load_model(tmp_path / "old.safetensors")
    assert "dropout" not in model.card.architecture.options
    loaded = model.encoder
    assert loaded.config["dropout"] == 0
    assert loaded.state_dict().keys() == {
        f"{layer}.{kind}"
        for layer in ("input.0", "value", "gate", "score")
        for kind in ("weight", "bias")
    }
    x, p = some_slide(20)
    assert torch.equal(loaded.attend(x, p).h, made.eval().attend(x, p).h)
    assert torch.equal(loaded.train()(x[None], p[None]), made(x[None], p[None]))


# losses of their own


def test_clams_own_loss_is_the_formula():
    """Worked out token by token, for a long slide and for one of fewer than 2 k."""
    made = small("clam", instances=4, dropout=0.0)
    for n, k in ((50, 4), (5, 2), (1, 0)):
        x, p = some_slide(n)
        with torch.no_grad():
            own = made.for_objective(x[None], p[None])[0, made.dim :]
            t = made.input(x)
            ranked = made.attend(x, p).attention[0].argsort(descending=True)
            s = made.instance(t)
        for label in range(CLASSES):
            expected = 0.0
            if k:
                most, least = ranked[:k], ranked[len(ranked) - k :]
                inside = [math.log1p(math.exp(1 - s[i, label])) for i in most]
                inside += [math.log1p(math.exp(1 + s[i, label])) for i in least]
                expected = sum(inside) / (2 * k)
                for other in set(range(CLASSES)) - {label}:
                    outside = [math.log1p(math.exp(1 + s[i, other])) for i in most]
                    expected += sum(outside) / k
            assert own[label].item() == pytest.approx(expected / CLASSES, rel=1e-5)


def test_dsmils_own_loss_is_cross_entropy_of_the_highest_scores():
    made = small("dsmil")
    x, p = some_slide(50)
    with torch.no_grad():
        own = made.for_objective(x[None], p[None])[0, made.dim :]
        highest = made.instance(x).max(dim=0).values
    for label in range(CLASSES):
        expected = F.cross_entropy(highest[None], torch.tensor([label]))
        torch.testing.assert_close(own[label], expected)


@pytest.mark.parametrize(("name", "share"), [("clam", 0.3), ("dsmil", 0.5)])
@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 2.0, 5.0])])
def test_the_losses_are_joined_by_their_share(name, share, weights):
    made = small(name).eval()
    objective = build_objective("classify", made, classes=3, class_weights=weights)
    slides = [some_slide(n, seed=n) for n in (30, 31, 32, 33)]
    labels = torch.tensor([0, 1, 2, 1])
    with torch.no_grad():
        views = made.for_objective(*padded(slides, 40))
        parts = objective(views[None], labels=labels)
        h, own = views[:, : made.dim], views[:, made.dim :]
        losses = F.cross_entropy(objective.classifier(h), labels, reduction="none")
    own = torch.stack([own[i, label] for i, label in enumerate(labels)])
    counts = torch.ones(4) if weights is None else weights[labels]
    both = ((1 - share) * losses + share * own) * counts
    torch.testing.assert_close(parts["loss"], both.sum() / counts.sum())


@pytest.mark.parametrize("name", ["clam", "dsmil"])
def test_chance_is_the_loss_where_nothing_is_told_apart(name):
    made = small(name)
    objective = build_objective("classify", made, classes=CLASSES)
    with torch.no_grad():
        made.instance.weight.zero_()
        made.instance.bias.zero_()
        objective.classifier.weight.zero_()
        objective.classifier.bias.zero_()
    x, p = some_slide(40)
    views = made.for_objective(x[None], p[None])[None]
    loss = objective(views, labels=torch.tensor([1]))["loss"].item()
    assert loss == pytest.approx(objective.chance_level(1, 1), rel=1e-5)


def test_without_a_loss_of_its_own_nothing_is_split_off():
    objective = Classify(4, 3)
    parts = objective(torch.randn(2, 5, 4), labels=torch.zeros(5, dtype=torch.int64))
    assert parts.keys() == {"loss", "accuracy"}


# transmil


def test_nystrom_attention_nears_attention_with_a_landmark_per_token():
    """With as many landmarks as tokens A pinv(B) C is B pinv(B) B: attention itself."""
    torch.manual_seed(0)
    made = TransMil(DIM, dim=32, heads=4, landmarks=17).eval()
    x, _ = some_slide(16)
    attention = made.attention2
    with torch.no_grad():
        # far from one another, so that the iteration has something to invert
        attention.qkv.weight.normal_(std=1.0)
        attention.nearby.weight.zero_()
        tokens = made.norm2(made._before_last(x[None]))
        q, k, v = attention.qkv(tokens).view(1, 17, 3, 4, 8).permute(2, 0, 3, 1, 4)
        plain = F.scaled_dot_product_attention(q, k, v)
        plain = attention.out(plain.transpose(1, 2).flatten(2))
        found, first = attention(tokens), attention(tokens, first=True)
        weights = (q[:, :, :1] @ k.mT / 8**0.5).softmax(-1)[:, :, 0]
        row = attention.first_row(tokens)
    torch.testing.assert_close(found[:, :1], first, atol=1e-5, rtol=1e-4)
    assert (found - plain).abs().mean() < 0.1 * plain.abs().mean()
    assert (row - weights).abs().max() < 0.1


# hipt


def test_regions_are_squares_of_16_cells():
    p = np.array([[0, 0], [15, 15], [16, 15], [3, 31], [0, 1], [100, 100]])
    batches = regions_of(p)
    found = {
        frozenset((int(r), int(c)) for r, c in zip(row, cell, strict=True) if r >= 0)
        for _, rows, cells in batches
        for row, cell in zip(rows, cells, strict=True)
    }
    assert found == {
        frozenset({(0, 0), (1, 255), (4, 1)}),
        frozenset({(2, 15)}),
        frozenset({(3, 3 * 16 + 15)}),
        frozenset({(5, 4 * 16 + 4)}),
    }
    assert [len(numbers) for numbers, *_ in batches] == [1, 3]  # of like size
    assert sorted(np.concatenate([numbers for numbers, *_ in batches])) == [0, 1, 2, 3]


def test_many_regions_keep_every_token_once():
    cells = np.random.default_rng(0).permutation(300 * 300)[:9000]
    p = np.stack(np.divmod(cells, 300), axis=1)
    batches = regions_of(p)
    assert max(len(numbers) for numbers, *_ in batches) == 64
    rows = np.concatenate([rows[rows >= 0] for _, rows, _ in batches])
    assert sorted(rows) == list(range(9000))
    assert sorted(np.concatenate([b[0] for b in batches])) == list(range(19 * 19))


def test_tokens_of_different_regions_do_not_mix_in_the_second_stage():
    made = small("hipt").eval()
    x, p = some_slide(300, side=32)
    inside = ((p // 16) == torch.tensor([0, 1])).all(dim=1)
    with torch.no_grad():
        before = made.region_embeddings(x, p)
        changed = x.clone()
        changed[inside] += 1
        after = made.region_embeddings(changed, p)
        alone = made.region_embeddings(x[inside], p[inside])
    assert before.shape == (4, made.dim)
    moved = (before - after).abs().amax(dim=1)
    assert moved[1] > 1e-3
    assert moved[[0, 2, 3]].max() < 1e-6
    torch.testing.assert_close(alone[0], before[1], atol=1e-5, rtol=1e-5)
    # but they do in the third
    assert (made.attend(x, p).h - made.attend(changed, p).h).abs().max() > 1e-4


def test_places_within_a_region_matter_and_the_regions_place_does_not():
    made = small("hipt").eval()
    with torch.no_grad():
        made.region.pos_embed.normal_()
    x, p = some_slide(60, side=32)
    h = made.attend(x, p).h
    torch.testing.assert_close(made.attend(x, p + 16).h, h, atol=1e-5, rtol=1e-4)
    assert (made.attend(x, p + 1).h - h).abs().max() > 1e-4


def published():
    """A region transformer of the published size, by timm, in the published form."""
    torch.manual_seed(1)
    blocks = [
        timm.models.vision_transformer.Block(
            192, 6, qkv_bias=True, norm_layer=partial(nn.LayerNorm, eps=1e-6)
        ).eval()
        for _ in range(6)
    ]
    phi, norm = nn.Linear(384, 192), nn.LayerNorm(192, eps=1e-6)
    state = {
        "cls_token": torch.randn(1, 1, 192),
        "pos_embed": torch.randn(1, 1 + 14 * 14, 192),
        "phi.0.weight": phi.weight.data,
        "phi.0.bias": phi.bias.data,
        "norm.weight": norm.weight.data,
        "norm.bias": norm.bias.data,
    }
    for number, block in enumerate(blocks):
        state |= {f"blocks.{number}.{n}": t for n, t in block.state_dict().items()}
    return state, blocks


def test_published_weights_give_the_plain_vision_transformers_regions(tmp_path):
    """A whole region against timm's layers, from a file such as DINO writes."""
    state, blocks = published()
    backbone = {f"module.backbone.{name}": tensor for name, tensor in state.items()}
    head = {"module.head.mlp.0.weight": torch.zeros(3, 3)}
    torch.save(
        {
            "student": {},
            "teacher": backbone | head,
            "epoch": 3,
            "args": argparse.Namespace(arch="vit4k_xs", lr=0.1),
        },
        tmp_path / "vit4k.pth",
    )
    made = build_encoder("hipt", 384).eval()
    load_region_weights(made, tmp_path / "vit4k.pth")
    x = torch.randn(256, 384)
    p = torch.stack([torch.arange(256) // 16, torch.arange(256) % 16], dim=1)
    order = torch.randperm(256)
    with torch.no_grad():
        found = made.region_embeddings(x[order], p[order] + 32)
        grid = state["pos_embed"][:, 1:].mT.unflatten(2, (14, 14))
        grid = F.interpolate(grid, scale_factor=16.1 / 14, mode="bicubic")
        tokens = F.gelu(F.linear(x, state["phi.0.weight"], state["phi.0.bias"]))
        tokens = tokens[None] + grid.flatten(2).mT
        cls = state["cls_token"] + state["pos_embed"][:, :1]
        tokens = torch.cat([cls, tokens], dim=1)
        for block in blocks:
            tokens = block(tokens)
        expected = F.layer_norm(tokens[:, 0], (192,), eps=1e-6)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_weights_of_another_network_are_refused(tmp_path):
    state, _ = published()
    made = build_encoder("hipt", 384)
    save_file({n: t.contiguous() for n, t in state.items()}, tmp_path / "w.safetensors")
    load_region_weights(made, tmp_path / "w.safetensors")
    assert torch.equal(made.region.cls_token, state["cls_token"])
    with pytest.raises(InputError, match=r"length 512: it has other shapes for phi\.0"):
        load_region_weights(build_encoder("hipt", 512), tmp_path / "w.safetensors")
    torch.save({**state, "more": torch.zeros(1)}, tmp_path / "more.pth")
    with pytest.raises(InputError, match="holds, beside them, more"):
        load_region_weights(made, tmp_path / "more.pth")
    del state["norm.bias"]
    torch.save(state, tmp_path / "less.pth")
    with pytest.raises(InputError, match=r"lacks norm\.bias"):
        load_region_weights(made, tmp_path / "less.pth")
    with pytest.raises(InputError, match="There is no file"):
        load_region_weights(made, tmp_path / "none.pth")
    torch.save({"teacher": {"a": print}}, tmp_path / "code.pth")
    with pytest.raises(InputError, match="cannot be read as weights"):
        load_region_weights(made, tmp_path / "code.pth")


def test_the_slides_transformer_is_torchs():
    """Against nn.TransformerEncoder, then gated attention as it is written down."""
    made = build_encoder("hipt", DIM, dim=24, depth=1, heads=6).eval()
    plain = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(24, 3, 24, batch_first=True),
        num_layers=2,
        enable_nested_tensor=False,
    )
    with torch.no_grad():
        for ours, theirs in zip(made.layers, plain.layers, strict=True):
            theirs.self_attn.in_proj_weight.copy_(ours.attn.qkv.weight)
            theirs.self_attn.in_proj_bias.copy_(ours.attn.qkv.bias)
            for one, other in (
                (theirs.self_attn.out_proj, ours.attn.proj),
                (theirs.linear1, ours.mlp[0]),
                (theirs.linear2, ours.mlp[3]),
                (theirs.norm1, ours.norm1),
                (theirs.norm2, ours.norm2),
            ):
                one.load_state_dict(other.state_dict())
        x, p = some_slide(200)
        t = plain.eval()(made.input(made.region_embeddings(x, p))[None])[0]
        gated = made.value(t).tanh() * made.gate(t).sigmoid()
        a = made.score(gated)[:, 0].softmax(dim=0)
        expected = made.output(a @ t)
    h, attention = made.attend(x, p)
    torch.testing.assert_close(h, expected, atol=1e-5, rtol=1e-4)
    regions = np.unique(np.asarray(p) // 16, axis=0, return_inverse=True)[1].ravel()
    for number, weight in enumerate(a):
        of_region = attention[:, torch.from_numpy(regions == number)].sum(dim=1)
        torch.testing.assert_close(of_region, weight.expand(6), atol=1e-5, rtol=1e-4)


def test_published_sizes():
    """Weights by hand: phi, CLS, 257 positions, six layers, a norm; then the slide."""
    layer = 2 * 2 * 192 + 4 * 192 * 192 + 4 * 192 + 8 * 192 * 192 + 5 * 192
    region = 384 * 192 + 192 + 192 + 257 * 192 + 6 * layer + 2 * 192
    linear = 192 * 192 + 192
    slide = 2 * (6 * linear + 4 * 192) + 4 * linear + 193
    counted = sum(w.numel() for w in build_encoder("hipt", 384).parameters())
    assert counted == region + slide
