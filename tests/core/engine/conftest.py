"""A slide, a model that takes its patches, and an engine that many tests share."""

import os

import pytest

from spt_core.engine.protocol import Ready
from tests.core.engine.pipe import Pipe, analysis
from tests.core.insight.slides import make_model, make_slide


@pytest.fixture(scope="package")
def slide(tmp_path_factory):
    return make_slide(tmp_path_factory.mktemp("slide"))


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "m.safetensors")


# Prints at both levels, as libraries do, from the moment that torch is there.
NOISE = """
import os, sys, threading, time
def talk():
    while "torch" not in sys.modules:
        time.sleep(0.01)
    while True:
        print("noise")
        os.write(1, b"noise below")
        time.sleep(0.2)
threading.Thread(target=talk, daemon=True).start()
"""
# Takes its process down with every slide of this name, as damaged files do.
CRASHES = """
import openslide
opened = openslide.OpenSlide.__init__
def crash(self, filename):
    if "crashes" in str(filename):
        os.abort()
    opened(self, filename)
openslide.OpenSlide.__init__ = crash
"""


@pytest.fixture(scope="package")
def engine(tmp_path_factory):
    """An engine with noisy and frail libraries; ``hello`` is what it said at first."""
    folder = tmp_path_factory.mktemp("session")
    (folder / "sitecustomize.py").write_text(NOISE + CRASHES)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    pipe = Pipe(folder / "arrays", env={"PYTHONPATH": path.rstrip(os.pathsep)})
    pipe.hello = [one.message for one in pipe.until(Ready, seconds=120)]
    yield pipe
    pipe.close()


@pytest.fixture(scope="package")
def analysed(engine, slide, model, tmp_path_factory):
    """The messages of one whole analysis."""
    features = tmp_path_factory.mktemp("features")
    return engine.answer(analysis(slide, features, model=model))
