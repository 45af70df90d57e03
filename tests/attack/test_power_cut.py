"""After a power cut at any moment the work goes on, and ends as if there was none."""

import dataclasses
import io
import json
import random
import sys
from pathlib import PurePath

import numpy as np
import pytest
import torch
from safetensors.torch import load

from spt_core import encode_slide, read_tokens
from spt_core.files import written_whole
from spt_core.learning.training import resume, train
from spt_core.patches.training import (
    PatchTrainSettings,
    resume_patches,
    train_patches,
)
from spt_core.studies.benchmark import benchmark
from spt_core.studies.study import study
from spt_core.tokens.writing import PartialFeatures
from spt_core.training.run_folder import RunFolder
from tests.attack.kills import TEMPORARY, contents, differences
from tests.attack.power_cut import laid_out, watched
from tests.core.learning.regions import write_region_cohort
from tests.core.learning.runs import assert_bitwise, tiny
from tests.core.patches.conftest import SETTINGS, make_slide
from tests.core.patches_training.made_tiles import write_tiles
from tests.core.studies.benchmarks import quick_settings, write_benchmark_cohort
from tests.core.studies.study_cohorts import study_of
from tests.events import run_through

# Which file a number of the system means is asked of /proc.
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
CPU = torch.device("cpu")
SETTINGS_8 = dataclasses.replace(SETTINGS, batch_size=8)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def some(states, count):
    """The last one, and others by chance; all where none are counted."""
    if count is None or len(states) <= count:
        return states
    return [*random.Random(0).sample(states[:-1], count - 1), states[-1]]


SLOW = [pytest.mark.slow, pytest.mark.timeout(1800)]
FEW_OR_ALL = pytest.mark.parametrize(
    "count",
    [3, pytest.param(None, marks=SLOW)],
)


def test_the_disk_loses_what_was_not_synced(tmp_path):
    """The model itself: a rename without a sync leaves an empty file."""
    with watched(tmp_path / "a") as disk:
        new = disk.folder / "new"
        new.write_bytes(b"text")
        new.rename(disk.folder / "careless")
        with written_whole(disk.folder / "careful") as temporary:
            temporary.write_bytes(b"text")
    assert any(state.get("careless") == b"" for state in disk.states)
    assert {state.get("careful") for state in disk.states} == {None, b"text"}


@FEW_OR_ALL
def test_encoding_goes_on_to_the_same_features(tmp_path, monkeypatch, count):
    slide = make_slide(tmp_path / "s.tif", 1200, 1000)
    with watched(tmp_path / "whole") as disk:
        append = PartialFeatures.append

        def looking(self, rows, x):
            append(self, rows, x)
            disk.look()

        monkeypatch.setattr(PartialFeatures, "append", looking)
        _, result = run_through(encode_slide(slide, disk.folder, SETTINGS_8))
        monkeypatch.undo()
    want = read_tokens(result.path)
    assert len(disk.states) > 5
    for i, state in enumerate(some(disk.states, count)):
        out = laid_out(state, tmp_path / f"cut{i}")
        _, result = run_through(encode_slide(slide, out, SETTINGS_8))
        have = read_tokens(result.path)
        assert np.array_equal(have.x, want.x), sorted(state)
        assert np.array_equal(have.xy, want.xy)
        assert [path.name for path in out.glob("*.h5*")] == ["s.h5"]


@FEW_OR_ALL
def test_training_goes_on_to_the_same_model(tmp_path, count):
    write_region_cohort(tmp_path, slides=18)
    with watched(tmp_path / "whole") as disk:
        _, want = run_through(train(tiny(tmp_path, disk.folder)))
    # Before the settings are on the disk there is no run to go on with.
    begun = [state for state in disk.states if "config.yaml" in state]
    assert len(begun) > 20
    for i, state in enumerate(some(begun, count)):
        run = laid_out(state, tmp_path / f"cut{i}")
        _, have = run_through(resume(run))
        assert_bitwise(have.best, want.best)
        assert_bitwise(have.last, want.last)
        rows, all_rows = (RunFolder(r.run).read_metrics() for r in (have, want))
        assert [(r["step"], r["loss"]) for r in rows] == [
            (r["step"], r["loss"]) for r in all_rows
        ]


# Benchmarks, studies and training of patch encoders: folders of many files.

TWO_OR_MANY = pytest.mark.parametrize("count", [2, pytest.param(40, marks=SLOW)])


def json_of(content):
    return json.loads(content.decode())


def arrays_of(content):
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return [file[name] for name in file.files]


def checkpoint_of(content):
    return torch.load(io.BytesIO(content), weights_only=True)


# What later runs and other programs rely on: whole, or not there.
WHOLE = {
    "state.json": json_of,
    "folds.json": json_of,
    "run.json": json_of,
    "slides.json": json_of,
    "patients.key": lambda content: len(content.strip()) in (32, 64) or 1 / 0,
    ".npz": arrays_of,
    ".safetensors": load,
    "checkpoint.pt": checkpoint_of,
    "checkpoint-before.pt": checkpoint_of,
}


def assert_promises(disk):
    """In each state that a cut could leave; the kinds of files that were looked at."""
    seen = set()
    for state in disk.states:
        for path, content in state.items():
            name = PurePath(path).name
            read = WHOLE.get(name) or WHOLE.get(PurePath(path).suffix)
            if read and not TEMPORARY.fullmatch(name) and (path, content) not in seen:
                read(content)
                seen.add((path, content))
    keys: dict[str, bytes] = {}
    for state in disk.states:
        for path, content in state.items():
            if PurePath(path).name == "patients.key":
                assert keys.setdefault(path, content) == content, "it was drawn twice"
        if "folds.json" in state:
            assert "patients.key" in state, "folds whose patients nobody knows again"
    return {PurePath(path).name for path, _ in seen}


def found_in(folder, began):
    """Settings of a run that goes on still say where it began."""
    return {
        place: value.replace(str(began), "") if isinstance(value, str) else value
        for place, value in contents(folder).items()
    }


def goes_on(disk, count, work, tmp_path):
    """Work that a cut ended leaves what it leaves without one."""
    want = found_in(disk.folder, disk.folder)
    for i, state in enumerate(some(disk.states, count)):
        out = laid_out(state, tmp_path / f"cut{i}" / disk.folder.name)
        work(out)
        found = differences(want, found_in(out, disk.folder))
        assert not found, (sorted(state), found)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    return write_benchmark_cohort(folder, patients=12, slides_each=1, sites=2)


@TWO_OR_MANY
def test_a_benchmark_goes_on_to_the_same_tables(tmp_path, cohort, count):
    def work(out):
        changes = {"methods": ("mean", "abmil"), "folds": 2, "steps": 4}
        run_through(benchmark(quick_settings(cohort, out, **changes)))

    with watched(tmp_path / "whole" / "out") as disk:
        work(disk.folder)
    assert "state.json" in assert_promises(disk)
    goes_on(disk, count, work, tmp_path)


@TWO_OR_MANY
def test_a_study_goes_on_to_the_same_model(tmp_path, cohort, count):
    def work(out):
        run_through(study(study_of(cohort, out)))

    with watched(tmp_path / "whole" / "out") as disk:
        work(disk.folder)
    kept = {"state.json", "folds.json", "patients.key", "model.safetensors"}
    assert assert_promises(disk) >= kept
    for state in disk.states:
        if json_of(state.get("state.json", b"{}")).get("status") == "finished":
            assert state.keys() >= kept | {"report/RESULT.md"}
    goes_on(disk, count, work, tmp_path)


@TWO_OR_MANY
def test_training_patches_goes_on_to_the_same_encoder(tmp_path, count):
    write_tiles(tmp_path, patients=6)

    def work(out):
        if (out / "config.yaml").exists():
            return run_through(resume_patches(out))
        settings = PatchTrainSettings(
            sources=(str(tmp_path / "tiles"),),
            tables=(str(tmp_path / "tiles.csv"),),
            out=str(out),
            method="simclr",
            arch="small-random",
            init="none",
            patch_size=48,
            mpp=0.5,
            view_size=40,
            epochs=3,
            batch_size=16,
            checkpoint_steps=2,
            device="cpu",
        )
        return run_through(train_patches(settings))

    with watched(tmp_path / "whole" / "out") as disk:
        work(disk.folder)
    assert assert_promises(disk) >= {"checkpoint.pt", "patients.key", "state.json"}
    goes_on(disk, count, work, tmp_path)


def test_two_cuts_in_a_row_while_a_checkpoint_is_saved_lose_none(tmp_path):
    def content(step):
        return {"step": step, "w": torch.arange(100) * step}

    folder = tmp_path / "run"
    RunFolder(folder).save_checkpoint(content(1))
    for cut in range(2):
        with watched(folder) as disk:
            disk._names[folder.stat().st_ino] = {
                path.name: path.stat().st_ino for path in folder.iterdir()
            }
            for path in folder.iterdir():
                disk._contents[path.stat().st_ino] = path.read_bytes()
            RunFolder(folder).save_checkpoint(content(2 + cut))
        # The new sum is listed, and its checkpoint has not got its name yet.
        sums = [state.get("checkpoint.sha256") for state in disk.states]
        listed = disk.states[next(i for i, s in enumerate(sums) if s != sums[0])]
        assert listed["checkpoint.sha256"]
        folder = laid_out(listed, tmp_path / f"cut{cut}")
        assert RunFolder(folder).load_checkpoint(CPU)["step"] == 1
