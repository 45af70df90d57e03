"""What a user may hand over by mistake: a sentence each, and nothing lost."""

import pickle
import shutil
import zipfile

import numpy as np
import pytest

from spt_core import open_slide
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.slides import UnreadableRegionError
from spt_core.slides.grid import MissingPixelSizeError, lay_grid
from tests.made_slides import (
    KEEPS_OPEN_FILES,
    damage_tile,
    picture,
    write_ome_zarr,
    write_scn,
    write_svs,
    write_tiff,
)


def sentence(path, capsys) -> str:
    """Open it both ways, and give what the user reads."""
    with pytest.raises(InputError) as caught:
        open_slide(path)
    assert main(["info", str(path)]) == 1
    assert str(caught.value) in capsys.readouterr().err
    assert path.name in str(caught.value)
    return str(caught.value)


def test_a_slide_is_called_by_its_title(tmp_path):
    path = tmp_path / "0f3a9c.tif"
    for content in (None, b"", b"PK\x03\x04", b"II*\0 and no more", b"Some text."):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match="Biopsy 7") as caught:
            open_slide(path, title="Biopsy 7")
        assert path.name not in str(caught.value)
    write_tiff(path, picture(300, 300), mpp_xy=None, levels=1)
    slide = open_slide(path, title="Biopsy 7")
    for one in (slide, pickle.loads(pickle.dumps(slide))):
        assert one.title == "Biopsy 7"
        with pytest.raises(MissingPixelSizeError, match="Biopsy 7 does not say"):
            lay_grid(one)
    assert open_slide(path).title == path.name


def test_missing_file(tmp_path, capsys):
    assert "There is no file" in sentence(tmp_path / "gone.svs", capsys)


def test_text_file(tmp_path, capsys):
    path = tmp_path / "notes.svs"
    path.write_text("Dear colleague,\nthe slide is in the other folder. Grüße")
    assert "a text file" in sentence(path, capsys)


def test_empty_file(tmp_path, capsys):
    path = tmp_path / "nothing.ndpi"
    path.touch()
    assert "is empty" in sentence(path, capsys)


def test_random_bytes(tmp_path, capsys):
    path = tmp_path / "rubbish.mrxs"
    path.write_bytes(np.random.default_rng(0).bytes(4000))
    assert "not known" in sentence(path, capsys)


def test_empty_folder(tmp_path, capsys):
    folder = tmp_path / "empty"
    folder.mkdir()
    assert "is empty" in sentence(folder, capsys)


def test_folder_of_other_things(tmp_path, capsys):
    (tmp_path / "cohort").mkdir()
    (tmp_path / "cohort" / "a.txt").touch()
    assert "choose one of the files" in sentence(tmp_path / "cohort", capsys)


def test_broken_zarr(tmp_path, capsys):
    path = tmp_path / "b.zarr"
    write_ome_zarr(path, picture(300, 200))
    (path / ".zattrs").write_text("{}")
    assert "no OME-Zarr image" in sentence(path, capsys)


def test_zip_of_a_slide(tmp_path, capsys):
    write_svs(tmp_path / "a.svs", picture(600, 400))
    with zipfile.ZipFile(tmp_path / "zip.svs", "w") as archive:
        archive.write(tmp_path / "a.svs")
    assert "unpack it" in sentence(tmp_path / "zip.svs", capsys)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("write", [write_svs, write_tiff])
def test_truncated_slide(tmp_path, write, share):
    """Opens with its loss shown, or is refused with a sentence; never a crash."""
    path = tmp_path / "cut.svs"
    write(path, picture(1500, 1200))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    try:
        slide = open_slide(path)
    except InputError:
        with pytest.raises(InputError, match="incomplete"):
            open_slide(path)
        return
    told = []
    slide.on_unreadable = told.append
    pixels = np.asarray(slide.pyramid[0])
    assert pixels.shape == (1200, 1500, 3)
    assert len(told) <= 1


def test_a_damaged_tile_is_told_once_with_its_place(tmp_path):
    path = tmp_path / "damaged.tif"
    write_tiff(path, picture(2000, 1500), levels=2)
    whole = np.asarray(open_slide(path).pyramid[0])
    damage_tile(path, page=0, tile=8 + 2)  # row 1, column 2
    slide = open_slide(path)
    told = []
    slide.on_unreadable = told.append
    for _ in range(2):
        pixels = np.asarray(slide.pyramid[0])
    assert len(told) == 1
    assert told[0].l0_xy == (512, 256)
    assert "damaged.tif" in str(told[0])
    assert "x 512, y 256" in str(told[0])
    wrong = (pixels != whole).any(axis=-1)
    assert wrong[256:512, 512:768].mean() > 0.9
    wrong[256:512, 512:768] = False
    assert not wrong.any()
    with pytest.raises(UnreadableRegionError):
        slide.read(0, 500, 250, 100, 100)
    assert (slide.read(0, 0, 0, 256, 256) == whole[:256, :256]).all()


def test_a_damaged_tile_where_only_openslide_reads(tmp_path):
    path = tmp_path / "damaged.scn"
    write_scn(path, picture(1400, 1300))
    damage_tile(path, tile=1)
    slide = open_slide(path)
    told = []
    slide.on_unreadable = told.append
    pixels = np.asarray(slide.pyramid[0])
    assert len(told) == 1
    hatched = (pixels == [200, 60, 60]).all(axis=-1)
    assert 0.001 < hatched.mean() < 0.15


@KEEPS_OPEN_FILES
def test_a_slide_deleted_while_open(tmp_path):
    for write, name in ((write_tiff, "a.tif"), (write_scn, "a.scn")):
        path = tmp_path / name
        write(path, picture(3000, 2500))
        slide = open_slide(path)
        told = []
        slide.on_unreadable = told.append
        path.unlink()
        pixels = np.asarray(slide.pyramid[0])
        assert pixels.shape[2] == 3
        assert len(told) <= 1
        assert all("gone" in str(error) for error in told)


def test_a_damaged_zarr_chunk(tmp_path):
    path = tmp_path / "d.zarr"
    write_ome_zarr(path, picture(600, 400))
    chunk = next(
        p for p in (path / "0").rglob("*") if p.is_file() and "." in p.name[1:]
    )
    chunk.write_bytes(b"rubbish")
    slide = open_slide(path)
    told = []
    slide.on_unreadable = told.append
    np.asarray(slide.pyramid[0])
    assert len(told) == 1


def test_a_path_with_spaces_and_letters_works(tmp_path):
    folder = tmp_path / "Größe und 病理 切片"
    folder.mkdir()
    write_svs(folder / "слайд №1.svs", picture(600, 400))
    slide = open_slide(folder / "слайд №1.svs")
    assert np.asarray(slide.pyramid[0]).shape == (400, 600, 3)
    slide.close()
    shutil.rmtree(folder)


def test_wrong_usage_exits_with_2():
    with pytest.raises(SystemExit) as exit_code:
        main(["info"])
    assert exit_code.value.code == 2
