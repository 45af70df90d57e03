"""The bar in napari's activity area: one, and gone when the work is."""

from napari.utils.progress import progress
from qtpy.QtCore import QTimer

from napari_spt.parts import activity
from napari_spt.parts.activity import ActivityBar


def bars():
    return [one for one in progress._all_instances if one.desc.startswith("Slide an")]


def test_one_bar_though_the_window_tells_it_while_it_is_made(make_napari_viewer):
    viewer = make_napari_viewer()
    bar = ActivityBar()
    QTimer.singleShot(0, lambda: bar.show(2, 10))
    bar.show(1, 10)
    assert [(one.n, one.total) for one in bars()] == [(1, 10)]
    bar.close()
    assert bars() == []
    assert viewer.layers == []


def test_a_bar_closed_while_it_is_made_is_gone(make_napari_viewer):
    viewer = make_napari_viewer()
    bar = ActivityBar()
    QTimer.singleShot(0, bar.close)
    bar.show(1, 10)
    assert bars() == []
    assert viewer.layers == []


def test_it_is_not_told_at_every_step(make_napari_viewer, monkeypatch):
    viewer = make_napari_viewer()
    bar = ActivityBar()
    bar.show(1, 10)
    bar.show(5, 10)
    assert bars()[0].n == 1
    monkeypatch.setattr(activity, "SECONDS_BETWEEN", 0.0)
    bar.show(7, 12)
    assert (bars()[0].n, bars()[0].total) == (7, 12)
    bar.close()
    assert viewer.layers == []
