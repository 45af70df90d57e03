"""What the window writes, from the messages of the engine."""

import re
import shlex
from dataclasses import replace
from html import unescape

import pytest

from spt_core import bundled
from spt_core.engine.protocol import ClassesMapped, Predicted, Started
from spt_core.insight.exporting import Findings, write_findings
from spt_core.insight.wording import STATED_BY_USER
from tests.core.engine.pipe import analysis, of
from tests.core.insight.slides import SECRETS
from tests.core.patches.conftest import tissue_picture
from tests.made_slides import write_tiff


@pytest.fixture(scope="module")
def analyse(engine, model, tmp_path_factory):
    """What the window knows once all messages came."""

    def analyse(path, slide_mpp=None):
        folder = tmp_path_factory.mktemp("findings")
        request = analysis(path, folder, model=model, slide_mpp=slide_mpp)
        messages = engine.answer(request)
        return Findings(
            of(messages, Predicted)[-1].prediction,
            path,
            of(messages, ClassesMapped)[-1].class_map,
            model,
            mpp_from_user=of(messages, Started)[0].mpp_from_user,
            slide_mpp=slide_mpp,
        )

    return analyse


@pytest.fixture(scope="module")
def found(analyse, slide):
    return analyse(slide)


def words_of(path, findings):
    write_findings(path, findings)
    page = path.read_text(encoding="utf-8")
    page = re.sub(r"<style>.*?</style>|<img[^>]*>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", page))


def test_the_window_writes_what_the_command_would(found, model, tmp_path):
    words = words_of(tmp_path / "r.html", found)
    assert "What it is for" in words
    assert "Tells apart a and b." in words
    assert words.count("Looked at most:") == 6
    assert words.count("Chosen by chance:") == words.count("Looked at least:") == 3
    assert f"{model.name} SLIDE --out report.html" in words
    assert "--slide-mpp" not in words
    assert STATED_BY_USER not in words
    assert not any(secret in words for secret in SECRETS)
    write_findings(tmp_path / "r.png", found)
    assert (tmp_path / "r.png").exists()


def test_a_pixel_size_asked_of_the_user_is_said_to_be(analyse, tmp_path):
    path = tmp_path / "unsized.tif"
    write_tiff(path, tissue_picture(1600, 1400), mpp_xy=None)
    words = words_of(tmp_path / "r.html", analyse(path, 0.5))
    assert f"0.5 × 0.5 µm, {STATED_BY_USER}" in words
    assert f"Scale bar: pixel size {STATED_BY_USER}." in words
    (command,) = re.findall(r"spt heatmap [^\n]*", words)
    assert shlex.split(command)[-2:] == ["--slide-mpp", "0.5"]
    assert "unsized" not in words


@pytest.mark.parametrize("slide_mpp", [None, 0.25])
def test_what_the_file_says_comes_first(analyse, slide, tmp_path, slide_mpp):
    """The bundled model needs no name in the command."""
    found = analyse(slide, slide_mpp)
    other = replace(found, model=bundled.slide_model_path())
    words = words_of(tmp_path / "r.html", other)
    assert STATED_BY_USER not in words
    assert "spt heatmap SLIDE --out" in words
    assert "By a demonstration on synthetic tissue." in words
