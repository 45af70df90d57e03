"""What reports and pictures say of the model, of doubt, of places and pixel sizes."""

import re
import shlex
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from spt_core import bundled, open_slide
from spt_core.cli import build_parser, main
from spt_core.commands.predict import settle_model
from spt_core.insight import overlay
from spt_core.insight.class_map import class_map
from spt_core.insight.colours import EACH_ALONE, EVEN
from spt_core.insight.exporting import Findings, write_findings
from spt_core.insight.geometry import Geometry, PixelSizeFrom
from spt_core.insight.maps import attention_values
from spt_core.insight.model_words import calibration_in_words, read_model_words
from spt_core.insight.picture import tissue_picture
from spt_core.insight.predicting import predict
from spt_core.insight.regions import choose_regions
from spt_core.insight.report import ReportParts, report_page
from spt_core.insight.reproducing import command_again
from spt_core.insight.results import ClassMap, Verdict
from spt_core.insight.wording import (
    STATED_BY_FEATURES,
    STATED_BY_USER,
    UNLIKE,
    coverage,
    pixel_size_note,
)
from spt_core.learning.model_card import (
    Architecture,
    Calibration,
    JudgedOn,
    Metrics,
    TrainingSummary,
    read_model_card,
)
from tests.core.insight.conftest import changed, finish, made_slide
from tests.core.insight.slides import make_model
from tests.core.patches.conftest import tissue_picture as made_tissue
from tests.made_slides import write_tiff
from tests.made_tokens import DIM, STEP, grid_tokens

DEMONSTRATION = read_model_card(bundled.slide_model_path())


def words_of(page):
    """A page's words; its pictures and their descriptions are left out."""
    page = re.sub(r"<style>.*?</style>|<img[^>]*>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", page))


@pytest.fixture
def parts(mean_model):
    tokens = grid_tokens(made_slide(0, np.random.default_rng(0))[0] + 1)
    found = replace(predict(mean_model, tokens), remarks=())
    return ReportParts(
        prediction=found,
        geometry=Geometry.of(tokens.facts, None),
        called="slide-0",
        card=mean_model.card,
        model_name="mine.safetensors",
        model_sha256="ab" * 32,
        command="",
    )


def answer_of(page):
    return re.search(r'<p class="answer( doubt)?">(.*?)</p>', page).groups()


# What users named


def test_what_users_named_is_text(parts):
    named = "<script>alert(1)</script>\" onload='x' <img src=x onerror=y> `z` |"
    asked = replace(
        parts,
        called=named,
        model_name=named,
        command=shlex.join(["spt", "heatmap", named]),
        prediction=replace(parts.prediction, classes=(named, named + "2")),
        card=replace(parts.card, classes=(named, named + "2")),
    )
    page = report_page(asked)
    assert "<script" not in page
    assert "<img src=x" not in page
    assert not re.search(r"<[^>]* on\w+=", page)
    assert named in words_of(page)


# The model


def test_a_report_says_what_the_model_is_for(parts):
    card = replace(
        parts.card,
        title="Lung",
        about="Names two kinds of lung tumour.",
        training=TrainingSummary(50, patients=40, class_counts={"a": 30, "b": 20}),
        judged_on=JudgedOn("30 slides of another hospital", accuracy=0.8),
        metrics=Metrics(knn=1.0, knn_held_out=False, effective_rank=23.4),
        architecture=Architecture("transformer", {"dim": 192, "depth": 2, "heads": 3}),
    )
    page = report_page(replace(parts, card=card))
    words = words_of(page)
    for expected in (
        "Lung",
        "Names two kinds of lung tumour.",
        "Learned from 50 slides of 40 patients (30 a and 20 b).",
        "On 30 slides of another hospital: accuracy 0.80.",
        "transformer, 2 layers, 3 heads, width 192",
        "Not measured: its numbers are scores.",
    ):
        assert expected in words
    assert words.index("Lung") < words.index("Uncalibrated score")
    for raw in ("knn", "effective_rank", "in_dim", "None", "{"):
        assert raw not in words
    assert answer_of(page)[0] is None  # the whole of a slide, by no demonstration


def test_a_demonstration_is_plainly_one(parts):
    page = report_page(replace(parts, card=DEMONSTRATION))
    doubt, answer = answer_of(page)
    assert doubt
    assert "demonstration on synthetic tissue" in answer
    assert "On a real slide its answer means nothing." in answer
    assert "From all of the tissue (144 patches)." in answer
    words = words_of(page)
    assert "Demonstration (synthetic tissue)" in words
    assert "160 slides of synthetic tissue" in words
    assert "patients" not in words
    assert "error_before" not in words
    assert "does not help (error 0.000 without, 0.047 with it)" in words


def test_calibration_in_words():
    def said(**known):
        return calibration_in_words(Calibration(**known))

    assert "scores" in calibration_in_words(None)
    assert "scores" in said()
    assert said(temperature=2.0) == "By a temperature of 2, measured."
    helped = {"temperature": 2.0, "error_before": 0.2, "error_after": 0.1}
    assert said(**helped, slides=24, folds=3) == (
        "By a temperature of 2, measured on 24 slides in 3 folds: error 0.200 "
        "without, 0.100 with it."
    )
    assert "does not help" in said(temperature=None, error_before=0, error_after=0)


def test_without_a_model_nothing_is_made_up(parts):
    words = words_of(report_page(replace(parts, card=None, model_name="no model")))
    assert "What it is for" not in words
    assert "None" not in words
    assert "To make it again" not in words


# Doubt


def test_a_part_of_a_slide_is_doubted_and_says_how_large_it_is(parts):
    part = replace(parts.prediction, total=1440)
    doubt, answer = answer_of(report_page(replace(parts, prediction=part)))
    assert doubt
    assert "From 10 % of the tissue (144 of 1,440 patches)" in answer
    nearly = replace(part, total=145)
    assert "From 99 % of the tissue" in coverage(nearly)


def test_an_even_map_is_said_to_be_even(parts):
    n = len(parts.prediction)
    assert EVEN in words_of(report_page(parts))  # a mean looks everywhere alike
    strong = np.ones((1, n), np.float32)
    strong[0, :20] = 50
    found = replace(parts.prediction, attention=strong / strong.sum())
    assert EVEN not in words_of(report_page(replace(parts, prediction=found)))


# Places


@pytest.fixture(scope="module")
def unsized(tmp_path_factory):
    """A slide whose file does not say how large a pixel is, and a model."""
    folder = tmp_path_factory.mktemp("unsized")
    slide = folder / "unsized.tif"
    write_tiff(slide, made_tissue(1600, 1400), mpp_xy=None)
    return slide, make_model(folder / "my model.safetensors")


def made_report(folder, slide, model, *more):
    out = folder / "report.html"
    words = ["heatmap", model, slide, "--slide-mpp", 0.5, *more, "--device", "cpu"]
    assert main([str(word) for word in [*words, "--out", out]]) == 0
    return out.read_text(encoding="utf-8")


def test_regions_are_those_of_the_window_each_with_its_reason(unsized, parts):
    slide = open_slide(unsized[0], 0.5)
    found = parts.prediction
    weights = np.random.default_rng(2).random((1, len(found))).astype(np.float32)
    found = replace(found, attention=weights / weights.sum())
    shown = replace(parts, prediction=found, slide=slide)
    page = report_page(replace(shown, geometry=Geometry((0.5, 0.25), (100, 0))))
    captions = re.findall(r"<figcaption>(Looked[^<]*|Chosen[^<]*)", page)
    times = attention_values(found.attention, unit="times average")
    chosen = choose_regions(found.p, times)
    kinds = {"most": "Looked at most", "random": "Chosen", "least": "Looked at least"}
    assert len(captions) == len(chosen) == 12
    for caption, region in zip(captions, chosen, strict=True):
        x, y = found.xy[region.row]
        assert caption.startswith(kinds[region.kind])
        assert f": {times[region.row]:.1f} × average" in caption
        millimetres = f"x {(x - 100) * 0.5 / 1000:.2f}, y {y * 0.25 / 1000:.2f} mm"
        assert f"{millimetres} ({x - 100}, {y} px)" in caption
        assert f"{STEP * 0.5:.0f} µm across" in caption
    page = report_page(replace(shown, geometry=Geometry(None)))
    row = chosen[0].row
    x, y = found.xy[row]
    assert f"at x {x}, y {y} px<" in page
    assert " mm (" not in page


# Pixel sizes, and the command


def test_a_pixel_size_that_its_user_stated_is_said_to_be(unsized, tmp_path):
    slide, model = unsized
    page = made_report(tmp_path, slide, model)
    words = words_of(page)
    assert f"0.5 × 0.5 µm, {STATED_BY_USER}" in words
    assert words.count(f"Scale bar: pixel size {STATED_BY_USER}.") == 2
    (command,) = re.findall(r"<code>(.*?)</code>", page)
    command = shlex.split(unescape(command))
    assert command[:4] == ["spt", "heatmap", "my model.safetensors", "SLIDE"]
    assert command[-2:] == ["--slide-mpp", "0.5"]
    assert "unsized" not in words


def test_the_command_makes_the_report_again(unsized, tmp_path, monkeypatch):
    """With the slide's file put in, beside the model."""
    slide, model = unsized
    features = tmp_path / "features"
    page = made_report(tmp_path, slide, model, "--stride", 6, "--features", features)
    monkeypatch.chdir(model.parent)
    put_in = {"SLIDE": str(slide), "FEATURES.h5": str(features / "unsized.h5")}
    kept = [put_in["FEATURES.h5"], model, "--slide", slide, "--stride", 6]
    for made in (page, made_report(tmp_path, *kept)):
        (command,) = re.findall(r"<code>(.*?)</code>", made)
        _, *words = (put_in.get(one, one) for one in shlex.split(unescape(command)))
        assert main(words) == 0
        again = Path("report.html").read_text(encoding="utf-8")
        same = [re.sub(r"Made on.*", "", one) for one in (again, made)]
        assert same[0] == same[1]


def test_the_command_names_the_site_wherever_it_was_said(unsized, parts, tmp_path):
    """By an option, in the labels or in the window: without it the answer is another"""
    slide, model = unsized
    labels = tmp_path / "labels.csv"
    labels.write_text("slide,label,site\nunsized,,lab b\n")
    for said in (("--site", "lab b"), ("--labels", labels)):
        page = made_report(tmp_path, slide, model, "--no-class-map", *said)
        (command,) = re.findall(r"<code>(.*?)</code>", page)
        words = shlex.split(unescape(command))
        assert words[words.index("--site") + 1] == "lab b"
    found = parts.prediction
    found = replace(found, facts=replace(found.facts, site="lab b"))
    write_findings(tmp_path / "window.html", Findings(found, None, model=model))
    page = (tmp_path / "window.html").read_text(encoding="utf-8")
    assert "--site &#x27;lab b&#x27;" in page


def test_the_bundled_model_is_left_out_of_the_command():
    command = command_again(bundled.slide_model_path(), "SLIDE", ["--slide-mpp", "0.5"])
    words = shlex.split(command)
    assert words[:4] == ["spt", "heatmap", "SLIDE", "--out"]
    args = build_parser("heatmap").parse_args(words[1:])
    settle_model(args)
    assert args.model == bundled.slide_model_path()
    assert (args.sources, args.slide_mpp) == (Path("SLIDE"), 0.5)


def test_the_file_is_believed_before_its_user(tmp_path, unsized):
    slide = tmp_path / "sized.tif"
    write_tiff(slide, made_tissue(900, 800), mpp_xy=(0.5, 0.5))
    words = words_of(made_report(tmp_path, slide, unsized[1], "--no-class-map"))
    assert "0.5 × 0.5 µm" in words
    assert STATED_BY_USER not in words


def test_features_that_state_the_pixel_size(parts):
    assert pixel_size_note(parts.geometry) == STATED_BY_FEATURES
    assert f"0.25 × 0.25 µm, {STATED_BY_FEATURES}" in words_of(report_page(parts))


# Pictures


@pytest.fixture
def written(monkeypatch):
    """The words on pictures, and that they are on the paper."""
    words = []
    plain = overlay._write

    def write(draw, place, text, size):
        words.append(text)
        right, bottom = draw.textbbox(place, text, overlay._font(size))[2:]
        width, height = draw.im.size
        assert right <= width, text
        assert bottom <= height, text
        plain(draw, place, text, size)

    monkeypatch.setattr(overlay, "_write", write)
    return words


def test_pictures_name_the_model_and_what_to_doubt(parts, written):
    picture = tissue_picture(parts.prediction, None)
    title = read_model_words(bundled.slide_model_path()).title

    def said(verdict, geometry=parts.geometry, **options):
        written.clear()
        found = replace(parts.prediction, verdict=verdict)
        overlay.attention_overlay(found, picture, geometry, **options)
        return " ".join(written)

    assert f"{UNLIKE} Model: {title}." in said(Verdict.UNLIKE, model=title)
    assert "Undecided" in said(Verdict.UNDECIDED)
    plain = said("answered")
    assert "Model" not in plain
    assert "Un" not in plain
    user = replace(parts.geometry, um_from=PixelSizeFrom.USER)
    assert f"Pixel size {STATED_BY_USER}." in said("answered", user)
    assert "From 10 %" in " ".join(
        overlay._notes(replace(parts.prediction, total=1440), "")
    )


def test_the_class_map_says_what_it_is(mean_model, written):
    tokens = grid_tokens(np.zeros((40 * 60, DIM)), cols=60)
    tokens.x[:, 0] = np.where(tokens.p[:, 1] < 30, 1.0, -1.0)
    changed(mean_model, classes=("a", "the second of a rather long and wordy name"))
    found = predict(mean_model, tokens)
    drawn, _ = finish(class_map(mean_model, tokens))
    picture = tissue_picture(found, None)
    overlay.class_overlay(found, drawn, picture, Geometry(None), model="Mine")
    words = " ".join(written)
    assert EACH_ALONE in words
    assert "% of patches" in words
    assert f"unsure {np.mean(drawn.unsure):.0%}" in words.replace("  ", " ")
    assert "Model: Mine." in words
    assert found.verdict == Verdict.UNDECIDED
    assert "Undecided" in words


def test_a_legend_longer_than_its_picture_is_whole(parts, written):
    """Eight classes beside a flat picture, and a narrow one."""
    names = tuple(f"kind number {number} of tumour" for number in range(8))
    for cols in (144, 1):
        tokens = grid_tokens(np.ones((144, DIM)), cols=cols)
        shares = np.eye(8, dtype=np.float32)[np.arange(144) % 8]
        found = replace(
            parts.prediction, p=tokens.p, xy=tokens.xy, verdict=Verdict.UNLIKE
        )
        drawn = ClassMap(names, tokens.xy, shares, False, 8, 4, 64, 1)
        picture = tissue_picture(found, None)
        user = replace(parts.geometry, um_from=PixelSizeFrom.USER)
        overlay.attention_overlay(found, picture, user, model="Mine")
        overlay.class_overlay(found, drawn, picture, user, model="Mine")
        assert "Class map" in written
