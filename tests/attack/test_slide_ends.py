"""Slides that would never end being read, or show what is not in them."""

import os
import struct
from contextlib import closing

import numpy as np
import pytest
import tifffile
import zarr

from spt_core.errors import InputError
from spt_core.slides import UnreadableRegionError, open_slide
from spt_core.slides.folders import slides_in
from spt_core.slides.slide_errors import UnreadableSlideError
from spt_core.slides.tissue import find_tissue
from tests.made_dicom import write_dicom
from tests.made_slides import damage_tile, picture, write_tiff

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes in folders")

OME = """<?xml version="1.0"?>
<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"{own}><Image ID="Image:0">
<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" SizeX="300" SizeY="200"
 SizeC="{channels}" SizeZ="1" SizeT="1">{parts}</Pixels></Image></OME>"""
PART = """<TiffData IFD="0" FirstC="{number}" PlaneCount="1">
<UUID FileName="{name}">urn:uuid:{number}</UUID></TiffData>"""


def write_part(path, *names, own=""):
    """Write an OME-TIFF whose channels are in files of these names."""
    parts = "".join(PART.format(number=i, name=name) for i, name in enumerate(names))
    xml = OME.format(parts=parts, channels=len(names), own=own)
    pixels = picture(300, 200)[..., 0].astype(np.uint16)
    tifffile.imwrite(path, pixels, description=xml, metadata=None)
    return path


@POSIX
@pytest.mark.parametrize("other", ["pipe.tif", "gone.tif", "../b.tif", "/etc/hosts"])
def test_other_files_of_a_slide_are_beside_it(tmp_path, other):
    (tmp_path / "in").mkdir()
    write_part(tmp_path / "b.tif", "b.tif")
    os.mkfifo(tmp_path / "in" / "pipe.tif")
    path = write_part(tmp_path / "in" / "a.ome.tif", "a.ome.tif", other)
    with pytest.raises(InputError, match="is not beside it") as refused:
        open_slide(path)
    assert str(refused.value).count("a.ome.tif") == 1


def test_a_slide_in_several_files_and_one_with_another_name_are_read(tmp_path):
    path = write_part(tmp_path / "a.ome.tif", "a.ome.tif", "b.ome.tif")
    write_part(
        tmp_path / "b.ome.tif", "a.ome.tif", "b.ome.tif", own=' UUID="urn:uuid:1"'
    )
    with closing(open_slide(path)) as slide:
        assert len(slide.channels) == 2
    own = ' UUID="urn:uuid:0"'
    with closing(open_slide(write_part(tmp_path / "c.tif", "old.tif", own=own))) as one:
        assert one.read(0, 0, 0, 300, 200).any()


@POSIX
def test_a_pipe_among_the_files_of_a_slide_is_said(tmp_path):
    path = write_dicom(tmp_path / "in" / "a.dcm", picture(300, 200))
    os.mkfifo(tmp_path / "in" / "b")
    with pytest.raises(InputError, match="together with b, which"):
        open_slide(path)
    assert list(slides_in(tmp_path / "in")) == [tmp_path / "in"]
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / "m" / "Slidedat.ini")
    (tmp_path / "m.mrxs").write_bytes(b"")
    with pytest.raises(InputError, match=r"together with Slidedat\.ini"):
        open_slide(tmp_path / "m.mrxs")


def test_a_picture_that_lists_too_few_tiles_is_said(tmp_path):
    write_tiff(tmp_path / "a.tif", picture(700, 600), levels=1)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as tiff:
        tiff.pages[0].tags["ImageLength"].overwrite(60_000)
    with pytest.raises(InputError, match="tiles, and it lists"):
        open_slide(tmp_path / "a.tif")


def test_many_thousand_pictures_are_no_slide(tmp_path):
    content = bytearray(b"II*\0\x08\0\0\0")
    for number in range(20_002):
        entry = struct.pack("<HHHII", 1, 256, 4, 1, 100)
        content += entry + struct.pack("<I", 8 + 18 * (number + 1))
    (tmp_path / "a.tif").write_bytes(content)
    with pytest.raises(InputError, match="lists more than"):
        open_slide(tmp_path / "a.tif")


def test_what_a_library_says_is_not_told(tmp_path):
    for name, options in (("a.tif", {}), ("b.tif", {"tile": None, "rowsperstrip": 16})):
        path = tmp_path / name
        write_tiff(path, picture(700, 600), levels=1, **options)
        damage_tile(path)
        with closing(open_slide(path)) as slide:
            with pytest.raises(UnreadableRegionError) as error:
                slide.read(0, 0, 0, 16, 16)
            assert error.value.reason == "its data are damaged"


def test_a_slide_without_a_readable_part_is_not_called_empty(tmp_path):
    path = tmp_path / "a.tif"
    write_tiff(path, picture(700, 600), levels=1)
    for tile in range(6 + 3):
        damage_tile(path, tile=tile)
    slide = open_slide(path)
    with pytest.raises(UnreadableSlideError, match="no part of it can be decoded"):
        find_tissue(slide)


def test_what_is_no_number_is_dark(tmp_path):
    pixels = np.linspace(0, 1, 300 * 200, dtype=np.float32).reshape(200, 300)
    pixels[:50, :50] = np.nan
    tifffile.imwrite(tmp_path / "a.tif", pixels)
    with closing(open_slide(tmp_path / "a.tif")) as slide:
        assert not slide.read(0, 0, 0, 50, 50).any()
        assert slide.read(0, 250, 150, 50, 50).any()


def test_a_name_that_no_file_can_have_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        open_slide(tmp_path / ("a" * 5000))


def test_a_folder_that_keeps_its_files_to_itself_is_a_sentence(tmp_path, monkeypatch):
    def kept_out(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "stat", kept_out)
    with pytest.raises(InputError, match="may not be read"):
        open_slide(tmp_path / "a.tif")


def test_channels_whose_middle_is_lost_are_shown_where_they_are_whole(tmp_path):
    """The brightness of channels is learned there."""
    dyes = np.moveaxis(picture(1500, 1300), -1, 0)[:2].copy()
    path = write_dicom(tmp_path / "a.dcm", dyes, dyes=("a", "b"))
    os.truncate(path, path.stat().st_size * 9 // 10)
    with closing(open_slide(path)) as slide:
        assert [channel.name for channel in slide.channels] == ["a", "b"]
        with pytest.raises(UnreadableRegionError):
            slide.read(0, 1300, 1200, 50, 50)


def test_what_only_openslide_makes_sense_of_is_left_to_it(tmp_path):
    path = tmp_path / "a.tif"
    lsm = (34412, "B", 8, b"\x4c\x49\x00\x04\x00\x00\x00\x00", True)
    write_tiff(path, picture(300, 200), levels=1, extratags=[lsm])
    with closing(open_slide(path)) as slide:
        assert slide.read(0, 0, 0, 300, 200).any()


def test_strips_that_a_file_leaves_out_are_noted(tmp_path):
    path = tmp_path / "a.tif"
    pixels = picture(300, 200)
    tifffile.imwrite(path, pixels, photometric="rgb", rowsperstrip=20, compression=8)
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        counts = list(tiff.pages[0].databytecounts)
        counts[4] = 0
        tiff.pages[0].tags["StripByteCounts"].overwrite(counts)
    with closing(open_slide(path)) as slide:
        assert "10 % of its image data are missing" in slide.notes[0]


def test_a_size_that_no_slide_has_is_a_sentence(tmp_path):
    size = (2**24, 600)
    zarr.create_array(tmp_path / "a.zarr", shape=size, chunks=(4096, 600), dtype="u1")
    with pytest.raises(InputError, match="which no slide has"):
        open_slide(tmp_path / "a.zarr")
