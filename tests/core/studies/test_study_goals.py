"""Every goal of a study ends in a model; what it says of how it was made is so."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from spt_core.events import Progress, finish
from spt_core.learning.model_card import read_model_card
from spt_core.patches.encoder_card import read_encoder_card
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.study import study
from spt_core.studies.study_folder import Request, StudyFolder
from spt_core.studies.study_patches import choose_patch_run
from spt_core.studies.study_settings import StudySettings
from tests.core.studies.benchmarks import write_benchmark_cohort
from tests.core.studies.study_cohorts import (
    of_slides,
    study_of,
    until,
    wait_for,
    without_labels,
)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    return write_benchmark_cohort(folder, patients=16, slides_each=1, sites=2)


@pytest.fixture(scope="module")
def pretrained(cohort, tmp_path_factory):
    out = tmp_path_factory.mktemp("pretrained")
    return finish(study(without_labels(cohort, out)))


@pytest.mark.parametrize(
    ("goal", "once", "method", "says"),
    [
        ("pretrain", False, "ssspt-simclr", "Pre-training was repeated in each fold"),
        ("both", False, "pretrained-classify", "Pre-training was repeated in each"),
        ("both", True, "finetune", "Pre-training was done once, on all slides"),
        ("finetune", False, "finetune", ""),
    ],
)
def test_each_goal_ends_in_a_model_and_a_table(
    cohort, pretrained, tmp_path, goal, once, method, says
):
    init = str(pretrained.model) if goal == "finetune" else None
    settings = study_of(cohort, tmp_path, goal, pretrain_once=once, init=init)
    result = finish(study(settings))
    folder = StudyFolder(tmp_path)
    assert (result.status, result.model) == ("finished", folder.model)
    found = json.loads((folder.report / "result.json").read_text())
    assert [row["method"] for row in found["rows"]] == [method, "mean", "max", "abmil"]
    said = " ".join(result.says)
    assert says in said
    assert ("Pre-training" in said) == bool(says)
    assert f"the goal `{goal}`" in (folder.path / "README.md").read_text()
    stages = folder.state().stages
    if goal == "both":
        before = stages.index("pretrain") < stages.index("evaluate")
        assert before is once
    card = read_model_card(folder.model)
    assert card.training.slides == 16
    assert bool(card.classes) == (goal != "pretrain")
    if goal == "pretrain":  # to watch, beside the site; the labels are not learned
        assert card.metrics.knn is not None
        assert not card.metrics.knn_held_out
        assert not card.training.choice_fingerprints
    # The folds begin from what the sentence says.
    bench = BenchmarkSettings.read(folder.run(1) / "evaluation/benchmark.yaml")
    assert bench.init == (
        str(folder.run(1) / "before/last.safetensors") if once else init
    )


def test_pretraining_once_does_not_see_the_part_test(cohort, tmp_path):
    """The labels' own split holds, and the sentence says so."""
    lines = (cohort / "labels.csv").read_text().splitlines()
    parts = ["split", *(["train", "test"][n // 2 % 2] for n in range(16))]
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "".join(f"{line},{part}\n" for line, part in zip(lines, parts, strict=True))
    )
    settings = study_of(
        cohort, tmp_path / "out", "both", pretrain_once=True, labels=str(labels)
    )
    result = finish(study(settings))
    assert "done once, without the slides of the part 'test'" in " ".join(result.says)
    before = StudyFolder(tmp_path / "out").run(1) / "before/last.safetensors"
    for model in (before, result.model):
        assert read_model_card(model).training.slides == 8


def test_what_was_stopped_goes_on_to_its_end(cohort, tmp_path):
    steps = 120
    whole = finish(study(without_labels(cohort, tmp_path / "whole", steps=steps)))
    folder = StudyFolder(tmp_path / "study")
    wanted = without_labels(cohort, folder.path, steps=steps)
    events = study(wanted)
    until(events, "train", folder)
    folder.ask(Request.KEEP_LAST)
    wait_for(lambda: folder.state().request)
    assert finish(events).status == "stopped"
    assert read_model_card(folder.model).metrics.step < steps
    result = finish(study(wanted))
    assert (result.status, result.run) == ("finished", 1)
    ours, theirs = load_file(folder.model), load_file(whole.model)
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.slow
@pytest.mark.parametrize("once", [False, True])
def test_what_is_left_is_handed_over_with_its_table(cohort, tmp_path, once):
    """The scores are those of the folds, as of a study that was never left."""
    folder = StudyFolder(tmp_path / "study")
    settings = study_of(cohort, folder.path, "both", pretrain_once=once, steps=4)
    events = study(settings)
    until(events, "train", folder)
    events.close()
    saved = torch.load(folder.run(1) / "model/checkpoint.pt", weights_only=True)
    result = finish(study(settings, keep=Request.KEEP_LAST))
    assert (result.status, result.run) == ("stopped", 1)
    assert read_model_card(folder.model).metrics.step == saved["step"]
    whole = finish(study(replace(settings, out=str(tmp_path / "whole"))))
    ours, theirs = (one / "predictions.csv" for one in (folder.report, whole.report))
    assert ours.read_text() == theirs.read_text()


# patch encoders


def of_patches(slides, out, epochs=1):
    return of_slides(slides, out, "patches", patch_epochs=epochs, batch_size=8)


def test_a_patch_encoder_of_ones_own(slides, tmp_path):
    settings = of_patches(slides, tmp_path / "out")
    result = finish(study(settings))
    folder = StudyFolder(tmp_path / "out")
    assert (result.status, result.model) == ("finished", folder.encoder)
    assert "patch encoder was trained on 2 slides" in result.says[0]
    assert "Nothing is claimed" in result.says[0]
    state = folder.state()
    assert (state.stages, state.run) == (("check", "train", "report"), 1)
    events, _ = folder.read_events()
    assert [one["run"] for one in events if one["event"] == "patchepoch"] == [1]
    assert "`encoder.safetensors`" in (folder.path / "README.md").read_text()
    assert read_encoder_card(folder.encoder).training.slides == 2
    assert finish(study(settings)).says == ("Nothing is new since run 1.",)
    # Another study reads its slides through it.
    other = of_slides(slides, tmp_path / "other")
    encode = replace(other.encode, encoder=str(folder.encoder))
    assert finish(study(replace(other, encode=encode))).status == "finished"


def begun_patches(slides, out):
    """A study that has taken its first step, and would take many."""
    folder = StudyFolder(out)
    events = study(of_patches(slides, out, epochs=2000))
    for event in events:
        if isinstance(event, Progress) and "loss" in event.message:
            return events, folder
    raise AssertionError("it ended before")


def test_patch_training_is_stopped_and_its_encoder_kept(slides, tmp_path):
    events, folder = begun_patches(slides, tmp_path / "out")
    assert folder.state().run == 1
    folder.ask(Request.KEEP_BEST)
    began = time.monotonic()
    result = finish(events)
    assert time.monotonic() - began < 10
    assert (result.status, result.model) == ("stopped", folder.encoder)
    assert "It was stopped on request." in result.says[1]
    assert read_encoder_card(folder.encoder).training.slides == 2


@pytest.mark.slow
def test_patch_training_that_is_left_is_kept(slides, tmp_path):
    events, folder = begun_patches(slides, tmp_path / "out")
    events.close()
    saved = torch.load(folder.run(1) / "patches/checkpoint.pt", weights_only=True)
    result = finish(study(StudySettings.read(folder.settings), keep=Request.KEEP_LAST))
    assert (result.status, result.model) == ("stopped", folder.encoder)
    assert f"It took {saved['step']} steps. It was stopped" in result.says[1]


@pytest.mark.slow
def test_patch_training_is_discarded(slides, tmp_path):
    events, folder = begun_patches(slides, tmp_path / "out")
    folder.ask(Request.DISCARD)
    assert finish(events).status == "discarded"
    assert not folder.run(1).exists()


def test_a_slide_that_is_gone_begins_another_patch_run(slides, tmp_path):
    settings = of_patches(slides, tmp_path / "out")
    folder = StudyFolder(tmp_path / "out")
    folder.begin(settings)
    assert choose_patch_run(folder, settings).number == 1
    assert choose_patch_run(folder, settings).number == 1
    sorted(slides.iterdir())[0].unlink()
    run = choose_patch_run(folder, settings)
    assert (run.number, len(run.slides)) == (2, 1)
    assert "slides of before are gone: 1" in run.notes[0]
