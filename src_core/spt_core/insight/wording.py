"""Results in words, for commands and reports; the window has words of its own."""

from spt_core.insight.geometry import Geometry, PixelSizeFrom
from spt_core.insight.results import (
    Faithfulness,
    Prediction,
    Remark,
    RemarkKind,
    Verdict,
    WhatIf,
)

UNLIKE = "Unlike the slides this model learned from."
WITHHELD = "No class is named: this model is a demonstration on synthetic tissue."
NO_CLASSES = "This model names no classes."
CALIBRATED = "calibrated probability"
UNCALIBRATED = "uncalibrated score"
STATED_BY_USER = "as stated by the user; the file does not say"
STATED_BY_FEATURES = "as the features state"
# Curves that differ less from those of random patches do not speak for attention.
MATTERS = 0.05


def prediction_sentence(prediction: Prediction) -> str:
    """The answer, what to doubt first."""
    if prediction.verdict == Verdict.EMPTY:
        return "No tissue: this slide has no patch to look at."
    sentences = [UNLIKE] if prediction.verdict == Verdict.UNLIKE else []
    sentences.append(_answer(prediction))
    if not prediction.is_whole:
        sentences.append(
            f"Seen so far: {prediction.seen} of {prediction.total} patches."
        )
    return " ".join((*sentences, *map(remark_sentence, prediction.remarks)))


def _answer(prediction: Prediction) -> str:
    if prediction.probabilities is None or prediction.top is None:
        return WITHHELD if prediction.classes else NO_CLASSES
    best = prediction.classes[prediction.top]
    number = number_name(calibrated=prediction.calibrated)
    share = f"{prediction.probabilities[prediction.top]:.2f}, {number}"
    if prediction.verdict == Verdict.UNDECIDED:
        return f"Undecided; the most likely is {best} ({share})."
    if prediction.verdict == Verdict.UNLIKE:
        return f"It would say {best} ({share}), which may mean nothing."
    return f"{best} ({share})."


def coverage(prediction: Prediction) -> str:
    """The share of the tissue that was seen, without a full stop."""
    seen, total = prediction.seen, prediction.total
    if prediction.is_whole:
        return f"From all of the tissue ({seen:,} patches)"
    share = min(99, max(1, round(100 * seen / total)))
    return f"From {share} % of the tissue ({seen:,} of {total:,} patches)"


def number_name(*, calibrated: bool) -> str:
    """What to call the numbers of an answer."""
    return CALIBRATED if calibrated else UNCALIBRATED


def pixel_size_note(geometry: Geometry) -> str:
    """Whose pixel size it is, where it is known and not the slide file's own."""
    if geometry.um_pixel_xy is None:
        return ""
    match geometry.um_from:
        case PixelSizeFrom.FILE:
            return ""
        case PixelSizeFrom.USER:
            return STATED_BY_USER
        case PixelSizeFrom.FEATURES:
            return STATED_BY_FEATURES


def remark_sentence(remark: Remark) -> str:
    value = remark.value
    match remark.kind:
        case RemarkKind.TRAINED_ON_SLIDE:
            return "This model was trained on this very slide."
        case RemarkKind.TRAINED_ON_PATIENT:
            return "This model was trained on another slide of this patient."
        case RemarkKind.PATIENT_NOT_CHECKED:
            return (
                "Whether an earlier stage of the model's training had this patient is "
                "not checked: it kept its patients under another key."
            )
        case RemarkKind.ENCODER_ASSUMED:
            return (
                f"The features do not state their encoder; it is taken to be {value}."
            )
        case RemarkKind.PIXEL_SIZE_ASSUMED:
            return (
                "The features do not state their pixel size; it is taken to be "
                f"{value}."
            )
        case RemarkKind.NO_STATISTICS:
            return "The model does not say what its training slides were like."
        case RemarkKind.FEW_TRAINING_SLIDES:
            return f"Learned from {value} slides: too few to notice an unlike one."
        case RemarkKind.FEW_PATCHES:
            return (
                f"{value} patches are too few to tell whether the slide is unlike "
                "those of the training."
            )
        case RemarkKind.IN_GROUPS:
            return f"Attended in {value} evenly interleaved groups."
        case RemarkKind.STANDARDISED_BY_SITE:
            return f"Standardised as a slide of the site {value}."
        case RemarkKind.STANDARDISED_BY_SLIDE:
            return "Standardised by its own patches."
        case RemarkKind.SITE_NOT_NAMED:
            return (
                "The model standardises slides per site, and this one's is not named: "
                "it is standardised by its own patches alone. Name it by --site; "
                "'spt add-site' adds one from a handful of its slides."
            )
        case RemarkKind.SITE_UNKNOWN:
            return (
                f"The model has no statistics of the site {value}: the slide is "
                "standardised by its own patches alone. 'spt add-site' adds a site "
                "from a handful of its slides."
            )


def faithfulness_sentence(check: Faithfulness) -> str:
    if check.area > MATTERS:
        verdict, effect = "The attention matters", "lowers {} sooner"
    elif check.area < -MATTERS:
        verdict, effect = "The attention misleads", "keeps {} longer"
    else:
        verdict = "The attention does not explain the answer"
        effect = "changes {} no more"
    what = effect.format(f"the probability of {check.class_name}")
    thinned = f" (on {check.patches} evenly chosen patches)" if check.thinned else ""
    return (
        f"{verdict}: removing the most attended patches first {what} than removing "
        f"random ones, by {check.area:+.2f} on average{thinned}."
    )


def what_if_sentence(found: WhatIf) -> str:
    before, after = found.before, found.after
    answer = prediction_sentence(after)
    if after.probabilities is None or before.probabilities is None:
        return f"Without these {found.removed} patches: {answer}"
    top = before.top or 0
    return (
        f"Without these {found.removed} of {before.seen} patches {before.classes[top]} "
        f"{_change(before.probabilities[top], after.probabilities[top])}. {answer}"
    )


def _change(was: float, now: float) -> str:
    """From which number to which, in as many digits as tell them apart."""
    for digits in (2, 3, 4):
        if f"{was:.{digits}f}" != f"{now:.{digits}f}":
            return f"goes from {was:.{digits}f} to {now:.{digits}f}"
    return f"stays at {now:.2f}"
