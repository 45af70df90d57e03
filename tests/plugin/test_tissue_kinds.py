"""Kinds of tissue in the window: named, recoloured, merged, exported, kept."""

import json

import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication, QLabel

from napari_spt.parts.settings import kinds_folder
from napari_spt.parts.viewing import camera
from spt_core.engine.protocol import Analysed, Predicted, TissueMapped
from spt_core.insight.codebook import codebook_file, read_codebook
from spt_core.insight.results import Verdict
from spt_core.insight.similarity import LookAlikes, most_alike
from tests.made_slides import picture, write_svs
from tests.plugin.dock_tools import (
    begun,
    map_of,
    open_slide,
    prediction,
    sent,
    started,
    tissue_map,
)

STEP = (100, 100)
PLACES = [(x, y) for y in range(0, 1000, 100) for x in range(0, 1200, 100)]


def mapped(viewer, dock, path, folder):
    """A slide whose tissue has been mapped, without a model."""
    write_svs(path, picture(1423, 1111))
    layer = open_slide(viewer, path)
    analysis = begun(dock, layer)
    none = prediction(
        PLACES,
        STEP,
        attention=np.zeros((0, len(PLACES))),
        probabilities=None,
        classes=(),
        verdict=Verdict.NO_CLASSES,
    )
    for reply in (
        started(len(PLACES), STEP, analysis.slide),
        Predicted(none),
        Analysed(folder / "kept.h5", reused=False, seconds=1.0),
        TissueMapped(tissue_map(PLACES, step=STEP)),
    ):
        dock.state.apply(analysis, sent(reply, folder))
    return analysis


@pytest.fixture
def tissue(open_dock, tmp_path, qtbot):
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    dock.model.choose_none()
    analysis = mapped(viewer, dock, tmp_path / "a.svs", tmp_path)
    qtbot.wait(50)
    return viewer, dock, analysis


def kept(analysis):
    return read_codebook(codebook_file(kinds_folder(), analysis.tissue_map.facts))


def legend_words(dock):
    return [label.text() for label in dock.renderer.legend.findChildren(QLabel)]


def row_of(dock, number):
    return next(row for row in dock.kinds.rows if row.number == number)


def test_each_kind_has_an_example_an_area_and_a_share(tissue, qtbot):
    _, dock, analysis = tissue
    assert dock.tabs.current == "Kinds"
    assert len(dock.kinds.rows) == 2
    um = analysis.mpp_xy[0]
    mm2 = 60 * (100 * um / 1000) ** 2
    for row in dock.kinds.rows:
        said = row.area.text()
        assert "50 %" in said
        assert float(said.split(" mm²")[0]) == pytest.approx(mm2, rel=0.1)
        assert row.example.accessibleName()
    qtbot.waitUntil(
        lambda: all(not row.example.icon().isNull() for row in dock.kinds.rows),
        timeout=10_000,
    )
    qtbot.mouseClick(row_of(dock, 1).example, Qt.MouseButton.LeftButton)
    dock.navigator.flight.land()
    x, y = analysis.tissue_map.xy[analysis.tissue_map.typical[1]]
    middle = analysis.lattice.world(analysis.layer, (x + 50, y + 50))
    np.testing.assert_allclose(camera(dock.viewer).center[-2:], middle, atol=1e-6)


def test_a_name_is_typed_and_is_everywhere(tissue, qtbot, tmp_path):
    viewer, dock, analysis = tissue
    other = mapped(viewer, dock, tmp_path / "b.svs", tmp_path)
    line = row_of(dock, 1).name
    qtbot.mouseClick(line, Qt.MouseButton.LeftButton)
    qtbot.keyClicks(line, "stroma")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    for one in (analysis, other):
        assert one.tissue_map.kinds.names == ("", "stroma")
    assert any("stroma" in words for words in legend_words(dock))
    assert list(map_of(dock, "kinds").features["name"]) == [
        "",
        "tissue kind 1",
        "stroma",
    ]
    # Under the mouse: the second patch, and the file for the next slide.
    um = other.mpp_xy[0]
    place = (50 * um, 150 * um)
    assert "stroma" in other.layer.get_status(place, world=True)["coordinates"]
    qtbot.waitUntil(lambda: kept(other) is not None, timeout=5000)
    qtbot.waitUntil(lambda: kept(other).names == ("", "stroma"), timeout=5000)


def test_a_colour_is_chosen_and_is_drawn(tissue, qtbot):
    _, dock, analysis = tissue
    menu = row_of(dock, 0).colour.menu()
    menu.actions()[4].trigger()
    from spt_core.insight.colours import KIND_COLOURS

    wanted = KIND_COLOURS[4]
    assert tuple(analysis.tissue_map.kinds.rgb[0]) == wanted
    layer = map_of(dock, "kinds")
    drawn = layer.colormap.color_dict[1][:3]
    np.testing.assert_allclose(np.asarray(drawn) * 255, wanted, atol=1)
    qtbot.waitUntil(lambda: kept(analysis) is not None, timeout=5000)


def test_kinds_are_merged(tissue, qtbot):
    _, dock, analysis = tissue
    action = row_of(dock, 0).more.menu().actions()[0]
    assert action.text() == "Same as tissue kind 2"
    action.trigger()
    QApplication.processEvents()
    assert [row.number for row in dock.kinds.rows] == [1]
    assert "100 %" in dock.kinds.rows[0].area.text()
    assert set(np.unique(map_of(dock, "kinds").data)) == {0, 1}
    assert not dock.kinds.rows[0].more.isEnabled()
    qtbot.waitUntil(lambda: kept(analysis) is not None, timeout=5000)
    assert len(kept(analysis)) == 1


def test_opacity_is_set_and_the_map_fades_near_by(tissue):
    viewer, dock, _ = tissue
    layer = map_of(dock, "kinds")
    viewer.reset_view()
    dock.kinds.opacity.setValue(80)
    assert layer.opacity == pytest.approx(0.8 * dock.renderer.current.fade, abs=0.01)
    far = layer.opacity
    camera(viewer).zoom *= 20
    assert layer.opacity < 0.5 * far
    dock.keep_settings()
    from napari_spt.analysis.preferences import remembered_view

    assert remembered_view().kinds_opacity == pytest.approx(0.8)


@pytest.mark.parametrize("ending", [".html", ".geojson", ".ome.tif", ".png"])
def test_it_is_exported(tissue, qtbot, tmp_path, ending):
    _, dock, analysis = tissue
    assert dock.export.export.isVisible()
    dock.editor.rename(1, "stroma")
    path = tmp_path / f"found{ending}"
    dock.export.write(path)
    qtbot.waitUntil(lambda: path.exists() and dock.export.export.isEnabled())
    if ending == ".geojson":
        features = json.loads(path.read_text())["features"]
        said = {one["properties"]["classification"]["name"] for one in features}
        assert said == {"tissue kind 1", "stroma"}
    elif ending == ".html":
        assert "stroma" in path.read_text()
        assert f"<h1>{analysis.slide.name}</h1>" not in path.read_text()


def test_more_like_this_fades_and_shows_the_likest_places(tissue, qtbot):
    _, dock, analysis = tissue
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(len(PLACES), 16)).astype(np.float32)
    xy = np.asarray(PLACES)
    analysis.look_alikes, analysis.look_alikes_xy = LookAlikes(tokens), xy
    dock.tabs.show_page("Questions")
    dock.questions.like.setChecked(True)
    dock.questions.show_alike(analysis.lattice.world(analysis.layer, (450, 350)))
    strip = dock.questions.alike
    assert strip.isVisible()
    row = PLACES.index((400, 300))
    assert strip.places[0].l0_xy == (400, 300)
    assert strip.places[0].caption == "this"
    like = analysis.look_alikes.like([row])
    rows = most_alike(like, xy, STEP)
    assert [one.l0_xy for one in strip.places] == [PLACES[one] for one in rows]
    assert (np.diff(like[rows]) <= 0).all()
    gaps = np.abs(xy[rows][:, None] - xy[rows][None]).max(axis=-1)
    assert (gaps[np.triu_indices(len(rows), 1)] >= 300).all()
    layer = map_of(dock, "likeness")
    far = layer.opacity
    qtbot.mouseClick(strip.buttons[2], Qt.MouseButton.LeftButton)
    dock.navigator.flight.land()
    assert layer.opacity < 0.7 * far
    dock.questions.like.setChecked(False)
    assert strip.isHidden()
    assert map_of(dock, "kinds").visible


def test_more_like_this_on_the_other_open_slides(tissue, qtbot, tmp_path):
    viewer, dock, first = tissue
    second = mapped(viewer, dock, tmp_path / "b.svs", tmp_path)
    rng = np.random.default_rng(0)
    xy = np.asarray(PLACES)
    tokens = [rng.normal(size=(len(PLACES), 16)).astype(np.float32) for _ in range(2)]
    tokens[1][77] = 2 * (tokens[0][5] - tokens[0].mean(axis=0)) + tokens[1].mean(axis=0)
    for analysis, x in zip((first, second), tokens, strict=True):
        analysis.look_alikes, analysis.look_alikes_xy = LookAlikes(x), xy
    dock.tracker.pick(first.layer)
    dock.tabs.show_page("Questions")
    dock.questions.like.setChecked(True)
    x, y = PLACES[5]
    dock.questions.show_alike(first.lattice.world(first.layer, (x + 50, y + 50)))
    strip = dock.questions.alike
    elsewhere = [one for one in strip.places if one.of is second]
    assert elsewhere[0].l0_xy == PLACES[77]
    assert second.slide.name in elsewhere[0].caption
    # A click brings the other slide, with its own map of what is alike.
    button = strip.buttons[strip.places.index(elsewhere[0])]
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    dock.navigator.flight.land()
    assert dock.state.analysis is second
    layer = map_of(dock, "likeness", second)
    assert layer.visible
    centred = tokens[1] - tokens[1].mean(axis=0)
    asked = tokens[0][5] - tokens[0].mean(axis=0)
    expected = centred @ asked
    expected /= np.linalg.norm(centred, axis=1) * np.linalg.norm(asked)
    got = layer.data[xy[:, 1] // 100, xy[:, 0] // 100]
    np.testing.assert_allclose(got, np.maximum(expected, 0), atol=1e-4)
    assert strip.isVisible()
    # And back to the slide that was asked of.
    qtbot.mouseClick(strip.buttons[0], Qt.MouseButton.LeftButton)
    assert dock.state.analysis is first
    dock.questions.like.setChecked(False)
    for analysis in (first, second):
        assert map_of(dock, "likeness", analysis) is None
