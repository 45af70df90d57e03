"""Which slides the patch encoder has seen: features of those are no fair test.

An encoder trained here knows its slides by fingerprints and its patients by HMACs; of
one from elsewhere it is known, at best, on which public collections it was trained.
"""

from dataclasses import dataclass
from pathlib import Path

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.encoder_file import encoder_file_of, is_place, run_of_encoder
from spt_core.patches.published import TCGA, published_training
from spt_core.patches.registry import find_card, load_encoder
from spt_core.tokens.labels import SHOWN, tcga_patient
from spt_core.training.run_folder import key_in


@dataclass(frozen=True)
class EncoderLeakage:
    """Numbers of a cohort's labelled slides that its encoder has seen.

    Attributes
    ----------
    slides
        Its pixels were learned from.
    patients
        Others of the same patient were.
    published
        Its name shows that it is of a collection that the encoder was trained on.
    """

    slides: frozenset[int]
    patients: frozenset[int]
    published: frozenset[int]


def find_encoder(
    cohort: Cohort, file: str | Path | None = None
) -> tuple[EncoderCard | None, bytes | None]:
    """The card of the encoder that a cohort's tokens are from, and its patients' key.

    Parameters
    ----------
    file
        The encoder's file, or the folder of its run. Without it the tokens' own word
        for their encoder is looked up among those that are known; None where it is
        not among them.

    Raises
    ------
    InputError
        Where the file is of another encoder than the tokens'.
    """
    name = cohort.facts.encoder
    if file is not None:
        path = encoder_file_of(str(file)) or Path(file)
        encoder = load_encoder(str(path))
        theirs = cohort.facts.encoder_sha256
        if encoder.card.name != (name or encoder.card.name) or (
            theirs and encoder.sha256 != theirs
        ):
            raise InputError(
                f"{path.name} is not the encoder ({name}) that the tokens are of."
            )
        return encoder.card, key_in(run_of_encoder(path))
    if name is None or is_place(name) or encoder_file_of(name) is not None:
        return None, None
    try:
        return find_card(name), None
    except InputError:  # another tool's
        trained_on = published_training(name)
    if not trained_on:
        return None, None
    facts = cohort.facts
    patch_size, mpp = facts.patch_size or 0, facts.mpp or 0.0
    card = EncoderCard(name, cohort.dim, patch_size, mpp, trained_on=trained_on)
    return card, None


def encoder_leakage(
    card: EncoderCard, cohort: Cohort, key: bytes | None
) -> EncoderLeakage:
    """Which labelled slides the encoder has seen.

    Parameters
    ----------
    key
        Under which the encoder's run keeps its patients, where it is at hand.
    """
    labelled = {i: slide for i, slide in enumerate(cohort) if slide.label}
    stages = card.stages()
    seen, of_patient, published = set(), set(), set()
    for i, slide in labelled.items():
        fingerprint = slide.fingerprint()
        if any(stage.has_slide(fingerprint) for stage in stages):
            seen.add(i)
        elif (key and slide.patient) and any(
            stage.has_patient(slide.patient, key) for stage in stages if stage.same_key
        ):
            of_patient.add(i)
        if _is_from(slide.name, card.trained_on):
            published.add(i)
    return EncoderLeakage(frozenset(seen), frozenset(of_patient), frozenset(published))


def encoder_remarks(
    card: EncoderCard, cohort: Cohort, key: bytes | None, *, names: bool = False
) -> list[str]:
    """Sentences with counts; empty where nothing is known against the encoder.

    Parameters
    ----------
    names
        Name the slides: for whoever runs this, never for a report.
    """
    found = encoder_leakage(card, cohort, key)
    total = sum(1 for slide in cohort if slide.label)
    encoder = f"The patch encoder {card.name}"
    remarks = []

    def say(numbers: frozenset[int], sentence: str) -> None:
        if numbers:
            listed = f": {_some(cohort, numbers)}" if names else ""
            remarks.append(f"{encoder} {sentence}{listed}. {_SO}")

    say(
        found.slides,
        f"was trained, without labels, on {len(found.slides)} of these {total} slides",
    )
    say(
        found.patients,
        f"was trained, without labels, on other slides of the patients of "
        f"{len(found.patients)} of these {total} slides",
    )
    collections = ", ".join(one for one in card.trained_on if one.startswith(TCGA))
    say(
        found.published,
        f"was trained on {collections}, as published, and by their names "
        f"{len(found.published)} of these {total} slides are from there",
    )
    return remarks + _unchecked(card, cohort, key)


_SO = "Scores on them may be higher than on slides that it has never seen."


def _unchecked(card: EncoderCard, cohort: Cohort, key: bytes | None) -> list[str]:
    """What cannot be said of whether the encoder knows these slides."""
    stages = card.stages()
    remarks = []
    if not all(stage.known for stage in stages):
        remarks.append(
            f"The patch encoder {card.name} does not say which slides it was trained "
            "on: whether these are among them is not checked."
        )
    keyed = [stage for stage in stages if stage.patient_hmacs]
    if keyed and any(slide.patient for slide in cohort if slide.label):
        if key is None:
            remarks.append(
                f"Whether the patch encoder {card.name} was trained on these patients "
                "is not checked: the key of its run is not beside it."
            )
        elif not all(stage.same_key for stage in keyed):
            remarks.append(
                f"Whether an earlier training of the patch encoder {card.name} had "
                "these patients is not checked: it kept them under another key."
            )
    return remarks


def _is_from(slide: str, trained_on: tuple[str, ...]) -> bool:
    """By its name, whether a slide is of a collection, or of a case that is named."""
    patient = tcga_patient(slide)
    if patient is None:
        return False
    return any(one == TCGA or tcga_patient(one) == patient for one in trained_on)


def _some(cohort: Cohort, numbers: frozenset[int]) -> str:
    shown = ", ".join(cohort[i].name for i in sorted(numbers)[:SHOWN])
    return shown + (" ..." if len(numbers) > SHOWN else "")
