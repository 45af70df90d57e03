"""Feature files of other tools that these never write, made from good ones."""

import json
import pickle
import random
import shutil
import struct
import zipfile
from pathlib import Path

import h5py
import numpy as np
import torch
import zarr

from tests.attack.feature_files import ODD_NUMBERS, read

N, DIM = 40, 16
ODD_PLACES = [
    None, 3, "x", [], [(1,)] * N, [(1, 2)] * (N - 1), [(1, 2, 3)] * N, [["a", "b"]] * N,
    [(float("nan"), 1)] * N, [(2**62, 0)] * N, [(0, 0), *[(2**39, 2**39)] * (N - 1)],
    {}, [[[]]], [(-(2**70), 1)] * N,
]  # fmt: skip
KINDS = ["f4", "f8", "f2", "i8", "u1", "?", "c8", "S4", ">f4"]


def good_files(folder):
    """One of each form: path of what is read, by the name of its writer."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, DIM)).astype(np.float32)
    g_rc = np.stack(np.divmod(np.arange(N), 8), axis=1)
    l0_xy = g_rc[:, ::-1] * 512
    good = {}
    good["stamp"] = folder / "stamp" / "s.h5"
    good["stamp"].parent.mkdir(parents=True)
    with h5py.File(good["stamp"], "w") as file:
        file["feats"] = x.astype(np.float16)
        file["coords"] = (l0_xy / 2).astype(np.float32)
        file.attrs.update(
            {"extractor": "uni", "unit": "um", "tile_size_um": 256.0}
            | {"tile_size_px": 224}
        )
    good["trident"] = folder / "trident" / "features_uni" / "s.h5"
    patches = folder / "trident" / "patches" / "s_patches.h5"
    for path in (good["trident"], patches):
        path.parent.mkdir(parents=True)
    with h5py.File(good["trident"], "w") as file:
        file["features"] = x
    with h5py.File(patches, "w") as file:
        file["coords"] = l0_xy
        file["coords"].attrs.update(
            {"patch_size": 256, "patch_size_level0": 512, "target_magnification": 20}
        )
    good["clam"] = folder / "clam" / "s.pt"
    good["group"] = folder / "group" / "s.pt"
    good["slideflow"] = folder / "slideflow" / "s.pt"
    for one in ("clam", "group", "slideflow"):
        good[one].parent.mkdir()
    torch.save(torch.from_numpy(x), good["clam"])
    places = [(int(r), int(c)) for r, c in g_rc]
    held = {"embeddings": torch.from_numpy(x), "coords": places, "path": ["a"] * N}
    torch.save(held, good["group"])
    torch.save(torch.from_numpy(x), good["slideflow"])
    np.savez(good["slideflow"].with_name("s.index.npz"), l0_xy + 256)
    config = {"extractor": {"class": "a.b.CTP"}, "tile_px": 299, "tile_um": 302}
    good["slideflow"].with_name("bags_config.json").write_text(json.dumps(config))
    for version in (2, 3):
        path = good[f"lazyslide{version}"] = folder / f"lazyslide{version}" / "s.zarr"
        table = zarr.open_group(
            path / "tables" / "uni_tiles", mode="w", zarr_format=version
        )
        table.create_array("X", data=x, chunks=(16, DIM))
        table.create_array("obsm/spatial", data=l0_xy.astype(float))
    return good


def mutate(good, target, rng):
    """Make a bad copy of one form; say how, and give the path to read."""
    form = rng.choice(sorted(good))
    source = good[form]
    inside = source.parent.parent if form == "trident" else source.parent
    shutil.copytree(inside, target)
    path = target / source.relative_to(inside)
    ways = {"h5": _H5, "pt": _PT, "zarr": _ZARR}[source.suffix[1:]]
    way = rng.choice([*ways, _bytes, _cut, _bomb])
    how = way(path, rng)
    return f"{form} {way.__name__[1:]} {how}", path


def _any_file(path, rng):
    """One of the files that belong together."""
    root = path if path.is_dir() else path.parent
    if path.parent.name == "features_uni":
        root = root.parent
    return rng.choice(sorted(p for p in root.rglob("*") if p.is_file()))


def _bytes(path, rng):
    file = _any_file(path, rng)
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 1, 4, 32])):
        end = len(content) if rng.random() < 0.5 else min(len(content), 900)
        content[rng.randrange(end)] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
    file.write_bytes(content)
    return file.name


def _cut(path, rng):
    file = _any_file(path, rng)
    content = file.read_bytes()
    size = rng.randrange(len(content))
    file.write_bytes(content[:size])
    return f"{file.name} {size}"


def _bomb(path, rng):
    """Something else, or far too much of it, in a file's place."""
    file = _any_file(path, rng)
    way = rng.randrange(3)
    file.unlink()
    if way == 0:
        file.symlink_to("/etc/passwd")
    elif way == 1:
        file.mkdir()
    else:
        file.write_bytes(b"[" * 2_000_000)
    return f"{file.name} {way}"


# HDF5


def _h5_of(path, rng):
    patches = path.parent.parent / "patches" / "s_patches.h5"
    return rng.choice([path, patches]) if patches.exists() else path


def _attribute(path, rng):
    names = [
        "tile_size_um", "tile_size_px", "tile_size", "unit", "extractor", "patch_size",
        "patch_size_level0", "target_magnification", "downsample", "custom_downsample",
    ]  # fmt: skip
    name, value = rng.choice(names), rng.choice(ODD_NUMBERS)
    with h5py.File(_h5_of(path, rng), "r+") as file:
        place = file["coords"] if "feats" not in file and "coords" in file else file
        if rng.random() < 0.3:
            place.attrs.pop("tile_size_um", None)
            place.attrs.pop("patch_size_level0", None)
        place.attrs[name] = value
    return f"{name}={value!r}"


def _dataset(path, rng):
    shapes = [(N,), (N, 3), (0, 2), (N - 1, 2), (N, 0), (), (1, N, DIM), (2, N, 2)]
    shape, kind = rng.choice([*shapes, (2**40, 2)]), rng.choice(KINDS)
    with h5py.File(_h5_of(path, rng), "r+") as file:
        name = rng.choice(sorted(file))
        del file[name]
        if rng.random() < 0.15:
            file.create_group(name)
        else:
            chunks = (1,) * len(shape) if shape and shape[0] > 2**30 else None
            file.create_dataset(name, shape, kind, chunks=chunks)
    return f"{name} {shape} {kind}"


def _links(path, rng):
    way = rng.randrange(4)
    with h5py.File(_h5_of(path, rng), "r+") as file:
        name = rng.choice(sorted(file))
        shape = file[name].shape
        del file[name]
        if way == 0:
            file[name] = h5py.SoftLink(rng.choice(["/nowhere", f"/{name}", "/"]))
        elif way == 1:
            file[name] = h5py.ExternalLink("/etc/passwd", "/x")
        elif way == 2:
            passwd = [("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
            file.create_dataset(name, shape, "f4", external=passwd)
        else:
            plan = h5py.VirtualLayout(shape, "f4")
            plan[:] = h5py.VirtualSource("/etc/passwd", "x", shape)
            file.create_virtual_dataset(name, plan)
    return f"{name} {way}"


def _values(path, rng):
    with h5py.File(_h5_of(path, rng), "r+") as file:
        name = rng.choice(sorted(file))
        odd = [np.nan, np.inf, -np.inf, 1e38]
        if file[name].dtype.kind == "i":
            odd = [2**62, -(2**63), -1, 2**40, 10**7]
        value = rng.choice(odd)
        file[name][rng.randrange(N)] = value
    return f"{name} {value}"


_H5 = (_attribute, _dataset, _links, _values)


# .pt


def _tensors(path, rng):
    """Tensors of odd shapes, kinds and numbers."""
    shape = rng.choice([(N,), (N, 0), (0, DIM), (1, N, DIM), (N, DIM), ()])
    kinds = [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64]
    kind = rng.choice([*kinds, torch.bfloat16, torch.float16])
    x = torch.ones(shape, dtype=torch.float32)
    if x.numel() and rng.random() < 0.3:
        x.view(-1)[0] = rng.choice([float("nan"), float("inf")])
    held = x.to(kind)
    if rng.random() < 0.5:
        held = {"embeddings": held, "coords": [(0, 1)] * N}
    torch.save(held, path)
    return f"{shape} {kind}"


def _odd_places(path, rng):
    places = rng.choice(ODD_PLACES)
    torch.save({"embeddings": torch.ones(N, DIM), "coords": places}, path)
    return str(places)[:40]


class _Code:
    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


def _odd_holding(path, rng):
    odd = [None, 3, "x", [], {}, {"embeddings": 3}, {1: 2}, _Code(), {"a": _Code()}]
    held = rng.choice([*odd, [torch.ones(3)], torch.ones(N, DIM).to_sparse()])
    torch.save(held, path)
    return type(held).__name__


def _pickle(path, rng):
    """A pickle that torch would not write, in a zip as torch writes it."""
    storage = (
        b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu"
        b"M\x80\x02tQ"
    )
    rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n"

    def number(n):
        return pickle.dumps(n, 2)[2:-1]

    def tensor(first, shape, strides):
        body = b"(" + storage + number(first) + number(shape) + number(strides)
        return rebuild + body + b"\x89NtR"

    good = tensor(0, (N, DIM), (DIM, 1))
    doubled = b"]" + b"".join(b"(" + b"2" * 60 + b"l" for _ in range(60))
    ways = {
        "far": tensor(10**6, (N, DIM), (DIM, 1)),
        "before": tensor(-500, (N, DIM), (DIM, 1)),
        "huge": tensor(0, (2**40, DIM), (DIM, 1)),
        "zero stride": tensor(0, (2**40, DIM), (0, 0)),
        "negative": tensor(0, (-N, -DIM), (-DIM, 1)),
        "other file": good + b"}X\x04\0\0\0pathX\x0b\0\0\0/etc/passwdsb",
        "memo": b"]r\xff\xff\xff\x7f" + b"0" + good,
        "bytes": b"\x8e" + struct.pack("<Q", 2**40) + b"0" + good,
        "bytearray": b"\x96" + struct.pack("<Q", 2**40) + b"0" + good,
        "deep": b"(" * 200_000 + b"t" * 200_000,
        "deep key": b"}" + b")" + b"\x85" * 200_000 + b"Ns",
        "deep set": b"\x8f(" + b")" + b"\x85" * 200_000 + b"\x90",
        "many axes": rebuild + b"(" + storage + b"K\0(" + b"\x8a\x08" * 1 + b"\xff" * 7
        + b"\x7f" + b"2" * 20_000 + b"t(" + b"K\x01" * 20_001 + b"t\x89NtR",
        "laughs": b"}X\x0a\0\0\0embeddings" + good + b"sX\x06\0\0\0coords"
        + doubled + b"s",
        "eval": b"c__builtin__\neval\n(X\x01\0\0\x001tR",
        "ext": b"\x82\x01",
        "empty": b"",
    }  # fmt: skip
    name = rng.choice(sorted(ways))
    content = {"archive/data/0": np.ones(N * DIM, "<f4").tobytes()}
    pack = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(path, "w", pack) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + ways[name] + b".")
        for one, data in content.items():
            archive.writestr(one, data)
    return f"{name} {pack}"


def _pickle_bomb(path, rng):
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("archive/data.pkl", "w") as file,
    ):
        for _ in range(64):
            file.write(b"N" * 2**22)
    return ""


def _index(path, rng):
    """Slideflow's places and facts; other forms have none, and get none."""
    odd = [
        np.ones((N, 2)) * np.nan, np.ones((N, 2)) * 1e30, np.ones(N), np.ones((N, 3)),
        np.ones((N - 1, 2)), np.zeros((N, 2), "S4"), np.zeros((0, 2)), np.float64(3),
        np.array([None, {}], object), np.arange(2 * N).reshape(N, 2) * 2**33,
    ]  # fmt: skip
    number = rng.randrange(len(odd) + 2)
    where = path.with_name("s.index.npz")
    if number < len(odd):
        np.savez(where, odd[number])
    else:
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**36}, 2)}}"
        data = b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode()
        with zipfile.ZipFile(where, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("arr_0.npy", data + b"\0" * (2**26))
    config = {"tile_px": rng.choice([0, -1, None, "x", [], 1e300, 299]),
              "tile_um": rng.choice([0, None, 302, -5, 1e-300])}  # fmt: skip
    if rng.random() < 0.5:
        path.with_name("bags_config.json").write_text(json.dumps(config))
    return f"{number} {config}"


_PT = (_tensors, _odd_places, _odd_holding, _pickle, _pickle, _pickle_bomb, _index)


# zarr


def _metadata(path, rng):
    """A fact of an array that does not fit its chunks, or nothing at all."""
    name = rng.choice(["X", "obsm/spatial"])
    folder = path / "tables" / "uni_tiles" / name
    v2 = folder / ".zarray"
    file = v2 if v2.exists() else folder / "zarr.json"
    said = json.loads(file.read_text())
    shapes = [[N], [N, 0], [2**40, DIM], [N, 2**40], [-1, DIM], [N, DIM, 1], [], "x"]
    shapes += [[N + 1, DIM], [N - 1, 2], [N, DIM], None, [1e300, 2]]
    chunks = [[1, 1], [2**20, 2**20], [0, 0], [-1, 2], [N], "x", [2**40, 1], None]
    kinds = ["<f8", "|u1", "|O", "<U9999999", "float16", "string", "x", 3, ">f4"]
    codecs = ["x", 3, {"id": "zlib", "level": 1}, {"id": "pickle"}, {"id": "blosc"}]
    fills = ["NaN", 1e400, "x", {}, [], 3]
    if v2.exists():
        key, values = rng.choice(
            [("shape", shapes), ("chunks", chunks), ("dtype", kinds),
             ("compressor", codecs), ("filters", [[one] for one in codecs]),
             ("fill_value", fills), ("dimension_separator", ["/", "../", 3])]
        )  # fmt: skip
    else:
        grids = [
            {"name": "regular", "configuration": {"chunk_shape": c}} for c in chunks
        ]
        ways = ["../", "/", 3]
        keys = [{"name": "default", "configuration": {"separator": s}} for s in ways]
        shard = {"chunk_shape": [1, 1], "codecs": [{"name": "bytes"}]}
        lists = [[], [{"name": "gzip", "configuration": {"level": 1}}], [3], "x",
                 [{"name": "sharding_indexed", "configuration": shard}]]  # fmt: skip
        key, values = rng.choice(
            [("shape", shapes), ("chunk_grid", grids), ("data_type", kinds),
             ("chunk_key_encoding", keys), ("codecs", lists), ("fill_value", fills),
             ("storage_transformers", [[{"name": "x"}]])]
        )  # fmt: skip
    said[key] = rng.choice(values)
    if key in ("shape", "chunks", "chunk_grid") and rng.random() < 0.5:
        for chunk in [p for p in folder.rglob("*") if p.is_file() and p != file]:
            chunk.unlink()
    file.write_text(json.dumps(said))
    return f"{name} {key}={said[key]!r}"


def _chunk(path, rng):
    """A chunk that lies elsewhere, is missing, or unpacks to far more."""
    folder = path / "tables" / "uni_tiles" / rng.choice(["X", "obsm/spatial"])
    chunks = [p for p in folder.rglob("*") if p.is_file()]
    chunk = rng.choice(sorted(p for p in chunks if p.name[0] not in ".z"))
    way = rng.randrange(5)
    if way == 0:
        chunk.unlink()
    elif way == 1:
        outside = path.parent / "other"
        shutil.move(chunk, outside)
        chunk.symlink_to(outside)
    elif way == 2:
        chunk.write_bytes(bytes.fromhex("28b52ffda0") + struct.pack("<I", 2**31))
    elif way == 3:
        frame = bytes.fromhex("28b52ffde0") + struct.pack("<Q", 2**62)
        chunk.write_bytes(frame + chunk.read_bytes()[10:])
    else:
        outside = path.parent / "folder"
        shutil.move(folder, outside)
        folder.symlink_to(outside)
    return f"{chunk.name} {way}"


def _array(path, rng):
    """An array of another kind."""
    group = zarr.open_group(path / "tables" / "uni_tiles", mode="r+")
    name = rng.choice(["X", "obsm/spatial"])
    del group[name]
    shape = rng.choice([(N,), (N, DIM), (N, 2), (N, 3), (0, 2), (N + 1, 2), (1, N, 2)])
    kind = rng.choice(["f4", "f8", "i8", "u1", "?", "c8", "S4"])
    data = np.ones(shape).astype(kind)
    if kind in ("f4", "f8") and data.size and rng.random() < 0.5:
        data.flat[0] = rng.choice([np.nan, np.inf, 1e30])
    group.create_array(name, data=data)
    return f"{name} {shape} {kind}"


_ZARR = (_metadata, _metadata, _chunk, _array)


def cases(folder, seed, count):
    """Seeded bad files: a name and what to do with each."""
    good = good_files(folder / "good")
    rng = random.Random(seed)
    for number in range(count):
        target = folder / f"bad{number}"
        how, path = mutate(good, target, rng)
        yield f"{seed}/{number} {how}", lambda path=path: read(path)
