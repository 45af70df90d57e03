"""Slides that are intact and unusual open; what cannot be read says of which kind."""

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image, ImageOps

from spt_core import open_slide
from spt_core.errors import InputError
from spt_core.slides.opening import OpenSlideSource
from spt_core.slides.slide_errors import Reason, SlideError

Y, X = np.mgrid[:400, :600]
PICTURE = np.stack([X // 3, Y // 2, (X + Y) // 5], axis=-1).astype(np.uint8)
TILED = {"tile": (256, 256), "metadata": None, "photometric": "rgb"}


def whole(path):
    return np.asarray(open_slide(path).pyramid[0])


@pytest.mark.parametrize(
    "codec",
    ["webp", "jpeg2000", "jpegxl", "png", "lzma", "jpegxr", "aperio_jp2000_rgb"],
)
def test_tiffs_that_openslide_does_not_decode(tmp_path, codec):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PICTURE, compression=codec, **TILED)
    assert np.abs(whole(path).astype(int) - PICTURE).max() <= 2


@pytest.mark.parametrize("axes", ["YXS", "CYX"])
@pytest.mark.parametrize("codec", ["jpeg2000", "jpeg", "zlib", "lzw", "jpegxl", "zstd"])
def test_ome_tiffs_of_qupath_and_bio_formats(tmp_path, codec, axes):
    """Pyramids in sub-images, colours in one plane or in three."""
    path = tmp_path / "a.ome.tif"
    data = PICTURE if axes == "YXS" else np.moveaxis(PICTURE, -1, 0)
    shown = {"photometric": "rgb" if axes == "YXS" else "minisblack"}
    how = {"tile": (256, 256), "compression": codec, **shown}
    about = {"axes": axes, "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
    if axes == "CYX":  # as QuPath and Bio-Formats name and colour them
        about["Channel"] = {"Name": ["Red", "Green", "Blue"],
                            "Color": [-16776961, 16711935, 65535]}  # fmt: skip
    with tifffile.TiffWriter(path, ome=True, bigtiff=True) as tiff:
        tiff.write(data, subifds=1, metadata=about, **how)
        smaller = data[::2, ::2] if axes == "YXS" else data[:, ::2, ::2]
        tiff.write(smaller, subfiletype=1, **how)
    slide = open_slide(path)
    assert slide.mpp_xy == (0.5, 0.5)
    assert [level.is_made for level in slide.levels] == [False, False]
    assert np.abs(np.asarray(slide.pyramid[0]).astype(int) - PICTURE).mean() < 1


@pytest.mark.parametrize("number", range(1, 9))
def test_a_turned_tiff_is_seen_upright(tmp_path, number):
    path = tmp_path / "a.tif"
    extra = [(274, 3, 1, number, True)]
    tifffile.imwrite(path, PICTURE, extratags=extra, **TILED)
    with Image.open(path) as opened:
        opened.load()
        picture = Image.fromarray(PICTURE)
        picture.getexif()[274] = number
    want = np.asarray(ImageOps.exif_transpose(picture))
    np.testing.assert_array_equal(whole(path), want)
    # A part, across the tiles' edges.
    slide = open_slide(path)
    np.testing.assert_array_equal(
        np.asarray(slide.pyramid[0][100:390, 200:301]), want[100:390, 200:301]
    )


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_array_without_multiscales(tmp_path, version):
    for name, data in (("a", PICTURE), ("b", np.moveaxis(PICTURE, -1, 0))):
        path = tmp_path / f"{name}.zarr"
        zarr.create_array(path, data=data.copy(), zarr_format=version)
        np.testing.assert_array_equal(whole(path), PICTURE)
    zarr.create_array(tmp_path / "c.zarr", data=np.zeros((2, 3, 4, 5)))
    with pytest.raises(ValueError, match="this kind is not supported"):
        open_slide(tmp_path / "c.zarr")


def reason(path):
    with pytest.raises(SlideError) as caught:
        open_slide(path)
    assert path.name in str(caught.value)
    return caught.value.reason, str(caught.value)


def test_each_kind_of_trouble_is_told_apart(tmp_path, monkeypatch):
    assert reason(tmp_path / "none.svs")[0] is Reason.MISSING
    text = tmp_path / "text.svs"
    text.write_text("Dear colleague")
    assert reason(text)[0] is Reason.NOT_A_SLIDE
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PICTURE, **TILED)
    cut = tmp_path / "cut.tif"
    cut.write_bytes(path.read_bytes()[:40])
    assert reason(cut)[0] is Reason.DAMAGED
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        tiff.pages[0].tags["Compression"].overwrite(34676)
    kind, said = reason(path)
    assert kind is Reason.UNSUPPORTED
    assert "SGILOG" in said
    assert "copy it again" not in said
    flat = tmp_path / "flat.tif"
    tifffile.imwrite(flat, PICTURE, photometric="rgb", metadata=None)
    with tifffile.TiffFile(flat, mode="r+b") as tiff:
        tiff.pages[0].tags["ImageLength"].overwrite(0)
    kind, said = reason(flat)
    assert kind is Reason.DAMAGED
    assert "a side of 0 pixels" in said
    whole = tmp_path / "whole.tif"
    tifffile.imwrite(whole, PICTURE, **TILED)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(OpenSlideSource, "try_open", refuse)
    kind, said = reason(whole)
    assert kind is Reason.NO_PERMISSION
    assert "ask whoever owns it" in said


@pytest.mark.parametrize("names", [["CH2", "CH3"], ["ch3", "ch2"]])
def test_stimulated_raman_histology_by_its_channels_names(tmp_path, names):
    """Against the group's recipe: both channels from 0 to 1, and their difference."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 20000, (2, 400, 600)).astype(np.uint16)
    cells[:, :, :200] = 300  # dark ground
    cells[1, 300, 500] = 65535
    path = tmp_path / "srh.ome.tif"
    about = {"axes": "CYX", "Channel": {"Name": names}}
    stored = cells if names[0] == "CH2" else cells[::-1]
    tifffile.imwrite(path, stored.copy(), metadata=about, ome=True, tile=(256, 256))
    ch2, ch3 = cells.astype(float) / 2**16
    want = np.clip(np.stack([ch3 - ch2 + 5000 / 2**16, ch2, ch3], axis=-1), 0, 1) * 255
    slide = open_slide(path)
    assert np.abs(np.asarray(slide.pyramid[0]) - want).max() <= 0.51
    assert any("stimulated Raman" in note for note in slide.notes)
    other = tmp_path / "dyes.ome.tif"
    about["Channel"]["Name"] = ["DAPI", "CH3"]
    tifffile.imwrite(other, cells, metadata=about, ome=True, tile=(256, 256))
    assert not open_slide(other).notes


def test_channels_that_are_asked_for_become_red_green_and_blue(tmp_path):
    """Against percentiles taken here, by name and by number, in the order asked."""
    rng = np.random.default_rng(1)
    dyes = rng.integers(100, 40000, (4, 300, 500)).astype(np.uint16)
    path = tmp_path / "dyes.ome.tif"
    names = ["DAPI", "FITC", "TRITC", "Cy5"]
    about = {"axes": "CYX", "Channel": {"Name": names}}
    tifffile.imwrite(path, dyes, metadata=about, ome=True, tile=(256, 256))
    low, high = np.percentile(dyes, (1, 99.9), axis=(1, 2))[..., None, None]
    want = np.clip((dyes - low) / (high - low), 0, 1) * 255
    for asked in ("Cy5, dapi,TRITC", "4,1,3"):
        slide = open_slide(path, channels=asked)
        seen = np.asarray(slide.pyramid[0]).transpose(2, 0, 1)
        assert np.abs(seen - want[[3, 0, 2]]).max() <= 0.51
        assert slide.recipe == asked.replace(" ", "")
        assert slide.scaling.startswith("Cy5 ")
    grey = np.asarray(open_slide(path, channels="FITC").pyramid[0])
    assert (grey == grey[..., :1]).all()
    assert open_slide(path).recipe.startswith("colours DAPI #")
    with pytest.raises(InputError, match=r"no channel 'Cy7'.*4 Cy5"):
        open_slide(path, channels="DAPI,Cy7")


def test_raman_channels_without_names_are_asked_for(tmp_path):
    cells = np.random.default_rng(2).integers(0, 30000, (2, 300, 400))
    cells = cells.astype(np.uint16)
    path = tmp_path / "raman.ome.tif"
    tifffile.imwrite(path, cells, metadata={"axes": "CYX"}, ome=True, tile=(256, 256))
    ch2, ch3 = cells.astype(float) / 2**16
    want = np.clip(np.stack([ch3 - ch2 + 5000 / 2**16, ch2, ch3], axis=-1), 0, 1) * 255
    slide = open_slide(path, channels="SRH")
    assert np.abs(np.asarray(slide.pyramid[0]) - want).max() <= 0.51
    assert slide.recipe == "srh"
    assert open_slide(path).recipe != "srh"
