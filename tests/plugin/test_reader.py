"""The reader in a real viewer, through the manifest."""

import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tifffile
from napari.errors import MultipleReaderError
from napari.layers import Image
from napari.utils.notifications import notification_manager
from npe2 import plugin_manager as pm

from napari_spt.slides.default_reader import set_default
from napari_spt.slides.reader import get_reader
from spt_core import open_slide
from tests.made_dicom import write_dicom_that_crashes
from tests.made_slides import (
    CASES,
    damage_tile,
    picture,
    png,
    write_svs,
    write_tiff,
)
from tests.slides_folder import folder_slides

# Larger than an ordinary picture, or with levels: what we serve better than napari.
OURS = [c for c in CASES if c.name not in ("striped", "sixteen bits", "five channels")]


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer()


def open_here(viewer, path) -> Image:
    (layer,) = viewer.open(str(path), plugin="napari-spt")
    return layer


def world_box(layer):
    """The outer edges of the layer's first and last pixel, as ((y, x), (y, x))."""
    shape = np.array(layer.level_shapes[0][:2])
    return (
        layer.data_to_world(np.array([-0.5, -0.5])),
        layer.data_to_world(shape - 0.5),
    )


def check_layer(layer, path):
    slide = open_slide(path)
    assert layer.multiscale
    assert layer.rgb
    assert layer.contrast_limits == [0, 255]
    x, y, w, h = slide.bounds
    um_x, um_y = slide.mpp_xy or (1, 1)
    unit = "pixel" if slide.mpp_xy is None else "micrometer"
    assert [str(u) for u in layer.units] == [unit, unit]
    first, last = world_box(layer)
    np.testing.assert_allclose(first, ((y - 0.5) * um_y, (x - 0.5) * um_x))
    np.testing.assert_allclose(last, ((y + h - 0.5) * um_y, (x + w - 0.5) * um_x))
    facts = layer.metadata["spt"]
    assert facts["path"] == str(slide.path)
    assert facts["bounds"] == list(slide.bounds)
    assert set(layer.metadata) == {"spt"}
    # Each level covers the same part of the world, to half of its own pixel.
    for level, array in zip(slide.levels, layer.data, strict=True):
        step = slide.dimensions[0] / level.width
        assert abs(array.shape[1] * step - w) <= step
        assert abs(array.shape[0] * step - h) <= step


@pytest.mark.parametrize("case", OURS, ids=lambda c: c.name)
def test_made_slides(viewer, tmp_path, case):
    path = case.make(tmp_path)
    layer = open_here(viewer, path)
    check_layer(layer, path)
    assert layer.name == case.name


@pytest.mark.parametrize("path", folder_slides())
def test_slides_of_a_folder(viewer, path):
    if get_reader(str(path)) is None:
        pytest.skip("an ordinary image, which is left to napari")
    check_layer(open_here(viewer, path), path)


def test_a_pixel_of_the_slide_is_where_the_file_says(viewer, tmp_path):
    """A red square at known micrometres is found there, at every level."""
    pixels = np.full((1600, 2000, 3), 230, np.uint8)
    pixels[400:800, 1200:1600] = (255, 0, 0)
    write_tiff(tmp_path / "a.tif", pixels, mpp_xy=(0.25, 0.4), tile=256)
    layer = open_here(viewer, tmp_path / "a.tif")
    corners = [(400 * 0.4, 1200 * 0.25), (799 * 0.4, 1599 * 0.25)]
    for um in np.linspace(*corners, 7)[1:-1]:
        assert layer.get_value(um, world=True)[1][0] > 240
        assert layer.get_value(um, world=True)[1][1] < 30
    assert layer.get_value((390 * 0.4, 1400 * 0.25), world=True)[1][1] > 200


def test_pixels_reach_the_screen(make_napari_viewer, tmp_path, qtbot):
    viewer = make_napari_viewer(show=True)
    pixels = np.full((3000, 4000, 3), 230, np.uint8)
    pixels[:, :2000] = (200, 40, 120)
    write_svs(tmp_path / "half.svs", pixels)
    open_here(viewer, tmp_path / "half.svs")
    shot = viewer.screenshot(canvas_only=True, flash=False)
    h, w = shot.shape[:2]
    left, right = shot[h // 2, w // 2 - 60, :3], shot[h // 2, w // 2 + 60, :3]
    np.testing.assert_allclose(left.astype(int), (200, 40, 120), atol=12)
    np.testing.assert_allclose(right.astype(int), (230, 230, 230), atol=12)


def test_opening_reads_only_a_few_tiles(viewer, tmp_path):
    from spt_core.slides.tiff_tiles import TiffTiles

    write_tiff(tmp_path / "big.tif", picture(9000, 8000), levels=4)
    decoded = []
    original = TiffTiles._decode

    def counting(self, index):
        decoded.append((self.page.index, index))
        return original(self, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TiffTiles, "_decode", counting)
        open_here(viewer, tmp_path / "big.tif")
    # The smallest level whole (5 x 4 tiles), and a look at each other level.
    assert len(set(decoded)) <= 20 + 3 + 20
    assert sum(page == 0 for page, _ in set(decoded)) <= 2


def test_napari_alone_takes_its_own_reader_or_none(viewer, tmp_path):
    """It claims slides too, and loads them whole: why there is an "Open slide…"."""
    path = tmp_path / "a.svs"
    write_svs(path, picture(900, 700))
    (layer,) = viewer.open(str(path))
    assert layer.source.reader_plugin == "napari"
    with pytest.raises(MultipleReaderError):
        viewer.open(str(path), plugin=None)


def test_beside_napari_wsi(viewer, tmp_path):
    """Another slide reader is installed: ours is taken by name, and by preference."""
    path = tmp_path / "a.svs"
    write_svs(path, picture(900, 700))
    readers = pm.iter_compatible_readers(str(path))
    assert {"napari", "napari-wsi", "napari-spt"} <= {r.plugin_name for r in readers}
    (theirs,) = viewer.open(str(path), plugin="napari-wsi")
    ours = open_here(viewer, path)
    assert theirs.source.reader_plugin == "napari-wsi"
    assert ours.source.reader_plugin == "napari-spt"
    set_default(True)
    (preferred,) = viewer.open(str(path), plugin=None)
    set_default(False)
    assert preferred.source.reader_plugin == "napari-spt"


def test_ordinary_pictures_are_declined(viewer, tmp_path):
    write_tiff(tmp_path / "small.tif", picture(800, 600), levels=1)
    png(tmp_path / "small.png", picture(800, 600))
    for name in ("small.tif", "small.png"):
        with pytest.raises(ValueError, match=r"napari-spt"):
            viewer.open(str(tmp_path / name), plugin="napari-spt")
    (layer,) = viewer.open(str(tmp_path / "small.png"))
    assert not layer.multiscale


@pytest.mark.timeout(60)
def test_directories_in_a_circle_are_ours_to_refuse(tmp_path):
    path = tmp_path / "circle.tif"
    with tifffile.TiffWriter(path) as tiff:
        for side in (64, 32):
            tiff.write(np.zeros((side, side), np.uint8), metadata=None)
    with tifffile.TiffFile(path) as tiff:
        first, last = (page.offset for page in tiff.pages)
    content = bytearray(path.read_bytes())
    (count,) = struct.unpack_from("<H", content, last)
    struct.pack_into("<I", content, last + 2 + 12 * count, first)
    path.write_bytes(content)
    assert get_reader(str(path)) is not None


def test_bad_files_give_a_sentence(viewer, tmp_path):
    (tmp_path / "text.svs").write_text("this is not a slide")
    (tmp_path / "empty folder").mkdir()
    write_svs(tmp_path / "whole.svs", picture(900, 700))
    data = (tmp_path / "whole.svs").read_bytes()
    (tmp_path / "cut.svs").write_bytes(data[:6])
    with zipfile.ZipFile(tmp_path / "zip.svs", "w") as archive:
        archive.write(tmp_path / "whole.svs")
    expected = {
        "text.svs": "text file",
        "empty folder": "is empty",
        "cut.svs": "incomplete",
        "zip.svs": "unpack",
        "gone.svs": "does not exist",
    }
    for name, words in expected.items():
        with pytest.raises((ValueError, OSError), match=words):
            viewer.open(str(tmp_path / name), plugin="napari-spt")
    assert len(viewer.layers) == 0


def test_a_truncated_slide_is_told_and_what_is_there_shows(viewer, tmp_path):
    path = tmp_path / "cut.svs"
    write_svs(path, picture(2200, 1700))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * 0.6)])
    notification_manager.records.clear()
    layer = open_here(viewer, path)
    assert "incomplete" in notification_manager.records[0].message
    full = np.asarray(layer.data[0])
    hatched = (full == [200, 60, 60]).all(axis=-1)
    assert hatched.any()
    assert not hatched[:240, :240].any()


def test_a_damaged_tile_is_told_once_and_the_rest_shows(viewer, tmp_path):
    path = tmp_path / "damaged.tif"
    write_tiff(path, picture(3000, 2500), levels=2)
    damage_tile(path, tile=12 + 3)
    notification_manager.records.clear()
    layer = open_here(viewer, path)
    for _ in range(2):
        pixels = np.asarray(layer.data[0][:1500, :1500])
    told = [n.message for n in notification_manager.records]
    assert len(told) == 1
    assert "x 768, y 256" in told[0]
    assert "hatched" in told[0]
    assert (pixels == [200, 60, 60]).all(axis=-1).mean() > 0.001


def test_a_tile_that_ends_its_reader_does_not_end_the_window(
    make_napari_viewer, tmp_path, qtbot
):
    viewer = make_napari_viewer(show=True)
    good, bad = write_dicom_that_crashes(tmp_path, picture(1500, 1200))
    notification_manager.records.clear()
    layer = open_here(viewer, bad)
    camera = viewer.scene.camera
    camera.zoom = 2 / layer.scale[-1]
    camera.center = (0, 384 * layer.scale[0], 640 * layer.scale[1])
    qtbot.wait(100)
    shot = viewer.screenshot(canvas_only=True, flash=False)
    assert (shot[..., :3] == [200, 60, 60]).all(axis=-1).any()
    full = np.asarray(layer.data[0])
    hatched = (full == [200, 60, 60]).all(axis=-1)
    assert hatched[256:512, 512:768].any()
    hatched[256:512, 512:768] = False
    assert not hatched.any()
    whole = np.asarray(open_slide(good).pyramid[0])
    assert (full[512:] == whole[512:]).all()
    told = [n.message for n in notification_manager.records if "hatched" in n.message]
    assert len(told) == 1
    assert "does not survive" in told[0]


def test_starting_napari_loads_neither_torch_nor_openslide():
    code = (
        "import sys, napari_spt, spt_core\n"
        "assert 'torch' not in sys.modules and 'openslide' not in sys.modules\n"
        "import napari_spt.slides.reader, napari_spt.slides.slides_dock\n"
        "assert 'torch' not in sys.modules, 'torch'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_slide_in_channels_is_one_slide(make_napari_viewer, tmp_path, qtbot):
    """A layer per channel with its name, colour and contrast; the dock knows one."""
    from napari_spt.analysis.desk import desk_of
    from napari_spt.slides.slide_table import table_of
    from tests.core.test_channels import COLOURS, NAMES, dyes, qptiff

    viewer = make_napari_viewer(show=True)
    path = tmp_path / "dyes.qptiff"
    pixels = dyes()
    qptiff(path, pixels)
    layers = viewer.open(str(path), plugin="napari-spt")
    assert [layer.name for layer in layers] == [f"{name} – dyes" for name in NAMES]
    for layer, channel, rgb in zip(
        layers, open_slide(path).channels, COLOURS, strict=True
    ):
        assert not layer.rgb
        assert layer.blending == "additive"
        assert tuple(layer.contrast_limits) == channel.limits
        np.testing.assert_allclose(layer.colormap.colors[-1][:3] * 255, rgb, atol=0.5)
        np.testing.assert_allclose(layer.scale, 0.5)
    table = table_of(viewer)
    assert table.slides == (layers[0],)
    assert table.group_of(layers[0]) == layers
    assert desk_of(viewer).state.source.name == "dyes"
    # On the screen, and not black.
    shot = viewer.screenshot(canvas_only=True, flash=False)[..., :3]
    assert (shot.reshape(-1, 3).max(axis=0) > 200).all()
    # It steps back and comes forward as one.
    write_svs(tmp_path / "other.svs", picture(900, 700))
    other = open_here(viewer, tmp_path / "other.svs")
    assert not any(layer.visible for layer in layers)
    viewer.layers.selection.active = layers[2]
    assert all(layer.visible for layer in layers)
    assert not other.visible
    table.lay_side_by_side(True)
    places = [layer.data_to_world((0, 0)) for layer in layers]
    np.testing.assert_allclose(places, [places[0]] * 3)
    assert other.visible
    # Alone they are still in one place, and gone they leave nothing.
    table.lay_side_by_side(False)
    for layer in layers:
        viewer.layers.remove(layer)
    assert table.slides == (other,)


def test_the_manifest_knows_every_ending():
    from spt_core.slides import SLIDE_ENDINGS

    (reader,) = pm.get_manifest("napari-spt").contributions.readers
    patterns = set(reader.filename_patterns)
    for ending in SLIDE_ENDINGS:
        assert f"*.{ending.rpartition('.')[2]}" in patterns
