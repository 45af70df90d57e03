"""Tables of labels as nobody should write them."""

import random

from spt_core.tokens import read_labels

GOOD = "slide,label,patient,site,split,mpp\n" + "".join(
    f"s{i},{'ab'[i % 2]},p{i},x,train,0.5\n" for i in range(20)
)
ODD = [
    "nan", "-1", "0", "inf", "1e400", '"', '""', "'", "=1+1", "@x", "\u2028", "\x85",
    "\x1c", "\x0b", "\0", "\r", "\n", ",", ";", "\t", "x" * 20_000, "\ufeff", "\\", " ",
    "é", "\u202e", "sep=;", "<script>", "None",
]  # fmt: skip


def mutate(rng):
    """A bad table as bytes."""
    text = GOOD
    way = rng.randrange(5)
    if way == 0:  # a cell
        lines = text.split("\n")
        row = rng.randrange(len(lines) - 1)
        cells = lines[row].split(",")
        cells[rng.randrange(len(cells))] = rng.choice(ODD)
        lines[row] = ",".join(cells)
        text = "\n".join(lines)
    elif way == 1:  # anywhere
        for _ in range(rng.choice([1, 3])):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(ODD) + text[at + 1 :]
    elif way == 2:  # the header
        head = rng.sample(["slide", "label", "slide", "mpp", "label", "", "x"], 4)
        text = ",".join(head) + "\n" + text.partition("\n")[2]
    elif way == 3:
        text = rng.choice(["", "\n", "sep=", "sep=;\n", "slide", "slide,label\n"])
    data = text.encode()
    if way == 4:
        changed = bytearray(data)
        for _ in range(3):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        data = bytes(changed)
    return data


def cases(folder, seed, count):
    rng = random.Random(seed)
    for number in range(count):
        path = folder / f"labels{seed}-{number}.csv"
        path.write_bytes(data := mutate(rng))
        yield f"{seed}/{number} {data[:40]!r}", lambda path=path: read(path)


def read(path):
    """Read a table; whether what was found is sound."""
    labels = read_labels(path)
    return all(
        name == row.slide
        and "\n" not in (row.label or "")
        and (row.mpp is None or 1e-3 <= row.mpp <= 1e3)
        and row.split in (None, "train", "val", "test")
        for name, row in labels.by_slide.items()
    )
