"""Published checkpoints: files made in exactly their layout, against their library."""

import argparse
from dataclasses import replace

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from timm.layers import SwiGLUPacked
from torch import nn
from torchvision.models import resnet34

from spt_core.errors import InputError
from spt_core.patches import registry
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.filling import length_of
from spt_core.patches.known import KNOWN, find_known
from spt_core.patches.registry import load_encoder, register
from spt_core.patches.vit import Vit
from spt_core.patches.vit_shape import CLS_AND_MEAN, VitShape
from tests.core.patches.test_encoders import pixels, stirred

SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}
PICTURE = {"image_size": 56, "patch_size": 14}


@pytest.fixture
def small(monkeypatch):
    """Register a small encoder of a shape, with known layouts, for one test."""
    monkeypatch.setattr(registry, "_registered", {})

    def make(shape, *layouts):
        card = EncoderCard(
            name="small",
            dim=shape.length,
            patch_size=shape.side,
            mpp=0.5,
            input_size=shape.side,
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
        )
        register(card, lambda: Vit(shape), layouts)

    return make


def scattered(model, seed=0):
    """Weights that all matter, norms and scales included."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3, generator=generator)
    return model.eval()


def seen(side, count=2):
    """What a library is given: the pixels from -1 to 1."""
    return pixels(count, side).permute(0, 3, 1, 2).float() / 127.5 - 1


def features(path, side, name="small"):
    with torch.inference_mode():
        return load_encoder(name, path)(pixels(2, side), side)


def agree(have, want):
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4 * float(want.std()))


def saved(state, path):
    save_file({k: v.contiguous() for k, v in state.items()}, path)
    return path


def published(model, folder):
    """As transformers writes it for others: names in memory may be newer ones."""
    model.save_pretrained(folder)
    return folder / "model.safetensors"


def test_clip_with_its_projection(small, tmp_path):
    """PLIP and QuiltNet: transformers' CLIP, its text half left out."""
    transformers = pytest.importorskip("transformers")
    text = {"vocab_size": 30, "max_position_embeddings": 8, "intermediate_size": 96}
    config = transformers.CLIPConfig(
        text_config={**SMALL, **text},
        vision_config={**SMALL, **PICTURE, "intermediate_size": 192},
        projection_dim=20,
    )
    model = scattered(transformers.CLIPModel(config))
    small(
        VitShape(48, 2, 3, 14, side=56, mlp="quick_gelu", norm_first=True, eps=1e-5,
                 projected=20),
        "CLIP", "OPEN_CLIP",
    )  # fmt: skip
    path = published(model, tmp_path)
    with torch.inference_mode():
        out = model.vision_model(pixel_values=seen(56))
        want = model.visual_projection(out.pooler_output)
    agree(features(path, 56), want)
    torch.save(as_open_clip(model.state_dict()), tmp_path / "open_clip.bin")
    agree(features(tmp_path / "open_clip.bin", 56), want)


def as_open_clip(state):
    """The same weights by the names of open_clip, as its own converter pairs them."""
    vision = "vision_model."
    made = {
        "visual.class_embedding": state[vision + "embeddings.class_embedding"],
        "visual.positional_embedding": state[
            vision + "embeddings.position_embedding.weight"
        ],
        "visual.conv1.weight": state[vision + "embeddings.patch_embedding.weight"],
        "visual.proj": state["visual_projection.weight"].T,
        "logit_scale": state["logit_scale"],
        "token_embedding.weight": torch.zeros(3, 4),
        "transformer.resblocks.0.ln_1.weight": torch.zeros(4),
    }
    for kind in ("weight", "bias"):
        made[f"visual.ln_pre.{kind}"] = state[f"{vision}pre_layrnorm.{kind}"]
        made[f"visual.ln_post.{kind}"] = state[f"{vision}post_layernorm.{kind}"]
        for i in range(2):
            old, new = (
                f"{vision}encoder.layers.{i}.",
                f"visual.transformer.resblocks.{i}.",
            )
            made[f"{new}attn.in_proj_{kind}"] = torch.cat(
                [state[f"{old}self_attn.{one}_proj.{kind}"] for one in "qkv"]
            )
            for theirs, ours in (
                ("self_attn.out_proj", "attn.out_proj"),
                ("layer_norm1", "ln_1"),
                ("layer_norm2", "ln_2"),
                ("mlp.fc1", "mlp.c_fc"),
                ("mlp.fc2", "mlp.c_proj"),
            ):
                made[f"{new}{ours}.{kind}"] = state[f"{old}{theirs}.{kind}"]
    return made


@pytest.mark.parametrize("stored_side", [56, 84])
@pytest.mark.parametrize("swiglu", [False, True])
def test_dinov2_of_transformers(small, tmp_path, swiglu, stored_side):
    """Midnight and Phikon-v2; positions of another size are resampled as it does."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2Config(
        **SMALL, image_size=stored_side, patch_size=14, use_swiglu_ffn=swiglu
    )
    model = scattered(transformers.Dinov2Model(config))
    small(
        VitShape(48, 2, 3, 14, side=56, layer_scale=True, output=CLS_AND_MEAN,
                 mlp="swiglu" if swiglu else "gelu",
                 mlp_ratio=256 / 48 if swiglu else 4),
        "HF_DINOV2",
    )  # fmt: skip
    path = published(model, tmp_path)
    with torch.inference_mode():
        tokens = model(pixel_values=seen(56)).last_hidden_state
    want = torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], dim=1)
    agree(features(path, 56), want)


def test_dinov2_with_registers_of_transformers(small, tmp_path):
    """Hibou, whose code is its own and whose weights have these names."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2WithRegistersConfig(
        **SMALL, **PICTURE, num_register_tokens=4, use_swiglu_ffn=True
    )
    model = scattered(transformers.Dinov2WithRegistersModel(config))
    small(
        VitShape(48, 2, 3, 14, side=56, mlp="swiglu", mlp_ratio=256 / 48,
                 layer_scale=True, registers=4, bare_class=True),
        "HF_DINOV2", "DINOV2",
    )  # fmt: skip
    path = published(model, tmp_path)
    with torch.inference_mode():
        want = model(pixel_values=seen(56)).last_hidden_state[:, 0]
    agree(features(path, 56), want)


def test_vit_of_transformers(small, tmp_path):
    """Phikon: another norm's eps, and a pooler that nobody uses."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(**SMALL, **PICTURE, intermediate_size=192)
    model = scattered(transformers.ViTModel(config, add_pooling_layer=True))
    small(VitShape(48, 2, 3, 14, side=56, eps=1e-12), "HF_VIT")
    path = published(model, tmp_path)
    with torch.inference_mode():
        want = model(pixel_values=seen(56)).last_hidden_state[:, 0]
    agree(features(path, 56), want)


def test_the_dino_teacher_of_hipt(small, tmp_path):
    """A whole checkpoint of DINO; its code resamples positions by a tenth more."""
    model = scattered(Vit(VitShape(48, 2, 3, 16, side=48)))
    small(VitShape(48, 2, 3, 16, side=64), "DINO")
    state = model.state_dict()
    teacher = {f"backbone.{k}": v for k, v in state.items()}
    teacher["head.mlp.0.weight"] = torch.zeros(2, 2)
    student = {f"module.backbone.{k}": v + 1 for k, v in state.items()}
    options = argparse.Namespace(arch="vit_small", epochs=100)
    torch.save(
        {"student": student, "teacher": teacher, "epoch": 7, "args": options},
        tmp_path / "vit256_small_dino.pth",
    )
    # DINO's forward: the class token, then the positions' square at the new size.
    square = state["pos_embed"][:, 1:].reshape(1, 3, 3, 48).permute(0, 3, 1, 2)
    square = F.interpolate(
        square, scale_factor=(4.1 / 3, 4.1 / 3), mode="bicubic"
    ).permute(0, 2, 3, 1)
    with torch.inference_mode():
        x = model.patch_embed.proj(seen(64)).flatten(2).transpose(1, 2)
        x = torch.cat([model.cls_token.expand(2, -1, -1), x], dim=1)
        x = x + torch.cat([state["pos_embed"][:, :1], square.reshape(1, -1, 48)], dim=1)
        want = model.norm(model.blocks(x))[:, 0]
    agree(features(tmp_path / "vit256_small_dino.pth", 64), want)
    # As DINO's own training on several GPUs names them.
    teacher = {f"module.backbone.{k}": v for k, v in state.items()}
    torch.save({"teacher": teacher}, tmp_path / "ddp.pth")
    agree(features(tmp_path / "ddp.pth", 64), want)


def test_dinov2_by_its_own_names(small, tmp_path):
    """OpenMidnight, GPFM: registers, the mask's token, w12 and w3, chunked blocks."""
    shape = VitShape(48, 2, 3, 14, side=56, mlp="swiglu", mlp_ratio=4,
                     layer_scale=True, registers=4, bare_class=True)  # fmt: skip
    model = scattered(Vit(shape))
    small(shape, "DINOV2")
    with torch.inference_mode():
        want = model(seen(56))
    own = model.state_dict()
    # There the class token has a position; timm's has none.
    first = torch.randn(1, 1, 48, generator=torch.Generator().manual_seed(1))
    state = {
        "cls_token": own["cls_token"] - first,
        "pos_embed": torch.cat([first, own["pos_embed"]], dim=1),
        "register_tokens": own["reg_token"],
        "mask_token": torch.zeros(1, 48),
    }
    for name, tensor in own.items():
        if name not in ("cls_token", "pos_embed", "reg_token"):
            state[name.replace("mlp.fc1", "mlp.w12").replace("mlp.fc2", "mlp.w3")] = (
                tensor
            )
    torch.save(state, tmp_path / "teacher.pt")
    agree(features(tmp_path / "teacher.pt", 56), want)
    chunked = {k.replace("blocks.", "blocks.0."): v for k, v in state.items()}
    torch.save({"teacher": {f"backbone.{k}": v for k, v in chunked.items()}},
               tmp_path / "chunked.pt")  # fmt: skip
    agree(features(tmp_path / "chunked.pt", 56), want)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        # UNI
        ({"init_values": 1e-5}, {"layer_scale": True}),
        # H-optimus
        (
            {"init_values": 1e-5, "reg_tokens": 4, "no_embed_class": True},
            {"layer_scale": True, "registers": 4, "bare_class": True},
        ),
        # Virchow2
        (
            {"init_values": 1e-5, "reg_tokens": 4, "mlp_layer": SwiGLUPacked,
             "act_layer": nn.SiLU, "mlp_ratio": 5.3375, "global_pool": ""},
            {"layer_scale": True, "registers": 4, "mlp": "swiglu",
             "mlp_ratio": 5.3375, "output": CLS_AND_MEAN},
        ),
    ],
)  # fmt: skip
def test_timms_own_files(small, tmp_path, arguments, shape):
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, num_classes=0, depth=2, **arguments
    )
    scattered(model)
    small(VitShape(192, 2, 3, 16, side=64, **shape))
    path = saved(model.state_dict(), tmp_path / "model.safetensors")
    with torch.inference_mode():
        want = model(seen(64))
    if want.ndim == 3:
        want = torch.cat([want[:, 0], want[:, 5:].mean(1)], dim=1)
    agree(features(path, 64), want)


@pytest.mark.slow
def test_options_of_timm_that_a_name_does_not_say(tmp_path):
    """A file of a timm model with LayerScale, registers and SwiGLU, by timm's name."""
    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=0, init_values=1e-5, reg_tokens=2,
        no_embed_class=True, mlp_layer=SwiGLUPacked, act_layer=nn.SiLU,
        mlp_ratio=5.3375,
    )  # fmt: skip
    scattered(model)
    path = saved(model.state_dict(), tmp_path / "model.safetensors")
    with torch.inference_mode():
        want = model(seen(224))
    agree(features(path, 224, "vit_tiny_patch16_224"), want)


def test_a_checkpoint_of_the_papers_group(tmp_path):
    """Lightning's, with the projection and the counts of scores beside the backbone."""
    torch.manual_seed(0)
    model = stirred(resnet34(weights=None))
    model.fc = nn.Identity()
    state = {f"model.bb.{k}": v for k, v in model.state_dict().items()}
    extra = {
        "model.proj.layers.0.weight": torch.zeros(128, 512),
        "train_loss.sum_loss.weight": torch.zeros(()),
    }
    torch.save(
        {"state_dict": {**state, **extra}, "epoch": 3, "hyper_parameters": {"cf": {}}},
        tmp_path / "ckpt.pt",
    )
    other = {k.replace("model.bb.", "model.backbone."): v for k, v in state.items()}
    torch.save({"state_dict": other}, tmp_path / "other.pt")
    with torch.inference_mode():
        want = model(pixels(2, 96).permute(0, 3, 1, 2).float() / 255)
    for file in ("ckpt.pt", "other.pt"):
        have = features(tmp_path / file, 96, "hidisc")
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-3 * float(want.std()))


def test_what_does_not_fit_is_listed_by_its_keys(small, tmp_path):
    shape = VitShape(48, 2, 3, 14, side=56)
    small(shape)
    state = Vit(shape).state_dict()
    del state["norm.bias"]
    state["extra.weight"] = torch.zeros(2)
    state["cls_token"] = torch.zeros(1, 1, 32)
    path = saved(state, tmp_path / "odd.safetensors")
    with pytest.raises(InputError) as caught:
        load_encoder("small", path)
    said = str(caught.value)
    assert "other shapes for cls_token 1×1×32 instead of 1×1×48" in said
    assert "lacks norm.bias" in said
    assert "holds, beside them, extra.weight" in said


def test_a_pickle_that_would_run_code_is_refused(small, tmp_path):
    class Code:
        def __reduce__(self):
            return (print, ("ran",))

    small(VitShape(48, 2, 3, 14, side=56))
    torch.save({"state_dict": {"a": Code()}}, tmp_path / "code.pt")
    with pytest.raises(InputError, match="a pickle is read only where it holds"):
        load_encoder("small", tmp_path / "code.pt")


def test_every_known_transformer_gives_what_its_card_states():
    """Built without memory, and one block of each: only shapes are computed."""
    for name, known in KNOWN.items():
        if known.shape is not None:
            with torch.device("meta"):
                module = Vit(replace(known.shape, depth=1))
            assert length_of(module, known.card.input_size) == known.card.dim, name


def test_the_lengths_that_were_published():
    dims = {name: one.card.dim for name, one in KNOWN.items()}
    published = {
        "resnet34": 512, "hipt": 384, "simclr": 512, "hidisc": 512, "plip": 512,
        "uni": 1024, "h-optimus-0": 1536, "midnight": 3072, "midnight-cls": 1536,
        "openmidnight": 1536, "virchow": 2560, "hibou-b": 768, "hibou-l": 1024,
        "quiltnet-b-32": 512, "gigapath": 1536, "uni2-h": 1536, "virchow2": 2560,
        "h-optimus-1": 1536, "h0-mini": 768, "h0-mini-cls-mean": 1536,
        "conch": 512, "conch-v1.5": 768,
        "phikon": 768, "phikon-v2": 1024, "kaiko-vits8": 384, "kaiko-vitb16": 768,
        "kaiko-vitl14": 1024, "lunit-vits8": 384, "genbio-pathfm": 4608, "gpfm": 1024,
    }  # fmt: skip
    assert {name: dims[name] for name in published} == published
    assert find_known("uni_v1") is KNOWN["uni"]
    with pytest.raises(InputError, match="not built in"):
        load_encoder("conch")
