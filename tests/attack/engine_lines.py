"""Lines that no window says, made from ones that it does."""

import json
import random

GOOD = [
    {"id": 1, "type": "Cancel", "value": {"request": 1}},
    {"id": None, "type": "LookHere", "value": {"request": 1, "l0_xy": [1.0, 2.0]}},
    {
        "id": 2,
        "type": "Analyse",
        "value": {"slide": "/none.tif", "features": "/none", "title": "t"},
    },
]
ODD = [
    None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "\u2028", "\0", [],
    {}, [[]], {"npy": "../../etc/passwd"}, {"npy": 3}, "x" * 10_000,
]  # fmt: skip


def lines(seed, count):
    """Seeded lines, none of them a message."""
    rng = random.Random(seed)
    yield b"[" * 100_000 + b"\n"
    yield b'{"id":1,"type":"Cancel","value":' + b'{"a":' * 50_000 + b"\n"
    yield b"\xff\xfe\x00\n"
    yield b"9" * 5_000 + b"\n"
    for _ in range(count):
        record = json.loads(json.dumps(rng.choice(GOOD)))
        way = rng.randrange(4)
        if way == 0:
            record[rng.choice(list(record))] = rng.choice(ODD)
        elif way == 1:
            value = record["value"]
            value[rng.choice([*value, "unknown"])] = rng.choice(ODD)
        elif way == 2:
            del record[rng.choice(list(record))]
        line = json.dumps(record).encode()
        if way == 3:
            cut = rng.randrange(1, len(line))
            line = line[:cut] + bytes([rng.randrange(256)]) + line[cut + 1 :]
            line = line.replace(b"\n", b" ")
        yield line + b"\n"


def cases(folder, seed, count):
    for number, line in enumerate(lines(seed, count - 4)):
        yield (
            f"{seed}/{number} {line[:60]!r}",
            lambda line=line: is_answered(folder, line),
        )


def is_answered(folder, line):
    """Whether a line is understood, or answered."""
    import io

    from spt_core.engine.channel import Channel

    replies = io.BytesIO()
    channel = Channel(folder, io.BytesIO(line), replies)
    understood = list(channel.receive())
    return len(understood) + len(replies.getvalue().splitlines()) == 1
