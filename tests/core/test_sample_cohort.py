"""Sample cohorts: labels, patients and sites dealt so that none tells another."""

import csv
import itertools
from collections import Counter, defaultdict

import numpy as np
import openslide
import pytest

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.sample import TUMOURS, write_sample_cohort
from spt_core.sample.cohort import make_cases, make_sites
from spt_core.sample.layout import plan
from spt_core.sample.tissue import TissueClass


@pytest.fixture(scope="module")
def cases():
    return make_cases(90, 4096, seed=0)


def test_kinds_are_balanced(cases):
    count = Counter(case.label for case in cases)
    assert set(count) == set(TUMOURS)
    assert max(count.values()) - min(count.values()) <= 3


def test_a_patient_has_one_to_three_slides_one_label_and_one_site(cases):
    patients = defaultdict(list)
    for case in cases:
        patients[case.patient].append(case)
    sizes = {len(own) for own in patients.values()}
    assert sizes == {1, 2, 3}
    for own in patients.values():
        assert len({c.label for c in own}) == 1
        assert len({c.site for c in own}) == 1


def test_every_site_sees_every_kind_about_as_often(cases):
    crossed = Counter((case.label, case.site) for case in cases)
    sites = {case.site for case in cases}
    assert len(sites) == 5
    assert len(crossed) == 3 * 5
    assert max(crossed.values()) <= 2 * min(crossed.values())


def test_slides_of_a_site_look_alike_and_sites_do_not(cases):
    by_site = defaultdict(list)
    for case in cases:
        stain = (*case.spec.site.hematoxylin, *case.spec.site.eosin)
        by_site[case.site].append(np.log(stain))
        assert case.spec.site.glass == make_sites(5, 0)[ord(case.site[-1]) - 97].glass
    within = np.mean([np.std(own, axis=0).mean() for own in by_site.values()])
    between = np.std([np.mean(own, axis=0) for own in by_site.values()], axis=0).mean()
    assert between > 3 * within
    assert within > 0


def test_names_say_nothing_about_the_label(cases):
    # Neither runs of one label nor labels that come in turn.
    same = np.mean([a.label == b.label for a, b in itertools.pairwise(cases)])
    assert 0.15 < same < 0.5
    assert len({case.slide for case in cases}) == 90
    assert len({case.spec.seed for case in cases}) == 90


@pytest.mark.parametrize("slides", [1, 2, 3, 7])
def test_small_cohorts_have_just_so_many_slides(slides):
    cases = make_cases(slides, 4096, seed=1)
    assert len(cases) == slides
    assert len({c.label for c in cases}) == min(slides, 3)


def test_the_command_writes_a_cohort(tmp_path, capsys):
    out = tmp_path / "cohort"
    options = ["--slides", "2", "--size", "4096", "--seed", "4", "--workers", "1"]
    assert main(["sample", str(out), *options]) == 0
    assert "2 slides" in capsys.readouterr().out
    with (out / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["slide", "label", "patient", "site"]
    for row in rows:
        with openslide.OpenSlide(out / f"{row['slide']}.tif") as slide:
            assert slide.dimensions == (4096, 4096)
        assert (out / f"{row['slide']}.truth.png").exists()
        assert (out / f"{row['slide']}.truth.json").exists()
    # A second run would mix two cohorts.
    assert main(["sample", str(out), *options]) == 1
    assert "already holds a cohort" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [{"slides": 0}, {"size": 17}, {"sites": 0}, {"sites": 99}]
)
def test_impossible_cohorts_are_refused(tmp_path, options):
    with pytest.raises(InputError, match="choose"):
        next(write_sample_cohort(tmp_path / "x", **options))


def tumour_share(case):
    classes = plan(case.spec).classes
    tissue = classes != TissueClass.GLASS
    return (classes == TUMOURS[case.label]).sum() / tissue.sum()


def test_tumour_is_the_minority_or_the_majority_of_the_tissue():
    few = make_cases(6, 4096, seed=2)
    many = make_cases(6, 4096, seed=2, tumour="majority")
    assert few == make_cases(6, 4096, seed=2, tumour="minority")
    for one, other in zip(few, many, strict=True):
        assert (one.label, one.patient, one.site) == (
            other.label,
            other.patient,
            other.site,
        )
        assert 0.06 < tumour_share(one) < 0.17
        assert 0.54 < tumour_share(other) < 0.81
    with pytest.raises(InputError, match="minority or majority"):
        make_cases(1, 4096, seed=0, tumour="all")
