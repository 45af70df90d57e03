"""Faithfulness and what-if on models whose answer is known."""

import numpy as np
import pytest

from spt_core.errors import InputError
from spt_core.insight.faithfulness import faithfulness, patches_within, what_if
from spt_core.insight.results import Verdict
from spt_core.insight.wording import faithfulness_sentence, what_if_sentence
from tests.core.insight.conftest import finish
from tests.made_tokens import DIM, STEP, grid_tokens


def few_that_decide(n=200, deciders=20):
    """A few tokens are attended to (second feature) and say class a (first)."""
    x = np.zeros((n, DIM))
    x[:deciders, :2] = (2.0, 1.0)
    return grid_tokens(x)


def test_attention_that_matters(looking_model):
    found, _ = finish(faithfulness(looking_model, few_that_decide()))
    assert found.class_name == "a"
    np.testing.assert_allclose(found.most_first[0], found.random[0])
    np.testing.assert_allclose(found.most_first[0], found.least_first[0])
    assert found.most_first[found.removed >= 0.1].max() < 0.1  # all deciders gone
    assert found.least_first.min() > 0.9  # the deciders go last
    assert found.area > 0.3
    assert faithfulness_sentence(found).startswith("The attention matters")


def test_attention_that_means_nothing(mean_model):
    """A mean looks at all alike: any order is as good as another."""
    x = np.random.default_rng(0).normal(size=(300, DIM)) + 1
    found, _ = finish(faithfulness(mean_model, grid_tokens(x)))
    assert abs(found.area) < 0.05
    assert faithfulness_sentence(found).startswith("The attention does not explain")


def test_attention_that_misleads(looking_model):
    """What is attended speaks against the class that is followed."""
    found, _ = finish(faithfulness(looking_model, few_that_decide(), class_name="b"))
    assert found.area < -0.05
    assert faithfulness_sentence(found).startswith("The attention misleads")


def test_large_slides_are_thinned_and_said_to_be(looking_model):
    x = np.tile(few_that_decide().x, (30, 1))
    found, _ = finish(faithfulness(looking_model, grid_tokens(x)))
    assert found.thinned
    assert found.patches == 4096
    assert "evenly chosen" in faithfulness_sentence(found)


def test_unusable_questions(mean_model):
    with pytest.raises(InputError, match="no class 'z'"):
        finish(faithfulness(mean_model, grid_tokens(np.ones((5, DIM))), class_name="z"))
    with pytest.raises(InputError, match="empty"):
        finish(faithfulness(mean_model, grid_tokens(np.ones((0, DIM)))))


def test_without_the_region_that_decides(looking_model):
    tokens = few_that_decide()
    found = what_if(looking_model, tokens, np.arange(200) < 20)
    assert (found.before.answer, found.after.answer) == ("a", "b")
    assert found.removed == 20
    assert "Without these 20 of 200 patches a goes from" in what_if_sentence(found)
    assert what_if(looking_model, tokens, np.arange(200) > 0).after.seen == 1
    nothing = what_if(looking_model, tokens, np.ones(200, bool)).after
    assert nothing.verdict == Verdict.EMPTY


def test_patches_in_a_polygon():
    tokens = grid_tokens(np.zeros((100, DIM)), cols=10)
    triangle = np.array([(0, 0), (10 * STEP, 0), (0, 10 * STEP)])
    inside = patches_within(triangle, tokens)
    middle = tokens.xy + STEP / 2
    on_edge = middle.sum(axis=1) == 10 * STEP
    expected = middle.sum(axis=1) < 10 * STEP
    assert (inside == expected)[~on_edge].all()
