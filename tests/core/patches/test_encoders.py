"""The registry: cards, weights from files, folding, and what is refused."""

import copy

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torchvision.models import mobilenet_v2, resnet34

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.patches import find_card, known_encoders, load_encoder
from spt_core.patches.encoder import EncoderCard, TorchEncoder, resized
from spt_core.patches.store import stored_file
from tests.slides_folder import WEIGHTS, needs


def stirred(model, seed=0):
    """Batch norms with statistics of their own, so that folding is put to the test."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.1, generator=generator)
    return model.eval()


def pixels(count=3, size=96, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (count, size, size, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def plainly(model, batch):
    """ImageNet's preparation as everybody writes it."""
    x = batch.permute(0, 3, 1, 2).float() / 255
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    with torch.inference_mode():
        return model((x - mean) / std)


@pytest.mark.parametrize(
    ("name", "make", "head"),
    [("resnet34", resnet34, "fc"), ("mobilenetv2", mobilenet_v2, "classifier")],
)
def test_weights_from_a_file_give_the_models_own_features(name, make, head, tmp_path):
    """With the classifier in the file or without, and whatever its format."""
    torch.manual_seed(0)
    model = stirred(make(weights=None))
    torch.save(model.state_dict(), tmp_path / "w.pth")
    bare = {k: v for k, v in model.state_dict().items() if not k.startswith(head)}
    bare = {k: v for k, v in bare.items() if not k.endswith("num_batches_tracked")}
    save_file(bare, tmp_path / "w.safetensors")
    encoders = [
        load_encoder(name, tmp_path / "w.pth"),
        load_encoder(name, tmp_path / "w.safetensors"),
    ]
    assert encoders[0].sha256 == encoders[1].sha256
    setattr(model, head, nn.Identity())
    want = plainly(model, pixels())
    assert not any(isinstance(m, nn.BatchNorm2d) for m in encoders[0].module.modules())
    for encoder in encoders:
        with torch.inference_mode():
            have = encoder(pixels(), 96)
        assert have.shape == (3, find_card(name).dim)
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-3 * float(want.std()))


def test_any_model_of_timm_by_its_name(tmp_path):
    torch.manual_seed(1)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    save_file(model.state_dict(), tmp_path / "v.safetensors")
    encoder = load_encoder("vit_tiny_patch16_224", tmp_path / "v.safetensors")
    card = encoder.card
    assert (card.dim, card.input_size, card.mean) == (192, 224, (0.5, 0.5, 0.5))
    assert card.licence == "apache-2.0"
    with torch.inference_mode():
        x = pixels(2, 224).permute(0, 3, 1, 2).float() / 127.5 - 1
        torch.testing.assert_close(
            encoder(pixels(2, 224), 300), model(x), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "lcnet_035", "resnet10t"])
def test_the_card_of_a_timm_model_states_the_length_it_gives(name):
    """In some of them layers follow the pooling."""
    model = timm.create_model(name, num_classes=0).eval()
    with torch.inference_mode():
        assert find_card(name).dim == model(torch.zeros(1, 3, 64, 64)).shape[1]


def test_folding_is_left_where_it_would_change_the_answer():
    class Twisted(nn.Module):
        """Listed in one order, called in another."""

        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x):
            return self.conv(self.norm(x)).mean(dim=(2, 3))

    torch.manual_seed(0)
    model = stirred(Twisted())
    card = EncoderCard(name="twisted", dim=3, patch_size=64, mpp=0.5)
    with torch.inference_mode():
        have = TorchEncoder(copy.deepcopy(model), card)(pixels(), 96)
    torch.testing.assert_close(have, plainly(model, pixels()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [50, 96, 130])
def test_resizing_is_pils(size):
    batch = pixels(2, 96)
    have = resized(batch, size).permute(0, 2, 3, 1).numpy()
    for one, mine in zip(batch, have, strict=True):
        picture = Image.fromarray(one.numpy())
        want = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR))
        assert np.abs(mine.astype(int) - want).max() <= 2


def test_what_cannot_be_loaded_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="There is no encoder 'nonsense'"):
        load_encoder("nonsense")
    with pytest.raises(InputError, match="spt encoders get resnet34"):
        load_encoder("resnet34")
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="is not for this encoder: it lacks"):
        load_encoder("resnet34", tmp_path / "other.safetensors")
    (tmp_path / "text.pth").write_text("weights")
    with pytest.raises(InputError, match="cannot be read as weights"):
        load_encoder("resnet34", tmp_path / "text.pth")


def test_the_random_encoder_is_always_the_same():
    torch.manual_seed(123)
    state = torch.random.get_rng_state()
    first, second = load_encoder("small-random"), load_encoder("small-random")
    assert first.sha256 == second.sha256
    assert torch.equal(torch.random.get_rng_state(), state)


def test_every_card_says_what_it_must():
    for card in known_encoders():
        assert card.licence not in ("", "unknown")
        assert card.citation
        assert card.patch_size > 0
        assert card.mpp > 0


def test_the_command_lists_and_knows_what_is_ready(capsys):
    model = stirred(resnet34(weights=None))
    stored_file("resnet34").parent.mkdir(parents=True)
    save_file(model.state_dict(), stored_file("resnet34"))
    assert main(["encoders"]) == 0
    listed = capsys.readouterr().out
    assert "[ready]" in listed.split("resnet34")[1].split("\n")[0]
    assert "spt encoders get mobilenetv2" in listed
    assert main(["encoders", "get"]) == 2


MOBILENET = WEIGHTS / "mobilenetv2_imagenet.safetensors"


@needs(MOBILENET)
def test_real_mobilenet_weights_load():
    encoder = load_encoder("mobilenetv2", MOBILENET)
    with torch.inference_mode():
        x = encoder(pixels(2, 128), 128)
    assert x.shape == (2, 1280)
    assert float(x.std()) > 0.01
