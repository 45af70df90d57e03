"""A run from a folder of features to a model file, whatever happens to it."""

import csv
import json
import time
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from spt_core import load_model, read_tokens
from spt_core.card_file import read_record
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.learning.cohort import open_cohort
from spt_core.learning.model_card import Architecture, read_model_card
from spt_core.learning.monitor import SlideMonitor
from spt_core.learning.settings import TrainSettings
from spt_core.learning.statistics import distance
from spt_core.learning.training import DivergedError, Epoch, resume, train
from spt_core.learning.views import ViewSettings
from spt_core.tokens import read_labels
from spt_core.training.alarms import Collapsed, NotLearning
from spt_core.training.objectives import VICReg
from spt_core.training.signals import Validation
from spt_core.training.stages import patient_hmac
from spt_core.training.step import ExactStep
from tests.core.learning.runs import (
    TINY,
    assert_bitwise,
    tiny,
    weights,
)
from tests.events import run_through as finish


def test_a_run_leaves_everything(undisturbed):
    events, result = undisturbed
    progress = [event for event in events if isinstance(event, Progress)]
    assert [event.done for event in progress[:9]] == list(range(1, 10))
    assert sum(isinstance(event, Epoch) for event in events) == 3
    assert any(isinstance(event, Validation) for event in events)
    found = {path.name for path in result.run.iterdir()}
    assert found == {
        "config.yaml",
        "state.json",
        "metrics.csv",
        "best.safetensors",
        "last.safetensors",
        "checkpoint.pt",
        "checkpoint-before.pt",
        "checkpoint.sha256",
        "curve.png",
        "growth",
        ".lock",
    }
    assert json.loads((result.run / "state.json").read_text())["status"] == "finished"
    with (result.run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["3", "6", "9"]
    assert all(float(row["knn"]) <= 1 for row in rows)
    assert TrainSettings.read(result.run / "config.yaml").batch_size == 6


def test_the_model_file_says_what_it_is(undisturbed, cohort):
    model = load_model(undisturbed[1].best)
    card = model.card
    assert card.architecture == Architecture("transformer", {"in_dim": 32, **TINY})
    assert card.objective == "simclr"
    assert card.tokens.encoder == "made-up"
    assert card.tokens.mpp == 0.5
    assert card.training.slides == 18
    assert len(card.training.slide_fingerprints) == 18
    assert "not for diagnosis" in read_record(undisturbed[1].best)["notice"]
    assert model.classes == []
    with pytest.raises(InputError, match="names no classes"):
        model.logits(torch.zeros(16))
    tokens = read_tokens(cohort / "features" / "slide000.h5")
    h, attention = model.encoder.attend(
        torch.from_numpy(tokens.x), torch.from_numpy(tokens.p)
    )
    assert h.shape == (16,)
    assert attention.shape == (2, 900)


def test_a_model_refuses_other_tokens(undisturbed):
    model = load_model(undisturbed[1].best)
    model.refuse_unlike(model.facts, 32)
    model.refuse_unlike(replace(model.facts, mpp=0.51), 32)
    model.refuse_unlike(replace(model.facts, encoder=None, mpp=None), 32)
    with pytest.raises(InputError, match=r"mpp 0\.25 \(the model takes 0\.5\)"):
        model.refuse_unlike(replace(model.facts, mpp=0.25), 32)
    with pytest.raises(InputError, match=r"encoder uni.*spt encode SLIDE --encoder"):
        model.refuse_unlike(replace(model.facts, encoder="uni"), 32)
    with pytest.raises(InputError, match="token length 64"):
        model.refuse_unlike(model.facts, 64)


def test_statistics_tell_a_strange_slide(undisturbed, cohort):
    model = load_model(undisturbed[1].last)
    tokens = read_tokens(cohort / "features" / "slide003.h5")
    mean = torch.from_numpy(tokens.x.mean(axis=0))
    most = float(model.statistics["mean_token_quantiles"][-1])
    assert distance(model.statistics, "mean_token", mean) <= 1.5 * most
    assert distance(model.statistics, "mean_token", mean + 1) > 10 * most
    h, _ = model.encoder.attend(torch.from_numpy(tokens.x), torch.from_numpy(tokens.p))
    most = float(model.statistics["embedding_quantiles"][-1])
    assert distance(model.statistics, "embedding", h) <= 1.5 * most
    assert distance(model.statistics, "embedding", -5 * h) > 3 * most


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers so large
def test_nan_stops_with_the_last_good_model_and_the_step(cohort, tmp_path):
    for path in (cohort / "features").iterdir():
        (tmp_path / "features").mkdir(exist_ok=True)
        (tmp_path / "features" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "labels.csv").write_text((cohort / "labels.csv").read_text())
    with h5py.File(tmp_path / "features" / "slide007.h5", "a") as file:
        file["features"][:] = 3e38  # a number, of which no other comes
    with pytest.raises(DivergedError, match=r"(?s)in step \d of 9.*slide007") as info:
        finish(train(tiny(tmp_path, tmp_path / "run", validate_epochs=100)))
    kept = load_model(tmp_path / "run" / "last.safetensors")
    assert all(torch.isfinite(w).all() for w in kept.encoder.parameters())
    assert str(tmp_path / "run" / "last.safetensors") in str(info.value)
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert state["status"] == "failed"


def test_a_rate_that_is_too_high_is_named(cohort, tmp_path):
    wild = tiny(
        cohort, tmp_path / "run", "vicreg", learning_rate=1e30, weight_decay=0.0
    )
    with pytest.raises(DivergedError, match=r"in step \d.*lower --learning-rate"):
        finish(train(wild))


@pytest.mark.parametrize(("margin", "times"), [(1.0, 1), (1e-9, 0)])
def test_a_loss_that_stays_at_chance_is_said_once(
    cohort, tmp_path, monkeypatch, margin, times
):
    """A loss near the level of chance, for a wide and for a narrow meaning of near."""
    monkeypatch.setattr("spt_core.training.alarms.CHANCE_MARGIN", margin)
    still = tiny(
        cohort,
        tmp_path / "run",
        learning_rate=1e-12,
        head="paper",
        epochs=10,
        validate_epochs=100,
    )
    said = [event for event in train(still) if isinstance(event, NotLearning)]
    assert len(said) == times
    assert all(f"chance ({np.log(11):.3f})" in one.message for one in said)
    assert all("after 30 steps" in one.message for one in said)  # of 30
    assert all("Try --head batchnorm." in one.message for one in said)


def test_a_collapse_is_seen_and_said(cohort, tmp_path, monkeypatch):
    monkeypatch.setattr("spt_core.training.alarms.COLLAPSED_SPREAD", 10.0)
    seen, _ = finish(train(tiny(cohort, tmp_path / "run", epochs=2)))
    assert sum(isinstance(event, Collapsed) for event in seen) == 1


def test_embeddings_that_become_one_are_seen_and_said(cohort, tmp_path, monkeypatch):
    """Views that only have to agree, and nothing that keeps slides apart."""

    class Agree(VICReg):
        def __init__(self, dim, **options):
            super().__init__(dim, variance=0, covariance=0)
            self.head = torch.nn.Identity()

    monkeypatch.setattr(
        "spt_core.learning.finish.build_objective", lambda _, e, **o: Agree(e.dim)
    )
    run = tiny(
        *(cohort, tmp_path / "run", "vicreg"),
        batch_size=18,
        epochs=40,
        learning_rate=1e-2,
        validate_epochs=20,
        checkpoint_steps=1000,
    )
    seen, _ = finish(train(run))
    (said,) = (event for event in seen if isinstance(event, Collapsed))
    assert "the model has collapsed" in said.message


def test_fine_tuning_from_a_pretrained_model(undisturbed, cohort, tmp_path):
    start = str(undisturbed[1].best)
    frozen = tiny(cohort, tmp_path / "frozen", "classify", init=start, freeze=True)
    _, result = finish(train(frozen))
    assert_bitwise(result.last, start)
    assert load_model(result.last).classes == ["a", "b", "c"]
    free = tiny(cohort, tmp_path / "free", "classify", init=start)
    _, result = finish(train(free))
    with pytest.raises(AssertionError):
        assert_bitwise(result.last, start)
    assert read_model_card(result.last).training.from_pretrained


@pytest.mark.parametrize("model", ["abmil", "mean", "max"])
def test_any_aggregator_can_be_trained(cohort, tmp_path, model):
    run = tiny(cohort, tmp_path / "run", "classify", model=model, architecture={})
    _, result = finish(train(run))
    loaded = load_model(result.last)
    assert loaded.encoder.name == model
    assert loaded.logits(torch.zeros(loaded.encoder.dim)).shape == (3,)


def test_held_out_slides_are_never_learned_from(cohort, tmp_path):
    lines = (cohort / "labels.csv").read_text().split()[1:]
    splits = ["train"] * 12 + ["val"] * 3 + ["test"] * 3
    (tmp_path / "labels.csv").write_text(
        "slide,label,split\n"
        + "\n".join(f"{line},{s}" for line, s in zip(lines, splits, strict=True))
    )
    run = tiny(cohort, tmp_path / "run", labels=str(tmp_path / "labels.csv"))
    _, result = finish(train(run))
    card = read_model_card(result.best)
    assert card.training.slides == 12
    assert card.metrics.knn_held_out


def monitor_of(cohort, tmp_path, splits):
    lines = (cohort / "labels.csv").read_text().split()[1:]
    (tmp_path / "labels.csv").write_text(
        "slide,label,split\n"
        + "\n".join(f"{line},{s}" for line, s in zip(lines, splits, strict=True))
    )
    labels = read_labels(tmp_path / "labels.csv")
    return SlideMonitor(open_cohort(cohort / "features", labels), seed=0)


@pytest.mark.parametrize("trained_on", ["train", ""])
def test_the_best_model_is_not_chosen_by_test_slides(cohort, tmp_path, trained_on):
    splits = [trained_on] * 12 + ["test"] * 6
    monitor = monitor_of(cohort, tmp_path, splits)
    assert monitor.chosen.tolist() == list(range(12))
    assert not monitor.held_out
    assert monitor.has_labels
    assert monitor.asked.sum() == monitor.voters.sum() == 12


@pytest.mark.parametrize("trained_on", ["train", ""])
def test_those_that_are_learned_from_vote_on_held_out_slides(
    cohort, tmp_path, trained_on
):
    splits = [trained_on] * 12 + ["val"] * 3 + ["test"] * 3
    monitor = monitor_of(cohort, tmp_path, splits)
    assert monitor.held_out
    assert monitor.has_labels
    assert monitor.chosen[monitor.voters].tolist() == list(range(12))
    assert monitor.chosen[monitor.asked].tolist() == [12, 13, 14]


def scaled_on_the_cpu(monkeypatch):
    made = []

    def gradient_scaler(device, *, mixed):
        made.append(torch.amp.GradScaler(device.type))
        return made[-1]

    monkeypatch.setattr("spt_core.training.run.gradient_scaler", gradient_scaler)
    return made


def test_scaled_gradients_make_the_same_steps(
    undisturbed, cohort, tmp_path, monkeypatch
):
    """The branch of float16, in single precision; stopped and resumed on the way."""
    scaled_on_the_cpu(monkeypatch)
    events = train(tiny(cohort, tmp_path / "run"))
    for event in events:
        if isinstance(event, Progress) and event.done == 4:
            break
    events.close()
    _, result = finish(resume(tmp_path / "run"))
    plain, scaled = weights(undisturbed[1].last), weights(result.last)
    for name, tensor in plain.items():
        torch.testing.assert_close(scaled[name], tensor, atol=1e-5, rtol=1e-4)


def test_a_run_begun_without_a_scaler_goes_on_with_one(cohort, tmp_path, monkeypatch):
    events = train(tiny(cohort, tmp_path / "run"))
    for event in events:
        if isinstance(event, Progress) and event.done == 4:
            break
    events.close()
    scaled_on_the_cpu(monkeypatch)
    assert finish(resume(tmp_path / "run"))[1].steps == 9


def test_a_step_whose_gradient_overflows_is_skipped(
    undisturbed, cohort, tmp_path, monkeypatch
):
    (scalers, compute) = scaled_on_the_cpu(monkeypatch), ExactStep.__call__

    def overflowing(self, *args):
        parts = compute(self, *args)
        next(self.encoder.parameters()).grad.fill_(torch.inf)
        return parts

    monkeypatch.setattr(ExactStep, "__call__", overflowing)
    start = str(undisturbed[1].last)
    run = tiny(cohort, tmp_path / "run", init=start, epochs=1)
    _, result = finish(train(run))
    assert result.steps == 3
    assert_bitwise(result.last, start)
    assert scalers[0].get_scale() == 2.0 ** (16 - 3)


def test_patients_are_known_by_hmac_alone(cohort, tmp_path):
    lines = (cohort / "labels.csv").read_text().split()[1:]
    (tmp_path / "labels.csv").write_text(
        "slide,label,patient\n"
        + "\n".join(f"{line},JANE-DOE-{n // 2}" for n, line in enumerate(lines))
    )
    run = tiny(cohort, tmp_path / "run", labels=str(tmp_path / "labels.csv"), epochs=1)
    _, result = finish(train(run))
    content = result.best.read_bytes()
    assert b"JANE" not in content
    assert b"slide0" not in content
    assert str(cohort).encode() not in content
    key = bytes.fromhex((tmp_path / "run" / "patients.key").read_text())
    model = load_model(result.best)
    assert model.trained_on_patient("JANE-DOE-3", key)
    assert not model.trained_on_patient("JANE-DOE-33", key)
    assert patient_hmac("JANE-DOE-3", b"x") != patient_hmac("JANE-DOE-3", key)
    assert all(map(model.trained_on_slide, model.card.training.slide_fingerprints))


def test_wrong_settings_are_refused_before_anything_is_written(cohort, tmp_path):
    with pytest.raises(InputError, match="supcon learns from labels"):
        tiny(cohort, tmp_path / "run", "supcon", labels=None)
    with pytest.raises(InputError, match="nothing to learn"):
        tiny(cohort, tmp_path / "run", "simclr", model="mean")
    with pytest.raises(InputError, match="two views"):
        tiny(cohort, tmp_path / "run", views=ViewSettings(views=1))
    finish(train(tiny(cohort, tmp_path / "run", epochs=1)))
    with pytest.raises(InputError, match="already holds a run"):
        finish(train(tiny(cohort, tmp_path / "run")))
    with pytest.raises(InputError, match="is not a training run"):
        finish(resume(tmp_path / "nothing"))


def test_a_configuration_from_before_places_were_moved_moves_none(cohort, tmp_path):
    path, views = tmp_path / "config.yaml", ViewSettings(max_tokens=20)
    tiny(cohort, tmp_path / "run", views=views).write(path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    older = [line for line in lines if line.split(":")[0] not in ("  turn", "  shift")]
    assert len(older) == len(lines) - 2
    path.write_text("".join(older), encoding="utf-8")
    assert TrainSettings.read(path).views == views


def test_no_labels_are_needed_to_pretrain(cohort, tmp_path):
    seen, result = finish(train(tiny(cohort, tmp_path / "run", labels=None, epochs=2)))
    looks = [event for event in seen if isinstance(event, Validation)]
    assert looks
    assert all(look.knn is None for look in looks)
    assert all(look.effective_rank > 1 for look in looks)
    assert result.best.exists()


def test_a_cohort_of_two_slides(cohort, tmp_path):
    features = tmp_path / "features"
    features.mkdir()
    for name in ("slide000.h5", "slide001.h5"):
        (features / name).write_bytes((cohort / "features" / name).read_bytes())
    run = tiny(cohort, tmp_path / "run", labels=None, epochs=2, features=str(features))
    _, result = finish(train(run))
    assert result.steps == 2


def test_the_command(cohort, tmp_path, capsys):
    arguments = [
        *("train", str(cohort / "features"), "--labels", str(cohort / "labels.csv")),
        *("--objective", "vicreg", "--out", str(tmp_path / "run"), "--model", "small"),
        *("--dim", "16", "--heads", "2", "--epochs", "1", "--device", "cpu", "--json"),
    ]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = {line["event"] for line in lines}
    assert {"progress", "epoch", "validation", "note", "done"} <= kinds
    assert lines[-1]["best"].endswith("best.safetensors")
    assert main(arguments) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert main(["train"]) == 1
    assert "Give FEATURES, --objective, --out" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["train", "x", "--objective", "magic"])
    assert stopped.value.code == 2
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--help"])
    assert stopped.value.code == 0
    assert "not for diagnosis" in " ".join(capsys.readouterr().out.split())


def test_files_that_are_no_models(tmp_path, cohort):
    with pytest.raises(InputError, match="no model file"):
        load_model(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(InputError, match="not a slide model"):
        load_model(tmp_path / "text.safetensors")


def test_remarks_come_first(cohort, tmp_path):
    (tmp_path / "labels.csv").write_text("slide,label\nslide000,a\nslide001,b\n")
    run = tiny(cohort, tmp_path / "r", labels=str(tmp_path / "labels.csv"), epochs=1)
    started = time.monotonic()
    first = next(train(run))
    assert isinstance(first, Note)
    assert time.monotonic() - started < 30
