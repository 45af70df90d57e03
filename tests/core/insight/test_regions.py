"""Places to look at, look-alikes, and maps that refine without moving."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from spt_core.errors import InputError
from spt_core.insight.maps import lattice_map, smoothed
from spt_core.insight.model_words import read_model_words
from spt_core.insight.regions import choose_regions, spread_out, stands_out
from spt_core.insight.similarity import LookAlikes
from spt_core.learning.model_card import SiteFacts, Standardising


def square(side):
    return np.stack(np.divmod(np.arange(side * side), side), axis=1)


def test_regions_lie_apart_though_one_spot_holds_all_the_attention():
    p = square(40)
    values = np.exp(-np.square(p - (20, 20)).sum(axis=1) / 50)
    found = choose_regions(p, values)
    assert len(found) == 12
    kinds = [region.kind for region in found]
    assert (kinds.count("most"), kinds.count("random"), kinds.count("least")) == (
        6,
        3,
        3,
    )
    assert len({region.row for region in found}) == 12
    most = [r.row for r in found if r.kind == "most"]
    assert most[0] == values.argmax()
    assert list(values[most]) == sorted(values[most], reverse=True)
    gaps = np.abs(p[most][:, None] - p[most]).max(axis=2)
    assert gaps[~np.eye(6, dtype=bool)].min() >= 5
    low = [values[r.row] for r in found if r.kind == "least"]
    assert max(low) < np.quantile(values, 0.5)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 13])
def test_few_patches_give_few_regions(n):
    p = np.stack([np.zeros(n, int), np.arange(n)], axis=1)
    found = choose_regions(p, np.arange(n, dtype=float))
    assert len(found) == min(n, 12)
    assert len({region.row for region in found}) == len(found)


def test_spread_out_comes_nearer_rather_than_giving_fewer():
    p = square(5)
    assert len(spread_out(p, np.arange(25), 20)) == 20


def test_an_even_map_does_not_stand_out():
    rng = np.random.default_rng(0)
    assert not stands_out(1 + 0.05 * rng.normal(size=500))
    peaked = np.full(500, 0.8)
    peaked[:20] = 6
    assert stands_out(peaked)
    assert not stands_out(np.ones(1))


def test_look_alikes_agree_with_the_plain_formula():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 24)).astype(np.float32) + 3
    centred = x.astype(np.float64) - x.astype(np.float64).mean(axis=0)
    for rows in ([5], [5, 17, 200]):
        asked = sum(centred[row] for row in rows) / len(rows)
        expected = [1 - cosine(one, asked) for one in centred]
        np.testing.assert_allclose(LookAlikes(x).like(rows), expected, atol=1e-5)


def test_a_lattice_map_has_one_shape_however_few_patches():
    step, size = (30, 20), (301, 199)
    l0_xy = np.array([(0, 0), (270, 160), (60, 40)])
    whole = lattice_map(np.array([1.0, 2, 3]), l0_xy, step, size)
    part = lattice_map(np.array([1.0]), l0_xy[:1], step, size)
    assert whole.shape == part.shape == (9, 10)
    assert (whole[0, 0], whole[8, 9], whole[2, 2]) == (1, 2, 3)
    assert np.isnan(part).sum() == 89


def test_smoothing_keeps_an_even_map_even_and_the_background_empty():
    values = np.full((20, 20), np.nan, np.float32)
    values[5:15, 4:9] = 1
    np.testing.assert_allclose(smoothed(values, 2)[5:15, 4:9], 1, rtol=1e-4)
    assert np.isnan(smoothed(values, 2)).sum() == 400 - 50
    assert smoothed(values, 0) is values


def test_a_card_that_says_how_well_it_does(tmp_path):
    card = {
        "kind": "spt-slide-model",
        "about": "Names tumours.",
        "architecture": {"name": "mean", "in_dim": 8},
        "tokens": {"dim": 8},
        "training": {"slides": 72, "class_counts": {"a": 40, "b": 32}},
        "data": [{"name": "72 painted slides", "licence": "BSD-3-Clause"}],
        "judged_on": {"cohort": "24 other slides", "accuracy": 0.912, "folds": 3},
        "licence": "BSD-3-Clause; and more",
    }
    header = json.dumps({"__metadata__": {"card": json.dumps(card)}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    found = read_model_words(path)
    assert found.purpose == "Names tumours."
    assert found.learned_from == (
        "Learned from 72 slides (40 a and 32 b). 72 painted slides."
    )
    assert found.how_well == "On 24 other slides: accuracy 0.91."
    assert ("Licence", "BSD-3-Clause") in found.details


def test_how_tokens_are_standardised_stands_in_the_details(model_path):
    plain = read_model_words(model_path)
    assert "Standardised" not in dict(plain.details)
    sites = tuple(SiteFacts(f"s{n}", 3, 30) for n in range(14))
    for kind, count, words in (
        ("slide", 0, "per slide"),
        ("site", 2, "per site (s0 and s1)"),
        ("site", 14, f"per site ({', '.join(f's{n}' for n in range(12))} and 2 more)"),
    ):
        card = replace(plain.card, standardising=Standardising(kind, sites[:count]))
        assert dict(replace(plain, card=card).details)["Standardised"] == words


def test_a_card_is_read_without_the_weights(model_path, tmp_path):
    card = read_model_words(model_path)
    assert list(card.card.classes) == ["a", "b"]
    assert "a and b" in card.purpose
    assert "28 slides of 14 patients" in card.learned_from
    assert "14 a and 14 b" in card.learned_from
    assert "does not say how well" in card.how_well
    assert ("Objective", "classify") in card.details
    other = tmp_path / "other.safetensors"
    header = json.dumps({"__metadata__": {"card": "{}"}}).encode()
    other.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match="card is missing"):
        read_model_words(other)
    for content in (b"", b"text that is no model", bytes(8) + b"{}"):
        other.write_bytes(content)
        with pytest.raises(InputError, match="not a slide model"):
            read_model_words(other)
    with pytest.raises(InputError, match="no model file"):
        read_model_words(tmp_path / "gone.safetensors")
