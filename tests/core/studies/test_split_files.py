"""Split files of other tools, written here as those tools write them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from spt_core.errors import InputError
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import Cohort
from spt_core.studies.divisions import (
    divide_by_file,
    divide_by_patient,
    divide_by_site,
)
from spt_core.studies.split_files import read_splits, write_named_splits, write_splits
from tests.core.studies.cohorts import made_cohort, plain_cohort


def lines(path, *text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n")
    return path


def small_cohort():
    """Eight slides s0 to s7 of classes a and b; p0 and p1 have two each."""
    patients = ["p0", "p0", "p1", "p1", "p2", "p3", "p4", "p5"]
    labels = "aabbabab"
    return made_cohort(
        [
            {"name": f"s{i}", "label": labels[i], "patient": patients[i]}
            for i in range(8)
        ]
    )


def parts_of(split):
    return [" ".join(part) for part in (split.train, split.val, split.test)]


STAMP = {
    "splits": [
        {"train_patients": ["p0", "p1", "p2", "p3"], "test_patients": ["p5", "p4"]},
        {"train_patients": ["p4", "p5", "p1", "p0"], "test_patients": ["p3", "p2"]},
        {"train_patients": ["p2", "p3", "p4", "p5"], "test_patients": ["p0", "p1"]},
    ]
}


def test_stamp(tmp_path):
    path = lines(tmp_path / "splits.json", json.dumps(STAMP, indent=4))
    found = read_splits(path, small_cohort())
    assert found.remarks == ()
    assert [(one.repeat, one.fold) for one in found.splits] == [(0, 0), (0, 1), (0, 2)]
    assert parts_of(found.splits[0]) == ["s0 s1 s2 s3 s4 s5", "", "s6 s7"]
    assert parts_of(found.splits[2]) == ["s4 s5 s6 s7", "", "s0 s1 s2 s3"]
    folder = read_splits(tmp_path, small_cohort())
    assert folder == found


def test_clam(tmp_path):
    # pandas' index, then names under one another; shorter columns end in blanks.
    lines(
        tmp_path / "splits_0.csv",
        ",train,val,test",
        "0,s0,s4,s6",
        "1,s1,s5,s7",
        "2,s2,,",
        "3,s3,,",
    )
    lines(
        tmp_path / "splits_1.csv",
        ",train,val,test",
        "0,s4,s6,s0",
        "1,s5,s7,s1",
        "2,,,s2",
        "3,,,s3",
    )
    lines(tmp_path / "splits_0_descriptor.csv", ",train,val,test", "a,2,1,1", "b,2,1,1")
    found = read_splits(tmp_path, small_cohort())
    assert [(one.repeat, one.fold) for one in found.splits] == [(0, 0), (0, 1)]
    assert parts_of(found.splits[0]) == ["s0 s1 s2 s3", "s4 s5", "s6 s7"]
    assert parts_of(found.splits[1]) == ["s4 s5", "s6 s7", "s0 s1 s2 s3"]
    alone = read_splits(tmp_path / "splits_1.csv", small_cohort())
    assert [one._replace(fold=1) for one in alone.splits] == [found.splits[1]]


BOOL = (
    ",train,val,test",
    "s0,True,False,False",
    "s1,True,False,False",
    "s2,True,False,False",
    "s3,True,False,False",
    "s4,False,True,False",
    "s5,False,True,False",
    "s6,False,False,True",
    "s7,False,False,True",
)


def test_clam_and_hipt_with_true_and_false(tmp_path):
    lines(tmp_path / "splits_0_bool.csv", *BOOL)
    found = read_splits(tmp_path, small_cohort())
    assert parts_of(found.splits[0]) == ["s0 s1 s2 s3", "s4 s5", "s6 s7"]
    # Beside the list of names, that one is read.
    lines(tmp_path / "splits_0.csv", ",train,val,test", "0,s0,,s6", "1,s2,,s7")
    found = read_splits(tmp_path, small_cohort())
    assert len(found.splits) == 1
    assert parts_of(found.splits[0]) == ["s0 s2", "", "s6 s7"]


def test_ten_and_more_folds_are_in_order(tmp_path):
    for fold in (0, 2, 10, 1):
        lines(
            tmp_path / f"splits_{fold}.csv",
            ",train,val,test",
            *(f"{i},s{i},," for i in range(4)),
            f"4,,,s{4 + fold % 4}",
        )
    found = read_splits(tmp_path, small_cohort())
    assert [parts_of(one)[2] for one in found.splits] == ["s4", "s5", "s6", "s6"]
    assert [(one.repeat, one.fold) for one in found.splits] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),  # asked again: a new drawing
    ]


def test_patho_bench(tmp_path):
    path = lines(
        tmp_path / "k=all.tsv",
        "case_id\tslide_id\tgrade\tfold_0\tfold_1",
        "p0\ts0\t0\ttrain\ttest",
        "p0\ts1\t0\ttrain\ttest",
        "p1\ts2\t1\ttrain\ttest",
        "p1\ts3\t1\ttrain\ttest",
        "p2\ts4\t0\ttrain\ttrain",
        "p3\ts5\t1\ttrain\ttrain",
        "p4\ts6\t0\ttest\tval",
        "p5\ts7\t1\ttest\ttest",
    )
    found = read_splits(path, small_cohort())
    assert parts_of(found.splits[0]) == ["s0 s1 s2 s3 s4 s5", "", "s6 s7"]
    assert parts_of(found.splits[1]) == ["s4 s5", "s6", "s0 s1 s2 s3 s7"]
    # Slide s7 is asked in both: they are two drawings of one fold each.
    assert [(one.repeat, one.fold) for one in found.splits] == [(0, 0), (1, 0)]
    cases = lines(
        tmp_path / "cases.csv",
        "case_id,fold_0",
        *(f"p{i},{'test' if i > 3 else 'train'}" for i in range(6)),
    )
    found = read_splits(cases, small_cohort())
    assert parts_of(found.splits[0]) == ["s0 s1 s2 s3 s4 s5", "", "s6 s7"]


@pytest.mark.parametrize("ending", ["", ".svs", ".h5", ".pt", ".ome.tiff"])
def test_names_with_and_without_endings(tmp_path, ending):
    rows = [f"{i},s{i}{ending},,s{i + 4}{ending}" for i in range(4)]
    path = lines(tmp_path / "splits_0.csv", ",train,val,test", *rows)
    found = read_splits(path, small_cohort())
    assert parts_of(found.splits[0]) == ["s0 s1 s2 s3", "", "s4 s5 s6 s7"]
    assert found.remarks == ()


def test_names_keep_their_dots(tmp_path):
    names = ["TCGA-3C-AALI-01Z-00-DX1.F6E9A5DF-D8FB", "TCGA-3C-AALJ-01Z-00-DX1.9C85-A3"]
    rows = [
        {"name": name, "label": label} for name, label in zip(names, "ab", strict=True)
    ]
    path = lines(
        tmp_path / "splits_0.csv", ",train,val,test", f"0,{names[0]}.svs,,{names[1]}"
    )
    (found,) = read_splits(path, made_cohort(rows)).splits
    assert (found.train, found.test) == ((names[0],), (names[1],))


def test_what_is_unknown_is_remarked(tmp_path):
    plain = json.loads(json.dumps(STAMP))
    plain["splits"][0]["train_patients"] += ["p77", "p88"]
    for split in plain["splits"]:
        for names in split.values():
            names[:] = [name for name in names if name != "p3"]
    path = lines(tmp_path / "splits.json", json.dumps(plain))
    found = read_splits(path, small_cohort())
    assert "names 2 slides or patients that have no features" in found.remarks[0]
    assert "p77, p88" in found.remarks[0]
    assert "1 labelled slides are not in splits.json" in found.remarks[1]
    assert "s5" in found.remarks[1]
    assert divide_by_file(small_cohort(), path, val_share=0).remarks == found.remarks


def test_a_slide_in_two_parts_is_refused(tmp_path):
    path = lines(
        tmp_path / "splits_0.csv", ",train,val,test", "0,s0,s0.svs,s6", "1,s2,,s7"
    )
    with pytest.raises(
        InputError, match=r"splits_0\.csv: slide s0 is in train and in val"
    ):
        read_splits(path, small_cohort())
    spoiled = (*BOOL[:-1], "s7,True,False,True")
    path = lines(tmp_path / "splits_1_bool.csv", *spoiled)
    with pytest.raises(InputError, match="slide s7 is in train and in test"):
        read_splits(path, small_cohort())
    plain = {"splits": [{"train_patients": ["p0", "p1"], "test_patients": ["p1"]}]}
    path = lines(tmp_path / "splits.json", json.dumps(plain))
    with pytest.raises(InputError, match="split 0: slide s2 is in train and in test"):
        read_splits(path, small_cohort())


def test_a_patient_in_two_parts_is_refused(tmp_path):
    path = lines(
        tmp_path / "splits_0.csv", ",train,val,test", "0,s0,,s1", "1,s2,,s7", "2,s4,,"
    )
    with pytest.raises(InputError, match="patient p0 has slides in train and in test"):
        divide_by_file(small_cohort(), path)
    # Patho-Bench names patients itself, also where the labels do not.
    nameless = made_cohort(
        [{"name": f"s{i}", "label": "aabbabab"[i]} for i in range(8)]
    )
    divide_by_file(nameless, path)
    table = lines(
        tmp_path / "k=all.tsv",
        "case_id\tslide_id\tfold_0",
        "x\ts0\ttrain",
        "x\ts1\ttest",
    )
    with pytest.raises(
        InputError, match="fold_0: patient x has slides in train and in"
    ):
        read_splits(table, nameless)


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("splits.json", "{", "not readable JSON"),
        ("splits.json", "[1]", "no list 'splits'"),
        ("splits.json", '{"splits": [{"train": []}]}', "no train_patients"),
        (
            "splits.json",
            '{"splits": [{"train_patients": "p0", "test_patients": []}]}',
            "not a list",
        ),
        (
            "splits.json",
            '{"splits": [{"train_patients": ["z"], "test_patients": []}]}',
            "names none of the slides",
        ),
        ("a.csv", "slide,part\ns0,train", "no form that is known"),
        ("a.csv", "case_id,fold_0\np0,dev", "line 2: fold_0 is 'dev'"),
        ("a.csv", "", "empty"),
    ],
)
def test_other_files_are_a_sentence(tmp_path, name, text, match):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=match):
        read_splits(tmp_path / name, small_cohort())


def test_missing_files_are_a_sentence(tmp_path):
    with pytest.raises(InputError, match="no split file"):
        read_splits(tmp_path / "none.json", small_cohort())
    with pytest.raises(InputError, match="holds no split file"):
        read_splits(tmp_path, small_cohort())
    rows = [f"{i},s{i},," for i in range(8)]
    path = lines(tmp_path / "splits_0.csv", ",train,val,test", *rows)
    with pytest.raises(InputError, match="is in 'test'"):
        divide_by_file(small_cohort(), path)


def equal(left, right):
    assert len(left.folds) == len(right.folds)
    for a, b in zip(left.folds, right.folds, strict=True):
        assert (a.repeat, a.fold) == (b.repeat, b.fold)
        for part, rows in a.parts().items():
            np.testing.assert_array_equal(rows, b.parts()[part])


def many(sites=3):
    rows = [
        {
            "label": "ab"[i // 2 % 2],
            "patient": f"p{i // 2}",
            "site": f"site{i // 2 % sites}",
        }
        for i in range(96)
    ]
    rows[0]["site"], rows[5]["label"] = "site1", None
    return made_cohort(rows)


@pytest.mark.parametrize("called", ["pseudonyms", "names", "patients"])
def test_what_is_read_back_equals_what_was_written(tmp_path, called):
    cohort = many()
    found = divide_by_patient(cohort, folds=4, repeats=2)
    assert all(len(one.val) for one in found.folds)
    mapping = {
        "pseudonyms": None,
        "names": {slide.name: slide.name for slide in cohort},
        "patients": {slide.name: slide.patient for slide in cohort},
    }[called]
    path = tmp_path / "splits.json"
    write_splits(path, cohort, found, mapping)
    equal(divide_by_file(cohort, path), found)
    if called == "pseudonyms":
        by_site = divide_by_site(cohort)
        write_splits(path, cohort, by_site)
        equal(divide_by_file(cohort, path), by_site)
        text = path.read_text()
        assert not any(f'"{slide.name}"' in text for slide in cohort)
        assert not any(f'"{slide.patient}"' in text for slide in cohort)
        names = [pseudonym(slide.fingerprint()) for slide in cohort]
        write_named_splits(tmp_path / "again.json", names, by_site)
        assert (tmp_path / "again.json").read_text() == text


@pytest.mark.parametrize(("patients", "val_share"), [(8, 0.2), (60, 0)])
def test_no_val_is_read_back_as_none(tmp_path, patients, val_share):
    cohort = plain_cohort(patients=patients, each=2)
    found = divide_by_patient(cohort, folds=2, val_share=val_share)
    assert not any(len(one.val) for one in found.folds)
    write_splits(tmp_path / "splits.json", cohort, found)
    equal(divide_by_file(cohort, tmp_path / "splits.json"), found)


def test_stamp_finds_every_patient_to_learn_from_in_ours(tmp_path):
    """STAMP knows train_patients and test_patients alone and sets val aside itself."""
    cohort = many()
    found = divide_by_patient(cohort, folds=4)
    path = tmp_path / "splits.json"
    write_splits(path, cohort, found, {s.name: s.patient for s in cohort})
    for plain, one in zip(
        json.loads(path.read_text())["splits"], found.folds, strict=True
    ):
        learned = {cohort[int(i)].patient for i in [*one.train, *one.val]}
        assert set(plain["train_patients"]) == learned
        assert not learned & set(plain["test_patients"])


def test_copies_of_one_slide_share_a_pseudonym(tmp_path):
    rows = [{"label": "ab"[i // 2 % 2], "patient": f"p{i // 2}"} for i in range(48)]
    cohort = made_cohort(rows)
    twin = replace(cohort[1], facts=cohort[0].facts)
    cohort = Cohort([cohort[0], twin, *cohort.slides[2:]])
    found = divide_by_patient(cohort, folds=3)
    write_splits(tmp_path / "splits.json", cohort, found)
    equal(divide_by_file(cohort, tmp_path / "splits.json"), found)
