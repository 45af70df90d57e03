"""A window reads of a study what its folds found, and nothing of training slides."""

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from spt_core.errors import InputError
from spt_core.events import finish
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import open_cohort
from spt_core.studies.paired import Difference
from spt_core.studies.study import study
from spt_core.studies.study_report import read_study_report
from spt_core.studies.study_settings import StudySettings
from spt_core.studies.study_words import Comparison
from tests.core.studies.benchmarks import write_benchmark_cohort


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    cohort = write_benchmark_cohort(folder, patients=16, slides_each=1, sites=2)
    settings = StudySettings(
        out=str(folder / "out"),
        goal="classify",
        features=str(cohort / "features"),
        labels=str(cohort / "labels.csv"),
        folds=2,
        steps=4,
        workers=1,
        device="cpu",
    )
    finish(study(settings))
    return cohort, folder / "out"


def test_it_reads_what_the_folds_found(done):
    cohort, out = done
    found = read_study_report(out)
    plain = json.loads((out / "report" / "result.json").read_text())
    assert list(found.says) == plain["says"]
    assert [row.method for row in found.rows] == ["classify", "mean", "max", "abmil"]
    slides = {
        pseudonym(slide.fingerprint()) for slide in open_cohort(cohort / "features")
    }
    assert {one.slide for one in found.answers} == slides
    # The matrix is scikit-learn's of the written predictions, and the report's own.
    with (out / "report" / "predictions.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["method"], row["probe"]) == ("classify", "own classifier")
        ]
    reference = confusion_matrix(
        [row["label"] for row in rows],
        [row["answer"] for row in rows],
        labels=list(found.classes),
    )
    np.testing.assert_array_equal(found.confusion(), reference)
    results = json.loads((out / "report" / "results.json").read_text())
    own = next(
        row
        for row in results["rows"]
        if (row["method"], row["probe"]) == ("classify", "own classifier")
    )
    np.testing.assert_array_equal(found.confusion(), own["confusion"])
    assert found.reliability[:, 2].sum() == len(slides)
    assert found.site_knn is not None
    assert found.class_knn is not None
    assert found.model is not None
    assert found.html is not None


def test_the_most_wrong_slide_comes_first(done):
    found = read_study_report(done[1])
    for label in found.classes:
        for said in found.classes:
            listed = found.slides_of(label, said)
            share = [one.shares[found.classes.index(label)] for one in listed]
            assert share == sorted(share)
            count = found.confusion()[
                found.classes.index(label), found.classes.index(said)
            ]
            assert len(listed) == count


def test_without_a_result_it_says_so(tmp_path):
    with pytest.raises(InputError, match="no result yet"):
        read_study_report(tmp_path)


def test_a_difference_that_chance_may_make_is_not_claimed():
    """The window knows these words; see its result_words."""
    few = Difference(0.05, 0.01, 0.09, 0.3, 0.52)
    said = Comparison("abmil", "own classifier", few, shown=False).says
    assert said == (
        "No difference to attention pooling (ABMIL) is shown: +5 points "
        "(95 %: 1 to 9) can be chance (p = 0.52 after Holm)"
    )
    wide = Difference(0.05, -0.01, 0.09, 0.3, 0.52)
    assert "chance" not in Comparison("abmil", "linear", wide, shown=False).says
