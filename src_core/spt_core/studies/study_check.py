"""What to know of a study's slides and labels before anything runs. Without torch."""

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
from spt_core.patches.store import stored_file
from spt_core.slides import Slide, open_slide
from spt_core.slides.grid import lay_grid, patch_step
from spt_core.slides.names import slide_name
from spt_core.slides.recipe import asked_recipe
from spt_core.slides.tissue import find_tissue
from spt_core.studies.study_check_labels import label_findings
from spt_core.studies.study_finding import (
    About,
    Finding,
    doubtful,
    fine,
    stop,
    stops,
)
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.tokens import Labels, TokenFacts, layout, read_index, read_labels
from spt_core.tokens.finding import name_of

SHOWN = 5
# Slides whose tissue is looked at to say how many patches there will be.
LOOKED_AT = 3
HALF = 2  # bytes of a number in a feature file
DIM = 1024  # of encoders that are not known here

Each = Callable[[int, int], object]


def check_study(
    settings: StudySettings, each: Each | None = None, *, look: bool = True
) -> list[Finding]:
    """All that is to be said, what stops the run first.

    Sentences may name slides and patients: they are for whoever runs the study.

    Parameters
    ----------
    each
        Told how many slides have been opened, of how many.
    look
        Whether to look at the tissue of a few slides, a second each, to say how much
        room the features will take.
    """
    labels, found = _labels(settings)
    slides = StudySlides(settings, labels, each)
    found += slides.findings()
    names = slides.names
    if settings.features:
        of_features, encoded = _features(Path(settings.features))
        found += of_features
        names = names | encoded
    if look and not stops(found):
        found += slides.room()
    if settings.aim is Goal.PATCHES:
        found += _patch_start(settings)
    elif settings.init:
        found += _start(settings)
    if labels is not None and settings.aim is not Goal.PATCHES:
        found += label_findings(settings, labels, names)
    elif settings.aim is Goal.PRETRAIN:
        found.append(
            doubtful(
                About.LABELS,
                "There are no labels: the model is trained, and nothing is said of how "
                "good it is.",
                "Give labels to measure it.",
            )
        )
    order = {rank: place for place, rank in enumerate(type(found[0].rank))}
    return sorted(found, key=lambda one: order[one.rank])


def _labels(settings: StudySettings) -> tuple[Labels | None, list[Finding]]:
    if settings.labels is None:
        return None, []
    try:
        return read_study_labels(settings), []
    except InputError as error:
        return None, [
            stop(About.LABELS, str(error), "Mend it, or choose another file.")
        ]
    except OSError as error:
        return None, [
            stop(
                About.LABELS,
                f"{settings.labels} cannot be read: {error.strerror or error}.",
                "Choose another file.",
            )
        ]


def read_study_labels(settings: StudySettings) -> Labels:
    return read_labels(
        str(settings.labels),
        slides=settings.slide_table,
        patients_from=settings.patient_from,
    )


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
            yield doubtful(
                About.SLIDES,
                f"{len(unreadable)} of {len(paths)} slides cannot be read: "
                f"{_some(unreadable)}",
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
            names = _some([one.path.name for one in wrong])
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
                f"{_some(broken)}.",
                "Remove them; the slides are encoded again.",
            )
        if others:
            yield stop(
                About.FEATURES,
                f"{len(others)} slides of the study were encoded with other settings: "
                f"{_some(others)}.",
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


def _features(folder: Path) -> tuple[list[Finding], frozenset[str]]:
    """Whether the features of a folder belong together."""
    try:
        files = feature_files(folder)
    except (InputError, OSError) as error:
        do = "Choose the folder of the features."
        return [stop(About.FEATURES, str(error), do)], frozenset()
    facts: list[TokenFacts] = []
    wrong = []
    for path in files:
        try:
            facts.append(read_index(path).facts)
        except InputError as error:
            wrong.append(str(error))
    unlike = [one.name for one in facts if facts[0].differences(one)]
    if unlike:
        wrong.append(
            f"{_some([str(name) for name in unlike])}: of another encoder, pixel or "
            "patch size, or of other channels, than the rest."
        )
    if wrong:
        return [
            stop(
                About.FEATURES,
                f"These feature files cannot be used together: {_some(wrong)}",
                "Remove them from the folder, or encode them again.",
            )
        ], frozenset()
    names = frozenset(str(one.name) for one in facts)
    return [fine(About.FEATURES, f"Features of {len(names)} slides were found.")], names


def _start(settings: StudySettings) -> list[Finding]:
    """Whether there is such a model to start from, and it takes these tokens."""
    from spt_core.learning.model_card import read_model_card

    try:
        card = read_model_card(str(settings.init))
    except (InputError, OSError) as error:
        return [stop(About.START, str(error), "Choose another model.")]
    takes = card.tokens
    encoder = known_card(settings.encode.encoder)
    if settings.slides and encoder and takes.encoder and takes.encoder != encoder.name:
        return [
            stop(
                About.START,
                f"The model takes features of {takes.encoder}, and slides are encoded "
                f"by {encoder.name}.",
                f"Choose the encoder {takes.encoder}, or another model.",
            )
        ]
    return [fine(About.START, f"{Path(str(settings.init)).name} can be started from.")]


def _patch_start(settings: StudySettings) -> list[Finding]:
    """Whether there are weights from which a patch encoder can be trained on."""
    arch = settings.patch_arch
    if settings.init:
        if Path(settings.init).is_file():
            return []
        return [
            stop(
                About.START,
                f"There is no encoder file {settings.init}.",
                "Choose another one.",
            )
        ]
    if settings.patch_start != "imagenet" or stored_file(arch).exists():
        return []
    return [
        stop(
            About.START,
            f"There are no ImageNet weights of {arch} on this computer.",
            f"Fetch them once with 'spt encoders get {arch}', or choose mobilenetv2, "
            "which starts from the bundled encoder.",
        )
    ]


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return "; ".join(names[:SHOWN]) + more


def _bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
