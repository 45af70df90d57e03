"""Models whose card and tensors are each possible, and do not belong together."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from spt_core import load_model
from spt_core.errors import InputError
from spt_core.insight.growing import settings_for
from spt_core.insight.predicting import predict
from spt_core.learning.statistics import QUANTILES
from spt_core.patches.encoder_file import is_place
from spt_core.patches.known import KNOWN
from spt_core.studies.encoder_leakage import find_encoder
from spt_core.tokens import TokenFacts
from tests.attack.model_files import good_model, put_together, taken_apart
from tests.made_tokens import grid_tokens


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("calibration", {"temperature": 2.0, "error_before": 2**62}, "error_before of"),
        ("calibration", {"temperature": 2.0, "folds": -1}, "-1 folds"),
        ("judged_on", {"accuracy": 5.0}, "accuracy of 5"),
        ("judged_on", {"auc": -0.1, "slides": 3}, "auc of -0.1"),
    ],
)
def test_what_nobody_can_have_measured_is_refused(tmp_path, part, value, words):
    path = good_model(tmp_path / "x.safetensors")
    header, data = taken_apart(path)
    card = json.loads(header["__metadata__"]["card"])
    header["__metadata__"]["card"] = json.dumps({**card, part: value})
    put_together(path, header, data)
    with pytest.raises(InputError, match=words):
        load_model(path)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (["a", "b", "c"], "names 3 classes"),
        (["a"], "names 1 classes"),
        ([], "names 0 classes"),
        (["", "b"], "has no name"),
        ([" ", "b"], "has no name"),
        (["x" * 10**6, "b"], "longer than any"),
        (["\ud800", "b"], "no file takes"),
        (["a\0", "b"], "no file takes"),
    ],
)
def test_classes_that_a_model_cannot_have_are_one_sentence(tmp_path, classes, words):
    path = good_model(tmp_path / "x.safetensors")
    header, data = taken_apart(path)
    card = json.loads(header["__metadata__"]["card"])
    header["__metadata__"]["card"] = json.dumps({**card, "classes": classes})
    put_together(path, header, data)
    with pytest.raises(InputError, match=words) as refused:
        load_model(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "place",
    [
        "/etc/encoder.safetensors",
        "//host/share/run",
        r"\\host\share\run",
        "C:run",
        "~/run",
        "../run",
        "a/../../run",
        "own.safetensors",
    ],
)
def test_a_card_leads_to_no_other_file(place):
    card = SimpleNamespace(tokens=TokenFacts(encoder=place, patch_size=64, mpp=0.5))
    with pytest.raises(InputError, match="gives a place"):
        settings_for(SimpleNamespace(card=card))
    cohort = SimpleNamespace(facts=card.tokens)
    assert find_encoder(cohort) == (None, None)


def test_names_of_encoders_are_no_places():
    names = [*KNOWN, "timm/vit_small_patch16_224.dino", "hf-hub:owner/name", "mine"]
    assert not any(map(is_place, names))


DIM = 16
SITES = [{"name": name, "slides": 4, "tokens": 99} for name in "xy"]


def good_with_sites(path, change=None, card_change=None):
    """A model with all statistics; ``change`` and ``card_change`` make it a bad one."""
    header, _ = taken_apart(good_model(path))
    card = json.loads(header["__metadata__"]["card"])
    card["training"]["slides"] = 20
    card["tokens"] = {"dim": DIM}
    card["standardising"] = {"kind": "site", "sites": SITES}
    tensors = load_file(path)
    for which, length in (("mean_token", DIM), ("embedding", 24)):
        tensors |= {
            f"statistics.{which}_{name}": torch.ones(shape)
            for name, shape in (
                ("centre", (length,)),
                ("axes", (3, length)),
                ("variances", (3,)),
                ("rest", ()),
                ("quantiles", (len(QUANTILES),)),
            )
        }
    tensors |= {
        f"statistics.site_{name}": torch.ones(2, DIM) for name in ("mean", "std")
    }
    for found, changed in ((tensors, change), (card, card_change)):
        if changed:
            changed(found)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, path, {"card": json.dumps(card)})
    return path


def test_a_model_with_sites_and_statistics_is_good(tmp_path):
    model = load_model(good_with_sites(tmp_path / "x.safetensors"))
    tokens = grid_tokens(np.random.default_rng(0).normal(size=(40, DIM)), site="x")
    assert set(predict(model, tokens).likeness.distances) == {"mean_token", "embedding"}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("statistics.site_std", lambda t: -t, "site_std are below"),
        ("statistics.embedding_variances", lambda t: t * 0, "variances are below"),
        ("statistics.mean_token_rest", lambda t: -t, "rest are below"),
        ("statistics.mean_token_quantiles", lambda t: -t, "quantiles are below"),
        ("statistics.site_mean", lambda t: t[:1], "other shapes for site_mean"),
        ("statistics.mean_token_axes", lambda t: t.int(), "no floating-point"),
        ("class.weight", lambda t: t.view(torch.int32), "no floating-point"),
        ("class.weight", lambda t: t.to(torch.complex64), "no floating-point"),
    ],
)
def test_tensors_that_would_turn_an_answer_round(tmp_path, name, change, words):
    path = tmp_path / "x.safetensors"
    good_with_sites(path, lambda found: found.update({name: change(found[name])}))
    with pytest.raises(InputError, match=words):
        load_model(path)


def test_statistics_of_any_precision_are_used(tmp_path):
    def halved(found):
        found |= {k: v.half() for k, v in found.items() if k.startswith("stat")}

    tokens = grid_tokens(np.ones((40, DIM)), site="x")
    whole = predict(load_model(good_with_sites(tmp_path / "x.safetensors")), tokens)
    half = good_with_sites(tmp_path / "y.safetensors", halved)
    # Ones, of which half precision loses nothing.
    found = predict(load_model(half), tokens).likeness
    assert found.distances == pytest.approx(whole.likeness.distances, rel=1e-4)


def test_a_distance_that_is_no_number_is_no_answer(tmp_path):
    def far(found):
        found["statistics.embedding_centre"] *= 1e38

    model = load_model(good_with_sites(tmp_path / "x.safetensors", far))
    with pytest.raises(InputError, match="makes no number"):
        predict(model, grid_tokens(np.ones((40, DIM)), site="x"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda card: card["architecture"].pop("heads"), "heads are not stated"),
        (lambda card: card.pop("standardising"), "does not state: site_mean"),
        (lambda card: card["standardising"].pop("sites"), "does not state: site_mean"),
        (lambda card: card["standardising"].update(kind="slide"), "names sites, but"),
        (lambda card: card["standardising"].update(sites=SITES[:1] * 2), "given twice"),
        (
            lambda card: card["standardising"].update(
                sites=[{**SITES[0], "name": ""}, SITES[1]]
            ),
            "a site has no name",
        ),
        (lambda card: card["training"].update(slides=-1), "-1 slides"),
        (lambda card: card.update(metrics={"knn": 3}), "a knn of 3"),
    ],
)
def test_cards_that_would_change_an_answer(tmp_path, change, words):
    path = good_with_sites(tmp_path / "x.safetensors", card_change=change)
    with pytest.raises(InputError, match=words):
        load_model(path)


def test_a_card_states_each_thing_once(tmp_path):
    path = good_model(tmp_path / "x.safetensors")
    header, data = taken_apart(path)
    card = header["__metadata__"]["card"]
    header["__metadata__"]["card"] = card[:-1] + ', "classes": ["b", "a"]}'
    put_together(path, header, data)
    with pytest.raises(InputError):
        load_model(path)
