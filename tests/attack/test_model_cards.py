"""Models whose card and tensors are each possible, and do not belong together."""

import json
from types import SimpleNamespace

import pytest

from spt_core import load_model
from spt_core.errors import InputError
from spt_core.insight.growing import settings_for
from spt_core.patches.encoder_file import is_place
from spt_core.patches.known import KNOWN
from spt_core.studies.encoder_leakage import find_encoder
from spt_core.tokens import TokenFacts
from tests.attack.model_files import good_model, put_together, taken_apart


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
