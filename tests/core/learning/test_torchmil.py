"""CLAM, DSMIL and TransMIL against torchmil's, which are for two classes.

torchmil answers with one number per bag, ours with two scores of which it is the
difference. Weights are copied by the maps below; bags are not padded.
"""

import pytest
import torch
from torch import nn
from torchmil.models import CLAM_SB, DSMIL, TransMIL

from spt_core.learning.clam import Clam
from spt_core.learning.dsmil import DualStream
from spt_core.learning.transmil import TransMil

DIM, WIDTH, HIDDEN = 20, 16, 8
SIZES = [40, 17, 49]


def bags(n, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(3, n, DIM, generator=made), torch.zeros(3, n, 2)


def copy(pairs):
    """Fill the first of each pair with the second."""
    for theirs, ours in pairs:
        theirs.load_state_dict(ours.state_dict())


@pytest.fixture(autouse=True)
def without_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def clams():
    ours = Clam(DIM, dim=WIDTH, hidden=HIDDEN, classes=2, instances=8).eval()
    theirs = CLAM_SB(
        (DIM,), att_dim=HIDDEN, k_sample=8, gated=True, feat_ext=ours.input
    ).eval()
    copy(
        [
            (theirs.pool.fc1.module, ours.value),
            (theirs.pool.fc_gated.module, ours.gate),
        ]
    )
    theirs.pool.fc2.weight.copy_(ours.score.weight)
    # two scores each, of which ours is the second less the first
    for number, one in enumerate(theirs.inst_classifiers):
        one.module.weight.normal_()
        one.module.bias.normal_()
        ours.instance.weight[number] = one.module.weight[1] - one.module.weight[0]
        ours.instance.bias[number] = one.module.bias[1] - one.module.bias[0]
    return ours, theirs


@pytest.mark.parametrize("n", SIZES)
def test_clam(clams, n):
    """torchmil's attention is before the softmax and without a bias, which cancels."""
    ours, theirs = clams
    x, p = bags(n)
    answer, scores = theirs(x, return_att=True)
    torch.testing.assert_close(
        theirs.classifier.module(ours(x, p)).squeeze(1), answer, atol=1e-5, rtol=1e-5
    )
    for one, attention in zip(x, scores.softmax(dim=1), strict=True):
        found = ours.attend(one, p[0]).attention[0]
        torch.testing.assert_close(found, attention, atol=1e-6, rtol=1e-4)


def smooth_svm(scores, targets):
    """log sum over j of exp(s_j - s_y + 1 where j is not y), the mean over tokens."""
    targets = targets.long()  # (m, 1)
    margins = (scores + 1).scatter_add(1, targets, -torch.ones(len(scores), 1))
    return (margins.logsumexp(dim=1) - scores.gather(1, targets)[:, 0]).mean()


@pytest.mark.parametrize("n", SIZES)
def test_clams_loss_of_instances(clams, n):
    """torchmil chooses the tokens, what they are to be and the classifiers.

    Its smooth SVM loss is replaced by the formula: it is given targets (m, 1), takes
    them for (m,), and adds the margins of all tokens to each. It sums over bags and
    both classes; ours is one bag's mean over classes.
    """
    ours, theirs = clams
    del theirs.inst_loss_fn  # a module: a function cannot take its place
    theirs.inst_loss_fn = smooth_svm
    x, p = bags(n)
    own = ours.for_objective(x, p)[:, ours.dim :]
    _, scores, tokens = theirs(x, return_att=True, return_emb=True)
    for label in (0, 1):
        labels = torch.full((3,), label)
        expected = theirs.compute_inst_loss(scores, tokens, labels)
        torch.testing.assert_close(2 * own[:, label].sum(), expected)


@pytest.mark.parametrize("n", SIZES)
def test_dsmil(n):
    """torchmil has one stream for the one positive class, and no V or one with a ReLU.

    So ours has V = 1, and its second class is compared: critical token, attention,
    embedding and answer. Its loss is over two numbers where ours is over two classes:
    with scores 0 and s softmax is the sigmoid of s, and the losses are the same.
    """
    ours = DualStream(DIM, dim=DIM, hidden=HIDDEN, classes=2).eval()
    theirs = DSMIL((DIM,), att_dim=HIDDEN).eval()
    nn.init.eye_(ours.value.weight)
    nn.init.zeros_(ours.value.bias)
    copy([(theirs.q_nn, ours.query)])
    theirs.inst_classifier.weight.copy_(ours.instance.weight[1:])
    theirs.inst_classifier.bias.copy_(ours.instance.bias[1:])
    x, p = bags(n)
    answer, attention = theirs(x, return_att=True)
    of_class = ours(x, p).unflatten(1, (2, DIM))[:, 1]
    torch.testing.assert_close(theirs.bag_classifier(of_class).squeeze(1), answer)
    for one, expected in zip(x, attention, strict=True):
        found = ours.attend(one, p[0]).attention[1]
        torch.testing.assert_close(found, expected[:, 0])
    # as far as the class that torchmil has not got is silent
    ours.instance.weight[0] = 0
    ours.instance.bias[0] = 0
    own = ours.for_objective(x, p)[:, ours.dim :]
    for label in (0.0, 1.0):
        _, losses = theirs.compute_loss(torch.full((3,), label), x)
        expected = losses["BCEWithLogitsLoss_max"]
        torch.testing.assert_close(own[:, int(label)].mean(), expected)


@pytest.mark.parametrize("n", [*SIZES, 1, 2, 300])
@pytest.mark.parametrize("landmarks", [8, 64])
def test_transmil(n, landmarks):
    """torchmil has neither the convolution of values nor a layer after attention.

    The paper's attention has both: ours are set to nothing and to 1 here. Nor has
    torchmil a ReLU after the first layer: it is given our first layer. It begins the
    inverse by one norm for the whole batch, we by one for each slide: so it gets
    single bags. Its attention is the mean of heads over the n first places of the
    square; ours in use adds what a token has in its second place, and sums to one.
    """
    heads = 4
    ours = TransMil(DIM, dim=WIDTH, heads=heads, landmarks=landmarks).eval()
    theirs = TransMIL(
        (DIM,),
        att_dim=WIDTH,
        n_heads=heads,
        n_landmarks=landmarks,
        feat_ext=ours.input,
    ).eval()
    theirs.cls_token.copy_(ours.cls)
    convolutions = (
        theirs.pos_layer.proj,
        theirs.pos_layer.proj1,
        theirs.pos_layer.proj2,
    )
    copy(
        [
            *zip(convolutions, ours.pyramid.convolutions, strict=True),
            (theirs.layers[0].norm1, ours.norm1),
            (theirs.layers[1].norm1, ours.norm2),
            (theirs.norm, ours.norm),
        ]
    )
    for layer, attention in zip(
        theirs.layers, (ours.attention1, ours.attention2), strict=True
    ):
        layer.att_module.qkv_nn.weight.copy_(attention.qkv.weight)
        nn.init.zeros_(attention.nearby.weight)
        nn.init.eye_(attention.out.weight)
        nn.init.zeros_(attention.out.bias)
    x, p = bags(n)
    together = ours(x, p)
    for one, h in zip(x, together, strict=True):
        answer, expected = theirs(one[None], return_att=True)
        torch.testing.assert_close(
            theirs.classifier(h).squeeze(), answer[0], atol=1e-4, rtol=1e-4
        )
        row = ours.last_row(ours._before_last(one[None]))[0].mean(dim=0)
        torch.testing.assert_close(row[:n], expected[0], atol=1e-5, rtol=1e-4)
        found = ours.attend(one, p[0])
        torch.testing.assert_close(found.h, h, atol=1e-4, rtol=1e-4)
