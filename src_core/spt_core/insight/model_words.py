"""A model's card in words: what it is for, what it learned from, how well it does."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spt_core.learning.model_card import (
    SITE,
    SLIDE,
    Calibration,
    ModelCard,
    read_model_card,
)

DEMONSTRATION = "On a real slide its answer means nothing."
SHOWN = 12  # of sites
_MEASURES = {"accuracy": "accuracy", "auc": "area under the curve", "f1": "F1"}


@dataclass(frozen=True)
class ModelWords:
    """What may be said of the model in a file."""

    path: Path
    card: ModelCard

    @property
    def title(self) -> str:
        if self.card.demonstration:
            return "Demonstration (synthetic tissue)"
        return self.card.title or self.path.stem

    @property
    def purpose(self) -> str:
        if self.card.about:
            return self.card.about
        if self.card.classes:
            words = f"Tells apart {_listed(self.card.classes)}"
            if self.card.demonstration:
                return f"{words} in synthetic tissue. {DEMONSTRATION}"
            return f"{words}."
        return "Describes slides, without naming classes."

    @property
    def learned_from(self) -> str:
        training = self.card.training
        words = f"Learned from {training.slides:,} slides"
        if self.card.demonstration:
            words += " of synthetic tissue"
        elif training.patients:
            words += f" of {training.patients:,} patients"
        counts = [f"{count:,} {name}" for name, count in training.class_counts.items()]
        if counts:
            words += f" ({_listed(counts)})"
        names = [one.name for one in self.card.data]
        return words + "." + (f" {_listed(names)}." if names else "")

    @property
    def how_well(self) -> str:
        """The measures that a reader knows; others stay in the file."""
        judged = self.card.judged_on
        said = [
            f"{words} {value:.2f}"
            for name, words in _MEASURES.items()
            if (value := getattr(judged, name, None)) is not None
        ]
        if judged is None or not said:
            return "The file does not say how well it does on slides it has not seen."
        where = judged.cohort or "slides that it had not seen"
        return f"On {where}: {_listed(said)}."

    @property
    def calibration(self) -> str:
        """What the numbers of its answers are."""
        return calibration_in_words(self.card.calibration)

    @property
    def architecture(self) -> str:
        """The shape of the network."""
        shape = self.card.architecture.options
        parts = [self.card.architecture.name]
        for name, words in (("depth", "layers"), ("heads", "heads")):
            if name in shape:
                parts.append(f"{shape[name]} {words}")
        if "dim" in shape:
            parts.append(f"width {shape['dim']}")
        return ", ".join(parts)

    @property
    def patch(self) -> str:
        """The patches that it takes; empty where the file does not say."""
        tokens = self.card.tokens
        if tokens.patch_size is None or tokens.mpp is None:
            return ""
        return f"{tokens.patch_size} px at {tokens.mpp:g} µm"

    @property
    def standardised(self) -> str:
        """Among what a slide is judged; empty where that is nothing."""
        found = self.card.standardising
        if found.kind != SITE:
            return "per slide" if found.kind == SLIDE else ""
        names, more = found.site_names[:SHOWN], len(found.site_names) - SHOWN
        return f"per site ({_listed([*names, *([f'{more} more'] * (more > 0))])})"

    @property
    def details(self) -> list[tuple[str, str]]:
        """What a researcher asks for, by name."""
        card = self.card
        rows = (
            ("File", self.path.name),
            ("Sees patches by", card.tokens.encoder),
            ("Patch", self.patch),
            ("Stain", card.tokens.stain),
            ("Channels", card.tokens.channels),
            ("Objective", card.objective),
            ("Standardised", self.standardised),
            ("Version", card.version),
            ("Licence", card.licence.partition(";")[0]),
            ("Patch encoder's terms", ", ".join(card.encoder_terms)),
        )
        return [(name, value) for name, value in rows if value]


def read_model_words(path: str | os.PathLike[str]) -> ModelWords:
    """Read the card of a model file, to put it into words."""
    return ModelWords(Path(path), read_model_card(path))


def calibration_in_words(known: Calibration | None) -> str:
    """What a model's numbers are, and how that was measured."""
    if known is None:
        return "Not measured: its numbers are scores."
    slides, folds = known.slides, known.folds
    where = f" on {slides:,} slides in {folds} folds" if slides and folds else ""
    before, after = known.error_before, known.error_after
    measured = ""
    if before is not None and after is not None:
        measured = f"error {before:.3f} without, {after:.3f} with it"
    temperature = known.helpful_temperature
    if temperature is not None:
        words = f"By a temperature of {temperature:.3g}, measured{where}"
        return f"{words}: {measured}." if measured else f"{words}."
    return (
        f"None: a temperature measured{where} does not help"
        f"{f' ({measured})' if measured else ''}, so its numbers are scores."
    )


def _listed(words: Iterable[str]) -> str:
    words = list(words)
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
