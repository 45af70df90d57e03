"""Losses and their gradients against lightly's and against the papers' formulas."""

from math import log

import lightly.loss as reference
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.training.heads import projection_head
from spt_core.training.objectives import (
    BYOL,
    Classify,
    SimCLR,
    SupCon,
    VICReg,
    build_objective,
)
from spt_core.training.objectives.byol import byol_loss
from spt_core.training.objectives.simclr import nt_xent
from spt_core.training.objectives.supcon import contrastive_loss
from spt_core.training.objectives.vicreg import vicreg_terms


def random_views(views=2, batch=12, k=16, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(views, batch, k, generator=rng, requires_grad=True)


def same(ours, theirs, z):
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    mine, other = (torch.autograd.grad(loss, z)[0] for loss in (ours, theirs))
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", [2, 3, 50])
@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_nt_xent_is_lightlys(batch, temperature):
    z = random_views(batch=batch)
    theirs = reference.NTXentLoss(temperature=temperature)(z[0], z[1])
    same(nt_xent(z, temperature), theirs, z)


@pytest.mark.parametrize("batch", [2, 50])
def test_vicreg_is_lightlys(batch):
    z = random_views(batch=batch)
    terms = vicreg_terms(z)
    ours = 10 * terms["invariance"] + 10 * terms["variance"] + terms["covariance"]
    theirs = reference.VICRegLoss(lambda_param=10, mu_param=10, nu_param=1, eps=1e-4)
    same(ours, theirs(z[0], z[1]), z)


def test_byol_is_lightlys():
    q, z = random_views(seed=1), random_views(seed=2).detach()
    criterion = reference.NegativeCosineSimilarity()
    # BYOL's 2 - 2 cos, where lightly has -cos
    theirs = 2 + criterion(q[0], z[1]) + criterion(q[1], z[0])
    same(byol_loss(q, z), theirs, q)


def plain_supcon(z, labels, temperature):
    """Khosla et al. 2020, equation 2, one anchor after another."""
    z = F.normalize(z.flatten(0, 1), dim=1)
    labels = labels.repeat(len(z) // len(labels))
    total = torch.zeros(())
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        positives = [p for p in others if labels[p] == labels[i]]
        below = sum(torch.exp(z[i] @ z[a] / temperature) for a in others)
        for p in positives:
            share = torch.exp(z[i] @ z[p] / temperature) / below
            total = total - torch.log(share) / len(positives)
    return total / len(z)


@pytest.mark.parametrize("views", [2, 3])
def test_supcon_is_the_papers_formula(views):
    z, labels = random_views(views=views, batch=9), torch.arange(9) % 4
    same(contrastive_loss(z, labels, 0.3), plain_supcon(z, labels, 0.3), z)


def test_more_than_two_views():
    z = random_views(views=3)
    same(nt_xent(z, 0.3), plain_supcon(z, torch.arange(12), 0.3), z)
    pairs = [torch.stack([z[a], z[b]]) for a, b in ((0, 1), (0, 2), (1, 2))]
    terms = [vicreg_terms(pair) for pair in pairs]
    for name, value in vicreg_terms(z).items():
        torch.testing.assert_close(value, sum(t[name] for t in terms) / 3)
    target = random_views(views=3, seed=4).detach()
    one_by_one = [
        2 - 2 * F.cosine_similarity(z[a], target[b]).mean()
        for a in range(3)
        for b in range(3)
        if a != b
    ]
    torch.testing.assert_close(byol_loss(z, target), sum(one_by_one) / 6)


@pytest.mark.parametrize("name", ["simclr", "vicreg", "byol", "supcon", "classify"])
def test_every_objective_has_the_one_signature(name):
    torch.manual_seed(0)
    encoder = SlideEncoder(8, dim=16, depth=1, heads=2)
    objective = build_objective(name, encoder, classes=3)
    h = torch.randn(1 if name == "classify" else 2, 6, 16, requires_grad=True)
    labels = torch.arange(6) % 3
    h_target = torch.randn(h.shape) if objective.target is not None else None
    parts = objective(h, labels=labels, h_target=h_target)
    parts["loss"].backward()
    assert h.grad.abs().sum() > 0
    assert all(torch.isfinite(part) for part in parts.values())
    objective.after_step(encoder, 0.5)


def test_heads_are_the_papers():
    plain = projection_head(512, 512, 128, head="paper")
    kinds = [type(layer) for layer in plain]
    assert kinds == [nn.Linear, nn.ReLU, nn.Linear]
    assert (plain[0].bias == 0.01).all()
    kinds = [type(layer) for layer in projection_head(512, 512, 128)]
    assert kinds == [
        nn.Linear,
        nn.BatchNorm1d,
        nn.ReLU,
        nn.Linear,
        nn.BatchNorm1d,
    ]
    with pytest.raises(ValueError, match="batchnorm, paper"):
        projection_head(4, 4, head="deep")


def test_vicregs_variance_is_not_normalised_away():
    kinds = [type(layer) for layer in VICReg(512).head]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    kinds = [type(layer) for layer in VICReg(512, head="paper").head]
    assert kinds == [nn.Linear, nn.ReLU, nn.Linear]


def test_vicregs_variance_term_sees_embeddings_shrink():
    torch.manual_seed(0)
    objective, h = VICReg(32), torch.randn(2, 64, 32) + 3
    middle = h.mean(dim=(0, 1))
    terms = [
        float(objective(middle + share * (h - middle))["variance"].detach())
        for share in (1.0, 1e-2, 1e-3, 1e-4)
    ]
    assert terms == sorted(terms)
    assert terms[2] > terms[0] + 0.2
    assert terms[3] > 0.95  # 1 is collapse
    # and so does what they are projected to
    with torch.no_grad():
        objective.head[-1].weight.mul_(0.01)
    assert float(objective(h)["variance"].detach()) > 0.95


def test_defaults_are_the_designs():
    assert SimCLR(8).temperature == SupCon(8).temperature == 0.07
    weights = {"invariance": 10, "variance": 10, "covariance": 1}
    assert VICReg(8).weights == weights


def test_byols_target_follows_by_the_cosine_of_its_momentum():
    encoder = SlideEncoder(8, dim=16, depth=1, heads=2)
    objective = BYOL(encoder)
    before = objective.target.cls.clone()
    with torch.no_grad():
        encoder.cls.add_(1)
    objective.after_step(encoder, 0.0)
    moved = objective.target.cls - before
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01))
    objective.after_step(encoder, 1.0)  # momentum 1: it stands still
    torch.testing.assert_close(objective.target.cls - before, moved)
    assert not any(w.requires_grad for w in objective.target.parameters())


def test_class_weights_balance():
    h, labels = torch.randn(1, 8, 4), torch.tensor([0] * 7 + [1])
    weights = torch.tensor([8 / 14, 8 / 2])
    objective = Classify(4, 2, class_weights=weights)
    logits = objective.classifier(h[0])
    expected = F.cross_entropy(logits, labels, weight=weights)
    torch.testing.assert_close(objective(h, labels=labels)["loss"], expected)


def test_chance_is_known():
    assert SimCLR(8).chance_level(32, 2) == pytest.approx(log(63))
    assert Classify(8, 3).chance_level(32, 1) == pytest.approx(log(3))
    z = torch.ones(2, 32, 8)
    assert float(nt_xent(z, 0.07)) == pytest.approx(log(63), rel=1e-5)
