"""What to know of a study's slides and labels before anything runs. Without torch."""

from pathlib import Path

from spt_core.errors import InputError
from spt_core.learning.cohort import feature_files
from spt_core.patches.store import stored_file
from spt_core.studies.study_check_labels import label_findings
from spt_core.studies.study_finding import (
    About,
    Finding,
    doubtful,
    fine,
    some,
    stop,
    stops,
)
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.studies.study_slides import Each, StudySlides, known_card
from spt_core.tokens import Labels, TokenFacts, read_index, read_labels


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
            f"{some([str(name) for name in unlike])}: of another encoder, pixel or "
            "patch size, or of other channels, than the rest."
        )
    if wrong:
        why = some(wrong, "; ")
        return [
            stop(
                About.FEATURES,
                f"These feature files cannot be used together: {why}",
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
