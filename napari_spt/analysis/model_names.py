"""What models are called in a list: never two by one name. No Qt."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from napari_spt.parts.settings import remember, remembered
from spt_core.insight.model_words import ModelWords

# Names of files and folders that say nothing of what is in them.
PLAIN_FILE = re.compile(r"(best|last|final|model|weights|checkpoint|epoch|slide)", re.I)
PLAIN_FOLDERS = {"models", "model", "runs", "run", "checkpoints", "output", "outputs"}
LONGEST = 40


@dataclass(frozen=True)
class NamedModel:
    """A model as the list shows it.

    Attributes
    ----------
    title
        The user's own name for it, else the model's, else that of its study.
    study
        The folder it was trained in.
    """

    path: Path
    title: str
    answers: str
    study: str
    made: datetime

    @property
    def day(self) -> str:
        return f"{self.made:%d %B %Y}".lstrip("0")

    @property
    def facts(self) -> str:
        """What it answers, from which study, of which day."""
        study = f"Study “{self.study}”, " if self.study else "Of "
        return f"{self.answers} {study}{self.day}."

    @property
    def tooltip(self) -> str:
        return f"{self.title}\n{self.answers}\n{self.day}\n{self.path}"


def named_model(words: ModelWords) -> NamedModel:
    path = words.path
    study = study_of(path)
    own = remembered("model_names", {}).get(str(path))
    is_plain = PLAIN_FILE.match(path.stem) is not None
    title = own or words.card.title or (study if is_plain and study else path.stem)
    answers = words.purpose
    if words.card.classes:
        answers = f"Tells apart {' / '.join(words.card.classes)}."
    made = datetime.fromtimestamp(path.stat().st_mtime)
    return NamedModel(path, _short(title), answers, study, made)


def study_of(path: Path) -> str:
    """The nearest folder with a name of its own."""
    for folder in path.resolve().parents:
        if folder.name and folder.name.lower() not in PLAIN_FOLDERS:
            return folder.name
    return ""


def labels(models: Sequence[NamedModel]) -> list[str]:
    """What to call each of them: its title, and as much more as tells them apart."""
    ways = (
        lambda one: one.title,
        lambda one: f"{one.title} ({one.study})",
        lambda one: f"{one.title} ({one.day})",
        lambda one: f"{one.title} ({one.study}, {one.made:%d %b %Y %H:%M})",
        lambda one: f"{one.title} ({one.study}, {one.path.stem})",
    )
    found = [""] * len(models)
    for number, model in enumerate(models):
        same = [one for one in models if one.title == model.title]
        for way in ways:
            if sum(way(one) == way(model) for one in same) == 1:
                found[number] = way(model)
                break
        else:
            alike = [at for at, one in enumerate(models) if one.title == model.title]
            found[number] = f"{model.title} ({alike.index(number) + 1})"
    return found


def rename(path: Path, name: str) -> None:
    """Call a model by a name of the user's own; an empty one takes that back."""
    names = {**remembered("model_names", {}), str(path): name.strip()}
    remember("model_names", {key: value for key, value in names.items() if value})


def _short(title: str) -> str:
    return title if len(title) <= LONGEST else f"{title[: LONGEST - 1]}…"
