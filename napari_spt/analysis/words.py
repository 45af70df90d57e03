"""All sentences of the window, made from enums and numbers."""

from napari_spt.analysis.slide_analysis import Analysis, Phase
from napari_spt.slides.slide_source import SlideSource
from spt_core.engine.protocol import (
    Failed,
    FailureKind,
    Noticed,
    NoticeKind,
    Step,
    Working,
)
from spt_core.events import Progress
from spt_core.insight.results import (
    Faithfulness,
    Prediction,
    Remark,
    RemarkKind,
    Verdict,
    WhatIf,
)
from spt_core.insight.tissue_map import TissueMap
from spt_core.insight.wording import MATTERS, WITHHELD

UNLIKE = "Unlike the slides this model learned from"
NAMES_NOTHING = "This model shows where it looks, and names nothing."
SCORES = "These are scores: how often they come true is not known."
KEPT = "What was found so far is kept."

_STEPS = {
    Step.WAITING: "Waiting for the other slide",
    Step.OPENING: "Opening the slide",
    Step.LOADING_MODEL: "Loading the model",
    Step.FINDING_TISSUE: "Finding the tissue",
    Step.LOOKING: "Looking at the tissue",
    Step.READING_FEATURES: "Reading what is kept of the slide",
    Step.READING_SLIDE: "Reading the whole slide",
    Step.MAPPING_CLASSES: "Mapping the classes",
    Step.GROUPING_TISSUE: "Looking for what is alike",
    Step.ASKING_WITHOUT: "Asking again without it",
    Step.REMOVING: "Taking tissue away bit by bit",
    Step.EMBEDDING_SLIDES: "Looking at the slides",
    Step.PLACING_SLIDES: "Laying like beside like",
}


_TRAINED_ON = (RemarkKind.TRAINED_ON_SLIDE, RemarkKind.TRAINED_ON_PATIENT)


# The slide


def slide_words(source: SlideSource, *, drawn_mpp: float | None = None) -> str:
    """Which slide it is, and how large.

    ``drawn_mpp`` is the pixel size by which it is drawn, where nobody has stated one.
    """
    width, height = source.l0_size_xy
    if source.mpp_xy is None:
        words = f"{source.name}: {width:,} × {height:,} pixels"
        if drawn_mpp is None:
            return words
        return f"{words}. Beside the others a pixel is drawn as {drawn_mpp:g} µm."
    um_x, um_y = source.mpp_xy
    return f"{source.name}: {width * um_x / 1000:.1f} × {height * um_y / 1000:.1f} mm"


# The answer


def headline(prediction: Prediction) -> tuple[str, str]:
    """The answer, and what to think of it."""
    top = prediction.top
    name = None if top is None else prediction.classes[top]
    unnamed = WITHHELD if prediction.classes else NAMES_NOTHING
    match prediction.verdict:
        case Verdict.EMPTY:
            return "No tissue", "There is nothing here to look at."
        case Verdict.UNLIKE if name is None:
            return UNLIKE, unnamed
        case Verdict.UNLIKE:
            return UNLIKE, (
                "It may not be able to judge this slide: doubt the rest. It would say "
                f"“{name}”."
            )
        case Verdict.UNDECIDED:
            return "Undecided", (
                f"The most likely is “{name}”, by too little to say so."
            )
        case Verdict.ANSWERED | Verdict.NO_CLASSES if name is None:
            return "No class named" if prediction.classes else "No classes", unnamed
        case Verdict.ANSWERED | Verdict.NO_CLASSES:
            return str(name), _known_from_training(prediction)


def _known_from_training(prediction: Prediction) -> str:
    kinds = {remark.kind for remark in prediction.remarks}
    if not prediction.trained_on:
        return ""
    if RemarkKind.TRAINED_ON_PATIENT in kinds:
        return (
            "The model learned from another slide of this patient: that proves nothing."
        )
    return "The model learned from this very slide: that proves nothing."


def seen_words(prediction: Prediction) -> str:
    """How much of the tissue the answer is from."""
    if prediction.is_whole:
        return f"Seen all {prediction.seen:,} patches with enough tissue."
    share = min(99, max(1, round(100 * prediction.seen / prediction.total)))
    return f"Seen {share} % of the tissue so far."


def remark_lines(prediction: Prediction) -> list[str]:
    """What else to know of an answer; what is said beside it is not said again."""
    _, doubt = headline(prediction)
    said = doubt and doubt == _known_from_training(prediction)
    return [
        remark_words(remark)
        for remark in prediction.remarks
        if not (said and remark.kind in _TRAINED_ON)
    ]


def remark_words(remark: Remark) -> str:
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
            return f"What turned the slide into numbers is taken to be {value}."
        case RemarkKind.PIXEL_SIZE_ASSUMED:
            return f"The pixel size is not stated; it is taken to be {value}."
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
            return f"Looked at in {value} evenly interleaved groups."
        case RemarkKind.STANDARDISED_BY_SITE:
            return f"Its colours were judged as those of the site {value}."
        case RemarkKind.STANDARDISED_BY_SLIDE:
            return "Its colours were judged by the slide itself."
        case RemarkKind.SITE_NOT_NAMED:
            return (
                "Which site the slide is from is not said, which this model needs to "
                "know: it was judged by itself alone. Say it below the model."
            )
        case RemarkKind.SITE_UNKNOWN:
            return (
                f"The model does not know the site {value}: the slide was judged by "
                "itself alone. Let the model learn it from a handful of its slides, at "
                "the end of the list below the model."
            )


def tissue_words(found: TissueMap) -> str:
    """What a slide is made of."""
    return (
        f"{len(found.kinds)} kinds of tissue, by looks alone: what they are, only you "
        f"can say. {len(found.outliers):,} places are like no others on this slide."
    )


def area_words(share: float, mm2: float | None) -> str:
    """How much there is of a kind of tissue."""
    part = f"{100 * share:.0f} %" if share >= 0.01 else "< 1 %"
    if mm2 is None:
        return part
    return f"{mm2:.2g} mm²\n{part}" if mm2 < 10 else f"{mm2:.0f} mm²\n{part}"


# Progress


def progress_words(working: Working | None) -> str:
    """What is being done, how far it is, and how long it takes."""
    if working is None:
        return "Getting ready…"
    words, progress = step_words(working.step), working.progress
    if progress is None or not progress.total:
        return f"{words}…"
    parts = [f"{words}: {progress.done:,} of {progress.total:,}"]
    if progress.rate:
        parts.append(f"{progress.rate:.0f} per second")
    if progress.seconds_left is not None:
        parts.append(f"{_time_words(progress.seconds_left)} left")
    return ", ".join(parts)


def step_words(step: Step) -> str:
    return _STEPS[step]


def removing_words(progress: Progress | None) -> str:
    """How far the check is that takes tissue away."""
    words = step_words(Step.REMOVING)
    if progress is None or not progress.total:
        return f"{words}…"
    return f"{words}: {progress.done} of {progress.total}…"


def _time_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"


# Trouble


def trouble_words(analysis: Analysis) -> str:
    """Why an analysis ended before its end, and what to know of it."""
    said = [notice_words(notice) for notice in analysis.notices]
    if analysis.phase == Phase.CANCELLED:
        stays = " What was found so far stays." if analysis.prediction else ""
        again = " Press the button again to go on from there."
        said.insert(0, f"Cancelled.{stays}{again}")
    elif analysis.failure is not None:
        said.insert(0, failure_words(analysis.failure, analysis.slide.name))
    return "\n".join(dict.fromkeys(said))


def notice_words(notice: Noticed) -> str:
    values = notice.values
    match notice.kind:
        case NoticeKind.SMALLER_BATCHES:
            return (
                "Memory ran short, so the work goes on in smaller portions. That is "
                "slower, and the result is the same."
            )
        case NoticeKind.UPSAMPLED:
            return (
                f"The slide has pixels of {values['slide_mpp']:.2g} µm, coarser than "
                f"the {values['target_mpp']:.2g} µm it is looked at with: it is "
                "enlarged, and fine detail is missing."
            )
        case NoticeKind.UNREADABLE_PARTS:
            return (
                f"The file is damaged: {values['patches']:,.0f} patches cannot be read "
                "and are left out."
            )
        case NoticeKind.OF_ENCODING:
            return notice.reason


def failure_words(failed: Failed, title: str) -> str:
    """Why there is no answer, and what to do; ``title`` is what the slide is called."""
    reason, values = failed.reason, failed.values
    match failed.kind:
        case (
            FailureKind.UNREADABLE
            | FailureKind.MODEL
            | FailureKind.FEATURES
            | FailureKind.INPUT
        ):
            return reason
        case FailureKind.DAMAGED:
            return (
                f"{title} is damaged: no part of its tissue can be read. Copy it again "
                "from where it came from."
            )
        case FailureKind.NO_PIXEL_SIZE:
            return (
                f"{title} does not say how large its pixels are. What is its pixel "
                "size in micrometres? Scanned at 20x it is about 0.5, at 40x about "
                "0.25."
            )
        case FailureKind.TOO_COARSE:
            return (
                f"{title} has pixels of {values['mpp']:.2g} µm, too coarse for this "
                f"model, which learned from pixels of {values['target_mpp']:.2g} µm. "
                "Choose a model for such slides, or map the tissue without one."
            )
        case FailureKind.NO_TISSUE:
            return (
                f"No tissue was found on {title}: {_share_words(failed)}. Is this the "
                "right slide, and is its pixel size right?"
            )
        case FailureKind.TOO_SMALL:
            return (
                f"{title} is too small to be analysed: it shows less than one field "
                "that the model looks at. Is its pixel size right?"
            )
        case FailureKind.IN_USE:
            return (
                f"{title} is being analysed in another window. Wait until that one is "
                "done, or close it."
            )
        case FailureKind.OTHER_ENCODER:
            return (
                f"This model learned with another version of {reason} than the one on "
                "this computer. Give the one that it came with under Advanced."
            )
        case FailureKind.NOTHING_DRAWN:
            return (
                "The drawn region holds no tissue that was looked at: draw it over "
                "some."
            )
        case FailureKind.ALL_DRAWN:
            return (
                "The drawn region holds all of the tissue: nothing would be left to "
                "ask about. Draw a smaller one."
            )
        case FailureKind.NO_CLASS:
            return "This model names no class to ask about."
        case FailureKind.OUT_OF_MEMORY:
            return (
                f"There was not enough memory to go on. {KEPT} Close other programs, "
                "then start again: the work goes on from there."
            )
        case FailureKind.FILE_REFUSED:
            return f"The computer refused to read or write a file: {reason}. {KEPT}"
        case FailureKind.DEFECT:
            return (
                f"Something went wrong that should not have: {reason}. {KEPT} Please "
                "report this."
            )
        case FailureKind.CRASHED:
            return (
                f"The analysis stopped unexpectedly. {KEPT} Start it again and it goes "
                "on from there."
            )
        case FailureKind.KILLED:
            return (
                "The computer ended the analysis, most likely because its memory was "
                f"full. {KEPT} Close other programs, start it again, and it goes on "
                "from there."
            )
        case FailureKind.NOT_STARTED:
            return f"The analysis cannot be started: {reason}"
        case FailureKind.LOST_RESULT:
            return f"The result cannot be read ({reason}). Start again."


def _share_words(failed: Failed) -> str:
    if failed.tissue is None or not failed.tissue.mask.any():
        return "none of it looks like tissue"
    return (
        f"only {failed.tissue.share:.1%} of it looks like tissue, in pieces too small "
        "to use"
    )


# Questions


def without_words(found: WhatIf) -> str:
    """The answer to "What if not here?"."""
    before, after = found.before, found.after
    if before.top is None or before.probabilities is None:
        return f"Without these {found.removed:,} patches the model names no class."
    name, was = before.classes[before.top], float(before.probabilities[before.top])
    if after.probabilities is None:
        return (
            f"Without these {found.removed:,} patches the model does not name "
            f"“{name}” or any other class."
        )
    now = float(after.probabilities[before.top])
    change = abs(now - was)
    verdict = (
        "hardly matters"
        if change < 0.05
        else "matters"
        if change < 0.3
        else "matters much"
    )
    return (
        f"What you drew {verdict}: without these {found.removed:,} patches "
        f"“{name}” {_change_words(was, now)}."
    )


def _change_words(was: float, now: float) -> str:
    """From which share to which, in as many digits as tell them apart."""
    for digits in (0, 1, 2):
        before, after = (f"{100 * share:.{digits}f} %" for share in (was, now))
        if before != after:
            return f"goes from {before} to {after}"
    return f"stays at {100 * now:.0f} %"


def check_words(found: Faithfulness) -> str:
    """The answer to "Does it look in the right place?", in words first."""
    name = found.class_name
    if found.area > MATTERS:
        return (
            f"What it looked at matters: without it, “{name}” drops faster than "
            "without other tissue. Whether it is the right tissue, only you can say."
        )
    if found.area < -MATTERS:
        return (
            f"No: without what it looked at, “{name}” stays longer than without other "
            "tissue. Do not read the map as a reason."
        )
    return (
        f"It makes no difference: without what it looked at, “{name}” changes no more "
        "than without any other tissue. Do not read the map as a reason."
    )
