"""The made-up cohort and models of the tests of insight, and painted slides."""

import os

import pytest

from spt_core.events import finish
from spt_core.sample import cohort as cohort_module
from spt_core.sample.cohort import write_sample_cohort
from tests.core.insight.conftest import _one_thread, mean_model, model_path, trained
from tests.core.studies.study_cohorts import painted_slides

__all__ = ["_one_thread", "mean_model", "model_path", "trained"]


@pytest.fixture(autouse=True)
def _own_priority(monkeypatch):
    """Commands in the tests' own process do not lower it for the tests to come."""
    monkeypatch.setattr("spt_core.commands.study.lower_priority", lambda: "unchanged")


@pytest.fixture(scope="session")
def painted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("painted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cohort_module, "SMALLEST", 1024)
        finish(write_sample_cohort(folder, slides=3, size=1536, workers=1))
    return folder


@pytest.fixture
def slides(painted, tmp_path):
    """Two of the painted slides."""
    folder = tmp_path / "slides"
    folder.mkdir()
    for path in painted_slides(painted)[:2]:
        os.link(path, folder / path.name)
    return folder
