"""No patient and no site on both sides, whatever the cohort; leaks are refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spt_core.errors import InputError
from spt_core.studies.divisions import (
    Division,
    DivisionKind,
    Divisions,
    check_divisions,
    divide_as_given,
    divide_by_patient,
    divide_by_site,
)
from spt_core.studies.folds import patient_folds
from spt_core.studies.set_aside import MIN_PATIENTS
from tests.core.studies.cohorts import made_cohort, plain_cohort

PARTS = ("train", "val", "test")


@st.composite
def cohorts(draw):
    """Slides in any order; some without a label, a patient or a site."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    patients = draw(st.integers(6, 40))
    sites = draw(st.integers(2, 5))
    classes = draw(st.integers(2, 4))
    mixed = draw(st.sampled_from([0.0, 0.1, 0.5]))
    missing = draw(st.sampled_from([0.0, 0.15]))
    rows = []
    for patient in range(patients):
        label, site = rng.integers(classes), rng.integers(sites)
        for _ in range(rng.integers(1, 4)):
            own_label = rng.integers(classes) if rng.random() < mixed else label
            own_site = rng.integers(sites) if rng.random() < mixed else site
            rows.append(
                {
                    "label": None if rng.random() < missing else "abcd"[own_label],
                    "patient": None if rng.random() < missing else f"p{patient}",
                    "site": None if rng.random() < missing else f"site{own_site}",
                }
            )
    return made_cohort([rows[i] for i in rng.permutation(len(rows))])


def check_by_hand(cohort, divisions, *, sites=False):
    """The promises, slide by slide."""
    for one in divisions.folds:
        parts = [[cohort[int(i)] for i in one.parts()[part]] for part in PARTS]
        numbers = np.concatenate([one.parts()[part] for part in PARTS])
        assert len(set(numbers.tolist())) == len(numbers)
        assert all(slide.label for part in parts for slide in part)
        for part in PARTS:
            assert (np.diff(one.parts()[part]) > 0).all()
        for i, j in ((0, 1), (0, 2), (1, 2)):
            assert not {s.patient for s in parts[i] if s.patient} & {
                s.patient for s in parts[j]
            }
        if sites:
            learned = {s.site for part in parts[:2] for s in part}
            assert not learned & {s.site for s in parts[2]}
            assert len({s.site for s in parts[2]}) == 1
            assert None not in learned
        assert {s.label for s in parts[2]} <= {s.label for s in parts[0]}
        if parts[1]:
            assert {s.label for s in parts[1]} <= {s.label for s in parts[0]}


def is_possible(divide, cohort, **options):
    """Whether there are patients, sites and classes enough; a leak is an error."""
    try:
        divide(cohort, **options)
    except InputError as error:
        why = ("fewer than the", "no slide to learn from", "one class only",
               "leave one site out", "No site can be left out")  # fmt: skip
        if any(one in str(error) for one in why):
            return False
        raise
    return True


QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)


@QUICK
@given(cohorts(), st.integers(2, 5), st.integers(0, 3))
def test_no_patient_is_on_both_sides(cohort, folds, seed):
    options = {"folds": folds, "repeats": 2, "seed": seed}
    assume(is_possible(divide_by_patient, cohort, val_share=0, **options))
    found = divide_by_patient(cohort, **options)
    check_by_hand(cohort, found)
    labelled = {i for i, slide in enumerate(cohort) if slide.label}
    for repeat in range(2):
        asked = [one.test for one in found.folds if one.repeat == repeat]
        assert sorted(np.concatenate(asked).tolist()) == sorted(labelled)
    for one in found.folds:  # nothing is lost
        assert len(one.train) + len(one.val) + len(one.test) == len(labelled)


@QUICK
@given(cohorts(), st.integers(0, 3))
def test_no_site_and_no_patient_is_on_both_sides(cohort, seed):
    assume(is_possible(divide_by_site, cohort, val_share=0))
    found = divide_by_site(cohort, seed=seed)
    check_by_hand(cohort, found, sites=True)
    for one in found.folds:  # every labelled slide of the site is asked
        site = cohort[int(one.test[0])].site
        every = [i for i, s in enumerate(cohort) if s.label and s.site == site]
        assert one.test.tolist() == every


def test_the_asked_parts_are_those_of_an_evaluation():
    cohort = plain_cohort(patients=30, each=2)
    rows = [
        {"patient": "p3"},
        *({"label": s.label, "patient": s.patient} for s in cohort),
    ]
    cohort = made_cohort(rows)  # the first slide has no label
    found = divide_by_patient(cohort, folds=5, repeats=3)
    labelled = cohort.subset(range(1, len(cohort)))
    y, patients = labelled.class_numbers(), labelled.patients()
    for one in found.folds:
        expected = patient_folds(y, patients, 5, one.repeat)[one.fold][1]
        np.testing.assert_array_equal(one.test, expected + 1)
    assert found.kind is DivisionKind.PATIENT
    assert found.repeats == 3
    assert len(found.folds) == 15


def test_a_fifth_of_each_class_chooses():
    cohort = made_cohort(
        [{"label": "ab"[i % 5 == 0], "patient": f"p{i // 2}"} for i in range(200)]
    )
    for one in divide_by_patient(cohort, folds=5).folds:
        for label in "ab":
            counts = {
                part: len({cohort[int(i)].patient for i in one.parts()[part]
                           if cohort[int(i)].label == label})
                for part in ("train", "val")
            }  # fmt: skip
            share = counts["val"] / (counts["train"] + counts["val"])
            assert 0.1 <= share <= 0.3
    again = divide_by_patient(cohort, folds=5)
    first = divide_by_patient(cohort, folds=5)
    assert all(
        (a.val == b.val).all() for a, b in zip(again.folds, first.folds, strict=True)
    )
    other = divide_by_patient(cohort, folds=5, repeats=2)
    assert other.folds[0].val.tolist() != other.folds[5].val.tolist()


def test_too_few_patients_of_a_class_choose_nothing():
    rows = [{"label": "a", "patient": f"p{i}"} for i in range(20)]
    rows += [{"label": "b", "patient": f"q{i}"} for i in range(MIN_PATIENTS)]
    found = divide_by_patient(made_cohort(rows), folds=5)
    assert all(len(one.val) == 0 for one in found.folds)
    (remark,) = found.remarks
    assert "Class b has in 5 of 5 folds fewer than 5 patients to learn from" in remark
    rows += [{"label": "b", "patient": f"r{i}"} for i in range(5)]
    found = divide_by_patient(made_cohort(rows), folds=5)
    assert all(len(one.val) > 0 for one in found.folds)
    assert found.remarks == ()
    aside = divide_by_patient(made_cohort(rows), folds=5, val_share=0)
    assert all(len(one.val) == 0 for one in aside.folds)
    assert aside.remarks == ()
    with pytest.raises(InputError, match="share to choose by"):
        divide_by_patient(made_cohort(rows), folds=5, val_share=1)


@pytest.mark.parametrize("blank", [None, ""])
def test_a_slide_without_a_patient_is_a_patient_of_its_own(blank):
    rows = [{"label": "ab"[i % 2], "patient": blank} for i in range(40)]
    found = divide_by_patient(made_cohort(rows), folds=4)
    assert [len(one.test) for one in found.folds] == [10] * 4
    assert all(len(one.val) == 6 for one in found.folds)


def test_more_folds_than_patients_are_refused():
    rows = [{"label": "ab"[i >= 24], "patient": f"p{i // 3}"} for i in range(36)]
    with pytest.raises(InputError, match="Class 'b' has 4 patients, fewer than the 6"):
        divide_by_patient(made_cohort(rows), folds=6)
    with pytest.raises(InputError, match="2 folds or more"):
        divide_by_patient(made_cohort(rows), folds=1)


def leaking(cohort, kind=DivisionKind.PATIENT, **parts):
    numbers = {name: np.array(parts.get(name, []), np.int64) for name in PARTS}
    return Divisions(kind, (Division(0, 3, **numbers),))


def test_a_planted_leak_is_caught():
    cohort = plain_cohort(patients=12, each=2)
    found = divide_by_patient(cohort, folds=3, val_share=0)
    check_divisions(cohort, found)
    one = found.folds[1]
    for part in ("train", "test"):
        moved = one.parts()["test" if part == "train" else "train"][:1]
        spoiled = replace(
            one,
            train=np.append(one.train, moved) if part == "train" else one.train[1:],
            test=np.append(one.test, moved) if part == "test" else one.test[1:],
        )
        patient = cohort[int(moved[0])].patient
        with pytest.raises(
            InputError, match=rf"Fold 1: patient {patient} has slides in"
        ):
            check_divisions(cohort, replace(found, folds=(spoiled,)))
    val_leak = leaking(cohort, train=[0, 2, 4, 6], val=[5], test=[8, 10])
    with pytest.raises(InputError, match="patient p2 has slides in train and in val"):
        check_divisions(cohort, val_leak)
    with pytest.raises(InputError, match="slide s004 is in train and in test"):
        check_divisions(cohort, leaking(cohort, train=[0, 2, 4], test=[4, 10]))


def test_a_site_on_both_sides_is_caught_where_sites_are_left_out():
    rows = [
        {"label": "ab"[i % 2], "patient": f"p{i}", "site": f"site{i // 4}"}
        for i in range(12)
    ]
    cohort = made_cohort(rows)
    parts = {"train": [0, 1, 2, 4, 5], "test": [3, 6]}
    check_divisions(cohort, leaking(cohort, **parts))
    with pytest.raises(InputError, match="site site0 has slides in train and in test"):
        check_divisions(cohort, leaking(cohort, DivisionKind.SITE, **parts))
    # Learning and choosing may share a site.
    shared = {"train": [0, 1, 4, 5], "val": [2, 3], "test": [8, 9]}
    check_divisions(cohort, leaking(cohort, DivisionKind.SITE, **shared))


def test_a_class_that_cannot_be_learned_is_refused():
    cohort = plain_cohort(patients=6, classes="abc")
    with pytest.raises(InputError, match="no slide to learn from has the label c"):
        check_divisions(cohort, leaking(cohort, train=[0, 1], test=[2]))
    with pytest.raises(InputError, match="one class only"):
        check_divisions(cohort, leaking(cohort, train=[0], test=[3]))


def test_sites_are_left_out_one_by_one():
    rows = [
        {"label": "ab"[i % 2], "patient": f"p{i // 2}", "site": f"site{i // 16}"}
        for i in range(48)
    ]
    rows[0]["site"] = "site2"  # patient p0 is at two sites
    rows.append({"label": "a", "patient": "p99"})
    rows.append({"label": "c", "patient": "p100", "site": "site2"})
    rows.append({"label": "c", "patient": "p101", "site": "site2"})
    cohort = made_cohort(rows)
    found = divide_by_site(cohort)
    # Without site2 nothing of class c could be learned.
    assert [cohort[int(one.test[0])].site for one in found.folds] == ["site0", "site1"]
    first = found.folds[0]
    assert 0 not in np.concatenate([first.train, first.val])
    remarks = " ".join(found.remarks)
    assert (
        "Site site2 is not tested: without it there is no slide of class c" in remarks
    )
    assert "site of 1 slides is not known" in remarks
    assert "1 patients have slides at several sites" in remarks


def test_leaving_out_a_site_needs_two():
    with pytest.raises(InputError, match="the labels name no site"):
        divide_by_site(plain_cohort())
    rows = [{"label": "ab"[i % 2], "site": "x"} for i in range(9)]
    with pytest.raises(InputError, match="only the site 'x'"):
        divide_by_site(made_cohort(rows))
    rows = [{"label": "ab"[i % 2], "site": "xy"[i % 2]} for i in range(9)]
    with pytest.raises(InputError, match="No site can be left out"):
        divide_by_site(made_cohort(rows))


def given_rows(splits):
    return [
        {"label": "ab"[i % 2], "patient": f"p{i}", "split": splits[i % len(splits)]}
        for i in range(36)
    ]


def test_the_given_split_is_kept_with_its_val():
    splits = ["train", "train", "train", "train", None, None, "val", "val", "test",
              "test", "train", "train"]  # fmt: skip
    cohort = made_cohort(given_rows(splits))
    (one,) = divide_as_given(cohort).folds
    for part in PARTS:
        names = ("train", None) if part == "train" else (part,)
        expected = [i for i, slide in enumerate(cohort) if slide.split in names]
        assert one.parts()[part].tolist() == expected


def test_a_split_without_val_gets_one_by_patient():
    cohort = made_cohort(
        given_rows(["train", "train", "train", "train", "test", "test"])
    )
    (one,) = divide_as_given(cohort).folds
    assert one.test.tolist() == [i for i, s in enumerate(cohort) if s.split == "test"]
    assert len(one.val) == 4
    check_by_hand(cohort, divide_as_given(cohort))


def test_a_split_that_leaks_or_is_missing_is_refused():
    rows = given_rows(["train", "train", "train", "train", "test", "test"])
    rows[4]["patient"] = "p0"
    with pytest.raises(InputError, match="patient p0 has slides in train and in test"):
        divide_as_given(made_cohort(rows))
    with pytest.raises(InputError, match="no split"):
        divide_as_given(plain_cohort())
    with pytest.raises(InputError, match="nothing to ask"):
        divide_as_given(made_cohort(given_rows(["train", "val"])))
