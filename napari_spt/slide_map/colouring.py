"""Which colour each slide of a map has, and what its legend says. Without Qt."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.slide_map import MapOfSlides
from spt_core.tokens import Labels

Rgb = tuple[int, int, int]

# Okabe and Ito's, told apart by colour-blind eyes; without black, which is an edge.
PALETTE: tuple[Rgb, ...] = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (240, 228, 66),
)
OTHER: Rgb = (128, 128, 128)
# Viridis, in even steps for the eye.
RAMP: tuple[Rgb, ...] = (
    (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
)  # fmt: skip
UNKNOWN = "not known"
LABEL, PREDICTION, PATIENT, SITE, SPLIT = (
    "label",
    "prediction",
    "patient",
    "site",
    "split",
)
UNUSUAL, LEARNED = "unusual", "learned"
TITLES = {
    LABEL: "Label",
    PREDICTION: "What the model says",
    PATIENT: "Patient",
    SITE: "Site",
    SPLIT: "Split",
    UNUSUAL: "How unusual it is",
    LEARNED: "Whether the model learned from it",
}


@dataclass(frozen=True)
class Entry:
    """A line of the legend: a colour's number, its words and how many have it."""

    group: int
    words: str
    count: int


@dataclass(frozen=True, eq=False)
class Colouring:
    """
    Attributes
    ----------
    group : (n,)
        The number of each slide's colour; -1 is grey.
    value : (n,)
        The number of each slide's value, -1 where it is not known. Where there are
        more values than colours, several share the grey.
    said
        What each slide's value is called.
    bounds
        The least and the greatest number, where the values are numbers.
    """

    title: str
    group: NDArray[np.int64]
    value: NDArray[np.int64]
    said: tuple[str, ...]
    colours: tuple[Rgb, ...]
    entries: tuple[Entry, ...]
    bounds: tuple[float, float] | None = None

    @property
    def has_others(self) -> bool:
        return self.bounds is None and bool((self.value[self.group < 0] >= 0).any())

    def rgb(self, group: int) -> Rgb:
        return OTHER if group < 0 else self.colours[group]


def columns(found: MapOfSlides, labels: Labels | None) -> list[tuple[str, str]]:
    """What slides can be coloured by: its name, and its words."""
    names = []
    known = labels.by_slide if labels else {}
    rows = [known[name] for name in found.names if name in known]
    for name in (LABEL, PATIENT, SITE, SPLIT):
        if any(getattr(row, name) for row in rows):
            names.append(name)
    if found.shares is not None:
        names.insert(1 if names[:1] == [LABEL] else 0, PREDICTION)
    if found.learned.any() and not found.learned.all():
        names.append(LEARNED)
    others = dict.fromkeys(key for row in rows for key in row.other)
    titled = [(name, TITLES[name]) for name in [*names, UNUSUAL]]
    return [*titled, *((f"other:{key}", key.capitalize()) for key in others)]


def colouring(name: str, found: MapOfSlides, labels: Labels | None) -> Colouring:
    """The colours by one of :func:`columns`."""
    title = dict(columns(found, labels)).get(name, name)
    if name == UNUSUAL:
        times = found.unusual.tolist()
        return by_numbers(title, times, unit=" times as far as usual")
    values = values_of(name, found, labels)
    numbers = _numbers(values)
    if name.startswith("other:") and numbers is not None:
        return by_numbers(title, numbers)
    if name == PATIENT:
        return by_names(title, values, order=list(dict.fromkeys(filter(None, values))))
    # A label and an answer of the same name have the same colour.
    order = None
    if name in (LABEL, PREDICTION):
        known = {row.label for row in labels.by_slide.values()} if labels else set()
        order = sorted({*filter(None, known), *found.classes})
    return by_names(title, values, order=order)


def values_of(name: str, found: MapOfSlides, labels: Labels | None) -> list[str | None]:
    """What is known of each slide; patients are numbered, never named."""
    if name == PREDICTION:
        return list(found.predicted)
    if name == LEARNED:
        return ["learned from" if one else "not learned from" for one in found.learned]
    rows = [labels.by_slide.get(slide) if labels else None for slide in found.names]
    if name == PATIENT:
        numbers: dict[str, int] = {}
        for row in rows:
            if row and row.patient:
                numbers.setdefault(row.patient, len(numbers) + 1)
        return [
            f"Patient {numbers[row.patient]}" if row and row.patient else None
            for row in rows
        ]
    if name.startswith("other:"):
        key = name.removeprefix("other:")
        return [row.other.get(key) if row else None for row in rows]
    return [getattr(row, name) if row else None for row in rows]


def by_names(
    title: str, values: Sequence[str | None], order: list[str] | None = None
) -> Colouring:
    """A colour for each value, or for the commonest where they are too many."""
    counts = Counter(value for value in values if value)
    names = [one for one in (order or sorted(counts)) if counts[one]]
    if order is not None and len(order) <= len(PALETTE):
        names = list(order)
    shown = names
    if len(names) > len(PALETTE):
        shown = sorted(names, key=lambda one: -counts[one])[: len(PALETTE)]
        shown.sort(key=names.index)
    number = {one: index for index, one in enumerate(shown)}
    every = {one: index for index, one in enumerate(names)}
    entries = [Entry(number[one], one, counts[one]) for one in shown if counts[one]]
    rest = len(names) - len(shown)
    if rest:
        slides = sum(counts[one] for one in names if one not in number)
        entries.append(Entry(-1, f"{rest} others", slides))
    unknown = sum(not value for value in values)
    if unknown:
        entries.append(Entry(-1, UNKNOWN, unknown))
    return Colouring(
        title,
        np.array([number.get(one or "", -1) for one in values], np.int64),
        np.array([every.get(one or "", -1) for one in values], np.int64),
        tuple(one or UNKNOWN for one in values),
        PALETTE,
        tuple(entries),
    )


def by_numbers(title: str, values: Sequence[float | None], unit: str = "") -> Colouring:
    """A colour on a scale for each number."""
    known = [one for one in values if one is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    steps = len(RAMP) - 1
    group = [
        -1 if one is None else round(steps * (one - low) / ((high - low) or 1))
        for one in values
    ]
    unknown = sum(one is None for one in values)
    return Colouring(
        title,
        np.array(group, np.int64),
        np.array(group, np.int64),
        tuple(UNKNOWN if one is None else f"{one:.3g}{unit}" for one in values),
        RAMP,
        (Entry(-1, UNKNOWN, unknown),) if unknown else (),
        (low, high),
    )


def _numbers(values: Sequence[str | None]) -> list[float | None] | None:
    """The values as numbers, where all are and they are more than a few."""
    found: list[float | None] = []
    for one in values:
        if not one:
            found.append(None)
            continue
        try:
            number = float(one.replace(",", "."))
        except ValueError:
            return None
        found.append(number if isfinite(number) else None)
    return found if len({*found} - {None}) > len(PALETTE) else None
