"""Slides in channels: names, colours and contrast as their files give them."""

import numpy as np
import pytest
import tifffile
import zarr

from spt_core import open_slide
from spt_core.slides import SLIDE_ENDINGS
from tests.made_slides import picture, write_ome_tiff, write_ome_zarr, write_tiff

NAMES = ("DAPI", "CD3", "PanCK")
COLOURS = ((0, 0, 255), (0, 255, 0), (255, 128, 0))


def dyes(width=900, height=700, dtype=np.uint16, count=3):
    """Dim blobs on black, another size of numbers in every channel: (c, y, x)."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    found = []
    for number in range(count):
        centre = rng.uniform(0.2, 0.8, 2) * (height, width)
        blob = np.exp(-((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / 9000)
        most = 60 if dtype == np.uint8 else 400 * 3**number
        found.append(blob * most + rng.uniform(0, 3, blob.shape))
    return np.stack(found).astype(dtype)


def ome(path, channels, names=NAMES, colours=COLOURS):
    """A pyramidal OME-TIFF with named channels."""
    packed = [int.from_bytes(bytes((*rgb, 255)), "big", signed=True) for rgb in colours]
    metadata = {
        "axes": "CYX",
        "PhysicalSizeX": 0.325,
        "PhysicalSizeY": 0.325,
        "Channel": {"Name": list(names), "Color": packed},
    }
    with tifffile.TiffWriter(path, ome=True) as tiff:
        tile = {"tile": (128, 128), "photometric": "minisblack"}
        tiff.write(channels, subifds=1, metadata=metadata, **tile)
        tiff.write(channels[:, ::2, ::2], subfiletype=1, **tile)


def qptiff(path, channels, names=NAMES, colours=COLOURS):
    """A QPTIFF as scanners of PerkinElmer and Akoya write it: a page per channel."""
    options = {
        "photometric": "minisblack",
        "resolution": (20000, 20000),
        "resolutionunit": "CENTIMETER",
        "metadata": None,
        "software": "PerkinElmer-QPI",
    }

    def pages(tiff, levels, kind, **own):
        for pixels, name, rgb in zip(levels, names, colours, strict=True):
            xml = (
                '<?xml version="1.0" encoding="utf-16"?>'
                "<PerkinElmer-QPI-ImageDescription>"
                f"<ImageType>{kind}</ImageType><SlideID>S-99-1234</SlideID>"
                f"<Name>{name}</Name><Color>{','.join(map(str, rgb))}</Color>"
                "</PerkinElmer-QPI-ImageDescription>"
            )
            tiff.write(pixels, description=xml, **own, **options)

    with tifffile.TiffWriter(path) as tiff:
        pages(tiff, channels, "FullResolution", tile=(128, 128))
        thumbnail = np.zeros((100, 100, 3), np.uint8)
        tiff.write(thumbnail, **{**options, "photometric": "rgb"})
        half = channels[:, ::2, ::2]
        pages(tiff, half, "ReducedResolution", subfiletype=1, tile=(128, 128))


def ome_zarr(path, channels, names=NAMES, colours=COLOURS, window=(5, 300)):
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    datasets = []
    for level in range(2):
        stored = channels[:, :: 2**level, :: 2**level]
        array = group.create_array(
            str(level), shape=stored.shape, dtype=stored.dtype, chunks=(1, 128, 128)
        )
        array[:] = stored
        scale = {"type": "scale", "scale": [1, 0.5 * 2**level, 0.5 * 2**level]}
        datasets.append({"path": str(level), "coordinateTransformations": [scale]})
    space = {"type": "space", "unit": "micrometer"}
    axes = [{"name": "c", "type": "channel"}]
    axes += [{"name": "y", **space}, {"name": "x", **space}]
    group.attrs["multiscales"] = [{"axes": axes, "datasets": datasets}]
    group.attrs["omero"] = {
        "channels": [
            {
                "label": name,
                "color": "{:02X}{:02X}{:02X}".format(*rgb),
                "window": {"start": window[0], "end": window[1], "min": 0, "max": 999},
            }
            for name, rgb in zip(names, colours, strict=True)
        ]
    }


@pytest.mark.parametrize("write", [ome, qptiff, ome_zarr], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_channels_have_their_names_colours_and_numbers(tmp_path, write, dtype):
    pixels = dyes(dtype=dtype)
    ending = {ome: ".ome.tif", qptiff: ".qptiff", ome_zarr: ".ome.zarr"}[write]
    path = tmp_path / f"slide{ending}"
    write(path, pixels)
    slide = open_slide(path)
    assert slide.mpp == pytest.approx(0.325 if write is ome else 0.5)
    assert tuple(one.name for one in slide.channels) == NAMES
    assert tuple(one.colour for one in slide.channels) == COLOURS
    assert len(slide.levels) == 2
    for number, channel in enumerate(slide.channels):
        assert [one.shape for one in channel.pyramid] == [
            one.shape[:2] for one in slide.pyramid
        ]
        assert channel.pyramid[0].dtype == dtype
        np.testing.assert_array_equal(channel.pyramid[0], pixels[number])
        np.testing.assert_array_equal(channel.pyramid[1], pixels[number, ::2, ::2])
        low, high = channel.limits
        if write is ome_zarr:
            assert channel.limits == (5, 300)
        else:
            # The brightest spots in full colour, the empty glass black.
            assert low <= 3
            assert 0.5 * pixels[number].max() < high <= pixels[number].max()
    # The picture in colour is there too, and not black.
    whole = np.asarray(slide.pyramid[0])
    assert whole.shape == (700, 900, 3)
    if write is not ome_zarr:
        assert whole.max() == 255
    assert not any("S-99" in text for text in slide.properties.values())


def test_levels_that_the_file_lacks_are_made_by_averages(tmp_path):
    pixels = dyes(5000, 4500)
    tifffile.imwrite(
        tmp_path / "one.ome.tif",
        pixels,
        tile=(256, 256),
        photometric="minisblack",
        metadata={"axes": "CYX", "Channel": {"Name": list(NAMES)}},
    )
    slide = open_slide(tmp_path / "one.ome.tif")
    assert len(slide.levels) > 1
    channel = slide.channels[1]
    small = np.asarray(channel.pyramid[-1])
    level = slide.levels[-1]
    assert small.shape == (level.height, level.width)
    factor = level.made_by
    rows, columns = 4500 // factor, 5000 // factor
    whole = pixels[1, : rows * factor, : columns * factor].astype(float)
    means = whole.reshape(rows, factor, columns, factor).mean(axis=(1, 3))
    np.testing.assert_allclose(small[:rows, :columns], means, atol=0.51)
    # Any part of a level is that part of it.
    part = channel.pyramid[-1][101:307:3, 250:270]
    np.testing.assert_array_equal(part, small[101:307:3, 250:270])


def test_a_picture_in_colour_has_no_channels(tmp_path):
    write_tiff(tmp_path / "a.tif", picture(900, 700))
    write_ome_zarr(tmp_path / "b.ome.zarr", picture(900, 700))
    rgb = np.moveaxis(picture(900, 700), -1, 0)
    write_ome_tiff(tmp_path / "c.ome.tif", rgb)
    ome(tmp_path / "d.ome.tif", rgb, "RGB", ((255, 0, 0), (0, 255, 0), (0, 0, 255)))
    for name in ("a.tif", "b.ome.zarr", "c.ome.tif", "d.ome.tif"):
        assert open_slide(tmp_path / name).channels == ()
    assert (
        np.asarray(open_slide(tmp_path / "d.ome.tif").pyramid[0]) == picture(900, 700)
    ).all()


def test_channels_that_say_nothing_are_numbered(tmp_path):
    write_ome_tiff(tmp_path / "a.ome.tif", dyes(count=4))
    slide = open_slide(tmp_path / "a.ome.tif")
    assert [one.name for one in slide.channels] == [
        "Channel 1",
        "Channel 2",
        "Channel 3",
        "Channel 4",
    ]
    assert len({one.colour for one in slide.channels}) == 4


def test_every_ending_that_opens_is_known():
    assert {".qptiff", ".btf", ".ome.tif", ".ndpi"} <= set(SLIDE_ENDINGS)
