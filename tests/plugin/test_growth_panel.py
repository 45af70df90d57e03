"""Slides that come to lie apart, and where the model looks, with a slider back."""

from dataclasses import replace

import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest

from napari_spt.training.growth_panel import GrowthPanel, attention_picture
from napari_spt.training.study_slides import study_labels, study_slides
from spt_core.learning.growth_file import Snapshot, write_snapshot
from tests.plugin.test_result_panel import study  # noqa: F401

N = 20


def snapshot(step, apart, *, held_out=True, turned=False):
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    xy = rng.normal(size=(N, 2)) * 0.3
    xy[:, 0] += apart * (y - 0.5)
    if turned:
        xy = xy[:, ::-1] * (1, -1)
    grid = np.stack(np.meshgrid(range(4), range(6), indexing="ij"), -1).reshape(-1, 2)
    attention = np.ones(len(grid), np.float32)
    attention[step % len(grid)] = 4
    return Snapshot(
        step,
        tuple(f"slide-{n}" for n in range(N)),
        xy.astype(np.float32),
        y,
        ("glandular", "small"),
        np.full(N, held_out),
        3,
        grid,
        attention,
    )


@pytest.fixture
def panel(make_napari_viewer, qtbot, tmp_path):
    viewer = make_napari_viewer(show=True)
    panel = GrowthPanel()
    viewer.window.add_dock_widget(panel, name="Growth")
    assert not panel.empty.isHidden()
    panel.show(tmp_path)
    assert not panel.empty.isHidden()
    return panel


def gap(panel):
    y = np.arange(N) % 2
    xy = panel.plot.xy
    return np.linalg.norm(xy[y == 0].mean(axis=0) - xy[y == 1].mean(axis=0))


def test_the_newest_is_followed_until_one_goes_back(panel, tmp_path):
    for step, apart in ((0, 0.0), (5, 1.0)):
        write_snapshot(tmp_path, snapshot(step, apart))
    panel.refresh()
    assert panel.empty.isHidden()
    assert "After step 5" in panel.says.text()
    write_snapshot(tmp_path, snapshot(10, 3.0, turned=True))
    panel.refresh()
    assert "After step 10" in panel.says.text()
    assert gap(panel) > 2
    # Back in time, by key; what comes meanwhile does not take one away.
    panel.slider.setFocus()
    QTest.keyClick(panel.slider, Qt.Key.Key_Home)
    assert "Before the first step" in panel.says.text()
    assert gap(panel) < 0.5
    write_snapshot(tmp_path, snapshot(15, 3.5))
    panel.refresh()
    assert "Before the first step" in panel.says.text()
    assert panel.slider.maximum() == 3
    QTest.mouseClick(panel.newest, Qt.MouseButton.LeftButton)
    assert "After step 15" in panel.says.text()
    write_snapshot(tmp_path, snapshot(20, 4.0))
    panel.refresh()
    assert "After step 20" in panel.says.text()
    said = [button.text() for button in panel.legend.buttons]
    assert said == [f"glandular ({N // 2})", f"small ({N // 2})"]


def test_labels_colour_what_is_learned_without_them(panel, tmp_path):
    bare = replace(snapshot(0, 3.0, held_out=False), y=np.full(N, -1), classes=())
    write_snapshot(tmp_path / "before", bare)
    panel.show(tmp_path / "before")
    assert "Learning without labels" in panel.says.text()
    assert [one.text() for one in panel.legend.buttons] == [f"not known ({N})"]
    panel.use_labels({f"slide-{n}": "ab"[n % 2] for n in range(N - 1)})
    said = [one.text() for one in panel.legend.buttons]
    assert said == ["a (10)", "b (9)", "not known (1)"]
    assert "does not know the labels" in panel.says.text()


def test_the_labels_of_a_study_are_found(study):  # noqa: F811
    known = study_labels(study.path)
    assert set(known.values()) == {"a", "b"}
    assert set(known) == set(study_slides(study.path).names)


def test_a_map_that_was_turned_is_turned_back(panel, tmp_path):
    write_snapshot(tmp_path, snapshot(0, 2.9, turned=True))
    write_snapshot(tmp_path, snapshot(5, 3.0))
    panel.refresh()
    later = panel.plot.xy - panel.plot.xy.mean(axis=0)
    panel.slider.setValue(0)
    assert np.abs(panel.plot.xy - later).max() < 0.2


def test_attention_is_where_the_patches_are(panel, tmp_path):
    write_snapshot(tmp_path, snapshot(8, 1.0))
    panel.refresh()
    assert "does not learn from" in panel.looks.text()
    assert "no proof" not in panel.says.text()
    picture = attention_picture(snapshot(8, 1.0)).toImage()
    across, down = picture.width() / 6, picture.height() / 4
    green = np.array(
        [
            [
                picture.pixelColor(
                    int((col + 0.5) * across), int((row + 0.5) * down)
                ).green()
                for col in range(6)
            ]
            for row in range(4)
        ]
    )
    assert np.unravel_index(green.argmax(), green.shape) == (8 // 6, 8 % 6)
    write_snapshot(tmp_path, snapshot(9, 1.0, held_out=False))
    panel.refresh()
    assert "one of its slides" in panel.looks.text()
    assert "no proof" in panel.says.text()
