"""Small real slides with tissue at known places."""

import numpy as np
import pytest
from scipy import ndimage
from torch import nn

from spt_core import encode_slide, read_tokens
from spt_core.patches import EncoderCard, EncodeSettings, TorchEncoder
from tests.events import run_through
from tests.made_slides import write_tiff

MPP = 0.5
# Small patches keep the tests quick: 64 pixels at 1 µm are 128 level-0 pixels.
SETTINGS = EncodeSettings(
    encoder="small-random", patch_size=64, target_mpp=1.0, batch_size=32
)


def tissue_picture(width, height, seed=0, margin=200):
    """Textured tissue in an ellipse on pinkish glass."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    inside = ((x - width / 2) / (width / 2 - margin)) ** 2 + (
        (y - height / 2) / (height / 2 - margin)
    ) ** 2 < 1
    coarse = rng.normal(size=(height // 8 + 1, width // 8 + 1, 1)).astype(np.float32)
    texture = coarse.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
    texture = texture + rng.normal(size=(height, width, 1)).astype(np.float32)
    od = inside[..., None] * np.clip(0.45 + 0.2 * texture, 0, 2)
    rgb = np.array([238, 226, 236]) * np.exp(-od * (0.35, 0.95, 0.45))
    rgb += rng.normal(0, 1, (height, width, 1))
    return np.clip(rgb, 0, 255).astype(np.uint8)


def make_slide(path, width=2600, height=2200, seed=0, levels=2, **options):
    rgb = tissue_picture(width, height, seed)
    options = {"mpp_xy": (MPP, MPP), "compression": "zlib", **options}
    write_tiff(path, rgb, levels=levels, **options)
    return path


@pytest.fixture(scope="session")
def slide_path(tmp_path_factory):
    return make_slide(tmp_path_factory.mktemp("slide") / "TCGA-A1.01.svs-like.tif")


@pytest.fixture
def settings():
    return SETTINGS


class Shown(nn.Module):
    """Gives back the pixels it is shown, so that a test can look at them."""

    def forward(self, x):
        return x.flatten(1)


def pixels_encoder(size):
    card = EncoderCard(
        name=f"pixels-{size}",
        dim=3 * size * size,
        patch_size=size,
        mpp=1.0,
        input_size=size,
        mean=(0.0, 0.0, 0.0),
        std=(1 / 255,) * 3,
    )
    return TorchEncoder(Shown(), card)


def smooth(pixels, sigma):
    return ndimage.gaussian_filter(pixels, (sigma, sigma, 0))


@pytest.fixture(scope="package")
def encoded(tmp_path_factory, slide_path):
    """One slide's events, result and tokens, for all who look at them."""
    out = tmp_path_factory.mktemp("features")
    events, result = run_through(encode_slide(slide_path, out, SETTINGS))
    return events, result, read_tokens(result.path)
