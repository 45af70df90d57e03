"""DICOM that openslide refuses: other compressions, 16 bits, channels, Raman."""

from dataclasses import replace
from functools import partial

import imagecodecs
import numpy as np
import pytest
from pydicom.pixels.encoders import RLELosslessEncoder
from pydicom.uid import (
    MPEG4HP41,
    UID,
    HTJ2KLossless,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from spt_core import open_slide
from spt_core.cli import main
from spt_core.slides.slide_errors import Reason, SlideError
from tests.core.patches.conftest import pixels_encoder
from tests.core.test_slides_in_channels import FINE, encoded, seen_and_there
from tests.made_channels import glowing
from tests.made_dicom import write_dicom

JPEG_XL_LOSSLESS = UID("1.2.840.10008.1.2.4.110")


@pytest.fixture(scope="module")
def picture():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (50, 70, 3), dtype=np.uint8)
    return coarse.repeat(10, axis=0).repeat(10, axis=1)


def _by_run_lengths(tile):
    return RLELosslessEncoder.encode(
        tile, rows=tile.shape[0], columns=tile.shape[1], samples_per_pixel=3,
        bits_allocated=8, bits_stored=8, photometric_interpretation="RGB",
        number_of_frames=1, pixel_representation=0, planar_configuration=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("syntax", "encode"),
    [
        (ImplicitVRLittleEndian, np.ndarray.tobytes),
        (JPEGLSLossless, imagecodecs.jpegls_encode),
        (RLELossless, _by_run_lengths),
        (JPEGLosslessSV1, partial(imagecodecs.jpeg8_encode, lossless=True)),
        (HTJ2KLossless, partial(imagecodecs.htj2k_encode, reversible=True)),
        (JPEG_XL_LOSSLESS, partial(imagecodecs.jpegxl_encode, lossless=True)),
    ],
)
def test_compressions_and_levels_that_openslide_refuses(
    tmp_path, picture, syntax, encode
):
    facts = {"syntax": syntax, "encode": encode}
    write_dicom(tmp_path / "slide" / "b.dcm", picture, **facts)
    write_dicom(tmp_path / "slide" / "a.dcm", picture[::2, ::2], mpp=1.0, **facts)
    slide = open_slide(tmp_path / "slide")
    assert slide.reader == "pydicom"
    assert slide.mpp == 0.5
    assert slide.level_downsamples == (1, 2)
    np.testing.assert_array_equal(slide.read(0, 0, 0, 700, 500), picture)
    part = picture[::2, ::2][201:249, 130:333]
    np.testing.assert_array_equal(slide.read(1, 130, 201, 203, 48), part)
    assert "Planted" not in str(slide.properties)
    assert "Planted" in str(slide.identifiers)


def test_16_bit_channels_have_their_names_and_numbers(tmp_path):
    dyes = glowing(3)[:, :500, :700]
    path = write_dicom(
        tmp_path / "dyes.dcm",
        dyes,
        syntax=JPEG2000Lossless,
        encode=lambda one: imagecodecs.jpeg2k_encode(one, level=0, codecformat="j2k"),
        dyes=("DAPI", "FITC", "TRITC"),
    )
    slide = open_slide(path, channels="TRITC,DAPI")
    assert [one.name for one in slide.channels] == ["DAPI", "FITC", "TRITC"]
    for channel, dye in zip(slide.channels, dyes, strict=True):
        np.testing.assert_array_equal(np.asarray(channel.pyramid[0]), dye)
    assert slide.recipe == "TRITC,DAPI"


def test_raman_histology_as_dicom_is_encoded_by_its_formula(tmp_path, capsys):
    cells = glowing(2)
    named = write_dicom(tmp_path / "named.dcm", cells, tiled=False, dyes=("CH2", "CH3"))
    assert open_slide(named).recipe == "srh"
    assert main(["info", str(named)]) == 0
    assert "1 CH2, 2 CH3" in capsys.readouterr().out
    plain = write_dicom(tmp_path / "plain.dcm", cells, tiled=False)
    assert open_slide(plain).recipe != "srh"
    ch2, ch3 = cells / 65536
    light = np.stack([ch3 - ch2 + 5000 / 65536, ch2, ch3])
    settings = replace(FINE, channels="srh")
    _, tokens = encoded(plain, tmp_path / "out", settings, pixels_encoder(64))
    seen, there = seen_and_there(tokens, np.clip(light, 0, 1) * 255)
    assert np.abs(seen - there).max() <= 0.51
    assert tokens.facts.channels == "srh"


def test_what_cannot_be_shown_is_told_apart(tmp_path, picture):
    film = write_dicom(
        tmp_path / "film.dcm", picture, syntax=MPEG4HP41, encode=lambda _: b"film"
    )
    with pytest.raises(SlideError, match=r"not supported.*MPEG-4") as told:
        open_slide(film)
    assert told.value.reason == Reason.UNSUPPORTED
    whole = write_dicom(
        tmp_path / "whole.dcm",
        picture,
        syntax=JPEGLSLossless,
        encode=imagecodecs.jpegls_encode,
    ).read_bytes()
    cut = tmp_path / "cut.dcm"
    cut.write_bytes(whole[:300])
    with pytest.raises(SlideError) as told:
        open_slide(cut)
    assert told.value.reason == Reason.DAMAGED
    cut.write_bytes(whole[: whole.index(b"\xe0\x7f\x10\x00")])
    with pytest.raises(SlideError, match="damaged or incomplete"):
        open_slide(cut)
    # A report in place of a picture.
    report = whole[: whole.index(b"\xe0\x7f\x10\x00")]
    cut.write_bytes(report.replace(b"77.1.6", b"88.33\0"))
    with pytest.raises(SlideError, match="without a picture") as told:
        open_slide(cut)
    assert told.value.reason == Reason.NOT_A_SLIDE
