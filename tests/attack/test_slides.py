"""Damaged slides: a sentence each; none takes its process down or never ends."""

import errno
import io
import os
import struct
import sys
from contextlib import closing, suppress

import numpy as np
import pytest
import tifffile
import zarr
from numcodecs import Blosc, GZip, Zstd
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from spt_core import proving
from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.patches.folder import find_slides
from spt_core.slides import UnreadableRegionError, open_slide
from spt_core.slides.folders import slides_in
from spt_core.slides.names import slide_name
from spt_core.slides.zarr_chunks import SIZES
from tests.attack import forks
from tests.attack.slide_files import cases, directories, look
from tests.made_slides import picture, write_ome_zarr, write_tiff

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="forks and limits")
POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")


def a_slide(path, **options):
    write_tiff(path, picture(700, 600), levels=2, **options)
    return path


def with_tag(path, target, tag, value):
    content = bytearray(path.read_bytes())
    at = directories(content)[0]
    (count,) = struct.unpack_from("<H", content, at)
    for entry in range(at + 2, at + 2 + count * 12, 12):
        if struct.unpack_from("<H", content, entry)[0] == tag:
            struct.pack_into("<I", content, entry + 8, value)
    target.write_bytes(content)
    return target


@LINUX
def test_every_damaged_slide_is_a_sentence(tmp_path):
    slides = [a_slide(tmp_path / "a.tif"), a_slide(tmp_path / "b.tif", tile=None)]
    write_ome_zarr(tmp_path / "c.ome.zarr", picture(300, 200))
    slides.append(tmp_path / "c.ome.zarr")
    (tmp_path / "bad").mkdir()
    table = forks.Table()

    def guarded(case):
        proving.switch_on()
        return case()

    for name, case in cases(slides, tmp_path / "bad", seed=4, count=25):
        end = forks.run(lambda case=case: guarded(case), seconds=120)
        table.add("slides", name, *end)
    assert not table.failed, str(table)


@pytest.mark.parametrize(
    ("tag", "value", "words"),
    [
        (322, 0, "tiles with a side of 0"),
        (323, 0, "tiles with a side of 0"),
        (322, 2**31, "tiles with a side"),
        (256, 0, "a side of 0"),
        (257, 2**32 - 1, "a side of 4294967295"),
    ],
)
def test_impossible_sizes_are_said(tmp_path, tag, value, words):
    good = a_slide(tmp_path / "good.tif")
    bad = with_tag(good, tmp_path / "bad.tif", tag, value)
    with pytest.raises(InputError, match=words):
        open_slide(bad)
    open_slide(good).close()


def test_directories_in_a_circle_are_said(tmp_path):
    content = bytearray(a_slide(tmp_path / "good.tif").read_bytes())
    at = directories(content)[-1]
    (count,) = struct.unpack_from("<H", content, at)
    struct.pack_into("<I", content, at + 2 + count * 12, directories(content)[0])
    (tmp_path / "bad.tif").write_bytes(content)
    with pytest.raises(InputError, match="in a circle"):
        open_slide(tmp_path / "bad.tif")


@POSIX
def test_pipes_and_links_that_lead_back(tmp_path):
    os.mkfifo(tmp_path / "pipe.svs")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        open_slide(tmp_path / "pipe.svs")
    folder = tmp_path / "slides"
    (folder / "inner").mkdir(parents=True)
    a_slide(folder / "inner" / "a.tif")
    (folder / "inner" / "back").symlink_to(folder)
    (folder / "loop.svs").symlink_to(folder / "loop.svs")
    assert [path.name for path in slides_in(folder)][:1] == ["a.tif"]
    assert len(find_slides([folder])) <= 2
    with pytest.raises(InputError, match="There is no file"):
        open_slide(folder / "loop.svs")


@POSIX
def test_folders_that_may_not_be_read_are_left_out_and_said(
    tmp_path, monkeypatch, caplog, capsys
):
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    for name in ("a.tif", "closed/b.tif", "closed/inner/c.tif", "z.tif"):
        a_slide(tmp_path / name)
    closed = tmp_path / "closed"
    closed.chmod(0)
    if os.access(closed, os.R_OK):  # nobody keeps root out
        for name in ("listdir", "scandir"):
            monkeypatch.setattr(os, name, kept_out(getattr(os, name), closed))
    try:
        assert [path.name for path in find_slides([tmp_path])] == ["a.tif", "z.tif"]
        (said,) = [one.getMessage() for one in caplog.records]
        assert said == f"{closed} cannot be looked into: Permission denied"
        out = str(tmp_path / "out")
        words = ["encode", str(closed), "--out", out, "--encoder", "small-random"]
        assert main(words) == 1
    finally:
        closed.chmod(0o700)
    said = capsys.readouterr().err
    assert "closed" in said
    assert "ermission" in said
    assert "Traceback" not in said


def kept_out(real, closed):
    def look(path="."):
        if os.fspath(path) == str(closed):
            raise PermissionError(errno.EACCES, "Permission denied", str(closed))
        return real(path)

    return look


@LINUX
def test_a_name_that_is_no_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xfe.tif"
    a_slide(tmp_path / "a.tif")
    os.rename(tmp_path / "a.tif", path)
    assert slide_name(os.fsdecode(path)) == "\ufffd\ufffd"
    open_slide(os.fsdecode(path)).close()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_chunk_that_was_cut_off_is_not_read_beyond_its_end(tmp_path, zarr_format):
    """Its unpacker would show what lies behind it in memory."""
    path = tmp_path / "a.ome.zarr"
    pack = Blosc() if zarr_format == 2 else BloscCodec()
    pixels = np.random.default_rng(0).integers(0, 256, (3, 128, 128), np.uint8)
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("0", data=pixels, chunks=pixels.shape, compressors=pack)
    image = {"axes": ["c", "y", "x"], "datasets": [{"path": "0"}]}
    said = {"multiscales": [image]}
    group.attrs.update(said if zarr_format == 2 else {"ome": said})
    with closing(open_slide(path)) as slide:
        assert (slide.read(0, 0, 0, 9, 9) == pixels[:, :9, :9].transpose(1, 2, 0)).all()
    (chunk,) = (p for p in (path / "0").rglob("*0") if p.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-9000])
    with (
        closing(open_slide(path)) as slide,
        pytest.raises(UnreadableRegionError, match="bytes"),
    ):
        slide.read(0, 0, 0, 9, 9)


@LINUX
@pytest.mark.parametrize("name", ["0.0.0", ".zarray", ".zattrs"])
def test_a_pipe_in_a_zarr_folder_is_not_waited_for(tmp_path, name):
    path = tmp_path / "a.ome.zarr"
    write_ome_zarr(path, picture(200, 150))
    pipe = path / name if name == ".zattrs" else path / "0" / name
    pipe.unlink()
    os.mkfifo(pipe)
    end, words = forks.run(lambda: look(path), seconds=20)
    assert end == "sentence", (end, words)


PACKERS = {
    "blosc": (Blosc(cname="zstd"), BloscCodec(cname="zstd")),
    "zstd": (Zstd(), ZstdCodec()),
    "gzip": (GZip(1), GzipCodec(level=1)),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("packer", PACKERS)
def test_a_chunk_does_not_unpack_to_far_more_than_its_pixels(
    tmp_path, packer, zarr_format
):
    path = tmp_path / "a.zarr"
    pixels = picture(300, 200)
    zarr.create_array(
        path,
        data=pixels,
        chunks=(128, 128, 3),
        zarr_format=zarr_format,
        compressors=PACKERS[packer][zarr_format - 2],
    )
    with closing(open_slide(path)) as slide:
        assert (slide.read(0, 0, 0, 300, 200) == pixels).all()
    first = "0.0.0" if zarr_format == 2 else "c/0/0/0"
    assert (path / first).exists()
    (path / first).write_bytes(PACKERS[packer][0].encode(bytes(3 * 2**27)))
    assert (path / first).stat().st_size < 2**22
    with (
        closing(open_slide(path)) as slide,
        pytest.raises(UnreadableRegionError, match="unpacks to more"),
    ):
        slide.read(0, 0, 0, 64, 64)


def test_frames_of_zstd_that_state_no_size_are_bounded_by_their_blocks():
    raw = (2**17 << 3).to_bytes(3, "little") + bytes(2**17)
    run = (1 + (1 << 1) + (100 << 3)).to_bytes(3, "little") + b"x"
    frame = bytes.fromhex("28b52ffd0058") + 3 * raw + run
    found = SIZES["zstd"](io.BytesIO(frame), 2**30)
    assert found == 2 * 2**17 + 100
    bomb = bytes.fromhex("28b52ffd0058")
    bomb += 100 * (((1 << 1) + (2**17 << 3)).to_bytes(3, "little") + b"x")
    assert SIZES["zstd"](io.BytesIO(bomb), 2**20) > 2**20


@pytest.mark.parametrize("chunks", [(10**6, 10**6, 3), (2**15, 2**15, 3)])
def test_chunks_that_no_memory_holds_are_refused(tmp_path, chunks):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(200, 300, 3), chunks=chunks, dtype="u1")
    with pytest.raises(InputError, match="smaller chunks"):
        open_slide(path)


@LINUX
@pytest.mark.parametrize("options", [{"tile": (256, 256)}, {"rowsperstrip": 64}])
@pytest.mark.parametrize("compression", ["jpeg", "jpeg2000", "png", "webp"])
def test_a_tile_that_claims_a_gigabyte_is_given_none(tmp_path, options, compression):
    """Its codec would make room for what the tile's own header says."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture(500, 420), compression=compression, **options)
    claims = {
        "jpeg": (b"\xff\xc0\x00\x11\x08", struct.pack(">HH", 60_000, 60_000)),
        "jpeg2000": (b"\xff\x4f\xff\x51\0\x2f\0\0", struct.pack(">II", 2**16, 2**16)),
        "png": (b"IHDR", struct.pack(">II", 2**15, 2**15)),
        "webp": (b"VP8L", struct.pack("<I", 2**28 - 1)),
    }
    before, size = claims[compression]
    content = path.read_bytes()
    at = content.find(before)
    assert at > 0
    if compression == "webp":  # its length and a mark come first
        before = content[at : at + 9]
    pieces = [p[len(size) :] if i else p for i, p in enumerate(content.split(before))]
    path.write_bytes((before + size).join(pieces))
    end, words = forks.run(lambda: look(path), seconds=20, memory=2**30)
    assert end in ("sentence", "read"), (end, words)
    with closing(open_slide(path)) as slide:
        before = peak_memory()
        with suppress(UnreadableRegionError):
            slide.read(0, 0, 0, 64, 64)
        assert peak_memory() - before < 2**28


def peak_memory():
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
