"""Findings as files: one table of formats, for the command and the window alike."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import tifffile

from spt_core import Findings, bundled, open_slide, write_findings
from spt_core.cli import build_parser
from spt_core.errors import InputError
from spt_core.insight.class_map import class_map
from spt_core.insight.exporting import FORMATS, format_of
from spt_core.insight.predicting import predict
from spt_core.insight.wording import STATED_BY_USER
from tests.core.insight.conftest import finish, made_slide
from tests.core.insight.slides import make_model
from tests.core.patches.conftest import tissue_picture
from tests.made_slides import write_tiff
from tests.made_tokens import DIM, STEP, grid_tokens

OTHER_SLIDE = "another slide's pixels"


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    """A slide whose file does not state its pixel size."""
    path = tmp_path_factory.mktemp("exporting") / "unsized.tif"
    write_tiff(path, tissue_picture(1600, 1400), mpp_xy=None)
    return path


@pytest.fixture
def findings(mean_model, slide, tmp_path):
    x = made_slide(0, np.random.default_rng(0))[0] + 1
    fingerprint = open_slide(slide).fingerprint
    tokens = grid_tokens(x, name="jane", slide_fingerprint=fingerprint)
    prediction = predict(mean_model, tokens)
    classes, _ = finish(class_map(mean_model, tokens))
    model = make_model(tmp_path / "mine.safetensors")
    return Findings(prediction, slide, classes, model)


def words_of(path):
    page = path.read_text(encoding="utf-8")
    page = re.sub(r"<style>.*?</style>|<img[^>]*>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", page))


def test_the_ending_names_the_format(capsys):
    for one in FORMATS:
        for ending in one.endings:
            assert format_of(Path(f"a.b{ending.upper()}")) is one
            assert one.with_ending(Path(f"x/a.b{ending}")) == Path(f"x/a.b{ending}")
            for other in FORMATS:
                moved = other.with_ending(Path(f"x/a.b{ending}"))
                assert format_of(moved) is other
                assert moved.name.startswith("a.b.")
        assert one.with_ending(Path("plain")).name == f"plain{one.endings[0]}"
    assert format_of(Path("a.ome.tif")).with_ending(Path("a.tif")).name == "a.ome.tif"
    with pytest.raises(InputError, match=r"its ending must be one of \.html"):
        format_of(Path("report.pdf"))
    with pytest.raises(SystemExit):
        build_parser("heatmap").parse_args(["heatmap", "--help"])
    said = capsys.readouterr().out
    assert all(one.endings[0] in said for one in FORMATS)
    assert FORMATS[0].name_filter == "Report (*.html)"


def test_a_report_of_an_analysis_under_a_pseudonym(findings, tmp_path):
    write_findings(tmp_path / "r.html", findings)
    words = words_of(tmp_path / "r.html")
    assert findings.prediction.pseudonym in words
    assert "jane" not in words
    assert "unsized" not in words
    assert "Tells apart a and b." in words
    assert words.count("Looked at most:") == 6
    assert words.count("Chosen by chance:") == words.count("Looked at least:") == 3
    assert "mine.safetensors SLIDE --out report.html" in words
    assert "--slide-mpp" not in words
    assert STATED_BY_USER not in words
    write_findings(tmp_path / "r.html", replace(findings, title="Slide 7"))
    assert "Slide 7" in words_of(tmp_path / "r.html")


def test_whose_pixel_size_it_is_is_stated(findings, tmp_path):
    user = replace(findings, slide_mpp=0.5, mpp_from_user=True)
    write_findings(tmp_path / "r.html", user)
    words = words_of(tmp_path / "r.html")
    assert f"0.5 × 0.5 µm, {STATED_BY_USER}" in words
    assert f"Scale bar: pixel size {STATED_BY_USER}." in words
    (command,) = re.findall(r"spt heatmap [^\n]*", words)
    assert shlex.split(command)[-2:] == ["--slide-mpp", "0.5"]


def test_the_bundled_model_is_plainly_a_demonstration(findings, tmp_path):
    shown = replace(findings, model=bundled.slide_model_path())
    write_findings(tmp_path / "r.html", shown)
    words = words_of(tmp_path / "r.html")
    assert "spt heatmap SLIDE --out" in words
    assert "By a demonstration on synthetic tissue." in words


def test_a_class_map_of_fewer_patches_finds_its_places(findings, tmp_path):
    """As after a cancelled analysis: from an earlier answer, in another order."""
    rows = np.random.default_rng(3).permutation(len(findings.prediction))[:100]
    whole = findings.class_map
    part = replace(whole, xy=whole.xy[rows], probabilities=whole.probabilities[rows])
    few = replace(findings, class_map=part)
    write_findings(tmp_path / "m.geojson", few)
    features = json.loads((tmp_path / "m.geojson").read_text())["features"]
    known = set(rows.tolist())
    for row, feature in enumerate(features):
        measured = feature["properties"]["measurements"]
        named = feature["properties"]["classification"]["name"]
        if row in known and not whole.alone[row]:
            expected = whole.probabilities[row, 0]
            assert measured["a (score)"] == pytest.approx(expected, rel=1e-4)
            assert named == whole.name_of(int(whole.labels[row]))
        else:
            assert "a (score)" not in measured
            assert named == "unsure"
    write_findings(tmp_path / "m.ome.tif", few)
    planes = tifffile.imread(tmp_path / "m.ome.tif")
    col, row = (findings.prediction.xy // STEP).T
    np.testing.assert_array_equal(
        planes[3][row[rows], col[rows]], part.probabilities[:, 0]
    )
    assert np.isfinite(planes[3]).sum() == np.isfinite(part.probabilities[:, 0]).sum()
    for name in ("m.html", "m.png"):
        write_findings(tmp_path / name, few, show="classes")


def test_a_class_map_already_in_order_is_taken_as_it_is(findings):
    assert findings.class_map.at(findings.prediction.xy.copy()) is findings.class_map
    none = findings.class_map.at(np.zeros((0, 2), np.int64))
    assert none.probabilities.shape == (0, 2)


def test_no_file_is_left_half_written(findings, tmp_path):
    kept = tmp_path / "kept.png"
    kept.write_bytes(b"before")
    facts = replace(findings.prediction.facts, slide_fingerprint=OTHER_SLIDE)
    other = replace(findings, prediction=replace(findings.prediction, facts=facts))
    with pytest.raises(InputError, match="not the slide"):
        write_findings(kept, other)
    with pytest.raises(InputError, match="no class map to show"):
        write_findings(kept, replace(findings, class_map=None), show="classes")
    assert kept.read_bytes() == b"before"
    with pytest.raises(InputError, match="ending"):
        write_findings(tmp_path / "x.pdf", findings)
    assert {path.name for path in tmp_path.iterdir()} == {kept.name, "mine.safetensors"}


def test_an_empty_slide(findings, mean_model, tmp_path):
    prediction = predict(mean_model, grid_tokens(np.zeros((0, DIM))))
    empty = Findings(prediction, None, model=findings.model)
    write_findings(tmp_path / "e.html", empty)
    assert "No tissue" in words_of(tmp_path / "e.html")
    for name in ("e.png", "e.ome.tif"):
        with pytest.raises(InputError, match="empty slide has no"):
            write_findings(tmp_path / name, empty)


def test_everything_is_written_without_torch(slide, tmp_path):
    """Listing the formats loads even less: a window does so at its start."""
    code = f"""
import sys
from pathlib import Path
from spt_core.insight.exporting import FORMATS, Findings, write_findings
heavy = {{"torch", "sklearn", "scipy.ndimage"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
import numpy as np
from spt_core import bundled
from spt_core.insight.results import ClassMap, Prediction, Verdict
from spt_core.tokens import TokenFacts
p = np.stack(np.divmod(np.arange(100), 10), axis=1)
attention = np.full((2, 100), 0.009, np.float32)
facts = TokenFacts(l0_patch_xy=(100, 100), l0_step_xy=(100, 100))
shares = np.full((100, 2), 0.5, np.float32)
prediction = Prediction(
    facts=facts, p=p, xy=p[:, ::-1] * 100, classes=("a", "b"),
    probabilities=shares[0].astype(float), calibrated=False,
    embedding=np.zeros({DIM}, np.float32), attention=attention, seen=100, total=100,
    verdict=Verdict.UNDECIDED,
)
classes = ClassMap(("a", "b"), prediction.xy, shares, False, 8, 4, 64, 1)
findings = Findings(
    prediction, Path({str(slide)!r}), classes, bundled.slide_model_path(),
    slide_mpp=0.5,
)
for one in FORMATS:
    path = Path({str(tmp_path)!r}) / f"m{{one.endings[0]}}"
    write_findings(path, findings)
    assert path.stat().st_size > 1000
assert not {{"torch", "sklearn"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
