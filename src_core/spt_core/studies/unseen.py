"""Which slides a model knows: whose labels it learned, or that chose its epoch."""

from dataclasses import dataclass

from spt_core.learning.cohort import Cohort, CohortSlide
from spt_core.learning.model_card import Stage
from spt_core.learning.model_file import SlideModel


@dataclass(frozen=True)
class KnownSlides:
    """Numbers of a cohort's labelled slides that a model knows.

    Attributes
    ----------
    learned
        With their labels.
    seen
        Without them.
    chose
        By whose labels the epoch of the model was chosen.
    remarks
        What cannot be checked.
    """

    learned: frozenset[int]
    seen: frozenset[int]
    chose: frozenset[int]
    remarks: tuple[str, ...]


def known_slides(model: SlideModel, cohort: Cohort, key: bytes | None) -> KnownSlides:
    """What a model, or one that it began from, was trained on.

    Parameters
    ----------
    key
        Under which the model's run keeps its patients, where it is at hand.
    """
    slides = {i: slide for i, slide in enumerate(cohort) if slide.label}
    prints = {i: slide.fingerprint() for i, slide in slides.items()}

    def in_stage(stage: Stage) -> set[int]:
        return {
            i
            for i, slide in slides.items()
            if stage.has_slide(prints[i])
            or (key and slide.patient and stage.has_patient(slide.patient, key))
        }

    stages = model.stages()
    seen = set().union(*(in_stage(stage) for stage in stages))
    learned = set().union(*(in_stage(stage) for stage in stages if stage.with_labels))
    by_choice = model.card.training.choice_fingerprints
    return KnownSlides(
        frozenset(learned),
        frozenset(seen - learned),
        frozenset(i for i, one in prints.items() if one in by_choice),
        tuple(_unchecked(stages, list(slides.values()), key)),
    )


def _unchecked(
    stages: list[Stage], slides: list[CohortSlide], key: bytes | None
) -> list[str]:
    """What cannot be said of whether the model knows these slides."""
    remarks = []
    if not all(stage.known for stage in stages):
        remarks.append(
            "The model began from another, and does not say what that was trained on: "
            "slides that it saw are not left out."
        )
    keyed = [stage for stage in stages if stage.patient_hmacs]
    if not any(slide.patient for slide in slides) or not keyed:
        return remarks
    if key is None:
        remarks.append(
            "Whether the model was trained on these patients is not checked: the key "
            "of its run is not beside it. Give --patients-key."
        )
    elif not all(stage.same_key for stage in keyed):
        remarks.append(
            "Whether an earlier stage of the model's training had these patients is "
            "not checked: it kept them under another key."
        )
    return remarks
