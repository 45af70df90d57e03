"""The cards of model and encoder files: what is written is read, and nothing else."""

import dataclasses
import inspect
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from spt_core import bundled, card_file, load_model
from spt_core.card_file import DataSource, read_record
from spt_core.errors import InputError
from spt_core.learning import model_card
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.aggregators import AGGREGATORS
from spt_core.learning.model_card import (
    Architecture,
    Calibration,
    JudgedOn,
    Metrics,
    ModelCard,
    Stage,
    TokenKind,
    TrainingSummary,
    model_metadata,
    read_model_card,
)
from spt_core.learning.model_file import SlideModel, save_model
from spt_core.learning.views import ViewSettings
from spt_core.patches import encoder_card
from spt_core.patches.encoder_card import (
    EncoderCard,
    PatchTrainingSummary,
    encoder_metadata,
    read_encoder_card,
)

FULL = ModelCard(
    architecture=Architecture("transformer", {"in_dim": 8, "dim": 4}),
    tokens=TokenKind(8, "made-up", "ab" * 32, 0.5, 50, 25.0, "none"),
    training=TrainingSummary(
        slides=3,
        tokens=90,
        patients=2,
        class_counts={"a": 2, "b": 1},
        slide_fingerprints=frozenset({"x", "y", "z"}),
        patient_hmacs=frozenset({"p", "q"}),
        earlier=(
            Stage("simclr", frozenset({"w"}), frozenset(), same_key=True),
            Stage(None, frozenset(), frozenset(), same_key=False, known=False),
        ),
        epochs=2,
        steps=20,
        batch_size=4,
        learning_rate=3e-4,
        weight_decay=0.01,
        head="batchnorm",
        seed=7,
        site_batches=True,
        negatives="site",
        from_pretrained=True,
        frozen_encoder=True,
        torch="2.9",
    ),
    classes=("a", "b"),
    objective="classify",
    views=ViewSettings(
        views=1, crop_area=(60.0, 300.0), mask=False, turn=True, shift=12
    ),
    metrics=Metrics(20, 0.9, True, 0.6, 12.5),
    calibration=Calibration(2.0, 24, 3, 0.2, 0.1),
    judged_on=JudgedOn("others", 24, 13, 3, 0.9, 0.8, 0.7, 0.05),
    demonstration=True,
    title="Mine",
    about="Tells a from b.",
    data=(DataSource("72 slides", "CC0", "training", "Somebody"),),
    licence="CC0",
    version="0.1",
    more={"colour": {"of": ["the", "file"]}},
)
ENCODER = EncoderCard(
    name="own",
    dim=64,
    patch_size=48,
    mpp=0.5,
    input_size=96,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
    licence="CC0",
    citation="nobody",
    about="small",
    architecture="small-random",
    version="0.1",
    training=PatchTrainingSummary(
        "simclr", "none", 96, 12, 6, 9, 10, "2.9", {"seed": 0, "augmentation": {}}
    ),
    data=(DataSource("fields"),),
    more={"speed": "quick"},
)


def written(path, metadata):
    save_file({"x": np.zeros(1, np.float32)}, path, metadata)
    return path


def write_record(path, record):
    return written(path, {"card": json.dumps(record)})


@pytest.fixture
def record(tmp_path):
    """A complete card as plain data."""
    return read_record(written(tmp_path / "full.safetensors", model_metadata(FULL)))


@pytest.mark.parametrize(
    "card", [FULL, ModelCard(Architecture("mean"), TokenKind(8), TrainingSummary(0))]
)
def test_a_card_is_read_as_it_was_written(tmp_path, card):
    path = written(tmp_path / "m.safetensors", model_metadata(card))
    assert read_model_card(path) == card


def test_a_card_from_before_places_were_moved_says_that_none_were(tmp_path, record):
    for name in ("turn", "shift"):
        del record["views"][name]
    views = read_model_card(write_record(tmp_path / "m.safetensors", record)).views
    assert views == replace(FULL.views, turn=False, shift=0)


def test_an_encoder_card_is_read_as_it_was_written(tmp_path):
    path = written(tmp_path / "e.safetensors", encoder_metadata(ENCODER))
    assert read_encoder_card(path) == ENCODER
    fetched = replace(ENCODER, weights="https://elsewhere")
    path = written(tmp_path / "e.safetensors", encoder_metadata(fetched))
    assert read_encoder_card(path).weights == "file"


def test_a_file_says_its_kind_its_format_and_its_use(record):
    assert record["kind"] == "spt-slide-model"
    assert record["format"] == 1
    assert "not for diagnosis" in record["notice"]


def test_a_model_keeps_its_card(tmp_path):
    encoder = AGGREGATORS["abmil"](in_dim=8, dim=4, hidden=2)
    path = tmp_path / "m.safetensors"
    save_model(path, SlideModel(encoder, FULL))
    card = load_model(path).card
    # The architecture is that of the weights, whatever the card said.
    built = Architecture("abmil", {"in_dim": 8, "dim": 4, "hidden": 2, "dropout": 0.0})
    assert card == replace(FULL, architecture=built)


def test_the_bundled_files_load():
    model = read_model_card(bundled.slide_model_path())
    assert model.architecture.name == "transformer"
    assert model.training.slides == 160
    (stage,) = model.stages()
    assert (stage.objective, stage.known) == ("classify", True)
    assert len(stage.slide_fingerprints) == 160
    assert model.temperature is None
    encoder = read_encoder_card(bundled.encoder_path())
    assert encoder.training.settings["augmentation"]["hue"] == 8.0


def test_files_that_state_no_format_are_read(tmp_path, record):
    del record["format"], record["notice"]
    assert read_model_card(write_record(tmp_path / "m.safetensors", record)) == FULL


def test_a_newer_format_is_refused_with_a_sentence(tmp_path, record):
    path = write_record(tmp_path / "m.safetensors", {**record, "format": 2})
    with pytest.raises(InputError, match=r"m\.safetensors was written by a newer.*Upd"):
        read_model_card(path)
    with pytest.raises(InputError, match="newer version"):
        load_model(path)
    path = write_record(tmp_path / "m.safetensors", {**record, "format": "1"})
    with pytest.raises(InputError, match="the card's format is '1', not a whole"):
        read_model_card(path)
    encoder = read_record(
        written(tmp_path / "e.safetensors", encoder_metadata(ENCODER))
    )
    path = write_record(tmp_path / "e.safetensors", {**encoder, "format": 9})
    with pytest.raises(InputError, match="newer version"):
        read_encoder_card(path)


@pytest.mark.parametrize(
    ("where", "value", "sentence"),
    [
        ("training.slides", "many", "training.slides is 'many', not a whole number."),
        ("training.slides", True, "training.slides is True, not a whole number."),
        ("training.seed", 1.5, "training.seed is 1.5, not a whole number."),
        ("training", [], "training is [], not an object."),
        ("training.class_counts.a", "x", "class_counts.a is 'x', not a whole number."),
        ("training.earlier.0.same_key", 1, "earlier.0.same_key is 1, not true or"),
        ("tokens.mpp", "0.5", "tokens.mpp is '0.5', not a number."),
        ("architecture.dim", None, "architecture.dim is None, not a number."),
        ("classes", "ab", "classes is 'ab', not a list."),
        ("classes", [1], "classes.0 is 1, not text."),
        ("views.crop_area", [1], "views.crop_area is [1], not a list of 2."),
        ("views.views", 0, "views: views must be greater than 0"),
        ("calibration.temperature", "2", "temperature is '2', not a number."),
        ("data.0.name", 3, "data.0.name is 3, not text."),
        ("views.colour", 1, "views.colour is unknown to this version"),
    ],
)
def test_a_wrong_value_gets_a_sentence(tmp_path, record, where, value, sentence):
    *parents, last = [int(n) if n.isdigit() else n for n in where.split(".")]
    part = record
    for name in parents:
        part = part[name]
    part[last] = value
    path = write_record(tmp_path / "m.safetensors", record)
    with pytest.raises(InputError) as told:
        read_model_card(path)
    assert str(told.value).startswith("m.safetensors: the card's ")
    assert sentence in str(told.value)


def test_what_is_missing_gets_a_sentence(tmp_path, record):
    del record["tokens"]["dim"]
    path = write_record(tmp_path / "m.safetensors", record)
    with pytest.raises(InputError, match=r"m\.safetensors: the card lacks tokens\.dim"):
        read_model_card(path)
    encoder = read_record(
        written(tmp_path / "e.safetensors", encoder_metadata(ENCODER))
    )
    del encoder["architecture"]
    path = write_record(tmp_path / "e.safetensors", encoder)
    with pytest.raises(InputError, match="the card lacks architecture"):
        read_encoder_card(path)


def test_the_kinds_of_files_are_told_apart(tmp_path):
    model = written(tmp_path / "m.safetensors", model_metadata(FULL))
    encoder = written(tmp_path / "e.safetensors", encoder_metadata(ENCODER))
    with pytest.raises(InputError, match=r"not a slide model.*spt-patch-encoder"):
        read_model_card(encoder)
    with pytest.raises(InputError, match="spt-slide-model, not a patch encoder"):
        read_encoder_card(model)
    assert read_encoder_card(written(tmp_path / "bare.safetensors", {})) is None


def test_an_architecture_that_cannot_be_built_gets_a_sentence(tmp_path, record):
    record["architecture"] = {"name": "magic"}
    with pytest.raises(InputError, match="unknown architecture 'magic'"):
        load_model(write_record(tmp_path / "m.safetensors", record))
    record["architecture"] = {"name": "mean", "in_dim": 8, "wings": 2}
    with pytest.raises(InputError, match=r"cannot be built.*wings"):
        load_model(write_record(tmp_path / "m.safetensors", record))


def test_every_field_is_documented():
    kinds = [
        kind
        for module in (card_file, model_card, encoder_card)
        for _, kind in inspect.getmembers(module, dataclasses.is_dataclass)
        if kind.__module__ == module.__name__
    ]
    assert {ModelCard, EncoderCard, DataSource, TrainingSummary} <= set(kinds)
    for kind in kinds:
        lines = inspect.getdoc(kind).partition("Attributes")[2].splitlines()
        heads = [line for line in lines if not line.startswith(" ")]
        named = {name for line in heads for name in line.split(", ")}
        assert {one.name for one in dataclasses.fields(kind)} <= named, kind


def test_cards_are_read_without_torch():
    code = (
        "import sys; from spt_core import bundled; "
        "from spt_core.learning.model_card import read_model_card; "
        "from spt_core.patches import EncoderCard; "
        "from spt_core.patches.encoder_card import read_encoder_card; "
        "import spt_core.insight.model_words; "
        "read_model_card(bundled.slide_model_path()); "
        "read_encoder_card(bundled.encoder_path()); "
        "assert not {'torch', 'h5py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_aggregator_keeps_the_contract():
    for name, kind in AGGREGATORS.items():
        built = kind(in_dim=8)
        assert isinstance(built, Aggregator)
        assert built.name == name
        assert kind(**built.config).config == built.config
        assert built.in_dim == 8
        assert built.dim % built.heads == 0
