"""Kinds of tissue that are named, merged, kept and found again; and their exports."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from PIL import Image

from spt_core.errors import InputError
from spt_core.insight.codebook import (
    MOST_KEPT,
    codebook_file,
    read_codebook,
    together,
    write_codebook,
)
from spt_core.insight.exploring import explore
from spt_core.insight.exporting import Findings, write_findings
from spt_core.insight.html_page import CITATION
from spt_core.insight.results import Prediction, Verdict
from spt_core.tokens import Tokens
from spt_core.tokens.tokens import TokenFacts

STEP = 200
FACTS = TokenFacts(
    encoder="e", l0_patch_xy=(STEP, STEP), l0_step_xy=(STEP, STEP), patch_um=100.0
)
MIDDLES = np.random.default_rng(0).normal(size=(5, 32)) * 2


def slide(truth, seed, shift=0.0):
    """Tokens of known kinds, on a grid."""
    truth = np.asarray(truth)
    rng = np.random.default_rng(seed)
    x = MIDDLES[truth] + 0.5 * rng.normal(size=(len(truth), 32)) + shift
    p = np.stack(np.divmod(np.arange(len(truth)), 20), axis=1)
    return Tokens(x.astype(np.float32), p, p[:, ::-1] * STEP, FACTS)


def kind_of(found, truth, which):
    """The number of the kind that tissue of one sort was sorted into."""
    numbers = found.kinds.numbers[found.labels[np.asarray(truth) == which]]
    assert len(set(numbers.tolist())) == 1
    return int(numbers[0])


FIRST = np.repeat([0, 1, 2], (200, 100, 100))
SECOND = np.repeat([2, 1, 3], (200, 100, 100))


def test_names_and_colours_come_back_on_the_next_slide(tmp_path):
    one = explore(slide(FIRST, 1), kinds=3)
    stroma = kind_of(one, FIRST, 1)
    named = one.kinds.renamed(stroma, " stroma ").recoloured(stroma, (1, 2, 3))
    file = codebook_file(tmp_path / "kept", FACTS)
    assert read_codebook(file) is None
    write_codebook(file, named)
    known = read_codebook(file)
    np.testing.assert_allclose(known.centres, named.centres, rtol=1e-5)
    # Stained a little otherwise, and with a kind that the first slide had not.
    two = explore(slide(SECOND, 2, shift=0.1), kinds=3, known=known)
    row = two.kinds.row(stroma)
    assert kind_of(two, SECOND, 1) == stroma
    assert two.kinds.titles[row] == "stroma"
    assert tuple(two.kinds.rgb[row]) == (1, 2, 3)
    assert kind_of(two, SECOND, 2) == kind_of(one, FIRST, 2)
    new = kind_of(two, SECOND, 3)
    assert new not in known.numbers
    assert two.kinds.names[two.kinds.row(new)] == ""
    assert len({tuple(c) for c in two.kinds.rgb.tolist()}) == 3
    # The new one is known from then on.
    both = together(known, two.kinds)
    assert sorted(both.numbers) == sorted({*known.numbers.tolist(), new})
    np.testing.assert_array_equal(both.centres[:3], known.centres)


def test_merged_kinds_are_one_here_and_on_the_next_slide(tmp_path):
    one = explore(slide(FIRST, 1), kinds=3)
    gone, stays = kind_of(one, FIRST, 0), kind_of(one, FIRST, 2)
    merged = one.merged(gone, stays).renamed(stays, "tumour")
    assert len(merged.kinds) == 2
    assert merged.counts[merged.kinds.row(stays)] == 300
    assert (merged.labels[merged.typical] == np.arange(2)).all()
    assert kind_of(merged, FIRST, 0) == kind_of(merged, FIRST, 2) == stays
    assert len(merged.kinds.centres) == 3
    again = explore(slide(FIRST, 3), kinds=3, known=merged.kinds)
    assert len(again.kinds) == 2
    assert "tumour" in again.kinds.titles
    assert kind_of(again, FIRST, 0) == kind_of(again, FIRST, 2) == stays


def test_what_has_a_name_is_not_forgotten():
    known = explore(slide(FIRST, 1), kinds=3).kinds.renamed(0, "kept")
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = (rng.normal(size=(60, 32)) + 30 * rng.normal(size=32)).astype(np.float32)
        other = explore(Tokens(x, slide(FIRST[:60], 1).p, slide(FIRST[:60], 1).xy))
        numbers = other.kinds.numbers + known.numbers.max() + 1
        known = together(known, replace(other.kinds, numbers=numbers))
    assert len(known) <= MOST_KEPT
    assert "kept" in known.names


def test_a_damaged_file_is_a_sentence(tmp_path):
    (tmp_path / "kinds-1.json").write_text('{"kind": "other"}')
    with pytest.raises(InputError, match=r"kinds-1\.json.*cannot be read"):
        read_codebook(tmp_path / "kinds-1.json")


def test_encoders_have_files_of_their_own(tmp_path):
    files = {
        codebook_file(tmp_path, one)
        for one in (FACTS, replace(FACTS, encoder="f"), replace(FACTS, stain="macenko"))
    }
    assert len(files) == 3


def test_a_typical_example_is_the_nearest_to_its_kind():
    tokens = slide(FIRST, 1)
    found = explore(tokens, kinds=3)
    for row, patch in enumerate(found.typical):
        own = np.flatnonzero(found.labels == row)
        far = np.linalg.norm(tokens.x[own] - tokens.x[own].mean(axis=0), axis=1)
        assert patch == own[far.argmin()]


@pytest.fixture
def findings():
    tokens = slide(FIRST, 1)
    found = explore(tokens, kinds=3)
    number = kind_of(found, FIRST, 1)
    found = found.renamed(number, "stroma & <fat>").recoloured(number, (1, 200, 3))
    n = len(tokens)
    none = Prediction(
        facts=tokens.facts,
        p=tokens.p,
        xy=tokens.xy,
        classes=(),
        probabilities=None,
        calibrated=False,
        embedding=np.zeros(0, np.float32),
        attention=np.zeros((0, n), np.float32),
        seen=n,
        total=n,
        verdict=Verdict.NO_CLASSES,
    )
    return Findings(none, None, tissue_map=found)


def test_areas(findings):
    found = findings.tissue_map
    areas = found.areas_mm2((0.5, 0.5))
    # 400 patches of 100 µm.
    assert areas.sum() == pytest.approx(400 * 0.1**2)
    assert areas[found.kinds.names.index("stroma & <fat>")] == pytest.approx(1.0)
    assert found.areas_mm2(None) is None


def test_for_qupath(findings, tmp_path):
    write_findings(tmp_path / "a.geojson", findings)
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    assert len(features) == 400
    stroma = [
        one
        for one in features
        if one["properties"]["classification"]["name"] == "stroma & <fat>"
    ]
    assert len(stroma) == 100
    assert stroma[0]["properties"]["classification"]["color"] == [1, 200, 3]
    corners = np.array([one["geometry"]["coordinates"][0][0] for one in features])
    np.testing.assert_array_equal(corners, findings.tissue_map.xy)
    assert len({one["id"] for one in features}) == 400


def test_as_ome_tiff(findings, tmp_path):
    write_findings(tmp_path / "a.ome.tif", findings)
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as file:
        planes, said = file.asarray(), file.ome_metadata
    assert planes.shape == (3, 20, 20)
    np.testing.assert_array_equal(planes.sum(axis=0), 1)
    row = findings.tissue_map.kinds.names.index("stroma & <fat>")
    assert planes[row].sum() == 100
    assert "stroma &amp; &lt;fat&gt;" in said
    assert 'PhysicalSizeX="100.0"' in said


def test_as_picture_and_report(findings, tmp_path):
    write_findings(tmp_path / "a.png", findings)
    pixels = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    # The legend shows the very colour, the map half of it on grey.
    assert (pixels == (1, 200, 3)).all(axis=-1).sum() > 100
    write_findings(tmp_path / "a.html", findings)
    page = (tmp_path / "a.html").read_text()
    assert "stroma &amp; &lt;fat&gt;" in page
    assert "1.00 mm²" in page
    assert "25.0%" in page
    assert CITATION in page
    for part in ("Hou X", "2024", "2402.06188"):
        assert part in CITATION
