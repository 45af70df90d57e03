"""A cohort of two classes in the form of each tool that writes features."""

import json

import h5py
import numpy as np
import torch
import zarr

KINDS = ("trident", "clam", "bare", "stamp", "slideflow", "group", "lazyslide")
SLIDES, N, DIM = 12, 36, 8
G_RC = np.stack(np.divmod(np.arange(N), 6), axis=1)
L0_XY = G_RC[:, ::-1] * 512


def write_foreign_cohort(folder, kind, *, seed=0, prefix="s", people="p"):
    """Six patients of two slides, and labels.csv; give the folder of features."""
    rng = np.random.default_rng(seed)
    lines = ["slide,label,patient"]
    for number in range(SLIDES):
        name, label = f"{prefix}{number:02d}", number // 2 % 2
        x = rng.normal(size=(N, DIM)).astype(np.float32)
        x[::2, label] += 3
        features = _WRITERS[kind](folder, name, x)
        lines.append(f"{name},{'ab'[label]},{people}{number // 2}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return features


def _h5(path, datasets, attributes=None, of_coords=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, data in datasets.items():
            file[name] = data
        file.attrs.update(attributes or {})
        if of_coords:
            file["coords"].attrs.update(of_coords)
    return path.parent


def _pt(path, held):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(held, path)
    return path.parent


def _trident(folder, name, x):
    root = folder / "20x_256px_0px_overlap"
    said = {"patch_size": 256, "patch_size_level0": 512, "target_magnification": 20}
    _h5(root / "patches" / f"{name}_patches.h5", {"coords": L0_XY}, None, said)
    return _h5(root / "features_uni_v1" / f"{name}.h5", {"features": x})


def _clam(folder, name, x):
    said = {"patch_size": 256, "patch_level": 1, "downsample": (2.0, 2.0)}
    _h5(folder / "patches" / f"{name}.h5", {"coords": L0_XY}, None, said)
    inside = folder / "features"
    _pt(inside / "pt_files" / f"{name}.pt", torch.from_numpy(x))
    _h5(inside / "h5_files" / f"{name}.h5", {"features": x, "coords": L0_XY})
    return inside


def _bare(folder, name, x):
    return _pt(folder / "features" / f"{name}.pt", torch.from_numpy(x))


def _stamp(folder, name, x):
    said = {"extractor": "uni2", "unit": "um", "tile_size_um": 256.0}
    said |= {"stamp_version": "2.3.0", "tile_size_px": 224, "feat_type": "tile"}
    um_xy = (L0_XY / 2).astype(np.float32)
    held = {"feats": x.astype(np.float16), "coords": um_xy}
    return _h5(folder / "features" / f"{name}.h5", held, said)


def _slideflow(folder, name, x):
    inside = _pt(folder / "features" / f"{name}.pt", torch.from_numpy(x))
    np.savez(inside / f"{name}.index.npz", L0_XY + 256)
    config = {"extractor": {"class": "a.b.CTP"}, "tile_px": 299, "tile_um": 302}
    (inside / "bags_config.json").write_text(json.dumps(config))
    return inside


def _group(folder, name, x):
    places = [(int(row) + 3, int(col) + 2) for row, col in G_RC]
    held = {"embeddings": torch.from_numpy(x), "coords": places, "path": ["a"] * N}
    return _pt(folder / "features" / f"{name}.pt", held)


def _lazyslide(folder, name, x):
    inside = folder / "features"
    table = zarr.open_group(inside / f"{name}.zarr" / "tables" / "uni_tiles", mode="w")
    table.create_array("X", data=x)
    table.create_array("obsm/spatial", data=L0_XY.astype(float))
    return inside


_WRITERS = {
    "trident": _trident,
    "clam": _clam,
    "bare": _bare,
    "stamp": _stamp,
    "slideflow": _slideflow,
    "group": _group,
    "lazyslide": _lazyslide,
}
