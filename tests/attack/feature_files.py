"""Feature files that no writer writes, made from a good one."""

import random
import shutil

import h5py
import numpy as np

from spt_core import read_tokens
from spt_core.learning.cohort import open_cohort
from spt_core.tokens import TokenFacts, Tokens, layout, write_tokens

ODD_NUMBERS = [
    0, -1, 1e-12, 1e30, float("nan"), float("inf"), 2**62, -(2**63), "0.5", "x",
    b"\xff", [1, 2, 3], [[1.0]], "", np.zeros(0), h5py.Empty("f8"), True,
]  # fmt: skip
ATTRIBUTES = [
    layout.MPP, layout.PATCH_UM, layout.PATCH_SIZE, layout.PATCH_SIZE_L0,
    layout.PATCH_SIZE_L0_X, layout.L0_MAGNIFICATION, layout.TARGET_MAGNIFICATION,
    layout.OVERLAP, layout.L0_WIDTH, layout.GRID_ORIGIN, layout.ENCODER,
    layout.ENCODER_SHA256, layout.STAIN, layout.SLIDE_FINGERPRINT, layout.SPT_VERSION,
]  # fmt: skip


def good_file(path, seed=0, n=40, dim=16):
    rng = np.random.default_rng(seed)
    p = np.stack(np.divmod(np.arange(n), 8), axis=1)
    facts = TokenFacts(
        name=path.stem,
        encoder="small-random",
        encoder_sha256="ab" * 32,
        mpp=1.0,
        patch_size=64,
        patch_um=64.0,
        stain="none",
        l0_patch_xy=(128, 128),
        l0_step_xy=(128, 128),
        l0_size_xy=(2000, 2000),
        slide_fingerprint=f"{seed:064x}",
    )
    x = rng.normal(size=(n, dim)).astype(np.float32)
    write_tokens(path, Tokens(x, p, p[:, ::-1] * 128, facts))
    return path


def mutate(source, target, rng):
    """Write a bad copy; say how it was made."""
    shutil.copy(source, target)
    way = rng.choice([_bytes, _cut, _attribute, _dataset, _links, _values, _extra])
    return f"{way.__name__[1:]} {way(target, rng)}"


def _bytes(path, rng):
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 4, 32])):
        # Where the structure is: most of the rest are numbers.
        end = len(content) if rng.random() < 0.3 else min(len(content), 2600)
        content[rng.randrange(end)] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
    path.write_bytes(content)


def _cut(path, rng):
    content = path.read_bytes()
    size = rng.randrange(len(content))
    path.write_bytes(content[:size])
    return size


def _attribute(path, rng):
    name, value = rng.choice(ATTRIBUTES), rng.choice(ODD_NUMBERS)
    with h5py.File(path, "r+") as file:
        place = file[layout.COORDS] if rng.random() < 0.5 else file
        place.attrs[name] = value
    return f"{name}={value!r}"


def _dataset(path, rng):
    name = rng.choice([layout.FEATURES, layout.COORDS, layout.GRID])
    n = 40
    shape = rng.choice(
        [
            (n,),
            (n, 3),
            (0, 2),
            (n - 1, 2),
            (n, 0),
            (),
            (1, n, 16),
            (2**40, 2),
        ]
    )
    kind = rng.choice(["f4", "f2", "f8", "i8", "u1", "S4", "?", "c8", ">f4", "i2"])
    with h5py.File(path, "r+") as file:
        attrs = dict(file[name].attrs)
        del file[name]
        if rng.random() < 0.15:
            file.create_group(name)
        else:
            chunks = (1,) * len(shape) if shape and shape[0] > 2**30 else None
            made = file.create_dataset(name, shape, kind, chunks=chunks)
            made.attrs.update(attrs)
    return f"{name} {shape} {kind}"


def _links(path, rng):
    name = rng.choice([layout.FEATURES, layout.COORDS, layout.GRID])
    way = rng.randrange(4)
    with h5py.File(path, "r+") as file:
        shape = file[name].shape
        attrs = dict(file[name].attrs)
        del file[name]
        if way == 0:
            file[name] = h5py.SoftLink(rng.choice(["/nowhere", f"/{name}", "/"]))
        elif way == 1:
            file[name] = h5py.ExternalLink("/etc/passwd", "/x")
        elif way == 2:
            made = file.create_dataset(
                name, shape, "f4", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
            )
            made.attrs.update(attrs)
        else:
            plan = h5py.VirtualLayout(shape, "f4")
            plan[:] = h5py.VirtualSource("/etc/passwd", "x", shape)
            file.create_virtual_dataset(name, plan).attrs.update(attrs)
    return f"{name} {way}"


def _values(path, rng):
    name = rng.choice([layout.FEATURES, layout.COORDS, layout.GRID])
    with h5py.File(path, "r+") as file:
        data = file[name]
        choices = (
            [np.nan, np.inf, -np.inf]
            if name == layout.FEATURES
            else [2**62, -(2**63), -1, 2**40, 10**7]
        )
        value = rng.choice(choices)
        data[rng.randrange(len(data))] = value
    return f"{name} {value}"


def _extra(path, rng):
    with h5py.File(path, "r+") as file:
        if rng.random() < 0.5:
            file.attrs["x" * 1000] = "y" * 60_000
        else:
            file.create_group("a/" * 500)
    return ""


def cases(good, folder, seed, count):
    """Seeded bad files: a name and what to do with each."""
    rng = random.Random(seed)
    for number in range(count):
        target = folder / f"bad{number}.h5"
        how = mutate(good, target, rng)
        yield f"{seed}/{number} {how}", lambda target=target: read(target)


def read(path):
    """Read a file in both ways; whether what was found is sound."""
    tokens = read_tokens(path)
    (slide,) = open_cohort([path])
    return bool(
        np.isfinite(tokens.x).all()
        and len(tokens) == len(slide)
        and tokens.p.min(initial=0) >= 0
        and (tokens.facts.mpp is None or 0 < tokens.facts.mpp < 1e3)
    )
