"""Many slides' tokens, ready to be asked for a few rows each.

Coordinates of all slides are in memory (views need nothing else). Features are too
when they are few; else their rows are read from the files as they are asked for.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.events import LeftOut, Note
from spt_core.learning.standardising import TokenScale
from spt_core.tokens import Labels, TokenFacts, layout, read_index
from spt_core.tokens.finding import features_in, name_of
from spt_core.tokens.lazyslide import is_lazyslide
from spt_core.tokens.rows import RowSource

IN_MEMORY_BYTES = 3 * 2**28
SHOWN = 10
SHARED_FACTS = (
    "encoder", "encoder_sha256", "mpp", "patch_size", "patch_um", "stain", "channels",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CohortSlide:
    """One slide: places in memory, features where they are.

    Attributes
    ----------
    p : (n, 2) int32 grid (row, col)
    x : (n, d) or None
        The features, when the cohort holds them in memory.
    scale
        By which they are standardised as they are read; None leaves them.
    """

    name: str
    p: NDArray[np.int32]
    facts: TokenFacts
    source: RowSource
    x: NDArray[np.floating] | None = None
    label: str | None = None
    patient: str | None = None
    site: str | None = None
    split: str | None = None
    scale: TokenScale | None = None

    def __len__(self) -> int:
        return len(self.p)

    def read(self, rows: NDArray[np.integer], out: NDArray[np.floating]) -> None:
        """Write some tokens, as a model takes them, to ``out`` (len(rows), d)."""
        if self.scale is None:
            self.read_stored(rows, out)
            return
        x = np.empty(out.shape, self.source.dtype)
        self.read_stored(rows, x)
        out[:] = self.scale(x)

    def read_stored(self, rows: NDArray[np.integer], out: NDArray[np.floating]) -> None:
        """The same as they are in the file."""
        if self.x is not None:
            out[:] = self.x[rows]
            return
        with self._told():
            self.source.read(rows, out)
        self._refuse_not_finite(out)

    def tokens(self) -> NDArray[np.floating]:
        """All tokens (n, d) as a model takes them."""
        return self.stored() if self.scale is None else self.scale(self.stored())

    def stored(self) -> NDArray[np.floating]:
        """All features (n, d), in the stored precision."""
        if self.x is not None:
            return self.x
        with self._told():
            x = self.source.read_all()
        self._refuse_not_finite(x)
        return x

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What reading raises, as a sentence about the slide."""
        try:
            yield
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise InputError(
                f"{self.name}: its features cannot be read ({error}). Encode this "
                "slide again."
            ) from error

    def _refuse_not_finite(self, x: NDArray[np.floating]) -> None:
        if not np.isfinite(x).all():
            raise InputError(
                f"{self.name}: its features hold NaN or infinity. Encode this slide "
                "again."
            )

    def fingerprint(self) -> str:
        """By which a model file knows this slide: of its pixels where stated."""
        if self.facts.slide_fingerprint:
            return self.facts.slide_fingerprint
        ends = np.unique([0, len(self) - 1])
        rows = np.empty((len(ends), self.source.shape[1]), self.source.dtype)
        self.read_stored(ends, rows)
        digest = hashlib.sha256(np.ascontiguousarray(self.p, np.int32).tobytes())
        digest.update(rows.tobytes())
        return f"tokens:{digest.hexdigest()}"


@dataclass(frozen=True, eq=False)
class Cohort:
    """Slides that one model can learn from: one encoder, pixel size and patch size.

    Attributes
    ----------
    left_out
        A sentence for each slide whose file cannot be read, by its name.
    augmented
        The same slides' tokens of augmented patches, once per augmentation.
    """

    slides: Sequence[CohortSlide]
    remarks: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    augmented: tuple["Cohort", ...] = ()

    def __len__(self) -> int:
        return len(self.slides)

    def __iter__(self) -> Iterator[CohortSlide]:
        return iter(self.slides)

    def __getitem__(self, index: int) -> CohortSlide:
        return self.slides[index]

    def notes(self) -> Iterator[Note]:
        """What to say of the slides, and of those that are left out."""
        yield from (Note(remark) for remark in self.remarks)
        yield from (LeftOut(sentence) for sentence in self.left_out.values())

    @property
    def names(self) -> list[str]:
        """Of all slides that have a file, also those that are left out."""
        return [*(slide.name for slide in self.slides), *self.left_out]

    @property
    def dim(self) -> int:
        return self.slides[0].source.shape[1]

    @cached_property
    def dtype(self) -> np.dtype:
        """Of a batch: half precision only if every file is, never double."""
        if any(slide.scale is not None for slide in self.slides):
            return np.dtype(np.float32)  # what standardising gives
        found = np.result_type(*{slide.source.dtype for slide in self.slides})
        return found if found.itemsize <= 4 else np.dtype(np.float32)

    @cached_property
    def facts(self) -> TokenFacts:
        """What the slides have in common, where any of them says."""
        return _most_stated(self.slides)

    @cached_property
    def classes(self) -> list[str]:
        return sorted({slide.label for slide in self.slides if slide.label})

    def subset(self, indices: Iterable[int]) -> "Cohort":
        """Some of the slides, such as the training part of a fold."""
        chosen = list(indices)
        return replace(
            self,
            slides=[self.slides[index] for index in chosen],
            augmented=tuple(one.subset(chosen) for one in self.augmented),
        )

    def from_site(self, site: str) -> "Cohort":
        """The same, where slides whose site is not known are of this one."""
        return replace(
            self, slides=[replace(s, site=s.site or site) for s in self.slides]
        )

    def with_augmented(self, others: Iterable["Cohort"]) -> "Cohort":
        """The same with tokens of augmented patches, at the same places."""
        found = []
        for other in others:
            by_name = {slide.name: slide for slide in other}
            for slide in self:
                same = by_name.get(slide.name)
                if same is None or not np.array_equal(same.p, slide.p):
                    raise InputError(
                        f"{slide.name}: its augmented features are missing or of other "
                        "patches. Encode the same patches again."
                    )
            found.append(replace(other, slides=[by_name[s.name] for s in self]))
        return replace(self, augmented=tuple(found))

    def class_numbers(self) -> NDArray[np.int64]:
        """For each slide the number of its class, -1 without a label."""
        number = {name: index for index, name in enumerate(self.classes)}
        return np.array(
            [number[s.label] if s.label else -1 for s in self.slides], np.int64
        )

    def site_numbers(self) -> NDArray[np.int64]:
        """For each slide the number of its site, -1 where it is not known."""
        names = sorted({slide.site for slide in self.slides if slide.site})
        number = {name: index for index, name in enumerate(names)}
        return np.array([number.get(s.site or "", -1) for s in self.slides], np.int64)

    def patients(self) -> list[str]:
        """For each slide its patient, or itself where none is given."""
        return [
            f"patient:{s.patient}" if s.patient else f"slide:{s.name}"
            for s in self.slides
        ]


def feature_files(folder: str | Path) -> list[Path]:
    """The feature files of a folder, in order of name."""
    folder = Path(folder)
    if folder.is_file() or is_lazyslide(folder):
        return [folder]
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    files = features_in(folder)
    if not files:
        raise InputError(
            f"{folder} holds no feature files (*{layout.ENDING}). Make them with "
            "'spt encode SLIDES --out FEATURES'."
        )
    return files


def open_cohort(
    folder: str | Path | Sequence[Path],
    labels: Labels | None = None,
    *,
    in_memory_bytes: int = IN_MEMORY_BYTES,
    **assume: Any,
) -> Cohort:
    """Open every feature file of a folder, or the given files.

    Parameters
    ----------
    assume
        ``encoder``, ``mpp`` and ``patch_size``, for files that do not say.

    Files that cannot be read are left out and listed; where nothing else is there,
    that is an error.
    """
    files = feature_files(folder) if isinstance(folder, str | Path) else list(folder)
    slides: list[CohortSlide] = []
    empty: list[str] = []
    broken: dict[str, str] = {}
    for path in files:
        try:
            index = read_index(path, **assume)
        except InputError as error:
            broken[name_of(path)] = str(error)
            continue
        if len(index.p) == 0:
            empty.append(index.facts.name)
            continue
        row = labels.by_slide.get(index.facts.name) if labels else None
        slides.append(
            CohortSlide(
                name=index.facts.name,
                p=index.p.astype(np.int32),
                facts=index.facts,
                source=index.rows,
                label=row.label if row else None,
                patient=row.patient if row else None,
                site=row.site if row else None,
                split=row.split if row else None,
            )
        )
    wrong = _unlike_the_rest(slides)
    if wrong or (broken and not slides):
        wrong = [*broken.values(), *wrong]
        raise InputError(_listed("These feature files cannot be used together:", wrong))
    if not slides:
        raise InputError("None of the slides has a token to learn from.")
    remarks = _remarks(slides, empty)
    if sum(slide.source.nbytes for slide in slides) <= in_memory_bytes:
        slides = list(_in_memory(slides, broken))
        if not slides:
            raise InputError(
                _listed("None of the feature files can be read:", [*broken.values()])
            )
    return Cohort(slides, remarks, broken)


def _in_memory(
    slides: Iterable[CohortSlide], broken: dict[str, str]
) -> Iterator[CohortSlide]:
    """Slides with their features; those whose cannot be read are added to ``broken``"""
    for slide in slides:
        try:
            yield replace(slide, x=slide.stored())
        except InputError as error:
            broken[slide.name] = str(error)


def _listed(title: str, sentences: Sequence[str]) -> str:
    more = [f"and {len(sentences) - 50} more"] if len(sentences) > 50 else []
    return "\n".join([title, *(f"  - {one}" for one in (*sentences[:50], *more))])


def _unlike_the_rest(slides: Sequence[CohortSlide]) -> list[str]:
    """A sentence for each slide that differs from what most of them state."""
    if not slides:
        return []
    common = _most_stated(slides)
    widths = Counter(slide.source.shape[1] for slide in slides)
    width = widths.most_common(1)[0][0]
    wrong = []
    for slide in slides:
        differ = slide.facts.differences(common)
        if slide.source.shape[1] != width:
            differ["token length"] = (slide.source.shape[1], width)
        if differ:
            what = ", ".join(
                f"{name} {mine} (most have {theirs})"
                for name, (mine, theirs) in differ.items()
            )
            wrong.append(f"{slide.name}: {what}")
    return wrong


def _most_stated(slides: Sequence[CohortSlide]) -> TokenFacts:
    """Of each fact that a cohort must share, what most of the slides say."""
    common: dict[str, Any] = {}
    for name in SHARED_FACTS:
        stated = Counter(
            value for s in slides if (value := getattr(s.facts, name)) is not None
        )
        common[name] = stated.most_common(1)[0][0] if stated else None
    return TokenFacts(**common)


# Facts that a file may lack, in words.
_STATED = {"encoder": "encoder", "mpp": "pixel size", "patch_size": "patch size"}


def _remarks(slides: Sequence[CohortSlide], empty: list[str]) -> tuple[str, ...]:
    remarks = []
    if empty:
        more = " ..." if len(empty) > SHOWN else ""
        remarks.append(
            f"{len(empty)} slides have no tokens and are left out: "
            f"{', '.join(empty[:SHOWN])}{more}."
        )
    for name, words in _STATED.items():
        unknown = sum(getattr(slide.facts, name) is None for slide in slides)
        guessed = sum(name in slide.facts.assumed for slide in slides)
        if unknown:
            option = "--" + name.replace("_", "-")
            remarks.append(
                f"{unknown} feature files do not state their {words}, so that it is "
                f"unknown; 'spt convert' with {option} writes it into them."
            )
        elif guessed:
            value = getattr(slides[0].facts, name)
            remarks.append(
                f"{guessed} feature files do not state their {words}; taken to be "
                f"{value} by their folder or magnification."
            )
    own = sum((slide.facts.stain_done or "").startswith("none") for slide in slides)
    if own:
        remarks.append(
            f"{own} of {len(slides)} slides are in their own colours: they do not show "
            "the two stains that are made alike."
        )
    placeless = sum(not slide.facts.has_positions for slide in slides)
    if placeless:
        remarks.append(
            f"{placeless} of {len(slides)} feature files do not say where their "
            "patches lie: positions are off for them, all patches count as one place."
        )
    off = sum(slide.facts.off_lattice for slide in slides)
    if off:
        remarks.append(
            f"The patches of {off} slides lie on no single grid; each is taken to be "
            "in its nearest cell."
        )
    return tuple(remarks)
