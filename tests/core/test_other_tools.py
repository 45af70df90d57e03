"""Features of other tools: files made in exactly their form, read as they are."""

import json
import struct
from argparse import Namespace
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet
import pytest
import torch
import zarr

from spt_core.cli import main
from spt_core.commands.heatmap import _refuse_unplaced
from spt_core.errors import InputError
from spt_core.learning.cohort import open_cohort
from spt_core.tokens import lazyslide_tiles, read_index, read_tokens
from spt_core.tokens.converting import write_as
from spt_core.tokens.tokens import TokenFacts

G_RC = np.array([(0, 0), (0, 1), (1, 0), (2, 1), (2, 2)])
X = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)


def h5(path, datasets, attrs=None, coords_attrs=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, data in datasets.items():
            file.create_dataset(name, data=data)
        file.attrs.update(attrs or {})
        file["coords"].attrs.update(coords_attrs or {}) if coords_attrs else None
    return path


def corners(step, offset=0):
    return G_RC[:, ::-1] * step + offset


def check(path, source, dtype=np.float32):
    tokens = read_tokens(path)
    np.testing.assert_array_equal(tokens.x, X.astype(dtype).astype(np.float32))
    np.testing.assert_array_equal(tokens.p, G_RC)
    assert tokens.facts.source == source
    some = np.array([3, 0, 3])
    out = np.empty((3, 8), np.float32)
    read_index(path).rows.read(some, out)
    np.testing.assert_array_equal(out, tokens.x[some])
    return tokens


def test_trident_with_its_patches_and_without(tmp_path):
    root = tmp_path / "20x_256px_0px_overlap"
    said = {
        "patch_size": 256, "patch_size_level0": 512, "level0_magnification": 40,
        "target_magnification": 20, "overlap": 0, "name": "s", "savetodir": "None",
        "level0_width": 9000, "level0_height": "None",
    }  # fmt: skip
    whole = h5(root / "features_uni_v1" / "s.h5",
               {"features": X, "coords": corners(512)}, None, said)  # fmt: skip
    tokens = check(whole, "TRIDENT")
    assert (tokens.facts.encoder, tokens.facts.mpp) == ("uni_v1", 0.5)
    assert tokens.facts.l0_patch_xy == (512, 512)
    # Features alone: the coordinates are in the file of patches.
    h5(root / "patches" / "t_patches.h5", {"coords": corners(512)}, None, said)
    bare = h5(root / "features_uni_v1" / "t.h5", {"features": X})
    tokens = check(bare, "TRIDENT")
    np.testing.assert_array_equal(tokens.xy, corners(512))
    assert (tokens.facts.encoder, tokens.facts.patch_size) == ("uni_v1", 256)


def test_clam_beside_its_patches(tmp_path):
    """The patches say how large they are; a bare .pt has its places from there too."""
    said = {"patch_size": 256, "patch_level": 1, "downsample": (4.0, 4.0), "name": "s"}
    h5(tmp_path / "patches" / "s.h5", {"coords": corners(1024, 7)}, None, said)
    held = {"features": X, "coords": corners(1024, 7).astype(np.int32)}
    features = h5(tmp_path / "features" / "h5_files" / "s.h5", held)
    tokens = check(features, "CLAM")
    assert tokens.facts.l0_patch_xy == (1024, 1024)
    assert "l0_patch_xy" not in tokens.facts.assumed
    (tmp_path / "features" / "pt_files").mkdir()
    torch.save(torch.from_numpy(X), tmp_path / "features" / "pt_files" / "s.pt")
    features.unlink()
    tokens = check(tmp_path / "features" / "pt_files" / "s.pt", "CLAM")
    np.testing.assert_array_equal(tokens.xy, corners(1024, 7))
    assert tokens.facts.l0_patch_xy == (1024, 1024)


def test_three_generations_of_stamp(tmp_path):
    half = X.astype(np.float16)
    new = {"stamp_version": "2.3.0", "extractor": "uni2", "unit": "um",
           "tile_size_um": 256.0, "tile_size_px": 224, "feat_type": "tile"}  # fmt: skip
    um = corners(256).astype(np.float32)
    tokens = check(h5(tmp_path / "a.h5", {"feats": half, "coords": um}, new), "STAMP",
                   np.float16)  # fmt: skip
    assert tokens.facts.encoder == "uni2"
    assert tokens.facts.mpp == pytest.approx(256 / 224)
    assert tokens.facts.patch_um == 256
    older = {"extractor": "ctranspath", "tile_size": 256}
    tokens = check(h5(tmp_path / "b.h5", {"feats": half, "coords": um}, older), "STAMP",
                   np.float16)  # fmt: skip
    assert tokens.facts.patch_um == 256
    oldest = corners(224)
    path = h5(tmp_path / "c.h5", {"feats": half, "coords": oldest})
    tokens = check(path, "STAMP", np.float16)
    assert tokens.facts.patch_um == 256


def test_files_that_look_like_stamps_and_hold_pixels(tmp_path):
    path = h5(tmp_path / "a.h5", {"feats": X, "coords": corners(512).astype(np.int64)})
    tokens = check(path, "STAMP's names, in pixels")
    np.testing.assert_array_equal(tokens.xy, corners(512))
    assert tokens.facts.mpp is None


def test_slideflow(tmp_path):
    torch.save(torch.from_numpy(X), tmp_path / "s.pt")
    np.savez(tmp_path / "s.index.npz", corners(600) + 300)
    config = {"extractor": {"class": "slideflow.model.extractors.ctranspath.CTP"},
              "tile_px": 299, "tile_um": 302}  # fmt: skip
    (tmp_path / "bags_config.json").write_text(json.dumps(config))
    tokens = check(tmp_path / "s.pt", "Slideflow")
    np.testing.assert_array_equal(tokens.xy, corners(600))
    assert tokens.facts.encoder == "CTP"
    assert tokens.facts.mpp == pytest.approx(302 / 299)


def test_the_papers_group(tmp_path):
    held = {
        "path": ["a/b.tif"] * 5,
        "labels": torch.zeros(5, dtype=torch.long),
        "embeddings": torch.from_numpy(X),
        "coords": [(int(r) + 3, int(c) + 2) for r, c in G_RC],
    }
    torch.save(held, tmp_path / "s.pt")
    check(tmp_path / "s.pt", "the SPT paper's group")
    held["coords"] = torch.tensor(held["coords"])
    torch.save(held, tmp_path / "t.pt")
    check(tmp_path / "t.pt", "the SPT paper's group")


def test_lazyslides_table_by_zarr_alone(tmp_path):
    root = tmp_path / "s.zarr"
    group = zarr.open_group(root / "tables" / "uni_tiles", mode="w")
    group.create_array("X", data=X)
    group.create_array("obsm/spatial", data=corners(512).astype(float))
    tokens = check(root, "LazySlide")
    assert (tokens.name, tokens.facts.encoder) == ("s", "uni")
    np.testing.assert_array_equal(tokens.xy, corners(512))
    other = zarr.open_group(root / "tables" / "plip_tiles", mode="w")
    other.create_array("X", data=X)
    with pytest.raises(InputError, match="plip_tiles, uni_tiles"):
        read_tokens(root)
    assert not read_tokens(root / "tables" / "plip_tiles").facts.has_positions


def tile(x, y, side):
    """A tile's polygon, as LazySlide writes it."""
    corners = [(x + side, y), (x + side, y + side), (x, y + side), (x, y)]
    flat = np.array([*corners, corners[0]], "<f8").tobytes()
    return struct.pack("<BIII", 1, 3, 1, 5) + flat


def test_lazyslides_tiles_where_pyarrow_is(tmp_path, monkeypatch, capsys):
    root = tmp_path / "s.zarr"
    group = zarr.open_group(root, mode="w")
    group.attrs["tile_spec"] = {
        "tiles": {"width": 128, "height": 128, "stride_width": 128, "mpp": 0.5}
    }
    numbers = np.arange(len(X))[::-1] + 7
    table = group.create_group("tables/uni_tiles")
    table.create_array("X", data=X)
    table.create_array("obs/tile_id", data=numbers)
    polygons = [tile(x, y, 512) for x, y in corners(512)[::-1]]
    columns = {"tile_id": numbers[::-1], "geometry": polygons}
    (root / "shapes" / "tiles").mkdir(parents=True)
    places = root / "shapes" / "tiles" / "shapes.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), places)
    tokens = check(root, "LazySlide")
    np.testing.assert_array_equal(tokens.xy, corners(512))
    facts = tokens.facts
    assert (facts.mpp, facts.patch_size, facts.l0_patch_xy) == (0.5, 128, (512, 512))
    columns["tile_id"] = numbers[::-1] + 1
    pyarrow.parquet.write_table(pyarrow.table(columns), places)
    with pytest.raises(InputError, match="not those of its features"):
        read_tokens(root)
    monkeypatch.setattr(lazyslide_tiles, "find_spec", lambda name: None)
    assert not read_tokens(root).facts.has_positions
    assert main(["info", str(root)]) == 0
    assert "pip install pyarrow" in " ".join(capsys.readouterr().out.split())


def test_a_pt_that_would_run_code_is_refused_and_a_view_is_not_misread(tmp_path):
    class Code:
        def __reduce__(self):
            return (print, ("ran",))

    torch.save({"embeddings": Code()}, tmp_path / "code.pt")
    with pytest.raises(InputError, match="which is not data"):
        read_tokens(tmp_path / "code.pt")
    wide = torch.from_numpy(np.concatenate([X, X + 1]))
    torch.save(wide[5:], tmp_path / "part.pt")
    np.testing.assert_array_equal(read_tokens(tmp_path / "part.pt").x, X + 1)
    torch.save(torch.from_numpy(X.T.copy()).T, tmp_path / "turned.pt")
    with pytest.raises(InputError, match="not contiguous"):
        read_tokens(tmp_path / "turned.pt")
    (tmp_path / "text.pt").write_text("features")
    with pytest.raises(InputError, match="cannot be read as tensors"):
        read_tokens(tmp_path / "text.pt")


def test_a_bag_without_places_is_a_cohort_and_said_so(tmp_path, capsys):
    for i in range(3):
        torch.save(torch.from_numpy(X + i), tmp_path / f"s{i}.pt")
    cohort = open_cohort(tmp_path)
    assert [len(slide) for slide in cohort] == [5, 5, 5]
    assert any("do not say where their patches lie" in one for one in cohort.remarks)
    assert not cohort[0].p.any()
    assert main(["info", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "features of   3 slides, 15 patches, 8 numbers each" in said
    assert "written by    CLAM" in said
    assert "3 of 3 do not say where" in said
    assert main(["convert", str(tmp_path), "--out", str(tmp_path / "ours")]) == 0
    again = read_tokens(tmp_path / "ours" / "s1.h5")
    assert not again.facts.has_positions
    np.testing.assert_array_equal(again.x, X + 1)
    with pytest.raises(InputError, match="which stamp needs"):
        write_as("stamp", tmp_path / "b", again)


def test_a_map_needs_pixels_of_the_slide(tmp_path):
    facts = TokenFacts(has_positions=True, assumed=("xy",))
    words = {"slide": None, "out": [Path("map.geojson")]}
    with pytest.raises(InputError, match=r"'spt convert' with --slide-mpp"):
        _refuse_unplaced(Namespace(**words), "s.h5", facts)
    _refuse_unplaced(Namespace(**{**words, "out": [Path("map.png")]}), "s.h5", facts)
    _refuse_unplaced(Namespace(**words), "s.h5", TokenFacts())


@pytest.mark.parametrize("form", ["trident", "clam", "stamp"])
def test_there_and_back(tmp_path, form):
    said = {"patch_size": 256, "patch_size_level0": 512, "level0_magnification": 40,
            "target_magnification": 20, "overlap": 0, "name": "s"}  # fmt: skip
    h5(tmp_path / "a" / "s.h5", {"features": X.astype(np.float16),
       "coords": corners(512, 512)}, {"encoder": "uni"}, said)  # fmt: skip
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    assert (
        main(["convert", str(tmp_path / "a"), "--out", str(theirs), "--to", form]) == 0
    )
    back = ["--slide-mpp", "0.25", "--encoder", "uni"] if form != "trident" else []
    assert main(["convert", str(theirs), "--out", str(ours), *back]) == 0
    first, last = (read_tokens(p / "s.h5", dtype=None) for p in (tmp_path / "a", ours))
    np.testing.assert_array_equal(first.x, last.x)
    np.testing.assert_array_equal(first.xy, last.xy)
    assert first.facts.l0_patch_xy == last.facts.l0_patch_xy
    assert last.facts.encoder == "uni"
    if form == "clam":
        bare = torch.load(theirs / "pt_files" / "s.pt", weights_only=True)
        np.testing.assert_array_equal(bare.numpy(), first.x)
