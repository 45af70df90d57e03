"""Exports, read back by others' readers, and what must never be in them."""

import base64
import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile
from PIL import Image
from shapely.geometry import box, shape

from spt_core import load_model, read_tokens
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.insight import overlay
from spt_core.insight.class_map import class_map
from spt_core.insight.colours import ATTENTION_RAMP
from spt_core.insight.geojson import write_geojson
from spt_core.insight.geometry import Geometry
from spt_core.insight.maps import attention_values, cell_map
from spt_core.insight.ome_tiff import write_ome_tiff
from spt_core.insight.picture import tissue_picture
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.wording import prediction_sentence
from spt_core.tokens import TokenFacts, Tokens
from tests.core.insight.conftest import finish, made_slide
from tests.core.insight.slides import (
    NAME,
    PATIENT,
    SECRETS,
    make_model,
    make_slide,
)
from tests.core.patches.conftest import tissue_picture as made_tissue
from tests.made_slides import write_ome_zarr
from tests.made_tokens import DIM, STEP, grid_tokens


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Every export of one slide with planted identifiers, made by the commands."""
    folder = tmp_path_factory.mktemp("exports")
    slide = make_slide(folder)
    model = make_model(folder / "model.safetensors")
    out, features = folder / "out", folder / "features"
    labels = folder / "labels.csv"
    labels.write_text(f"slide,label,patient\n{NAME},a,{PATIENT}\n")
    common = ["--features", features, "--labels", labels, "--device", "cpu"]
    words = ["heatmap", model, slide, "--check", *common, "--out"]
    words += [out / name for name in ("m.geojson", "m.ome.tif", "m.png", "m.html")]
    assert main([str(word) for word in words]) == 0
    for name in ("p.json", "p.csv"):
        words = ["predict", model, slide, *common, "--out", out / name]
        assert main([str(word) for word in words]) == 0
    return folder, out, slide, model


def truth(exported):
    folder, _, _, model_path = exported
    model = load_model(model_path)
    tokens = read_for(model, folder / "features" / f"{NAME}.h5")
    return model, tokens, predict(model, tokens)


def test_geojson_is_valid_and_in_its_place(exported):
    _, out, _, _ = exported
    _, tokens, prediction = truth(exported)
    content = json.loads((out / "m.geojson").read_text())
    assert content["type"] == "FeatureCollection"
    assert len(content["features"]) == len(tokens)
    assert len({one["id"] for one in content["features"]}) == len(tokens)
    width, height = tokens.facts.l0_patch_xy
    times = attention_values(prediction.attention, unit="times average")
    for one, (x, y), expected in zip(
        content["features"], tokens.xy.tolist(), times, strict=True
    ):
        assert one["type"] == "Feature"
        polygon = shape(one["geometry"])
        assert polygon.is_valid
        assert polygon.equals(box(x, y, x + width, y + height))
        assert one["properties"]["objectType"] == "detection"
        assert one["properties"]["classification"]["name"] in ("a", "b", "unsure")
        red_green_blue = one["properties"]["classification"]["color"]
        assert all(0 <= part <= 255 for part in red_green_blue)
        measured = one["properties"]["measurements"]
        assert measured["Attention (times average)"] == pytest.approx(
            expected, rel=1e-4
        )


def test_geojson_counts_from_the_bounds(mean_model, tmp_path):
    prediction = predict(mean_model, grid_tokens(np.ones((4, DIM)), origin=(5, 7)))
    path = tmp_path / "x.geojson"
    write_geojson(path, prediction, None, Geometry((0.5, 0.5), (620, 410)))
    first = json.loads(path.read_text())["features"][0]
    x, y = shape(first["geometry"]).bounds[:2]
    assert (x, y) == (7 * STEP - 620, 5 * STEP - 410)
    assert "classification" not in first["properties"]


def test_ome_tiff_has_maps_and_physical_size(exported):
    _, out, slide, _ = exported
    model, tokens, prediction = truth(exported)
    with tifffile.TiffFile(out / "m.ome.tif") as tiff:
        assert tiff.is_ome
        planes = tiff.asarray()
        pixels = tifffile.xml2dict(tiff.ome_metadata)["OME"]["Image"]["Pixels"]
    names = [channel["Name"] for channel in pixels["Channel"]]
    assert names[0] == "attention (weight)"
    assert names[-2:] == ["a", "b"]
    step_x, step_y = tokens.facts.l0_step_xy
    mpp = float(openslide.OpenSlide(slide).properties["openslide.mpp-x"])
    assert pixels["PhysicalSizeX"] == pytest.approx(step_x * mpp)
    assert pixels["PhysicalSizeXUnit"] == "µm"
    assert planes.shape[0] == len(names) == 5
    first = tokens.xy.min(axis=0)
    assert pixels["Plane"][0]["PositionX"] == pytest.approx(first[0] * mpp)
    cells = (tokens.xy - first) // (step_x, step_y)
    np.testing.assert_allclose(
        planes[0][cells[:, 1], cells[:, 0]],
        attention_values(prediction.attention),
        rtol=1e-5,
    )
    assert np.isfinite(planes[0]).sum() == len(tokens)
    assert planes[0][np.isfinite(planes[0])].sum() == pytest.approx(1, rel=1e-4)
    classes, _ = finish(class_map(model, tokens))
    np.testing.assert_allclose(
        planes[3][cells[:, 1], cells[:, 0]], classes.probabilities[:, 0], rtol=1e-5
    )


def test_png_shows_the_map_where_the_tissue_is(exported):
    """Compared with openslide's own pixels, patch by patch."""
    _, out, path, _ = exported
    _, tokens, prediction = truth(exported)
    from spt_core import open_slide

    picture = tissue_picture(prediction, open_slide(path))
    slide = openslide.OpenSlide(path)
    width, height = tokens.facts.l0_patch_xy
    for row in range(0, len(tokens), 17):
        x, y = tokens.xy[row]
        region = np.asarray(slide.read_region((x, y), 0, (width, height)))[..., :3]
        left, top = (np.array((x, y)) - picture.l0_origin_xy) / picture.l0_scale
        right, bottom = left + width / picture.l0_scale, top + height / picture.l0_scale
        shown = picture.rgb[round(top) : round(bottom), round(left) : round(right)]
        np.testing.assert_allclose(
            shown.mean(axis=(0, 1)), region.mean(axis=(0, 1)), atol=6
        )
    with Image.open(out / "m.png") as image:
        assert image.width > picture.rgb.shape[1] + 100  # room for the legend
        assert image.info == {}


def test_what_is_written_on_the_glass_is_not_shown(exported):
    """Only patches are in a picture; all between and around them is white."""
    _, _, path, _ = exported
    _, tokens, prediction = truth(exported)
    from spt_core import open_slide

    few = predict(load_model(exported[3]), tokens.take(np.arange(0, len(tokens), 9)))
    picture = tissue_picture(few, open_slide(path))
    drawn = np.zeros(picture.rgb.shape[:2], bool)
    size = np.asarray(tokens.facts.l0_patch_xy)
    for xy in few.xy:
        low = np.floor((xy - picture.l0_origin_xy) / picture.l0_scale).astype(int)
        high = np.ceil((xy + size - picture.l0_origin_xy) / picture.l0_scale)
        drawn[low[1] : int(high[1]), low[0] : int(high[0])] = True
    assert (picture.rgb[~drawn] == 255).all()
    assert (picture.rgb[drawn] < 250).any()
    assert len(prediction) > len(few)


def test_an_even_map_looks_even_and_a_strong_one_does_not(mean_model):
    """On the scale of every slide; percentiles use all colours on each."""
    tokens = grid_tokens(made_slide(0, np.random.default_rng(0))[0])
    found = predict(mean_model, tokens)
    picture = tissue_picture(found, None)
    plain = np.isfinite(picture.spread(cell_of(found, np.ones(len(found)))))

    def colours(attention, **options):
        made = replace(found, attention=attention)
        image = overlay.attention_overlay(made, picture, Geometry(None), **options)
        height, width = picture.rgb.shape[:2]
        edge = overlay.MARGIN
        drawn = np.asarray(image)[edge : edge + height, edge : edge + width]
        return np.unique(drawn[plain], axis=0)

    even = 1 + 1e-3 * np.random.default_rng(1).random((1, len(found)))
    assert np.ptp(colours(even), axis=0).max() <= 1
    assert np.ptp(colours(even, unit="percentile"), axis=0).max() > 100
    strong = even.copy()
    strong[0, 0] = 50.0
    # What is looked at most is the scale's end, at the overlay's opacity.
    top = 0.7 * np.array(ATTENTION_RAMP[-1]) + 0.3 * np.asarray(
        picture.rgb[plain][0], float
    )
    assert np.abs(colours(strong) - top).max(axis=1).min() <= 1


def cell_of(found, values):
    return cell_map(values, found.p, found.xy, found.facts)


def test_scale_bar_is_round_and_right():
    assert overlay.scale_bar(1000, 2.0) == (500, 250)
    assert overlay.scale_bar(400, 0.5) == (50, 100)
    um, pixels = overlay.scale_bar(777, 3.3)
    assert pixels * 3.3 == pytest.approx(um, rel=0.02)
    assert 777 / 12 < pixels <= 777 / 4 + 1


class Page(HTMLParser):
    """What a page refers to, its words and its pictures."""

    def __init__(self):
        super().__init__()
        self.sources, self.links, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "src" in found:
            self.sources.append(found["src"])
        if "href" in found or tag in ("script", "link", "iframe"):
            self.links.append((tag, found))

    def handle_data(self, data):
        self.words.append(data)


def test_report_stands_alone_and_says_where_it_comes_from(exported):
    _, out, _, _ = exported
    model, _, prediction = truth(exported)
    text = (out / "m.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.links == []
    assert "://" not in re.sub(r"base64,[^\"]*", "", text)
    kinds = [source[:15] for source in page.sources]
    assert kinds.count("data:image/png;") == 2
    assert kinds.count("data:image/jpeg") == 13
    for source in page.sources:
        with Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))) as image:
            assert min(image.size) > 100
    words = " ".join(page.words)
    for expected in (
        "not for diagnosis",
        prediction_sentence(prediction),
        "small-random",
        model.card.tokens.encoder_sha256,
        prediction.fingerprint,
        "0.5 × 0.5 µm",
        "spt heatmap model.safetensors SLIDE --out",
        "Please cite",
        "Does the attention matter?",
    ):
        assert expected in words


def test_planted_identifiers_are_nowhere(exported):
    """In the slide's name, its properties, its label and labels.csv."""
    _, out, _, _ = exported
    files = sorted(path for path in out.rglob("*") if path.is_file())
    assert len(files) == 6
    for path in files:
        content = path.read_bytes()
        pages = [content]
        if path.name.endswith(".ome.tif"):
            with tifffile.TiffFile(path) as tiff:
                pages.append(repr([p.tags for p in tiff.pages]).encode())
        text = re.sub(rb"base64,[^\"]*", b"", b"".join(pages))
        for secret in SECRETS:
            if path.suffix == ".tif":
                # compressed numbers may spell a short word by chance
                assert len(secret) < 5 or secret.encode() not in text, path
            else:
                assert secret.encode() not in text, (path, secret)
        assert secret_free(path.name)


def secret_free(text):
    return not any(secret in text for secret in SECRETS)


def test_a_folder_named_after_somebody_is_not_named(tmp_path):
    """What follows a dot in such a name is no ending."""
    slide = tmp_path / "S21-0042.Jane.DOE"
    write_ome_zarr(slide, made_tissue(900, 800))
    model = make_model(tmp_path / "model.safetensors")
    features = tmp_path / "features"
    common = ["--no-class-map", "--device", "cpu", "--out"]
    words = ["heatmap", model, slide, "--features", features, *common]
    assert main([str(word) for word in [*words, tmp_path / "a.html"]]) == 0
    words = ["heatmap", model, features / f"{slide.name}.h5", "--slide", slide, *common]
    assert main([str(word) for word in [*words, tmp_path / "b.html"]]) == 0
    for name in ("a.html", "b.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "spt heatmap model.safetensors" in text
        assert secret_free(re.sub(r"base64,[^\"]*", "", text))


def test_names_are_written_when_chosen(exported, tmp_path):
    folder, _, slide, model = exported
    words = ["heatmap", model, folder / "features" / f"{NAME}.h5", "--slide", slide]
    words += ["--include-slide-name", "--no-class-map", "--out", tmp_path / "n.html"]
    assert main([str(word) for word in words]) == 0
    assert f"<h1>{NAME}</h1>" in (tmp_path / "n.html").read_text(encoding="utf-8")


def test_features_alone_are_drawn_plain(trained, model_path, tmp_path, capsys):
    source = trained / "features" / "slide001.h5"
    outs = [tmp_path / f"x{end}" for end in (".png", ".html", ".ome.tiff", ".geojson")]
    words = ["heatmap", model_path, source, "--show", "classes", "--out", *outs]
    assert main([str(word) for word in words]) == 0
    assert all(path.stat().st_size > 1000 for path in outs)
    assert "unknown without --slide" in capsys.readouterr().err
    assert "Regions looked at" not in outs[1].read_text(encoding="utf-8")


def test_an_empty_slide_has_a_report_that_says_so(mean_model, tmp_path):
    from spt_core.learning.model_file import save_model
    from spt_core.tokens import write_tokens

    model = tmp_path / "m.safetensors"
    save_model(model, mean_model)
    nothing = np.zeros((0, 2), np.int64)
    facts = TokenFacts(name="e", l0_patch_xy=(10, 10), l0_step_xy=(10, 10))
    write_tokens(
        tmp_path / "e.h5",
        Tokens(np.zeros((0, DIM), np.float32), nothing, nothing, facts),
    )
    assert len(read_tokens(tmp_path / "e.h5")) == 0
    words = ["heatmap", model, tmp_path / "e.h5", "--out", tmp_path / "e.html"]
    words += [tmp_path / "e.geojson"]
    assert main([str(word) for word in words]) == 0
    assert "No tissue" in (tmp_path / "e.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "e.geojson").read_text())["features"] == []
    words = ["heatmap", model, tmp_path / "e.h5", "--out", tmp_path / "e.png"]
    assert main([str(word) for word in words]) == 1
    assert not (tmp_path / "e.png").exists()


def test_wrong_usage_is_a_sentence(exported, trained, model_path, capsys, tmp_path):
    _, _, slide, _ = exported
    source = trained / "features" / "slide001.h5"
    for words in (
        ["heatmap", model_path, source, "--out", tmp_path / "x.jpg"],
        ["heatmap", model_path, trained / "features", "--out", tmp_path / "x.png"],
        ["heatmap", model_path, source, "--slide", slide, "--out", tmp_path / "x.png"],
    ):
        assert main([str(word) for word in words]) == 1
        assert capsys.readouterr().err.startswith("spt: ")
    assert list(tmp_path.iterdir()) == []


def test_one_patch_and_off_lattice_patches(mean_model, tmp_path):
    one = predict(mean_model, grid_tokens(np.ones((1, DIM))))
    write_ome_tiff(tmp_path / "one.ome.tif", one, None, Geometry((0.5, 0.5)))
    assert tifffile.imread(tmp_path / "one.ome.tif").shape == (3, 1, 1)
    image = overlay.attention_overlay(one, tissue_picture(one, None), Geometry(None))
    assert image.width > 100
    tokens = grid_tokens(made_slide(0, np.random.default_rng(0))[0], off_lattice=True)
    tokens.xy[70:] += 33
    prediction = predict(mean_model, tokens)
    write_geojson(tmp_path / "off.geojson", prediction)
    features = json.loads((tmp_path / "off.geojson").read_text())["features"]
    places = [shape(one["geometry"]).bounds[:2] for one in features]
    np.testing.assert_array_equal(places, tokens.xy)  # where they are, to the pixel


def test_unreadable_models_and_formats(tmp_path):
    with pytest.raises(InputError):
        load_model(Path(tmp_path / "no.safetensors"))


def test_prediction_csv_has_a_row_a_slide(exported):
    _, out, _, _ = exported
    with (out / "p.csv").open() as file:
        (row,) = csv.DictReader(file)
    (record,) = json.loads((out / "p.json").read_text())
    assert row["slide"] == record["slide"]
    assert float(row["a"]) + float(row["b"]) == pytest.approx(1, abs=1e-5)
