"""A slide, a model that takes its patches, and an engine that many tests share."""

import pytest

from tests.core.engine.pipe import Pipe
from tests.core.insight.slides import make_model, make_slide


@pytest.fixture(scope="package")
def slide(tmp_path_factory):
    return make_slide(tmp_path_factory.mktemp("slide"))


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "m.safetensors")


@pytest.fixture(scope="package")
def engine(tmp_path_factory):
    pipe = Pipe(tmp_path_factory.mktemp("session"))
    pipe.until("ready", seconds=120)
    yield pipe
    pipe.close()


@pytest.fixture(scope="package")
def analysed(engine, slide, model, tmp_path_factory):
    """The messages of one whole analysis; its arrays are still there."""
    features = tmp_path_factory.mktemp("features")
    return engine.finish(
        engine.ask("analyse", slide=slide, model=model, features=features)
    )
