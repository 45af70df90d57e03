"""What says whose a slide is stands in no file that a command writes.

Identifiers are planted in the names of slides, their properties, their label pictures
and the table of labels; then every command runs, and every file is searched.
"""

import csv
import os
import sys

import pytest

from spt_core.cli import main
from tests.core.insight.slides import make_model
from tests.core.patches.conftest import tissue_picture
from tests.core.patches_training.made_tiles import write_tiles
from tests.made_slides import write_svs

SLIDES = 6
# In no file at all: patients, and what slides say of them (write_svs plants it).
SECRETS = ("ZQPATIENT", "1234567", "b414003d", "Doe^", "DOE^", "JANE^")
NAME = "ZQNAME"
SMALL = ["--patch-size", "64", "--target-mpp", "1"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The folder of what all commands wrote, each below its own name."""
    data = tmp_path_factory.mktemp("data")
    out = tmp_path_factory.mktemp("out")
    (data / "slides").mkdir()
    rows = ["slide,label,patient,site"]
    for i in range(SLIDES):
        slide = data / "slides" / f"{NAME}{i}.svs"
        write_svs(slide, tissue_picture(700, 600, seed=i), mpp=0.5)
        rows.append(f"{NAME}{i},{'ab'[i % 2]},ZQPATIENT{i},x")
    labels = data / "labels.csv"
    labels.write_text("\n".join(rows) + "\n")
    model = make_model(data / "model.safetensors")
    write_named_tiles(data / "tiles")
    features = out / "encode"
    words = ["--encoder", "small-random", *SMALL]
    run("encode", data / "slides", "--out", features, *words)
    table = ["--labels", labels]
    tiny = ["--model", "small", "--dim", "16", "--heads", "2", "--epochs", "4"]
    tiny += ["--batch-size", "4", "--device", "cpu"]
    for name in ("simclr", "classify"):
        words = ["--objective", name, "--out", out / f"train-{name}"]
        run("train", features, *words, *table, *tiny)
    words = ["--folds", "2", "--out", out / "evaluate", "--device", "cpu"]
    run("evaluate", model, features, *table, *words)
    one = data / "slides" / f"{NAME}0.svs"
    for name in ("p.json", "p.csv"):
        words = ["--out", out / "predict" / name, "--device", "cpu"]
        run("predict", model, features, *table, *words)
    maps = [
        out / "heatmap" / f"m.{end}" for end in ("geojson", "ome.tif", "png", "html")
    ]
    words = ["--features", features, "--device", "cpu"]
    run("heatmap", model, one, *words, *table, "--out", *maps)
    run("embed", features, "--model", "mean", "--out", out / "embed" / "e.csv")
    for kind in ("trident", "clam", "stamp"):
        run("convert", features, "--to", kind, "--out", out / f"convert-{kind}")
    words = ["--folds", "2", "--steps", "4", "--workers", "1"]
    run("benchmark", features, *table, "--out", out / "benchmark", *words,
        "--methods", "mean", "abmil")  # fmt: skip
    run("study", out / "study", "--goal", "classify", "--slides", data / "slides",
        *table, *SMALL, *words, "--pretrain-steps", "4")  # fmt: skip
    words = ["--method", "simclr", "--arch", "small-random", "--init", "none"]
    words += ["--patch-size", "48", "--mpp", "0.5", "--view-size", "40", "--epochs"]
    words += ["2", "--batch-size", "32", "--device", "cpu"]
    tiles, named = data / "tiles" / "tiles", ["--table", data / "tiles" / "tiles.csv"]
    learned = out / "train-patches"
    run("train-patches", tiles, *words, *named, "--out", learned / "t.safetensors")
    run("train-patches", data / "slides", *words, "--table", labels, "--out",
        learned / "s.safetensors")  # fmt: skip
    return out


def write_named_tiles(folder):
    """Tiles whose files and table name slides and patients."""
    write_tiles(folder, patients=6)
    table = folder / "tiles.csv"
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        tile = folder / "tiles" / row["file"]
        row["file"] = f"{NAME}-{row['file']}"
        tile.rename(tile.with_name(row["file"]))
        row["slide"], row["patient"] = NAME + row["slide"], "ZQPATIENT" + row["patient"]
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def run(*words):
    words = [str(word) for word in words]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["spt", *words])  # what reports repeat
        assert main(words) == 0, words


def files_of(folder):
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    assert found
    return found


def test_patients_and_what_slides_say_of_them_are_nowhere(outputs):
    for path in files_of(outputs):
        content = path.read_bytes()
        for secret in SECRETS:
            assert secret.encode() not in content, (path, secret)
            assert secret not in str(path.relative_to(outputs))


def test_reports_name_no_folder_of_this_computer(outputs):
    for name in ("benchmark", "study", "evaluate", "predict", "heatmap", "embed"):
        place = outputs / name
        place = place / "report" if (place / "report").is_dir() else place
        for path in files_of(place):
            assert str(outputs.parent).encode() not in path.read_bytes(), path


def test_names_of_slides_are_where_the_documentation_says(outputs):
    """In feature files and the tables beside them (SECURITY.md), and nowhere else."""
    named = set()
    for path in files_of(outputs):
        place = path.relative_to(outputs)
        if NAME.encode() in path.read_bytes() or NAME in str(place):
            named.add(place.as_posix())
    wrong = {place for place in named if not may_name(place)}
    assert not wrong, sorted(wrong)
    assert f"encode/{NAME}0.h5" in named


def may_name(place):
    folder, name = os.path.split(place)
    of_features = folder in ("encode", "study/features") or folder.startswith("convert")
    return of_features or name == "summary.csv" or place == "study/events.jsonl"
