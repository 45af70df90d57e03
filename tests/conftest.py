"""What the tests of the core and of the plugin share."""

import pytest


@pytest.fixture(autouse=True)
def _own_settings(tmp_path_factory, monkeypatch):
    """No test reads or writes the settings or the cache of whoever runs it."""
    monkeypatch.setenv("NAPARI_SPT_CONFIG", str(tmp_path_factory.mktemp("config")))
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path_factory.mktemp("cache")))
    # Making a graph takes seconds, in each test's own cache.
    monkeypatch.setenv("NAPARI_SPT_ONNX", "0")
