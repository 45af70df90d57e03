"""After a power cut at any moment the work goes on, and ends as if there was none."""

import dataclasses
import random
import sys

import numpy as np
import pytest
import torch

from spt_core import encode_slide, read_tokens
from spt_core.files import written_whole
from spt_core.learning.training import resume, train
from spt_core.tokens.writing import PartialFeatures
from spt_core.training.run_folder import RunFolder
from tests.attack.power_cut import laid_out, watched
from tests.core.learning.regions import write_region_cohort
from tests.core.learning.runs import assert_bitwise, tiny
from tests.core.patches.conftest import SETTINGS, make_slide
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
    [3, pytest.param(None, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
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
