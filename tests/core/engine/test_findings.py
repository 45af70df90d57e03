"""What the window writes, from the messages of the engine."""

import re
import shlex
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from napari_spt.analysis.report import write_findings

from napari_spt.analysis.state import Analysis
from napari_spt.slides.slide_source import SlideSource
from spt_core import bundled, open_slide
from spt_core.insight.wording import STATED_BY_USER
from tests.core.engine.pipe import of
from tests.core.insight.slides import SECRETS
from tests.core.patches.conftest import tissue_picture
from tests.made_slides import write_tiff


@pytest.fixture(scope="module")
def found(engine, slide, model, tmp_path_factory):
    return analysed(engine, slide, model, tmp_path_factory.mktemp("findings"))


def analysed(engine, path, model, features, slide_mpp=None):
    """What the window knows once all messages came."""
    asked = {"slide": path, "model": model, "features": features}
    messages = engine.finish(engine.ask("analyse", **asked, slide_mpp=slide_mpp))
    slide = open_slide(path)
    source = SlideSource(path.name, path, slide.mpp_xy, slide.dimensions)
    known = Analysis(source, model, slide_mpp)
    wanted = {
        "started": ("mask",),
        "prediction": ("l0_xy", "g_rc", "attention"),
        "class_map": ("l0_xy", "g_rc", "probabilities", "unsure"),
    }
    for event, names in wanted.items():
        message = of(messages, event)[-1]
        arrays = {name: np.array(engine.array(message, name)) for name in names}
        known.take(event, message, arrays)
    return known


def words_of(path):
    page = path.read_text(encoding="utf-8")
    page = re.sub(r"<style>.*?</style>|<img[^>]*>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", page))


def test_the_window_writes_what_the_command_would(found, model, tmp_path):
    words = words_of(write_findings(tmp_path / "r.html", found, names_slide=False))
    assert "What it is for" in words
    assert "Tells apart a and b." in words
    assert words.count("Looked at most:") == 6
    assert words.count("Chosen by chance:") == words.count("Looked at least:") == 3
    assert f"{model.name} SLIDE --out report.html" in words
    assert "--slide-mpp" not in words
    assert STATED_BY_USER not in words
    assert not any(secret in words for secret in SECRETS)
    assert write_findings(tmp_path / "r.png", found, names_slide=False).exists()


def test_a_pixel_size_asked_of_the_user_is_said_to_be(engine, model, tmp_path):
    path = tmp_path / "unsized.tif"
    write_tiff(path, tissue_picture(1600, 1400), mpp_xy=None)
    found = analysed(engine, path, model, tmp_path / "features", 0.5)
    words = words_of(write_findings(tmp_path / "r.html", found, names_slide=False))
    assert f"0.5 × 0.5 µm, {STATED_BY_USER}" in words
    assert f"Scale bar: pixel size {STATED_BY_USER}." in words
    (command,) = re.findall(r"spt heatmap [^\n]*", words)
    assert shlex.split(command)[-2:] == ["--slide-mpp", "0.5"]
    assert "unsized" not in words


@pytest.mark.parametrize("slide_mpp", [None, 0.25])
def test_what_the_file_says_comes_first(found, tmp_path, slide_mpp):
    """The bundled model needs no name in the command."""
    other = replace(found, model=bundled.slide_model_path(), slide_mpp=slide_mpp)
    words = words_of(write_findings(tmp_path / "r.html", other, names_slide=False))
    assert STATED_BY_USER not in words
    assert "spt heatmap SLIDE --out" in words
    assert "By a demonstration on synthetic tissue." in words
