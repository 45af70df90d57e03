"""Tests of the torch parts."""

import pytest
import torch

from spt_core.learning.training import train
from tests.core.learning.regions import write_region_cohort
from tests.core.learning.runs import tiny
from tests.events import run_through as finish


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Models here are tiny: threads only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    write_region_cohort(folder, slides=18)
    return folder


@pytest.fixture(scope="package")
def undisturbed(cohort, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    return finish(train(tiny(cohort, out)))
