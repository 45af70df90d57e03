"""A model's card in words: what it is for, what it learned from, how well it does.

Read from the head of the file, without its weights and without torch.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.insight.calibration import helpful_temperature

KIND = "spt-slide-model"
DEMONSTRATION = "On a real slide its answer means nothing."
# A header larger than this is no model of ours.
_LONGEST_HEADER = 100 * 2**20


@dataclass(frozen=True)
class ModelCard:
    """What may be said of a model file."""

    path: Path
    facts: dict[str, Any]

    @property
    def is_demonstration(self) -> bool:
        """Whether the model learned from painted tissue alone."""
        return bool(self.facts.get("demonstration"))

    @property
    def title(self) -> str:
        if self.is_demonstration:
            return "Demonstration (synthetic tissue)"
        return str(self.facts.get("title") or self.path.stem)

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.facts.get("classes") or ()]

    @property
    def purpose(self) -> str:
        stated = self.facts.get("purpose") or self.facts.get("about")
        if stated:
            return str(stated)
        if self.classes:
            words = f"Tells apart {_listed(self.classes)}"
            if self.is_demonstration:
                return f"{words} in synthetic tissue. {DEMONSTRATION}"
            return f"{words}."
        return "Describes slides, without naming classes."

    @property
    def learned_from(self) -> str:
        training = self.facts.get("training") or {}
        slides = training.get("slides")
        if not slides:
            return "The file does not say what it learned from."
        words = f"Learned from {slides:,} slides"
        if self.is_demonstration:
            words += " of synthetic tissue"
        elif training.get("patients"):
            words += f" of {training['patients']:,} patients"
        counts = training.get("class_counts") or {}
        if counts:
            words += f" ({_listed(f'{n:,} {name}' for name, n in counts.items())})"
        data = self.facts.get("data") or []
        names = [str(one["name"]) for one in data if isinstance(one, dict)]
        return words + "." + (f" {_listed(names)}." if names else "")

    @property
    def how_well(self) -> str:
        """The measures that a reader knows; others stay in the file."""
        judged = self.facts.get("judged_on") or {}
        metrics = {**(self.facts.get("metrics") or {}), **judged}
        known = {
            "accuracy": "accuracy",
            "mean_class_accuracy": "mean accuracy over the classes",
            "auc": "area under the curve",
            "f1": "F1",
        }
        said = [
            f"{words} {float(value):.2f}"
            for name, words in known.items()
            if isinstance(value := metrics.get(name), int | float)
        ]
        if not said:
            return "The file does not say how well it does on slides it has not seen."
        where = judged.get("cohort") or "slides that it had not seen"
        return f"On {where}: {_listed(said)}."

    @property
    def calibration(self) -> str:
        """What the numbers of its answers are."""
        known = self.facts.get("calibration") or {}
        if not known:
            return "Not measured: its numbers are scores."
        slides, folds = known.get("slides"), known.get("folds")
        where = f" on {slides:,} slides in {folds} folds" if slides and folds else ""
        before, after = known.get("error_before"), known.get("error_after")
        measured = ""
        if before is not None and after is not None:
            measured = f"error {float(before):.3f} without, {float(after):.3f} with it"
        temperature = helpful_temperature(known)
        if temperature is not None:
            words = f"By a temperature of {temperature:.3g}, measured{where}"
            return f"{words}: {measured}." if measured else f"{words}."
        return (
            f"None: a temperature measured{where} does not help"
            f"{f' ({measured})' if measured else ''}, so its numbers are scores."
        )

    @property
    def architecture(self) -> str:
        """The shape of the network."""
        known = self.facts.get("architecture") or {}
        parts = [str(known.get("name") or "")]
        for name, words in (("depth", "layers"), ("heads", "heads")):
            if known.get(name):
                parts.append(f"{known[name]} {words}")
        if known.get("dim"):
            parts.append(f"width {known['dim']}")
        return ", ".join(part for part in parts if part)

    @property
    def details(self) -> list[tuple[str, str]]:
        """What a researcher asks for, by name."""
        tokens = self.facts.get("tokens") or {}
        rows = [
            ("File", self.path.name),
            ("Sees patches by", tokens.get("encoder")),
            ("Patch", f"{tokens.get('patch_size')} px at {tokens.get('mpp')} µm"),
            ("Stain", tokens.get("stain")),
            ("Objective", self.facts.get("objective")),
            ("Version", self.facts.get("version")),
            ("Licence", str(self.facts.get("licence") or "").partition(";")[0]),
        ]
        return [(name, str(value)) for name, value in rows if value]


def read_model_card(path: str | os.PathLike[str]) -> ModelCard:
    """Read the card of a model file.

    Raises
    ------
    InputError
        Where there is no file, or it is no model of ours.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no model file {path}.")
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_LONGEST_HEADER, path.stat().st_size):
                raise ValueError("its header is missing")
            header = json.loads(file.read(length))
        card = json.loads(header["__metadata__"]["card"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path.name} is not a slide model: choose a file that 'spt train' wrote "
            "(its name ends in .safetensors)."
        ) from error
    if not isinstance(card, dict) or card.get("kind") != KIND:
        raise InputError(
            f"{path.name} holds weights, but is not a slide model: its card is missing."
        )
    return ModelCard(path, card)


def _listed(words: Iterable[str]) -> str:
    words = list(words)
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
