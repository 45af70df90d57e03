"""Which slides the patch encoder has seen, by pixels, patients and names."""

from dataclasses import replace

import numpy as np
import pytest

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.learning.cohort import open_cohort
from spt_core.patches.encoder_card import EncoderCard, PatchTrainingSummary
from spt_core.studies.encoder_leakage import (
    encoder_leakage,
    encoder_remarks,
    find_encoder,
)
from spt_core.tokens import TokenFacts, Tokens, read_labels, write_tokens
from spt_core.training.stages import Stage, patient_hmac
from tests.core.patches.conftest import make_slide

KEY = b"k" * 32
NAMES = (
    "TCGA-CR-7395-01A-01-TS1.a1",
    "TCGA-A1-A0SB-01Z-00-DX1",
    "own-1",
    "own-2",
    "own-3",
)
OWN = EncoderCard(
    "own",
    8,
    64,
    0.5,
    architecture="small-random",
    training=PatchTrainingSummary(
        "simclr",
        slide_fingerprints=frozenset({"print 2", "print 9"}),
        patient_hmacs=frozenset({patient_hmac("p3", KEY)}),
    ),
)


def cohort_of(folder, encoder="own", names=NAMES, **facts):
    p = np.array([[0, 0], [0, 1]])
    lines = ["slide,label,patient"]
    for number, name in enumerate(names):
        told = TokenFacts(
            encoder=encoder, mpp=0.5, patch_size=64, l0_patch_xy=(64, 64),
            slide_fingerprint=f"print {number}", **facts,
        )  # fmt: skip
        x = np.full((2, 8), number, np.float32)
        write_tokens(folder / "f" / f"{name}.h5", Tokens(x, p, p * 64, told))
        lines.append(f"{name},{'ab'[number % 2]},p{number}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return open_cohort(folder / "f", read_labels(folder / "labels.csv"))


@pytest.fixture
def cohort(tmp_path):
    return cohort_of(tmp_path)


def test_slides_and_patients_that_an_encoder_saw_are_counted(cohort):
    numbers = {slide.name: i for i, slide in enumerate(cohort)}
    found = encoder_leakage(OWN, cohort, KEY)
    assert found.slides == {numbers["own-1"]}
    assert found.patients == {numbers["own-2"]}
    assert found.published == frozenset()
    by_slide, by_patient = encoder_remarks(OWN, cohort, KEY)
    assert "own was trained, without labels, on 1 of these 5 slides" in by_slide
    assert "patients of 1 of these 5 slides" in by_patient
    assert "own-1" not in by_slide
    assert "own-1" in encoder_remarks(OWN, cohort, KEY, names=True)[0]


def test_what_is_not_checked_is_said(cohort):
    remarks = encoder_remarks(OWN, cohort, None)
    assert len(remarks) == 2
    assert "is not checked: the key" in remarks[1]
    silent = replace(OWN, training=PatchTrainingSummary("simclr", slides=9))
    assert "does not say which slides" in encoder_remarks(silent, cohort, KEY)[0]
    # what an encoder that it began from saw counts as well
    start = Stage("patch encoder: simclr", frozenset({"print 4"}),
                  frozenset({"x"}), same_key=False)  # fmt: skip
    training = replace(OWN.training, earlier=(start,))
    remarks = encoder_remarks(replace(OWN, training=training), cohort, KEY)
    assert "on 2 of these 5 slides" in remarks[0]
    assert "under another key" in remarks[-1]
    unknown = EncoderCard("nobody's", 8, 64, 0.5)
    assert encoder_remarks(unknown, cohort, KEY) == []


@pytest.mark.parametrize(
    ("trained_on", "count"),
    [
        (("TCGA", "PAIP"), 2), (("ImageNet",), 0), (("ImageNet", "TCGA-CR-7395"), 1),
        (("TCGA-XX-0000",), 0),
    ],
)  # fmt: skip
def test_names_show_that_slides_are_of_a_published_collection(
    cohort, trained_on, count
):
    card = EncoderCard("e", 8, 64, 0.5, trained_on=trained_on)
    remarks = encoder_remarks(card, cohort, None, names=True)
    assert len(remarks) == bool(count)
    if count:
        assert f"{count} of these 5 slides are from there" in remarks[0]
        assert "TCGA-CR-7395-01A-01-TS1" in remarks[0]
        assert "own" not in remarks[0]


@pytest.mark.parametrize(
    ("name", "trained_on"),
    [
        ("ctranspath", ("TCGA", "PAIP")), ("phikon-v2", ("TCGA", "CPTAC", "GTEx")),
        ("bundled", ("ImageNet", "BreaKHis", "TCGA-CR-7395")),
        ("resnet34", ("ImageNet",)), ("someones", None),
    ],
)  # fmt: skip
def test_encoders_are_known_by_name(tmp_path, name, trained_on):
    card, key = find_encoder(cohort_of(tmp_path, name))
    assert key is None
    assert (card and card.trained_on) == trained_on


def test_an_encoder_of_ones_own_is_known_by_its_file(tmp_path):
    slides = tmp_path / "slides"
    slides.mkdir()
    for number in (0, 1):
        make_slide(slides / f"s{number}.tif", 1200 + 64 * number, 1000)
    table = "slide,patient,label,split\ns0,p0,a,\ns1,p1,b,test\n"
    (tmp_path / "labels.csv").write_text(table)
    out = tmp_path / "own.safetensors"
    train = [
        "train-patches", str(slides), "--method", "simclr", "--table",
        str(tmp_path / "labels.csv"), "--arch", "small-random", "--init", "none",
        "--patch-size", "48", "--epochs", "1", "--patches-per-slide", "8",
        "--batch-size", "8", "--device", "cpu", "--out", str(out),
    ]  # fmt: skip
    assert main(train) == 0
    features = tmp_path / "features"
    assert main(["encode", str(slides), "--encoder", str(out), "--out", str(features)])\
        == 0  # fmt: skip
    cohort = open_cohort(features, read_labels(tmp_path / "labels.csv"))
    card, key = find_encoder(cohort, out)
    assert key is not None
    (remark,) = encoder_remarks(card, cohort, key, names=True)
    assert "on 1 of these 2 slides: s0." in remark
    # another slide of the same patient, by the key beside the encoder
    others = cohort_of(tmp_path / "others", "own", ("new-0", "new-1"))
    (remark,) = encoder_remarks(card, others, key, names=True)
    assert "patients of 1 of these 2 slides: new-0." in remark
    assert find_encoder(cohort) == (None, None)  # its name alone says nothing
    unlike = cohort_of(tmp_path / "unlike", "own", encoder_sha256="ab" * 32)
    with pytest.raises(InputError, match=r"own.safetensors is not the encoder \(own\)"):
        find_encoder(unlike, out)
