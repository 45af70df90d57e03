"""The map of slides in a real viewer, with real mouse and key events."""

import csv
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest
from napari.settings import get_settings
from qtpy.QtCore import QCoreApplication, QEvent, QPoint, Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

from napari_spt.parts.settings import remember
from napari_spt.slide_map.colouring import (
    OTHER,
    PALETTE,
    by_names,
    by_numbers,
    colouring,
    columns,
)
from napari_spt.slide_map.lasso import inside
from napari_spt.slide_map.slide_files import picture_of
from spt_core.engine.protocol import SlidesMapped
from spt_core.insight.slide_map import MapOfSlides, unit_length, unusualness
from spt_core.slides import open_slide, slide_name
from spt_core.tokens import Labels, TokenFacts, Tokens, read_labels, write_tokens
from tests.plugin.dock_tools import jargon_in, words_of

SLIDES = 24
SECRET = "Doe-Jane-1970"


def write_features(folder, name, shift, fingerprint):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    grid = np.stack(np.meshgrid(range(6), range(5), indexing="ij"), -1).reshape(-1, 2)
    facts = TokenFacts(
        encoder="made up",
        mpp=0.5,
        patch_size=224,
        l0_patch_xy=(224, 224),
        l0_step_xy=(224, 224),
        slide_fingerprint=fingerprint,
        name=name,
    )
    x = rng.normal(size=(30, 16)).astype(np.float32)
    x[:, 0] += 6 * shift
    x[:, 1] += 6 * (1 - shift)
    write_tokens(folder / f"{name}.h5", Tokens(x, grid, grid[:, ::-1] * 224, facts))


@pytest.fixture(scope="module")
def cohort(tmp_path_factory, sample):
    """Features of slides of two classes; the first one's slide is there too."""
    folder = tmp_path_factory.mktemp("cohort")
    (folder / "features").mkdir()
    names = [slide_name(sample), *(f"slide-{n:02}" for n in range(1, SLIDES))]
    (folder / sample.name).symlink_to(sample)
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["slide", "label", "patient", "site", "age"])
        for number, name in enumerate(names):
            write_features(folder / "features", name, number % 2, f"print {number}")
            row = [name, "ab"[number % 2], f"{SECRET}-{number // 2}"]
            writer.writerow([*row, f"site-{number % 3}", 40 + number])
    return folder


@pytest.fixture
def open_map(make_napari_viewer, engine):
    docks = []

    def opened():
        remember("asked_default_reader", True)
        viewer = make_napari_viewer(show=True)
        viewer.window.resize(1200, 900)
        _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Map of slides")
        docks.append((viewer, dock))
        return viewer, dock

    yield opened
    for viewer, dock in docks:
        if not dock.is_closed:
            viewer.window.remove_dock_widget(dock)
        assert dock.is_closed
        dock.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QCoreApplication.processEvents()


@pytest.fixture(autouse=True)
def _same_cache(cohort, monkeypatch):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(cohort / "cache"))


@pytest.fixture
def drawn(open_map, cohort, qtbot):
    viewer, dock = open_map()
    dock.sources.choose_features(cohort)
    QTest.mouseClick(dock.draw, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: dock._asked is None, timeout=90_000)
    assert not dock.trouble.text()
    qtbot.waitUntil(lambda: bool(dock.files), timeout=10_000)
    return viewer, dock


def at(dock, row):
    x, y = dock.view.plot.screen(dock.view.plot.xy[row])
    return QPoint(round(x), round(y))


def alone(dock):
    """The slide furthest from all others on the screen."""
    xy = dock.view.plot.screen(dock.view.plot.xy)
    far = np.linalg.norm(xy[:, None] - xy[None], axis=2)
    np.fill_diagonal(far, np.inf)
    return int(far.min(axis=1).argmax())


def test_empty_it_says_what_to_do(open_map, tmp_path):
    _, dock = open_map()
    assert "Choose a folder of features" in dock.empty.text()
    assert dock.draw.text() == "Choose a folder…"
    assert not dock.found.isVisible()
    dock.sources.choose_features(tmp_path)
    assert dock.sources.sources.features is None


def test_from_a_folder_to_a_map_with_its_legend(drawn, cohort, qtbot):
    _, dock = drawn
    assert len(dock.map) == SLIDES
    assert dock.map.neighbours is not None
    assert dock.view.plot.isVisible()
    assert not dock.empty.isVisible()
    said = [button.text() for button in dock.view.legend.buttons]
    assert said == [f"a ({SLIDES // 2})", f"b ({SLIDES // 2})"]
    # They are to be seen, though they were named before the map was.
    high = dock.view.legend.buttons[0].sizeHint().height()
    qtbot.waitUntil(lambda: dock.view.legend.names.height() >= high, timeout=5_000)
    # The classes lie apart: the nearest of each is of its own class.
    labels = read_labels(cohort / "labels.csv").by_slide
    for row, name in enumerate(dock.map.names):
        (nearest, _), *_ = dock.map.nearest(row, 1)
        assert labels[dock.map.names[nearest]].label == labels[name].label


def test_a_click_opens_the_slide_and_shows_the_nearest(drawn, qtbot, sample):
    viewer, dock = drawn
    row = dock.map.names.index(slide_name(sample))
    place = at(dock, row)
    # Zoom in until nothing else is near, then click where it is now.
    for _ in range(12):
        dock.view.plot.zoom(1.5, place.toPointF())
    place = at(dock, row)
    QTest.mouseClick(dock.view.plot, Qt.MouseButton.LeftButton, pos=place)
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=20_000)
    assert dock.table.front.name == slide_name(sample)
    assert dock.view.plot.open_slide == row
    near = dock.map.nearest(row, 20)
    assert dock.lists.nearest.rows == [one for one, _ in near]
    first = dock.lists.nearest.item(0).text()
    assert f"{near[0][1]:.3f}" in first
    assert dock.map.names[near[0][0]] in first


def test_a_slide_without_a_file_is_said(drawn):
    viewer, dock = drawn
    row = next(n for n, name in enumerate(dock.map.names) if name not in dock.files)
    dock.view.plot.clicked.emit(row)
    assert dock.map.names[row] in dock.trouble.text()
    assert not viewer.layers


def test_the_mouse_shows_a_picture_and_keys_go_from_slide_to_slide(drawn, qtbot):
    _, dock = drawn
    row = alone(dock)
    QTest.mouseMove(dock.view.plot, QPoint(1, 1))
    QTest.mouseMove(dock.view.plot, at(dock, row))
    qtbot.waitUntil(lambda: dock.view.plot.current == row, timeout=2000)
    assert dock.view.card.isVisible()
    assert dock.map.names[row] in dock.view.card.words.text()
    qtbot.waitUntil(lambda: dock.view.card.picture.isVisible(), timeout=10_000)
    dock.view.plot.setFocus()
    seen = {dock.view.plot.current}
    ways = (Qt.Key.Key_Left, Qt.Key.Key_Up, Qt.Key.Key_Right, Qt.Key.Key_Down)
    # In a circle of single steps one may meet the same few slides.
    for key in (one for one in ways for _ in range(SLIDES)):
        before = dock.view.plot.xy[dock.view.plot.current]
        QTest.keyClick(dock.view.plot, key)
        step = dock.view.plot.xy[dock.view.plot.current] - before
        if key == Qt.Key.Key_Left:
            assert step[0] <= 0
        if key == Qt.Key.Key_Right:
            assert step[0] >= 0
        seen.add(dock.view.plot.current)
    assert len(seen) > 3
    QTest.mouseMove(dock.view.plot, QPoint(2, 2))
    qtbot.waitUntil(lambda: not dock.view.card.isVisible(), timeout=2000)


def test_a_lasso_lists_slides_without_names(drawn, qtbot, tmp_path, cohort):
    _, dock = drawn
    QTest.mouseClick(dock.view.lasso, Qt.MouseButton.LeftButton)
    plot = dock.view.plot
    corners = [(2, 2), (plot.width() // 2, 2), (plot.width() // 2, plot.height() - 2)]
    corners += [(2, plot.height() - 2), (2, 3)]
    QTest.mousePress(plot, Qt.MouseButton.LeftButton, pos=QPoint(*corners[0]))
    for corner in corners[1:]:
        QTest.mouseMove(plot, QPoint(*corner))
        QApplication.processEvents()
    QTest.mouseRelease(plot, Qt.MouseButton.LeftButton, pos=QPoint(*corners[-1]))
    left = np.flatnonzero(plot.screen(plot.xy)[:, 0] < plot.width() // 2)
    assert dock.lists._rows == left.tolist()
    assert 0 < len(left) < SLIDES
    assert dock.lists.tabs.current == "Chosen"
    assert not plot.is_lasso
    QTest.mouseClick(dock.lists.copy, Qt.MouseButton.LeftButton)
    copied = QApplication.clipboard().text()
    assert not any(name in copied for name in dock.map.names)
    assert dock.map.pseudonyms[left[0]] in copied
    dock.lists.named.setChecked(True)
    dock.lists.save_to(tmp_path / "list.csv")
    with (tmp_path / "list.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["slide"] for row in rows] == [dock.map.names[row] for row in left]
    assert set(rows[0]) == {"slide", "label", "site"}
    # A patient is numbered on the screen, and named nowhere.
    dock.view.colour_by.setCurrentIndex(dock.view.colour_by.findData("patient"))
    dock.view.colour_by.activated.emit(dock.view.colour_by.currentIndex())
    assert any("Patient 1" in words for words in words_of(dock))
    assert not any(SECRET in words for words in words_of(dock))


def test_other_columns_colour_it_and_a_name_stands_out(drawn):
    _, dock = drawn
    dock.view.colour_by.setCurrentIndex(dock.view.colour_by.findData("other:age"))
    dock.view.colour_by.activated.emit(dock.view.colour_by.currentIndex())
    assert dock.view.legend.scale.isVisible()
    assert dock.view.plot.colouring.bounds == (40, 40 + SLIDES - 1)
    dock.view.colour_by.setCurrentIndex(dock.view.colour_by.findData("site"))
    dock.view.colour_by.activated.emit(dock.view.colour_by.currentIndex())
    assert not dock.view.legend.scale.isVisible()
    QTest.mouseClick(dock.view.legend.buttons[1], Qt.MouseButton.LeftButton)
    assert dock.view.plot.only == 1
    QTest.mouseClick(dock.view.legend.buttons[1], Qt.MouseButton.LeftButton)
    assert dock.view.plot.only is None


def test_a_model_that_does_not_fit_is_said(drawn, qtbot):
    from spt_core.bundled import slide_model_path

    _, dock = drawn
    dock.sources.choose_model(slide_model_path())
    qtbot.waitUntil(lambda: dock._asked is None, timeout=60_000)
    assert dock.trouble.isVisible()
    assert len(dock.trouble.text()) > 30


def many(n):
    rng = np.random.default_rng(0)
    h = unit_length(rng.normal(size=(n, 8)))
    return MapOfSlides(
        names=tuple(f"s{i}" for i in range(n)),
        pseudonyms=tuple(f"p{i}" for i in range(n)),
        h=h,
        directions=h[:, :2],
        neighbours=h[:, 2:4],
        classes=("x", "y"),
        shares=np.abs(h[:, :2]),
        learned=np.arange(n) < n // 2,
        unusual=unusualness(h[:50]).repeat(-(-n // 50))[:n],
    )


def test_answers_about_learned_slides_are_no_proof(drawn):
    _, dock = drawn
    dock._asked = 0
    dock._on_reply(SlidesMapped(many(40)))
    assert "learned from 20 of these slides" in dock.warning.text()
    assert dock.warning.isVisible()


def test_slides_that_were_judged_without_their_site_are_said(drawn):
    _, dock = drawn
    assert "site" not in dock.warning.text()
    dock._take(replace(dock.map, by_themselves=3))
    assert dock.warning.isVisible()
    assert "the site of 3 of these slides" in dock.warning.text()
    assert not jargon_in([dock.warning.text()])


def test_ten_thousand_slides_stay_fluid(drawn):
    _, dock = drawn
    dock._asked = 0
    dock._on_reply(SlidesMapped(many(10_000)))
    plot, took = dock.view.plot, []
    for step in range(10):
        began = time.perf_counter()
        plot.move_by(3, step % 3)
        plot.repaint()
        took.append(time.perf_counter() - began)
    for step in range(20):
        began = time.perf_counter()
        QTest.mouseMove(plot, QPoint(50 + 5 * step, 80))
        plot.repaint()
        took.append(time.perf_counter() - began)
    assert np.median(took) < 0.1


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e5])
def test_points_are_round_and_in_place_on_any_scale(drawn, size):
    _, dock = drawn
    plot = dock.view.plot
    xy = size * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    plot.show_points(xy, by_names("label", ["a", "a", "a"]))
    plot.use_colours("#000000", "#000000")
    image = plot._draw_points().toImage()
    ratio = image.devicePixelRatio()
    x, y = plot.screen(xy)[1] * ratio
    size_px = round(plot.point_size() * ratio)
    box = [
        [
            image.pixelColor(round(x) + across, round(y) + down).blue() > 60
            for across in range(
                -2 * size_px, min(2 * size_px, image.width() - round(x))
            )
        ]
        for down in range(-2 * size_px, 2 * size_px)
    ]
    rows, cols = np.nonzero(box)
    assert abs(np.ptp(rows) + 1 - size_px) <= 2
    assert abs(np.ptp(cols) + 1 - size_px) <= 2


def test_no_jargon(drawn):
    _, dock = drawn
    assert jargon_in(words_of(dock)) == set()


def test_text_of_twice_the_size_fits(drawn):
    _, dock = drawn
    size = get_settings().appearance.font_size
    try:
        get_settings().appearance.font_size = 2 * size
        for _ in range(20):
            QApplication.processEvents()
        assert dock.scroll.widget().width() <= dock.scroll.viewport().width()
        for button in (dock.view.lasso, dock.view.whole, *dock.view.legend.buttons):
            assert button.width() >= button.minimumSizeHint().width() - 1
    finally:
        get_settings().appearance.font_size = size


def test_colours_are_few_and_shared_by_labels_and_answers():
    values = [f"v{i % 12}" for i in range(30)]
    found = by_names("many", values)
    assert found.has_others
    assert found.entries[-1].words == "5 others"
    assert sum(entry.count for entry in found.entries) == 30
    assert found.rgb(-1) == OTHER
    numbers = by_numbers("age", [None, 1.0, 3.0])
    assert numbers.bounds == (1, 3)
    assert numbers.group.tolist() == [-1, 0, 9]
    slides = many(10)
    rows = {"s1": None}
    from spt_core.tokens.labels import SlideLabel

    rows = {"s1": SlideLabel("s1", "y"), "s2": SlideLabel("s2", "x")}
    labels = Labels(rows)
    assert [key for key, _ in columns(slides, labels)][:2] == ["label", "prediction"]
    by_label = colouring("label", slides, labels)
    by_answer = colouring("prediction", slides, labels)
    assert by_label.rgb(by_label.group[2]) == PALETTE[0]
    is_x = np.array(slides.predicted) == "x"
    assert {by_answer.rgb(group) for group in by_answer.group[is_x]} == {PALETTE[0]}


def test_inside_is_shapelys():
    import shapely

    rng = np.random.default_rng(1)
    polygon = np.array([(0, 0), (4, 1), (2, 2), (5, 5), (0, 4)], float)
    points = rng.uniform(-1, 6, size=(500, 2))
    shape = shapely.Polygon(polygon)
    expected = [shape.contains(shapely.Point(point)) for point in points]
    assert inside(points, polygon).tolist() == expected


def test_a_picture_is_of_the_slides_own_pixels(sample, cohort):
    features = cohort / "features" / f"{slide_name(sample)}.h5"
    picture = picture_of(sample, features)
    whole = np.asarray(open_slide(sample).pyramid[-1])
    assert max(picture.shape) <= 160
    np.testing.assert_allclose(
        picture.mean(axis=(0, 1)), whole.mean(axis=(0, 1)), atol=6
    )
    # Without the slide, the shape of its tissue: 6 rows of 5 patches.
    shape = picture_of(None, features)
    assert shape.shape[0] > shape.shape[1]
