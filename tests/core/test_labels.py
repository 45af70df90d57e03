"""labels.csv: what is wrong is said whole, before a run starts."""

import pytest

from spt_core.errors import InputError
from spt_core.tokens import check_labels, read_labels


def written(tmp_path, text, **options):
    path = tmp_path / "labels.csv"
    path.write_text(text, **options)
    return path


def test_names_with_and_without_endings(tmp_path):
    labels = read_labels(
        written(
            tmp_path,
            "slide,label,patient,split,mpp\n"
            "TCGA-A1-A0SB-01Z-00-DX1.B34C267B.svs,luad,p1,train,0.25\n"
            "plain,lusc,p2,validation,\n"
            "deep.ome.tiff, lusc ,p3,test,\n"
            "unlabelled.ndpi,,,,\n"
            "stored.h5,luad,,,\n"
            "\n",
        )
    )
    rows = labels.by_slide
    assert set(rows) == {
        "TCGA-A1-A0SB-01Z-00-DX1.B34C267B",
        "plain",
        "deep",
        "unlabelled",
        "stored",
    }
    assert rows["TCGA-A1-A0SB-01Z-00-DX1.B34C267B"].mpp == 0.25
    assert rows["plain"].split == "val"
    assert rows["unlabelled"].label is None
    assert labels.classes == ["luad", "lusc"]
    assert labels.patient_of("plain") == "patient:p2"
    assert labels.patient_of("stored") == "slide:stored"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_what_spreadsheets_write(tmp_path, delimiter):
    text = delimiter.join(["Slide", "Label"]) + "\r\n" + delimiter.join(["a", "x"])
    labels = read_labels(written(tmp_path, text, encoding="utf-8-sig"))
    assert labels.by_slide["a"].label == "x"


def test_everything_wrong_in_the_file_is_said_at_once(tmp_path):
    with pytest.raises(InputError) as info:
        read_labels(
            written(
                tmp_path,
                "slide,label,patient,split,mpp\n"
                "a.svs,x,p,train,0.5\n"
                "a.ndpi,y,p,test,half\n"
                ",z,,,\n"
                "b,x,q,somewhere,\n",
            )
        )
    text = str(info.value)
    assert "a is listed 2 times" in text
    assert "mpp is 'half'" in text
    assert "line 4 names no slide" in text
    assert "split is 'somewhere'" in text
    assert "patient p is in test and train" in text


def test_missing_columns_and_files(tmp_path):
    with pytest.raises(InputError, match="no column label"):
        read_labels(written(tmp_path, "slide,class\na,x\n"))
    with pytest.raises(InputError, match="is empty"):
        read_labels(written(tmp_path, ""))
    with pytest.raises(InputError, match="no labels file"):
        read_labels(tmp_path / "none.csv")
    (tmp_path / "picture.csv").write_bytes(bytes(range(256)) * 9)
    with pytest.raises(InputError, match="not text"):
        read_labels(tmp_path / "picture.csv")


def test_everything_that_does_not_fit_the_cohort_is_said_at_once(tmp_path):
    labels = read_labels(
        written(
            tmp_path,
            "slide,label,patient\na,x,p1\nb,x,p1\nc,x,p2\nd,y,p3\ngone,y,p4\n",
        )
    )
    with pytest.raises(InputError) as info:
        check_labels(labels, ["a", "b", "c", "d"], supervised=True, folds=3)
    text = str(info.value)
    assert "1 slides are in the labels but have no features: gone" in text
    assert "class 'x' has 2 patients, fewer than the 3 folds" in text
    assert "class 'y' has 1 patients" in text


def test_one_class_is_too_few_to_supervise(tmp_path):
    labels = read_labels(written(tmp_path, "slide,label\na,x\nb,\n"))
    with pytest.raises(InputError, match="only the class 'x'"):
        check_labels(labels, ["a", "b"], supervised=True)
    assert check_labels(labels, ["a", "b"]) == ()


def test_remarks_stop_nothing(tmp_path):
    labels = read_labels(
        written(tmp_path, "slide,label,patient\na,x,p\nb,y,p\nc,x,q\nd,,q\n")
    )
    remarks = check_labels(labels, ["a", "b", "c", "d"], supervised=True)
    assert "1 patients have slides of different labels (p)" in remarks[0]
    assert "1 slides have no label" in remarks[1]


def test_site_and_other_columns_are_kept(tmp_path):
    labels = read_labels(
        written(tmp_path, "slide,label,site,age\na,x,north,61\nb,y,,\n")
    )
    assert labels.by_slide["a"].site == "north"
    assert labels.by_slide["a"].other == {"age": "61"}
    assert labels.by_slide["b"].site is None


def test_sites_that_are_written_alike_are_remarked(tmp_path):
    rows = ["a,x,Site A", "b,x,site a ", "c,y,site-b", "d,y,site-b"]
    table = "\n".join(["slide,label,site", *rows]) + "\n"
    labels = read_labels(written(tmp_path, table))
    (said,) = labels.remarks
    assert "sites 'Site A' and 'site a' differ" in said
    assert "site-b" not in said


def test_a_blank_split_is_train(tmp_path):
    rows = "slide,label,patient,split\na,x,p1,test\nb,y,p2,\n"
    labels = read_labels(written(tmp_path, rows))
    assert labels.by_slide["b"].split == "train"
    with pytest.raises(InputError, match="patient p1 is in test and train"):
        read_labels(written(tmp_path, rows + "c,x,p1,\n"))
    without = read_labels(written(tmp_path, "slide,label,split\na,x,\n"))
    assert without.by_slide["a"].split is None
    assert not without.has_splits


def test_labels_of_patients_are_joined_to_their_slides(tmp_path):
    labels = written(
        tmp_path, "patient,label,site,split\np1,x,north,train\np2,y,south,test\np3,,,\n"
    )
    table = tmp_path / "slides.csv"
    table.write_text("slide,patient\na.svs,p1\nb.svs,p1\nc,p2\nd,p3\ne,p9\n")
    rows = read_labels(labels, slides=table).by_slide
    assert [rows[name].label for name in "abcde"] == ["x", "x", "y", None, None]
    assert [rows[name].site for name in "abc"] == ["north", "north", "south"]
    assert [rows[name].split for name in "abcde"] == [
        "train",
        "train",
        "test",
        "train",
        "train",
    ]
    assert rows["b"].patient == "p1"
    with pytest.raises(InputError, match="--slide-table"):
        read_labels(labels)
    labels.write_text("patient,label\np1,x\np1,y\np2,x\np7,x\n")
    with pytest.raises(InputError) as info:
        read_labels(labels, slides=table)
    assert "patient p1 has the labels 'x' and 'y'" in str(info.value)
    assert "1 patients have no slide in slides.csv: p7" in str(info.value)


def test_patients_come_from_tcga_names_only_when_asked(tmp_path):
    path = written(
        tmp_path,
        "slide,label\n"
        "TCGA-A1-A0SB-01Z-00-DX1.B34C267B.svs,x\n"
        "tcga-a1-a0sb-01z-00-dx2.svs,x\n"
        "TCGA-A1-A0SBX-01Z.svs,y\n"
        "other,y\n",
    )
    assert not read_labels(path).names_patients
    labels = read_labels(path, patients_from="tcga")
    patients = [row.patient for row in labels.by_slide.values()]
    assert patients == ["TCGA-A1-A0SB", "TCGA-A1-A0SB", None, None]
    (shown,) = labels.remarks
    assert "2 slides of 1 patients" in shown
    assert "TCGA-A1-A0SB (2)" in shown
    assert "2 slides have no such name" in shown
    assert not labels.names_patients  # not of all


def test_without_patients_the_labels_do_not_speak_of_any(tmp_path):
    labels = read_labels(written(tmp_path, "slide,label\na,x\nb,x\nc,y\n"))
    with pytest.raises(InputError) as info:
        check_labels(labels, ["a", "b", "c"], supervised=True, folds=2)
    assert "class 'y' has 1 slides, fewer than the 2 folds" in str(info.value)
    assert "patient" not in str(info.value)
