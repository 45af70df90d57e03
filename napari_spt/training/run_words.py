"""What is said of a run: where it stands, and what is to be done."""

from html import escape

from napari_spt.training.reading import Look, Phase, Training
from napari_spt.training.result_words import in_window
from napari_spt.training.words import (
    COLLAPSED,
    FULL_DISK,
    LOST,
    NOT_LEARNING,
    SHORT_STAGES,
    STAGES,
    cell_words,
    plain,
    until_words,
)

STANDS = {
    Phase.NEW: "Nothing has run yet.",
    Phase.STARTING: "Starting…",
    Phase.PAUSING: "Pausing…",
    Phase.STOPPING: "Stopping…",
    Phase.DISCARDING: "Discarding…",
    Phase.PAUSED: "Paused.",
    Phase.STOPPED: "Stopped.",
    Phase.DISCARDED: "The run was discarded.",
    Phase.FAILED: "It stopped.",
    Phase.FINISHED: "Finished.",
    Phase.LOST: "It was broken off.",
}


def headline(look: Look) -> str:
    """Where it stands, in a few words."""
    if look.phase is Phase.WAITING:
        others = "another study" if look.before == 1 else f"{look.before} studies"
        return f"Waits for {others} to end."
    if look.phase is Phase.RUNNING and look.state is not None:
        return f"{STAGES.get(look.state.stage, 'At work')}…"
    return STANDS.get(look.phase, "")


def explained(look: Look) -> str:
    """What else is to be known, and what to do."""
    state = look.state
    if look.phase in (Phase.FAILED, Phase.LOST) and look.is_full:
        return FULL_DISK
    if look.phase is Phase.LOST:
        return LOST
    if look.phase is Phase.FAILED and state is not None:
        why = plain(state.message or look.says)
        if "No space left" in why:
            return FULL_DISK
        return f"{why} Mend it, then press “Go on”: nothing that was done is lost."
    if look.phase is Phase.PAUSED:
        return "Everything is kept; “Go on” takes it up where it was."
    if look.phase is Phase.RUNNING and state is not None:
        return progress_words(look)
    if look.phase in (Phase.FINISHED, Phase.STOPPED, Phase.DISCARDED) and state:
        return in_window(state.message)
    return ""


def progress_words(look: Look) -> str:
    state = look.state
    if state is None:
        return ""
    unit = {"encode": "patches", "evaluate": "trainings"}.get(state.stage, "steps")
    parts = []
    if state.total:
        parts.append(f"{state.done:,} of {state.total:,} {unit}")
    training = look.training
    if state.stage != "evaluate" and state.rate and unit == "patches":
        parts.append(f"{state.rate:,.0f} per second")
    elif training is not None and training.rate:
        parts.append(f"{training.rate:,.3g} {training.unit} per second")
    if look.seconds_left is not None:
        words = until_words(look.seconds_left)
        if state.stage == "encode":
            words = f"read, {words}; then it learns"
        elif state.stage == "pretrain":
            words = f"this part {words}"
        parts.append(words)
    return ", ".join(parts)


def stages_words(look: Look) -> str:
    """All parts of the study, the present one marked."""
    state = look.state
    if state is None:
        return ""
    names = list(state.stages)
    at = names.index(state.stage) if state.stage in names else -1
    is_over = look.phase is Phase.FINISHED
    words = []
    for number, name in enumerate(names):
        short = SHORT_STAGES.get(name) or escape(name)
        if number < at or is_over:
            words.append(f"✔ {short}")
        elif number == at:
            words.append(f"<b>▸ {short}</b>")
        else:
            words.append(f"<span style='color:#888'>{short}</span>")
    return " · ".join(words)


def training_words(training: Training) -> str:
    """Which training the curves are of."""
    if training.cell:
        return f"Measuring: {cell_words(training.cell)}"
    if training.stage == "pretrain":
        return "Your model, without labels"
    return "Your model"


def alarm_words(training: Training) -> str:
    """What goes wrong, with the remedy; "" where nothing does."""
    if training.has_collapsed:
        return COLLAPSED
    if training.alarm == "notlearning":
        return NOT_LEARNING
    return ""


def rank_words(training: Training) -> str:
    """How many directions the model uses to tell slides apart."""
    if not training.rank:
        return ""
    return (
        f"Slides differ in {training.rank[-1][1]:.0f} directions "
        "(1 means that all look the same to it)."
    )
