"""Feature files: ours, TRIDENT's and CLAM's, read by the contract's rules."""

import subprocess
import sys

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spt_core.errors import InputError
from spt_core.tokens import TokenFacts, Tokens, read_index, read_tokens, write_tokens


def some_tokens(n=50, d=8, seed=0, dtype=np.float32, **facts):
    rng = np.random.default_rng(seed)
    cells = rng.choice(20 * 30, n, replace=False)
    p = np.stack([cells // 30, cells % 30], axis=1)
    g_origin = facts.pop("g_origin", (4, 7))
    xy = (p + np.asarray(g_origin))[:, ::-1] * 594
    stated = {
        "name": "S.1.svs-like",
        "encoder": "resnet34",
        "encoder_sha256": "ab" * 32,
        "mpp": 0.5,
        "patch_size": 300,
        "l0_patch_xy": (594, 594),
        "l0_size_xy": (90_000, 60_000),
        "slide_fingerprint": "f" * 64,
        "scanner": "aperio 20x 0.499 um",
        "g_origin": g_origin,
    }
    x = rng.normal(size=(n, d)).astype(dtype)
    return Tokens(x, p, xy, TokenFacts(**{**stated, **facts}))


def write_trident(path, xy, *, d=4, chunks=None, compression=None, **attributes):
    path.parent.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(1).normal(size=(len(xy), d)).astype(np.float32)
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=x, chunks=chunks, compression=compression)
        coords = file.create_dataset("coords", data=np.asarray(xy, np.int64))
        coords.attrs.update(attributes)
    return x


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_is_written_is_read_back_sorted_by_cell(tmp_path, dtype):
    tokens = some_tokens(dtype=dtype)
    path = tmp_path / "TCGA-A1-A0SB-01Z-00-DX1.1.h5"
    write_tokens(path, tokens)
    back = read_tokens(path, dtype=None)
    order = np.lexsort((tokens.p[:, 1], tokens.p[:, 0]))
    assert back.x.dtype == dtype
    np.testing.assert_array_equal(back.x, tokens.x[order])
    np.testing.assert_array_equal(back.p, tokens.p[order])
    np.testing.assert_array_equal(back.xy, tokens.xy[order])
    np.testing.assert_array_equal(back.g_rc, tokens.p[order] + [4, 7])
    assert back.name == "TCGA-A1-A0SB-01Z-00-DX1.1"
    assert back.facts.g_origin == (4, 7)
    assert back.facts.encoder == "resnet34"
    assert back.facts.mpp == 0.5
    assert back.facts.l0_size_xy == (90_000, 60_000)
    assert not back.facts.off_lattice
    assert back.facts.assumed == ()
    assert list(tmp_path.iterdir()) == [path]


def test_plain_h5py_reads_a_written_file_as_trident_documents_it(tmp_path):
    write_tokens(tmp_path / "s.h5", some_tokens())
    with h5py.File(tmp_path / "s.h5") as file:
        assert file["features"].shape == (50, 8)
        assert file["coords"].dtype == np.int64
        attributes = dict(file["coords"].attrs)
    assert attributes["patch_size"] == 300
    assert attributes["patch_size_level0"] == 594
    assert attributes["level0_width"] == 90_000
    assert attributes["overlap"] == 0


def test_axes_of_unlike_pixel_size_keep_their_own_steps(tmp_path):
    write_tokens(tmp_path / "s.h5", some_tokens(l0_patch_xy=(594, 600)))
    facts = read_tokens(tmp_path / "s.h5").facts
    assert facts.l0_patch_xy == (594, 600)
    assert facts.l0_step_xy == (594, 600)


def test_trident_cells_come_from_the_step_with_overlap(tmp_path):
    # 256 px at 20x on a 40x slide, 64 px overlap: 512 wide, 384 from one to the next
    cells = np.array([[0, 0], [0, 1], [1, 3], [5, 2]])
    xy = cells[:, ::-1] * 384 + [1000, 2000]
    folder = tmp_path / "20x_256px_64px_overlap" / "features_uni_v1"
    attributes = {
        "patch_size": 256,
        "patch_size_level0": 512,
        "level0_magnification": 40,
        "target_magnification": 20,
        "overlap": 64,
        "name": "a",
    }
    x = write_trident(folder / "a.h5", xy, **attributes)
    tokens = read_tokens(folder / "a.h5")
    np.testing.assert_array_equal(tokens.p, cells)
    np.testing.assert_array_equal(tokens.x, x)
    assert not tokens.facts.off_lattice
    assert tokens.facts.encoder == "uni_v1"
    assert tokens.facts.mpp == 0.5
    assert set(tokens.facts.assumed) == {"encoder", "mpp"}


def test_a_restarted_lattice_keeps_every_token_and_is_flagged(tmp_path):
    first = np.array([[0, 0], [512, 0], [0, 512]])
    second = first + np.array([1536 + 200, 100])  # CLAM's next contour, 200 px off
    xy = np.concatenate([first, second])
    write_trident(tmp_path / "a.h5", xy, patch_size=256, patch_size_level0=512)
    tokens = read_tokens(tmp_path / "a.h5")
    assert len(tokens) == 6
    assert tokens.facts.off_lattice


def test_repeated_cells_are_flagged(tmp_path):
    xy = np.array([[0, 0], [60, 0], [512, 0]])
    write_trident(tmp_path / "a.h5", xy, patch_size=256, patch_size_level0=512)
    tokens = read_tokens(tmp_path / "a.h5")
    assert len(tokens) == 3
    assert tokens.facts.off_lattice


def test_clam_says_nothing_and_its_step_is_found(tmp_path):
    cells = np.array([[r, c] for r in range(6) for c in range(9) if (r * c) % 5 != 1])
    write_trident(tmp_path / "a.h5", cells[:, ::-1] * 448 + [77, 5])
    tokens = read_tokens(tmp_path / "a.h5", encoder="resnet50", mpp=0.5)
    np.testing.assert_array_equal(tokens.p, cells)
    assert tokens.facts.encoder == "resnet50"
    assert tokens.facts.mpp == 0.5
    assert tokens.facts.patch_size is None
    assert "l0_patch_xy" in tokens.facts.assumed


def test_an_option_does_not_overrule_what_the_file_states(tmp_path):
    write_tokens(tmp_path / "s.h5", some_tokens())
    with pytest.raises(InputError, match=r"encoder resnet34, not uni"):
        read_tokens(tmp_path / "s.h5", encoder="uni")


@settings(max_examples=40, deadline=None)
@given(
    step=st.integers(40, 2000),
    shift=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    seed=st.integers(0, 2**31),
)
def test_any_lattice_is_found_again(tmp_path_factory, step, shift, seed):
    rng = np.random.default_rng(seed)
    cells = np.unique(rng.integers(0, 12, (20, 2)), axis=0)
    path = tmp_path_factory.mktemp("lattice") / "a.h5"
    # others round a fractional step: up to a quarter step is still the lattice
    noise = rng.integers(-(step // 10), step // 10 + 1, cells.shape)
    xy = cells[:, ::-1] * step + shift + noise
    write_trident(path, xy, patch_size=256, patch_size_level0=step)
    tokens = read_tokens(path)
    np.testing.assert_array_equal(tokens.p, cells - cells.min(axis=0))
    assert not tokens.facts.off_lattice


@pytest.mark.parametrize(
    ("chunks", "compression"),
    [(None, None), ((1, 4), None), ((7, 4), None), ((7, 4), "gzip"), ((7, 2), None)],
)
def test_rows_of_any_storage_are_read_alone(tmp_path, chunks, compression):
    xy = np.stack([np.arange(40) * 10, np.zeros(40)], axis=1)
    x = write_trident(tmp_path / "a.h5", xy, chunks=chunks, compression=compression)
    source = read_index(tmp_path / "a.h5").rows
    rows = np.array([39, 0, 7, 7, 13])
    out = np.empty((5, 4), np.float32)
    source.read(rows, out)
    np.testing.assert_array_equal(out, x[rows])
    np.testing.assert_array_equal(source.read_all(), x)
    mapped = source.offset is not None or source.offsets is not None
    assert mapped == (compression is None and chunks != (7, 2))


def test_one_leading_axis_as_some_trident_versions_write_it(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = x
        file["coords"] = np.array([[[0, 0], [10, 0], [0, 10]]])
    np.testing.assert_array_equal(read_tokens(tmp_path / "a.h5").x, x[0])


def test_an_empty_slide_is_a_slide_of_no_tokens(tmp_path):
    write_trident(tmp_path / "a.h5", np.zeros((0, 2)), patch_size_level0=512)
    tokens = read_tokens(tmp_path / "a.h5")
    assert len(tokens) == 0
    assert tokens.dim == 4


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(InputError, match="no feature file"):
        read_tokens(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("not HDF5")
    with pytest.raises(InputError, match="cannot be read as a feature file"):
        read_tokens(tmp_path / "text.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["embeddings"] = np.zeros((2, 3))
    with pytest.raises(InputError, match="no features and no coords"):
        read_tokens(tmp_path / "other.h5")
    with h5py.File(tmp_path / "short.h5", "w") as file:
        file["features"] = np.zeros((5, 3), np.float32)
        file["coords"] = np.zeros((4, 2), np.int64)
    with pytest.raises(InputError, match="5 features but 4 coordinates"):
        read_tokens(tmp_path / "short.h5")
    bad = some_tokens()
    bad.x[3, 2] = np.nan
    write_tokens(tmp_path / "nan.h5", bad)
    with pytest.raises(InputError, match="1 of 50 tokens hold NaN"):
        read_tokens(tmp_path / "nan.h5")


def test_tokens_are_read_without_torch(tmp_path):
    write_tokens(tmp_path / "s.h5", some_tokens())
    code = (
        "import sys; from spt_core import read_tokens;"
        f"print(len(read_tokens({str(tmp_path / 's.h5')!r})), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["50", "False"]
