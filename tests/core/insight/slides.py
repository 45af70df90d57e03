"""A real slide with planted identifiers, and a model that takes its patches."""

import torch

from spt_core.learning.model_file import SlideModel, save_model
from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.patches import EncodeSettings, load_encoder
from spt_core.tokens import TokenFacts
from tests.core.insight.conftest import made_card
from tests.core.patches.conftest import tissue_picture
from tests.made_slides import write_svs

NAME = "DOE_JANE_1955-S21-0042"
SECRETS = ("DOE", "JANE", "Doe^", "Jane", "1234567", "b414003d", "S21-0042", "ZZQ77")
PATIENT = "ZZQ77"
SIZE, TARGET_MPP = 64, 1.0
SETTINGS = EncodeSettings(
    encoder="small-random", patch_size=SIZE, target_mpp=TARGET_MPP
)


def make_slide(folder, width=2600, height=2200):
    path = folder / f"{NAME}.svs"
    write_svs(path, tissue_picture(width, height), mpp=0.5)
    return path


def make_model(path, *, seed=0):
    """An untrained encoder with classes, for the tokens of the small encoder."""
    torch.manual_seed(seed)
    encoder = load_encoder("small-random")
    facts = TokenFacts(
        encoder="small-random",
        encoder_sha256=encoder.sha256,
        mpp=TARGET_MPP,
        patch_size=SIZE,
        patch_um=SIZE * TARGET_MPP,
        stain="none",
    )
    card = made_card(64, facts=facts)
    slides = SlideEncoder(64, dim=32, depth=2, heads=2).eval()
    save_model(path, SlideModel(slides, card, torch.nn.Linear(32, 2)))
    return path
