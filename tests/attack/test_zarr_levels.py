"""OME-Zarr pictures whose levels are many, or do not belong together."""

import json
import shutil

import pytest

from spt_core import open_slide
from spt_core.errors import InputError
from tests.made_slides import picture, write_ome_zarr


@pytest.fixture
def slide(tmp_path):
    path = tmp_path / "x.ome.zarr"
    write_ome_zarr(path, picture(300, 200))
    return path


def change(path, edit):
    plain = json.loads(path.read_text())
    edit(plain)
    path.write_text(json.dumps(plain))


@pytest.mark.parametrize(
    "edit",
    [
        lambda one: one.update(datasets=one["datasets"] * 100_000),
        lambda one: one.update(datasets=[]),
        lambda one: one.update(axes="xyc"),
    ],
)
def test_levels_that_no_picture_has_are_a_sentence(slide, edit):
    change(slide / ".zattrs", lambda plain: edit(plain["multiscales"][0]))
    with pytest.raises(InputError, match="damaged or incomplete"):
        open_slide(slide)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("chunks", [1, 1, 1], "larger chunks"),
        ("chunks", [0, 1, 3], "damaged or incomplete"),
        ("dtype", "<M8[ns]", "damaged or incomplete"),
        ("shape", [100_000, 200, 300], "damaged or incomplete"),
    ],
)
def test_chunks_and_channels_that_never_end_are_a_sentence(slide, name, value, words):
    for number in "01":
        change(slide / number / ".zarray", lambda plain: plain.update({name: value}))
    if name == "chunks":
        change(slide / "0" / ".zarray", lambda one: one.update(shape=[3, 900, 900]))
    with pytest.raises(InputError, match=words):
        open_slide(slide)


def test_levels_of_different_channels_are_a_sentence(slide):
    def more(plain):
        plain["shape"][0] *= 100

    change(slide / "0" / ".zarray", more)
    with pytest.raises(InputError, match="damaged or incomplete"):
        open_slide(slide)
    shutil.rmtree(slide)
