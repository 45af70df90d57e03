"""The feature cache: its size, making room, and what is broken in it."""

import os
import subprocess
import sys

import numpy as np

from spt_core.engine import cache
from spt_core.slides.tissue import Tissue
from spt_core.tokens import Tokens, write_tokens
from spt_core.tokens.writing import PartialFeatures


def put(folder, number, *, age=0.0, rows=100):
    """Keep something for a slide, last used ``age`` seconds ago."""
    entry = cache.entry_for(folder, {"slide": number, "encoder": "e"})
    places = np.stack([np.zeros(rows, int), np.arange(rows)], axis=1)
    write_tokens(
        entry.features, Tokens(np.ones((rows, 16), np.float32), places, places)
    )
    entry.keep_tissue(Tissue(np.ones((9, 7), bool), (4.0, 4.5), ("a note.",)))
    for path in folder.glob(f"{entry.key}*"):
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    return entry


def test_the_window_may_ask_without_torch():
    code = "import sys, spt_core.engine.cache; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_key_is_of_all_that_decides(tmp_path):
    first = cache.entry_for(tmp_path, {"slide": "a", "encoder": "e"})
    assert first == cache.entry_for(tmp_path, {"encoder": "e", "slide": "a"})
    assert first != cache.entry_for(tmp_path, {"slide": "b", "encoder": "e"})
    assert first != cache.entry_for(tmp_path, {"slide": "a", "encoder": "f"})


def test_size_is_that_of_the_files(tmp_path):
    assert cache.feature_cache_size(tmp_path / "not there") == 0
    for number in range(3):
        put(tmp_path, number)
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert cache.feature_cache_size(tmp_path) == on_disk


def test_trimming_takes_what_was_not_used_for_longest(tmp_path):
    old, new, middle = (put(tmp_path, n, age=age) for n, age in enumerate((90, 10, 50)))
    total = cache.feature_cache_size(tmp_path)
    assert cache.trim(tmp_path, total) == 0
    freed = cache.trim(tmp_path, total - 1)
    assert freed == total - cache.feature_cache_size(tmp_path) > 0
    assert not old.features.exists()
    assert new.is_finished
    # Use makes the middle one the younger.
    middle.touch()
    cache.trim(tmp_path, middle.size)
    assert not new.features.exists()
    assert middle.is_finished


def test_clearing_leaves_the_files_of_others(tmp_path):
    put(tmp_path, 0)
    others = ("notes.txt", "my slide.h5", "x.h5.partial")
    for name in others:
        (tmp_path / name).write_text("mine")
    assert cache.clear(tmp_path) > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_what_is_being_written_stays(tmp_path):
    entry = put(tmp_path, 0)
    with PartialFeatures(entry.features, {"a": 1}, 4) as partial:
        partial.append(np.arange(2), np.ones((2, 4), np.float32))
        assert cache.clear(tmp_path) == 0
        assert entry.unfinished.exists()
        assert entry.features.exists()
    assert cache.clear(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []


def test_broken_features_are_no_features(tmp_path):
    entry = put(tmp_path, 0)
    assert entry.is_finished
    whole = entry.features.read_bytes()
    entry.features.write_bytes(whole[: len(whole) // 3])
    assert not entry.is_finished
    assert not entry.features.exists()


def test_the_tissue_comes_back(tmp_path):
    entry = cache.entry_for(tmp_path, {"slide": 1})
    assert entry.tissue() is None
    mask = np.random.default_rng(0).random((13, 21)) > 0.5
    entry.keep_tissue(Tissue(mask, (4.0, 4.0005), ("One.", "Two: µ.")))
    found = entry.tissue()
    np.testing.assert_array_equal(found.mask, mask)
    assert found.l0_scale_xy == (4.0, 4.0005)
    assert found.notes == ("One.", "Two: µ.")
    path = next(tmp_path.glob("*.npz"))
    path.write_bytes(path.read_bytes()[:60])
    assert entry.tissue() is None


def test_pictures_go_before_features(tmp_path, monkeypatch):
    """What is kept altogether: pictures are quickly written again."""
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path))
    assert cache.kept_bytes() == 0
    cache.pictures_folder().mkdir()
    pictures = [cache.pictures_folder() / f"{name}.tif" for name in "ab"]
    for age, path in enumerate(reversed(pictures)):
        path.write_bytes(b"p" * 700)
        then = path.stat().st_mtime - 100 * age
        os.utime(path, (then, then))
    folder = cache.features_folder()
    old, new = (put(folder, n, age=age) for n, age in ((1, 90), (2, 0)))
    kept = cache.kept_bytes()
    assert kept == 1400 + old.size + new.size
    assert cache.make_room(kept) == kept
    assert cache.make_room(kept - 1) == kept - 700
    assert [path.exists() for path in pictures] == [False, True]
    assert cache.make_room(kept - 1401) == new.size
    assert not pictures[1].exists()
    assert not old.features.exists()
    assert new.is_finished
    assert cache.make_room(-1) == 0
