"""Model and encoder files that no training writes, made from good ones."""

import json
import random
import struct

import numpy as np
import torch

from spt_core import load_model
from spt_core.card_file import ENDING
from spt_core.insight.predicting import predict
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.model_card import (
    Architecture,
    Calibration,
    ModelCard,
    TokenKind,
    TrainingSummary,
)
from spt_core.learning.model_file import SlideModel, save_model
from spt_core.patches.registry import load_encoder
from spt_core.tokens import TokenFacts, Tokens

ODD = [
    None, True, -1, 0, 10**6, 10**7, 10**400, 1e308, 1e-300, "x", "", [], {}, [[1]],
    {"a": {}}, "\u2028", 0.5, 2**31,
]  # fmt: skip


def good_model(path, name="small", dim=16):
    torch.manual_seed(0)
    options = {"dim": 24, "depth": 2, "heads": 3} if name == "small" else {}
    encoder = build_encoder(name, dim, **options)
    card = ModelCard(
        Architecture(encoder.name, encoder.config),
        TokenKind(dim, "small-random", "ab" * 32, 1.0, 64, 64.0, "none"),
        TrainingSummary(slides=3, class_counts={"a": 2, "b": 1}),
        classes=("a", "b"),
        calibration=Calibration(1.5, 10, 2, 0.2, 0.1),
    )
    save_model(path, SlideModel(encoder, card, torch.nn.Linear(encoder.dim, 2)))
    return path


def taken_apart(path):
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def put_together(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def mutate(source, target, rng):
    """Write a bad copy; say how it was made."""
    header, data = taken_apart(source)
    way = rng.randrange(7)
    if way == 0:
        content = bytearray(source.read_bytes())
        for _ in range(rng.choice([1, 3, 20])):
            content[rng.randrange(min(len(content), 6000))] = rng.randrange(256)
        target.write_bytes(content)
        return "bytes"
    if way == 1:
        content = source.read_bytes()
        target.write_bytes(content[: rng.randrange(len(content))])
        return "cut"
    if way == 2:
        numbers = np.frombuffer(data, "<f4").copy()
        value = rng.choice([np.nan, np.inf, 3e38])
        numbers[rng.randrange(len(numbers))] = value
        put_together(target, header, numbers.tobytes())
        return f"weight {value}"
    card = json.loads(header["__metadata__"]["card"])
    how = ""
    if way == 3:  # another architecture
        options = card["architecture"]
        if isinstance(options, dict):
            name = rng.choice([*options, "depth", "dim", "in_dim", "heads", "name"])
            options[name] = value = rng.choice([*ODD, "mean", "abmil", "hipt", "clam"])
            how = f"architecture.{name}={value!r:.30}"
        else:
            card["architecture"] = how = rng.choice(["vit_giant_patch14_224", 3, "x"])
    elif way == 4:  # any field
        place, names = card, []
        while isinstance(place, dict) and place:
            name = rng.choice(list(place))
            names.append(name)
            if not isinstance(place[name], dict) or rng.random() < 0.5:
                place[name] = value = rng.choice(ODD)
                how = f"{'.'.join(names)}={value!r:.30}"
                break
            place = place[name]
    elif way == 5:  # a tensor's place
        name = rng.choice([key for key in header if key != "__metadata__"])
        facts = header[name]
        what = rng.choice(["shape", "dtype", "name"])
        if what == "shape":
            facts["shape"] = rng.choice([[0], [10**12, 0], facts["shape"][::-1], [-1]])
        elif what == "dtype":
            facts["dtype"] = rng.choice(["I32", "F64", "BOOL", "X"])
        else:
            header[rng.choice(["encoder.x", "class.weight", "", "x"])] = header.pop(
                name
            )
        how = f"tensor {name} {what}"
    else:
        text = rng.choice(["", "{", "[" * 50_000, "null", "9" * 5000, "NaN", '"card"'])
        header["__metadata__"]["card"] = text
        put_together(target, header, data)
        return f"card {text[:20]}"
    header["__metadata__"]["card"] = json.dumps(card)
    put_together(target, header, data)
    return how


def cases(good, read, folder, seed, count):
    rng = random.Random(seed)
    for number in range(count):
        target = folder / f"bad{seed}-{number}{ENDING}"
        how = mutate(good, target, rng)
        yield f"{seed}/{number} {how}", lambda target=target: read(target)


def use_model(path):
    """Ask a model; whether its answer is one."""
    model = load_model(path)
    p = np.stack(np.divmod(np.arange(30), 6), axis=1)
    dim = model.card.tokens.dim
    x = np.random.default_rng(0).normal(size=(30, dim)).astype(np.float32)
    found = predict(model, Tokens(x, p, p * 128, TokenFacts()), always_named=True)
    shares = found.probabilities
    sound = np.isfinite(found.embedding).all() and np.isfinite(found.attention).all()
    return bool(sound and (shares is None or abs(shares.sum() - 1) < 1e-6))


def use_encoder(path):
    encoder = load_encoder(str(path))
    side = encoder.card.input_size or 64
    with torch.inference_mode():
        x = encoder(torch.zeros(1, side, side, 3, dtype=torch.uint8), side)
    # Where it is not, encoding itself refuses the slide.
    return bool(x.isfinite().all()) or x.shape == (1, encoder.card.dim)
