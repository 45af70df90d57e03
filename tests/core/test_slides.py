"""Every kind of slide: pixels, geometry, threads and processes."""

import json
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spt_core import open_slide
from spt_core.cli import main
from spt_core.slides.pyramid import Level, chunk_size, make_chunk, plan_levels
from tests.made_slides import (
    CASES,
    KEEPS_OPEN_FILES,
    halved,
    picture,
    write_scn,
    write_svs,
    write_tiff,
)
from tests.slide_checks import check_against_openslide, check_pyramid
from tests.slides_folder import FOLDER, needs


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slides with spaces и буквы 病理")
    return {case.name: case.make(folder) for case in CASES}


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


def test_geometry(case, made):
    slide = open_slide(made[case.name])
    assert slide.dimensions == case.size
    assert slide.reader == case.reader
    assert slide.bounds == (case.bounds or (0, 0, *case.size))
    if case.mpp_xy is None:
        assert slide.mpp_xy is None
        assert slide.mpp is None
    else:
        assert slide.mpp_xy == pytest.approx(case.mpp_xy)
        assert slide.mpp == pytest.approx(np.sqrt(np.prod(case.mpp_xy)))
    check_pyramid(slide)
    steps = np.array(slide.level_downsamples)
    assert (steps[1:] / steps[:-1] < 4.1).all()


@pytest.mark.parametrize("name", [c.name for c in CASES if c.reader == "openslide"])
def test_made_slides_read_as_openslide_reads_them(name, made):
    check_against_openslide(made[name])


@pytest.mark.parametrize("lossless", [c for c in CASES if c.exact is not None])
def test_exact_pixels(lossless, made):
    slide = open_slide(made[lossless.name])
    np.testing.assert_array_equal(np.asarray(slide.pyramid[0]), lossless.exact)


def test_sixteen_bits_and_channels_are_shown_as_rgb(made):
    truth = picture(1423, 1111).astype(float)
    deep = np.asarray(open_slide(made["sixteen bits"]).pyramid[0]).astype(float)
    # One brightness scale for all three colours, near the true one.
    np.testing.assert_allclose(deep, np.clip(truth * 255 / 244, 0, 255), atol=12)
    five = np.asarray(open_slide(made["five channels"]).pyramid[1]).astype(float)
    source = truth[::2, ::2, 0].ravel()
    for colour in range(3):
        assert np.corrcoef(source, five[..., colour].ravel())[0, 1] > 0.7


def test_made_levels_are_averages(made):
    slide = open_slide(made["one level"])
    full = np.asarray(slide.pyramid[0]).astype(float)
    for array, level in zip(slide.pyramid[1:], slide.levels[1:], strict=True):
        assert level.is_made
        f = level.made_by
        height, width = full.shape[0] // f * f, full.shape[1] // f * f
        blocks = full[:height, :width].reshape(height // f, f, width // f, f, 3)
        got = np.asarray(array)[: height // f, : width // f]
        np.testing.assert_allclose(got, blocks.mean(axis=(1, 3)), atol=1)


def test_zooming_out_of_a_huge_single_level_reads_few_tiles():
    tiles = 0

    def read(level, x, y, w, h):
        nonlocal tiles
        tiles += -(-w // 256) * -(-h // 256)
        column = np.broadcast_to(
            (np.arange(x, x + w) // 1024)[None, :, None], (h, w, 3)
        )
        return column.astype(np.uint8)

    size = (131_072, 131_072)
    (level,) = [n for n in plan_levels((size,)) if n.made_by == 64]
    chunk = make_chunk(read, level, size, (256, 256), 1, 2)
    assert tiles <= 256
    # The picture is coarse, but in its place: it starts 16 steps of 1024 to the right.
    assert chunk.shape == (256, 256, 3)
    expected = 16 + np.arange(256) / 16
    np.testing.assert_allclose(chunk[128, :, 0], expected, atol=1.6)


def test_strided_and_single_pixel_indexing(made):
    slide = open_slide(made["pyramid"])
    array = slide.pyramid[0]
    full = np.asarray(array)
    np.testing.assert_array_equal(np.asarray(array[5::7, 3::11]), full[5::7, 3::11])
    np.testing.assert_array_equal(np.asarray(array[17, 600]), full[17, 600])
    np.testing.assert_array_equal(np.asarray(array[..., 1]), full[..., 1])
    np.testing.assert_array_equal(np.asarray(array[::-1, :9]), full[::-1, :9])
    assert np.asarray(array[9:9]).shape == (0, 1423, 3)


def test_threads_agree(made):
    """Many threads on one handle, with a cache too small for the slide."""
    slide = open_slide(made["one level"])
    slide._source._tiles[0]._cache.capacity = 5 * 256 * 256 * 3
    expected = np.asarray(slide.pyramid[0])
    rng = np.random.default_rng(1)
    places = [(int(x), int(y)) for x, y in rng.integers(0, (4200, 2000), (400, 2))]

    def agrees(place):
        x, y = place
        got = slide.read(0, x, y, 300, 300)
        return (got == expected[y : y + 300, x : x + 300]).all()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(agrees, places))


def mean_of(array):
    return float(array.mean().compute(scheduler="synchronous"))


def test_another_process_can_read(made):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for path in made.values():
            region = open_slide(path).pyramid[0][50:350, 60:420]
            there = pool.submit(mean_of, region).result()
            assert there == pytest.approx(mean_of(region))


def test_closing_one_slide_leaves_others_of_the_same_file(made, case):
    first, second = open_slide(made[case.name]), open_slide(made[case.name])
    pixels = first.read(0, 0, 0, 40, 30)
    first.close()
    first.close()
    np.testing.assert_array_equal(second.read(0, 0, 0, 40, 30), pixels)
    second.close()
    again = open_slide(made[case.name])
    np.testing.assert_array_equal(again.read(0, 0, 0, 40, 30), pixels)


def test_pickled_slides_share_one_handle(made):
    slide = open_slide(made["aperio without pixel size"], mpp=0.25)
    again = pickle.loads(pickle.dumps(slide))
    assert again._source is slide._source
    assert again.mpp_xy == (0.25, 0.25)


def test_mpp_is_the_files_else_the_callers(made):
    assert open_slide(made["aperio"], mpp=0.25).mpp_xy == (0.499, 0.499)
    assert open_slide(made["aperio without pixel size"]).mpp_xy is None
    with pytest.raises(ValueError, match=r"between 0\.05 and 20"):
        open_slide(made["aperio"], mpp=250)


def test_an_implausible_mpp_is_told_and_not_believed(tmp_path):
    write_svs(tmp_path / "a.svs", picture(500, 400), mpp=250)
    slide = open_slide(tmp_path / "a.svs")
    assert slide.mpp_xy is None
    assert "250 × 250" in slide.notes[0]
    assert open_slide(tmp_path / "a.svs", mpp=0.5).mpp_xy == (0.5, 0.5)


def test_transparent_parts_are_white_or_black(tmp_path):
    write_scn(tmp_path / "bright.scn", picture(600, 500))
    write_scn(tmp_path / "dark.scn", picture(600, 500) // 12)
    for name, paper in (("bright", 255), ("dark", 0)):
        slide = open_slide(tmp_path / f"{name}.scn")
        assert (slide.read(0, 0, 0, 100, 100) == paper).all()


@given(
    tile=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    level=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
)
def test_chunks_are_multiples_of_the_tile_near_512(tile, level):
    chunk = chunk_size(tile, level)
    for size, length in zip(chunk, level, strict=True):
        assert 1 <= size <= min(1024, length)
    sensible = all(64 <= t <= 1024 for t in tile) and max(tile) <= 4 * min(tile)
    if sensible:
        for size, t, length in zip(chunk, tile, level, strict=True):
            assert size % t == 0 or size == length
            assert abs(size - 512) <= t / 2 or size in (t, length)


def test_chunks_of_known_scanners():
    large = (100_000, 80_000)
    assert chunk_size((240, 240), large) == (480, 480)
    assert chunk_size((256, 256), large) == (512, 512)
    assert chunk_size((512, 512), large) == (512, 512)
    assert chunk_size((1024, 1024), large) == (1024, 1024)
    assert chunk_size((3968, 8), large) == (512, 512)
    assert chunk_size((0, 0), large) == (512, 512)


@given(
    st.integers(1, 300_000),
    st.integers(1, 300_000),
    st.lists(st.floats(1.5, 40), max_size=5),
)
def test_levels_have_no_wide_gaps(width, height, steps):
    sizes = [(width, height)]
    for step in steps:
        w, h = int(sizes[-1][0] / step), int(sizes[-1][1] / step)
        if w < 1 or h < 1:
            break
        sizes.append((w, h))
    levels = plan_levels(tuple(sizes))
    assert [n for n in levels if not n.is_made] == [
        Level(w, h, i) for i, (w, h) in enumerate(sizes)
    ]
    assert max(levels[-1].width, levels[-1].height) <= max(2048, 1)
    for before, after in pairwise(levels):
        assert before.width / after.width <= 4 or after.width <= 2


def test_fingerprint_knows_pixels_not_names(tmp_path):
    write_tiff(tmp_path / "a.tif", picture(1500, 1200))
    write_tiff(tmp_path / "b.tif", picture(1500, 1200))
    write_tiff(tmp_path / "c.tif", picture(1500, 1200, seed=1))
    a, b, c = (open_slide(tmp_path / f"{n}.tif").fingerprint for n in "abc")
    assert a == b
    assert a != c


@KEEPS_OPEN_FILES
def test_a_changed_file_is_not_served_from_the_old_handle(tmp_path):
    path = tmp_path / "a.tif"
    write_tiff(path, picture(700, 500))
    old = open_slide(path)
    before = np.asarray(old.pyramid[0])
    path.unlink()
    write_tiff(path, 255 - picture(700, 500))
    after = np.asarray(open_slide(path).pyramid[0])
    assert np.abs(before.astype(int) - after).mean() > 30


def test_info_says_it_all_but_not_whose_it_is(tmp_path, capsys):
    path = tmp_path / "x.svs"
    write_svs(path, picture(900, 700))
    assert main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "900 × 700" in text
    assert "0.499 × 0.499 µm" in text
    assert "thumbnail" in text
    assert "1 : " in text
    assert main(["info", "--json", str(path)]) == 0
    hidden = capsys.readouterr().out
    facts = json.loads(hidden)
    assert facts["mpp_xy"] == [0.499, 0.499]
    assert facts["levels"][1]["dimensions"] == list(
        halved(picture(900, 700)).shape[1::-1]
    )
    for secret in ("DOE", "Doe", "1234567", "b414003d"):
        assert secret not in text
        assert secret not in hidden
    assert main(["info", "--identifiers", str(path)]) == 0
    assert "Doe^Jane" in capsys.readouterr().out


DICOM = FOLDER / "slides" / "dicom_cmu_small"


@needs(DICOM)
def test_any_file_of_a_dicom_series_opens_its_slide():
    files = sorted(DICOM.glob("*.dcm"))
    assert len(files) == 4
    for path in files:
        check_against_openslide(path)
        assert open_slide(path).dimensions == open_slide(DICOM).dimensions
