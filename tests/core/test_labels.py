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
    (tmp_path / "latin.csv").write_bytes("slide,label\na,Köln\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_labels(tmp_path / "latin.csv")


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
