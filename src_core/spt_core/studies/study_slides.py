"""The slides of a study's folder: which can be encoded, and which still must be.

Without torch.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spt_core import bundled
from spt_core.card_file import ENDING
from spt_core.errors import InputError
from spt_core.learning.cohort import feature_files
from spt_core.patches.encoder_card import EncoderCard, read_encoder_card
from spt_core.patches.folder import find_slides
from spt_core.slides import Slide, open_slide
from spt_core.slides.grid import lay_grid, patch_step
from spt_core.slides.names import slide_name
from spt_core.slides.recipe import asked_recipe
from spt_core.slides.tissue import find_tissue
from spt_core.studies.study_finding import About, Finding, doubtful, fine, some, stop
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.tokens import Labels, TokenFacts, layout, read_index
from spt_core.tokens.finding import name_of

# Slides whose tissue is looked at to say how many patches there will be.
LOOKED_AT = 3
HALF = 2  # bytes of a number in a feature file
DIM = 1024  # of encoders that are not known here

Each = Callable[[int, int], object]


@dataclass(frozen=True)
class _Opened:
    """What is known of a slide that could be opened."""

    path: Path
    mpp: float | None
    problem: str = ""  # with its pixel size


class StudySlides:
    """The slides of a study's folder, each opened once."""

    def __init__(
        self,
        settings: StudySettings,
        labels: Labels | None = None,
        each: Each | None = None,
    ) -> None:
        self.settings, self.labels, self.each = settings, labels, each
        self.card = known_card(settings.encode.encoder)
        self.opened: list[_Opened] = []
        self.folder = StudyFolder(Path(settings.out))

    @property
    def names(self) -> frozenset[str]:
        """Of the slides that can be encoded, or are."""
        return frozenset(
            slide_name(one.path)
            for one in self.opened
            if not one.problem or self._is_encoded(one.path)
        )

    def findings(self) -> list[Finding]:
        if not self.settings.slides:
            return []
        try:
            paths = find_slides([Path(self.settings.slides)])
        except (InputError, OSError) as error:
            return [stop(About.SLIDES, str(error), "Choose the folder of the slides.")]
        named: dict[str, Path] = {}
        for path in paths:
            other = named.setdefault(slide_name(path), path)
            if other != path:
                return [
                    stop(
                        About.SLIDES,
                        f"Two slides are called {slide_name(path)}: {other} and "
                        f"{path}.",
                        "Rename one of them: their features would go to one file.",
                    )
                ]
        unreadable = [why for path in paths if (why := self._open(path, len(paths)))]
        return [
            *self._readable(paths, unreadable),
            *self._pixel_sizes(),
            *self._encoded(),
        ]

    def _open(self, path: Path, total: int) -> str:
        """Why a slide cannot be opened; "" where it can."""
        try:
            slide = self._slide(path)
            try:
                problem = ""
                try:
                    size, mpp = self._patch()
                    patch_step(
                        slide,
                        patch_size=size,
                        target_mpp=mpp,
                        allow_upsampling=self.settings.encode.allow_upsampling,
                    )
                except InputError as error:
                    problem = str(error)
                self.opened.append(_Opened(path, slide.mpp, problem))
            finally:
                slide.close()
        except (InputError, OSError) as error:
            return f"{path.name}: {error}"
        finally:
            if self.each is not None:
                self.each(len(self.opened), total)
        return ""

    def _slide(self, path: Path) -> Slide:
        channels = self.settings.encode.channels
        return open_slide(path, self._stated_mpp(path), channels=channels)

    def _stated_mpp(self, path: Path) -> float | None:
        row = self.labels.by_slide.get(slide_name(path)) if self.labels else None
        return (row.mpp if row else None) or self.settings.encode.slide_mpp

    def _patch(self) -> tuple[int, float]:
        """Side and pixel size of a patch; of encoders not known here, fine ones."""
        how, card = self.settings.encode, self.card
        size = how.patch_size or (card.patch_size if card else 224)
        mpp = how.target_mpp or (card.mpp if card else 1.0)
        return size, mpp

    def _readable(self, paths: list[Path], unreadable: list[str]) -> Iterator[Finding]:
        whole = len(paths) - len(unreadable)
        if whole == 0:
            yield stop(
                About.SLIDES,
                f"None of the {len(paths)} slides can be read: {unreadable[0]}",
                "See whether the files are whole.",
            )
            return
        if unreadable:
            why = some(unreadable, "; ")
            yield doubtful(
                About.SLIDES,
                f"{len(unreadable)} of {len(paths)} slides cannot be read: {why}",
                "They are left out; see whether the files are whole.",
            )
        yield fine(About.SLIDES, f"{whole} slides were found and can be read.")

    def _pixel_sizes(self) -> Iterator[Finding]:
        wrong = [
            one for one in self.opened if one.problem and not self._is_encoded(one.path)
        ]
        if wrong and len(wrong) == len(self.opened):
            yield stop(About.PIXEL_SIZE, wrong[0].problem, "So it is with every slide.")
        elif wrong:
            names = some([one.path.name for one in wrong])
            yield doubtful(
                About.PIXEL_SIZE,
                f"{len(wrong)} slides have no usable pixel size ({names}): "
                f"{wrong[0].problem}",
                "They are left out until it is given.",
            )
        sizes = sorted(one.mpp for one in self.opened if one.mpp and not one.problem)
        if sizes:
            span = f"{sizes[0]:.3g}"
            if sizes[-1] > 1.05 * sizes[0]:
                span += f" to {sizes[-1]:.3g}"
            yield fine(About.PIXEL_SIZE, f"Pixels are {span} µm.")

    def _is_encoded(self, path: Path) -> bool:
        return self._feature_file(path).exists()

    def _feature_file(self, path: Path) -> Path:
        return self.folder.features / f"{slide_name(path)}{layout.ENDING}"

    def _encoded(self) -> Iterator[Finding]:
        """Which slides are encoded, and whether as is asked now."""
        there = [one.path for one in self.opened if self._is_encoded(one.path)]
        if not there:
            return
        wanted = self._wanted()
        others, broken = [], []
        for path in there:
            try:
                facts = read_index(self._feature_file(path)).facts
            except InputError:
                broken.append(path.name)
                continue
            if wanted is not None and facts.differences(wanted):
                others.append(path.name)
        if broken:
            yield stop(
                About.FEATURES,
                f"{len(broken)} feature files of the study cannot be read: "
                f"{some(broken)}.",
                "Remove them; the slides are encoded again.",
            )
        if others:
            yield stop(
                About.FEATURES,
                f"{len(others)} slides of the study were encoded with other settings: "
                f"{some(others)}.",
                "Choose the settings of before, or another folder for the study.",
            )
        whole = len(there) - len(others) - len(broken)
        if whole:
            yield fine(
                About.FEATURES,
                f"{whole} of {len(self.opened)} slides are encoded already.",
            )

    def _wanted(self) -> TokenFacts | None:
        if self.card is None:
            return None
        size, mpp = self._patch()
        return TokenFacts(
            encoder=self.card.name,
            mpp=mpp,
            patch_size=size,
            stain=self.settings.encode.stain,
            channels=asked_recipe(self.settings.encode.channels),
        )

    def left(self) -> list[Path]:
        """The slides that are still to be encoded."""
        given = self._given()
        return [
            one.path
            for one in self.opened
            if not one.problem
            and not self._is_encoded(one.path)
            and slide_name(one.path) not in given
        ]

    def _given(self) -> frozenset[str]:
        """Slides whose features are there already, by their names."""
        if not self.settings.features:
            return frozenset()
        try:
            files = feature_files(Path(self.settings.features))
        except (InputError, OSError):  # a finding of its own
            return frozenset()
        return frozenset(name_of(path) for path in files)

    def patches_left(self) -> int:
        """About how many patches they have, by the tissue of a few."""
        left = self.left()
        if not left:
            return 0
        found = self.patches_of(left[:: -(-len(left) // LOOKED_AT)])
        return round(float(np.mean(found)) * len(left)) if found else 0

    def room(self) -> list[Finding]:
        """How much room the features will take."""
        total = 0 if self.settings.aim is Goal.PATCHES else self.patches_left()
        if not total:
            return []
        dim = self.card.dim if self.card else DIM
        needed = total * dim * HALF
        free = shutil.disk_usage(_existing(self.folder.path)).free
        says = (
            f"{len(self.left())} slides are to be encoded, about {total:,} patches; "
            f"their features take about {_bytes(needed)}, of {_bytes(free)} that are "
            "free."
        )
        if needed > free:
            return [stop(About.DISK, says, "Make room, or choose another disk.")]
        if needed > 0.8 * free:
            return [doubtful(About.DISK, says, "Make room, or choose another disk.")]
        return [fine(About.DISK, says)]

    def patches_of(self, paths: list[Path]) -> list[int]:
        size, mpp = self._patch()
        counts = []
        for path in paths:
            try:
                slide = self._slide(path)
                grid = lay_grid(
                    slide,
                    find_tissue(slide),
                    patch_size=size,
                    target_mpp=mpp,
                    min_tissue=self.settings.encode.min_tissue,
                    allow_upsampling=self.settings.encode.allow_upsampling,
                )
            except (InputError, OSError):
                continue
            counts.append(len(grid))
        return counts


def known_card(encoder: str) -> EncoderCard | None:
    """The card of the bundled encoder or of an encoder file; None of all others."""
    try:
        if encoder == bundled.ENCODER:
            return read_encoder_card(bundled.encoder_path())
        if encoder.endswith(ENDING):
            return read_encoder_card(Path(encoder))
    except (InputError, OSError):
        pass
    return None


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
