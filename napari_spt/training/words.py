"""What the dock says; the core's own sentences in the words of a window."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from spt_core.studies.study_finding import Finding, Rank


@dataclass(frozen=True)
class GoalWords:
    title: str
    says: str


GOALS = {
    "pretrain": GoalWords(
        "Learn from slides without labels",
        "It learns what tissue looks like. Labels, if you have any, only measure it.",
    ),
    "classify": GoalWords(
        "Learn to tell my labels apart", "It learns from labelled slides alone."
    ),
    "both": GoalWords(
        "First without, then with labels",
        "Best where only some slides have labels, or few do.",
    ),
    "finetune": GoalWords(
        "Teach an existing model my labels",
        "It goes on from a model that you have.",
    ),
    "patches": GoalWords(
        "Learn to see single patches",
        "It trains what all other goals look through, on your own slides. For tissue "
        "or stains unlike any other; takes long without a graphics card.",
    ),
}

EFFORTS: dict[str, tuple[str, dict[str, object]]] = {
    "fits": ("What fits this computer", {}),
    "quick": (
        "A quick try: does all work?",
        {
            "model": "small",
            "folds": 3,
            "steps": 30,
            "pretrain_steps": 30,
            "pretrain_once": True,
        },
    ),
    "paper": ("As in the paper (graphics card)", {"model": "paper"}),
}

STAGES = {
    "check": "Looking at slides and labels",
    "encode": "Reading the slides",
    "pretrain": "Learning without labels",
    "evaluate": "Measuring: each patient is tested by models that never saw them",
    "train": "Training your model on all slides",
    "report": "Writing the report",
}
SHORT_STAGES = {
    "check": "look",
    "encode": "read slides",
    "pretrain": "learn without labels",
    "evaluate": "measure",
    "train": "train your model",
    "report": "report",
}
METHODS = {
    "mean": "averaging patches",
    "max": "the strongest patches",
    "abmil": "ABMIL",
    "ssspt-simclr": "learning without labels",
    "ssspt-vicreg": "learning without labels",
    "ssspt-byol": "learning without labels",
    "classify": "learning with labels",
    "pretrained-classify": "first without, then with labels",
    "finetune": "teaching your model",
}
RANKS = {
    Rank.STOPS: "Stops the run",
    Rank.DOUBTFUL: "Doubtful",
    Rank.FINE: "Fine",
}

NOT_LEARNING = (
    "It is not learning yet: its answers are still those of chance. In Advanced, try a "
    "larger learning rate, more steps, or larger crops."
)
COLLAPSED = (
    "All slides look the same to the model: it has stopped telling them apart. In "
    "Advanced, try a lower learning rate, or more slides in each step."
)
FULL_DISK = (
    "The disk is full. Make room, then press “Go on”: nothing that was done is lost."
)
LOST = (
    "It ended without a word: it was stopped from outside, or the computer was "
    "switched off. Nothing is lost; “Go on” takes it up where it was."
)

# One word for them in the whole window, Advanced too.
_ROUNDS = (
    (r"\bfolds\b", "rounds"),
    (r"\bfold\b", "round"),
    (r"\bFolds\b", "Rounds"),
)
# The core speaks of commands, and in the words of the trade.
_PLAIN = (
    (r"--ignore-split", "“Ignore split” in Advanced"),
    (r"--allow-upsampling", "“Allow upsampling” in Advanced"),
    (r"--(?:encoder-)?weights", "“Encoder weights” in Advanced"),
    (r"--workers\b", "“Workers” in Advanced"),
    (r"--slide-mpp(?: UM)?", "“Slide pixel size” in Advanced"),
    (r"--([a-z]+(?:-[a-z]+)*)", r"“\1” in Advanced"),
    *_ROUNDS,
    (r"\bEncoding (?=runs|is)", "Reading slides "),
    (r"\bencoded\b", "read"),
    (r"\bA GPU\b", "A graphics card"),
    (r"\bpatch encoder\b", "reader of patches"),
    (r"\bencoder\b", "reader of patches"),
    (r"\bwhole epochs\b", "whole passes over the slides"),
    (r"\bembeddings?\b", "place on the map"),
    (r"\btokens\b", "patches"),
    (r"\bmpp\b", "pixel size"),
)


def plain(sentence: str) -> str:
    """A sentence of the core for a window."""
    return _replaced(sentence, _PLAIN)


def with_rounds(sentence: str) -> str:
    """A sentence for Advanced, which keeps the other words of the trade."""
    return _replaced(sentence, _ROUNDS)


def _replaced(sentence: str, pairs: Iterable[tuple[str, str]]) -> str:
    for found, words in pairs:
        sentence = re.sub(found, words, sentence)
    return sentence


def finding_words(one: Finding) -> tuple[str, str]:
    """What was found, and what to do."""
    return plain(one.says), plain(one.do)


def cell_words(cell: str) -> str:
    """A training among those that measure, such as "features, abmil, fold 2, …"."""
    parts = [part.strip() for part in cell.split(",")]
    method = next((METHODS[part] for part in parts if part in METHODS), "")
    number = next((p.split()[-1] for p in parts if p.startswith("fold ")), "")
    return f"{method or parts[0]}, round {number}" if number else method or parts[0]


def until_words(seconds: float, now: float | None = None) -> str:
    """When something will be done, as one says it."""
    now = time.time() if now is None else now
    end = time.localtime(now + seconds)
    clock = time.strftime("%H:%M", end)
    days = (
        time.mktime((*end[:3], 0, 0, 0, 0, 0, -1))
        - time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
    ) / 86400
    if round(days) == 0:
        return f"done about {clock}"
    if round(days) == 1:
        return f"done tomorrow about {clock}"
    return f"done on {time.strftime('%d %b', end)} about {clock}"


def slides_words(count: int) -> str:
    return "1 slide" if count == 1 else f"{count} slides"
