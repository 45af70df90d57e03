"""Which slides a model may be asked about: those whose labels it has not learned."""

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort, CohortSlide
from spt_core.learning.model_card import Stage
from spt_core.learning.model_file import SlideModel


def unseen_part(
    model: SlideModel, cohort: Cohort, key: bytes | None
) -> tuple[Cohort, list[str]]:
    """The labelled slides whose labels the model has not learned, and remarks.

    Parameters
    ----------
    key
        Under which the model's run keeps its patients, where it is at hand.
    """
    slides = {i: slide for i, slide in enumerate(cohort) if slide.label}
    prints = {i: slide.fingerprint() for i, slide in slides.items()}

    def seen_in(stage: Stage) -> set[int]:
        return {
            i
            for i, slide in slides.items()
            if stage.has_slide(prints[i])
            or (key and slide.patient and stage.has_patient(slide.patient, key))
        }

    stages = model.stages()
    remarks = _unchecked(stages, list(slides.values()), key)
    seen = set().union(*(seen_in(stage) for stage in stages))
    learned = set().union(*(seen_in(stage) for stage in stages if stage.with_labels))
    if seen - learned:
        remarks.append(
            f"The model was trained, without labels, on {len(seen - learned)} of these "
            "slides."
        )
    if learned:
        remarks.append(
            f"{len(learned)} slides are left out: the model was trained with their "
            "labels."
        )
    if learned and len(learned) == len(slides):
        raise InputError(
            "The model was trained with the labels of all these slides or their "
            "patients: nothing is left that it has not seen. Evaluate it on others."
        )
    return cohort.subset(i for i in slides if i not in learned), remarks


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
