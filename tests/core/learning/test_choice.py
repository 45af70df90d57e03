"""Which epoch a run keeps, and that labels to be judged by have no say in it."""

import numpy as np
import pytest
import torch

from spt_core.events import Note
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.cohort import open_cohort
from spt_core.learning.model_card import read_model_card
from spt_core.learning.monitor import SlideMonitor
from spt_core.learning.training import train
from spt_core.tokens import read_labels
from spt_core.training.signals import Validation
from tests.core.learning.runs import assert_bitwise, tiny
from tests.events import run_through as finish

SPLIT = ("train",) * 12 + ("val",) * 3 + ("test",) * 3


def split_labels(cohort, tmp_path, splits=SPLIT):
    lines = (cohort / "labels.csv").read_text().split()[1:]
    rows = [f"{line},{split}" for line, split in zip(lines, splits, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["slide,label,split", *rows]))
    return str(tmp_path / "labels.csv")


def best_at_first(monkeypatch):
    """Let slides that are looked at be best known in the first epoch, by chance."""
    looks = []

    def validate(self, encoder, device, step, classifier=None):
        looks.append(step)
        loss = None if classifier is None else float(len(looks))
        return Validation(step, 1.0, 4.0, 1 / len(looks), loss)

    monkeypatch.setattr(SlideMonitor, "validate", validate)


def notes(events):
    return " ".join(event.message for event in events if isinstance(event, Note))


def chosen(path):
    training = read_model_card(path).training
    return training.epoch_chosen_by, training.choice_fingerprints


def test_labels_without_a_validation_split_choose_nothing(
    cohort, tmp_path, monkeypatch
):
    """By its own kNN the first epoch would have been kept."""
    best_at_first(monkeypatch)
    events, result = finish(train(tiny(cohort, tmp_path / "run")))
    assert result.best_step == result.steps == 9
    assert_bitwise(result.best, result.last)
    assert "the model of the last epoch is kept" in notes(events)
    assert chosen(result.best) == ("the last epoch", frozenset())


def test_without_any_labels_the_last_epoch_is_kept_too(cohort, tmp_path):
    run = tiny(cohort, tmp_path / "run", labels=None, epochs=2)
    _, result = finish(train(run))
    assert_bitwise(result.best, result.last)
    assert result.chosen_by == "the last epoch"


def test_a_validation_split_chooses_and_is_remembered(cohort, tmp_path, monkeypatch):
    best_at_first(monkeypatch)
    labels = split_labels(cohort, tmp_path)
    events, result = finish(train(tiny(cohort, tmp_path / "run", labels=labels)))
    assert result.best_step == 2  # of 6: 12 slides in batches of 6
    assert "chosen by kNN of the validation split (3 slides)" in notes(events)
    how, slides = chosen(result.best)
    assert how == "kNN of the validation split"
    assert len(slides) == 3
    learned_from = read_model_card(result.best).training.slide_fingerprints
    assert not slides & learned_from
    # the other file is of the last epoch, however good the first
    assert chosen(result.last) == ("the last epoch", frozenset())


def test_a_validation_split_without_labels_chooses_nothing(cohort, tmp_path):
    labels = split_labels(cohort, tmp_path)
    text = (tmp_path / "labels.csv").read_text().splitlines()
    text[13:16] = [f"slide{n:03d},,val" for n in (12, 13, 14)]
    (tmp_path / "labels.csv").write_text("\n".join(text))
    _, result = finish(train(tiny(cohort, tmp_path / "run", labels=labels, epochs=1)))
    assert result.chosen_by == "the last epoch"


def test_with_labels_to_learn_from_the_loss_chooses(cohort, tmp_path, monkeypatch):
    best_at_first(monkeypatch)
    events, result = finish(train(tiny(cohort, tmp_path / "run", "classify")))
    assert "There is no validation split" in notes(events)
    assert "chosen by the training loss" in notes(events)
    assert chosen(result.best) == ("the training loss", frozenset())


def test_a_classifier_is_chosen_by_its_loss_on_the_validation_split(
    cohort, tmp_path, monkeypatch
):
    best_at_first(monkeypatch)
    labels = split_labels(cohort, tmp_path)
    run = tiny(cohort, tmp_path / "run", "classify", labels=labels)
    events, result = finish(train(run))
    assert result.best_step < result.steps
    assert "the loss on the validation split (3 slides)" in notes(events)
    how, slides = chosen(result.best)
    assert how == "the loss on the validation split"
    assert len(slides) == 3


def test_the_loss_on_the_validation_split_is_the_classifiers(cohort, tmp_path):
    """Against the definition: cross-entropy of the whole slides, mean over classes."""
    labels = split_labels(cohort, tmp_path)
    slides = open_cohort(cohort / "features", read_labels(labels))
    torch.manual_seed(0)
    encoder = build_encoder("abmil", slides.dim).eval()
    classifier = torch.nn.Linear(encoder.dim, len(slides.classes))
    seen = SlideMonitor(slides, 0).validate(encoder, torch.device("cpu"), 1, classifier)
    losses = {}
    for slide in (one for one in slides if one.split == "val"):
        x = torch.from_numpy(slide.tokens().astype(np.float32))[None]
        share = (
            classifier(encoder(x, torch.from_numpy(slide.p)[None]))
            .softmax(-1)[0]
            .detach()
        )
        wrong = -share[slides.classes.index(slide.label)].log()
        losses.setdefault(slide.label, []).append(wrong.item())
    expected = np.mean([np.mean(each) for each in losses.values()])
    assert seen.loss == pytest.approx(expected, rel=1e-5)
