"""HiDisc's loss against the formula written plainly: levels, masks, weights."""

from math import exp, log

import pytest
import torch

from spt_core.patches.training.hidisc import LEVELS, HiDisc, hidisc_losses
from spt_core.training.objectives.simclr import nt_xent

# patient, slide, patch: two patients; the first has two slides, one of them with two
# patches; the last patch is drawn twice
WHOSE = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [1, 2, 3]])


def embeddings(views=2, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(views, len(WHOSE), 6, generator=rng, requires_grad=True)


def plainly(z, whose, level, temperature):
    """Loops over anchors and positives, as the paper writes it."""
    views, batch, _ = z.shape
    everyone = [(v, b) for v in range(views) for b in range(batch)]
    unit = z / z.norm(dim=-1, keepdim=True)

    def similarity(one, other):
        return float(unit[one] @ unit[other]) / temperature

    total = 0.0
    for i in everyone:
        others = [a for a in everyone if a != i]
        positives = [a for a in others if whose[a[1], level] == whose[i[1], level]]
        assert positives
        denominator = sum(exp(similarity(i, a)) for a in others)
        logs = [log(exp(similarity(i, p)) / denominator) for p in positives]
        total -= sum(logs) / len(positives)
    return total / len(everyone)


@pytest.mark.parametrize("temperature", [0.1, 0.7])
@pytest.mark.parametrize("views", [2, 3])
def test_each_level_is_the_formula(temperature, views):
    z = embeddings(views)
    losses = hidisc_losses(z, WHOSE, temperature)
    assert set(losses) == {"patient", "slide", "patch"}
    for level, name in enumerate(LEVELS):
        want = plainly(z.detach(), WHOSE, level, temperature)
        assert float(losses[name].detach()) == pytest.approx(want, rel=1e-5)


def test_levels_differ_by_their_positives_alone():
    """Where every patch is its own slide and patient, all levels are SimCLR's."""
    z = embeddings()
    alone = torch.arange(len(WHOSE))[:, None].expand(-1, 3)
    for loss in hidisc_losses(z, alone, 0.7).values():
        torch.testing.assert_close(loss, nt_xent(z, 0.7))


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 1, 0.5), (0, 0, 1), (2, 0, 0)])
def test_the_loss_is_the_weighted_mean_of_the_levels(weights):
    torch.manual_seed(0)
    objective = HiDisc(6, weights=weights, temperature=0.7)
    h = embeddings()
    parts = objective(h, labels=WHOSE)
    z = objective.head(h.flatten(0, 1)).unflatten(0, h.shape[:2])
    levels = [plainly(z.detach(), WHOSE, level, 0.7) for level in range(3)]
    want = sum(w * one for w, one in zip(weights, levels, strict=True)) / sum(weights)
    assert float(parts["loss"].detach()) == pytest.approx(want, rel=1e-4)
    for name, one in zip(LEVELS, levels, strict=True):
        assert float(parts[f"{name}_loss"].detach()) == pytest.approx(one, rel=1e-4)


def test_a_level_of_no_weight_gives_no_gradient():
    torch.manual_seed(0)
    patch_only = HiDisc(6, weights=(0, 0, 2.5), temperature=0.7)
    h = embeddings()
    # the last two are one patch: as patches alone they would be nt_xent's otherwise
    (mine,) = torch.autograd.grad(patch_only(h, labels=WHOSE)["loss"], h)
    z = patch_only.head(h.flatten(0, 1)).unflatten(0, h.shape[:2])
    (want,) = torch.autograd.grad(hidisc_losses(z, WHOSE, 0.7)["patch"], h)
    torch.testing.assert_close(mine, want)


def test_it_asks_whose_the_patches_are():
    with pytest.raises(ValueError, match="whose"):
        HiDisc(6)(embeddings())
