"""The model file: weights in safetensors, and in its metadata a JSON card.

Loading runs no code from the file. The card says what the model takes, so that tokens
of another encoder, pixel size or patch size are refused with a sentence.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from spt_core.card_file import stated_card
from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.learning.aggregators import AGGREGATORS
from spt_core.learning.settings import SUPERVISED
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.tokens import TokenFacts

KIND = "spt-slide-model"
FORMAT = 1
LICENCE = "Unstated: the owner of the training data decides."


@dataclass(frozen=True)
class Stage:
    """One of the trainings that led to a model.

    Attributes
    ----------
    same_key
        Whether its patients' HMACs are under the key of the model's own run.
    known
        False for what came before a model that does not say what it began from.
    """

    objective: str | None
    slide_fingerprints: frozenset[str]
    patient_hmacs: frozenset[str]
    same_key: bool
    known: bool = True

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Stage":
        return cls(
            plain["objective"],
            frozenset(plain["slide_fingerprints"]),
            frozenset(plain["patient_hmacs"]),
            plain["same_key"],
            plain.get("known", True),
        )

    @property
    def with_labels(self) -> bool:
        return self.objective in SUPERVISED

    def has_slide(self, fingerprint: str) -> bool:
        return fingerprint in self.slide_fingerprints

    def has_patient(self, patient: str, key: bytes) -> bool:
        return patient_hmac(patient, key) in self.patient_hmacs

    def plain(self) -> dict[str, Any]:
        """As a card holds it."""
        return {
            "objective": self.objective,
            "slide_fingerprints": sorted(self.slide_fingerprints),
            "patient_hmacs": sorted(self.patient_hmacs),
            "same_key": self.same_key,
            "known": self.known,
        }


@dataclass(eq=False)
class SlideModel:
    """A slide encoder with all that is needed to use it.

    Attributes
    ----------
    encoder
        ``h = encoder(x, p, mask)``; ``h, attention = encoder.attend(x, p)``.
    card
        What the model is and what it learned from, as plain data.
    classifier
        From h to class scores, where the model has classes.
    statistics
        Of the training tokens and embeddings; see :mod:`spt_core.learning.statistics`.
    """

    encoder: nn.Module
    card: dict[str, Any]
    classifier: nn.Linear | None = None
    statistics: dict[str, Tensor] = field(default_factory=dict)

    @property
    def classes(self) -> list[str]:
        """Class names in the order of the classifier's scores; none without one."""
        return list(self.card.get("classes", ())) if self.classifier else []

    @property
    def facts(self) -> TokenFacts:
        """The facts of tokens that the model takes."""
        known = {
            name: value
            for name, value in self.card["tokens"].items()
            if name in TokenFacts.__dataclass_fields__
        }
        return TokenFacts(**known)

    def logits(self, h: Tensor) -> Tensor:
        """Class scores (..., classes) of embeddings (..., dim)."""
        if self.classifier is None:
            raise InputError(
                "This model names no classes: it was trained without labels. Fine-tune "
                "it with 'spt train --objective classify --init MODEL'."
            )
        return self.classifier(h)

    def to(self, device: torch.device | str) -> "SlideModel":
        self.encoder.to(device)
        if self.classifier is not None:
            self.classifier.to(device)
        return self

    def refuse_unlike(self, facts: TokenFacts, token_length: int) -> None:
        """Raise InputError when tokens are not of the kind the model learned from."""
        wrong = [
            f"{name} {theirs} (the model takes {ours})"
            for name, (theirs, ours) in facts.differences(self.facts).items()
        ]
        ours = self.card["tokens"]["dim"]
        if token_length != ours:
            wrong.append(f"token length {token_length} (the model takes {ours})")
        if wrong:
            tokens = self.card["tokens"]
            how = "".join(
                f" --{option} {tokens[name]}"
                for option, name in (
                    ("encoder", "encoder"),
                    ("target-mpp", "mpp"),
                    ("patch-size", "patch_size"),
                )
                if tokens.get(name) is not None
            )
            raise InputError(
                f"The tokens of {facts.name or 'this slide'} do not fit this model: "
                f"{', '.join(wrong)}. Encode the slide with 'spt encode SLIDE{how}', "
                "or choose a model trained on such tokens."
            )

    def stages(self) -> list[Stage]:
        """What it learned from: its own training, and that of what it began from."""
        return stages_of(self.card)

    def trained_on_slide(self, fingerprint: str) -> bool:
        return any(stage.has_slide(fingerprint) for stage in self.stages())

    def trained_on_patient(self, patient: str, key: bytes) -> bool:
        """Whether a patient was trained on, by the key kept in the run folder."""
        return any(stage.has_patient(patient, key) for stage in self.stages())


def stages_of(card: Mapping[str, Any]) -> list[Stage]:
    """The trainings that led to a model, its own first."""
    training = card["training"]
    own = {**training, "objective": card.get("objective"), "same_key": True}
    stages = [Stage.of(one) for one in (own, *training.get("earlier", ()))]
    if training.get("from_pretrained") and "earlier" not in training:
        nothing: frozenset[str] = frozenset()  # written before cards said it
        stages.append(Stage(None, nothing, nothing, same_key=False, known=False))
    return stages


def patient_hmac(patient: str, key: bytes) -> str:
    """A patient's name as a model file may hold it."""
    return hmac.new(key, patient.encode(), hashlib.sha256).hexdigest()[:32]


def save_model(path: str | os.PathLike[str], model: SlideModel) -> None:
    """Write a model file whole."""
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, module in (("encoder", model.encoder), ("class", model.classifier))
        if module is not None
        for name, tensor in module.state_dict().items()
    }
    for name, tensor in model.statistics.items():
        tensors[f"statistics.{name}"] = tensor.detach().cpu().contiguous()
    card = {
        "kind": KIND,
        "format": FORMAT,
        "notice": NOT_FOR_DIAGNOSIS,
        **model.card,
        "architecture": {"name": model.encoder.name, **model.encoder.config},  # type: ignore[dict-item]
    }
    content = save(tensors, {"card": json.dumps(card, ensure_ascii=False)})
    with written_whole(Path(path)) as temporary:
        temporary.write_bytes(content)


def read_card(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The card of a model file, without its weights."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no model file {path}.")
    try:
        card = stated_card(path) or {}
    except InputError as error:
        raise InputError(f"{path.name} is not a model file: {error}") from error
    if card.get("kind") != KIND:
        raise InputError(
            f"{path.name} holds weights, but is not a slide model of 'spt train': its "
            "card is missing."
        )
    if card.get("format", 0) > FORMAT:
        raise InputError(
            f"{path.name} was written by a newer version ({card.get('version')}). "
            "Update napari-spt to use it."
        )
    return card


def load_model(
    path: str | os.PathLike[str], device: str | torch.device = "cpu"
) -> SlideModel:
    """Load a model file, ready to use."""
    path = Path(path)
    card = read_card(path)
    architecture = dict(card["architecture"])
    name = architecture.pop("name")
    if name not in AGGREGATORS:
        raise InputError(f"{path.name} has an unknown architecture {name!r}.")
    parts: dict[str, dict[str, Tensor]] = {"encoder": {}, "class": {}, "statistics": {}}
    with safe_open(path, "pt", device=str(device)) as file:
        for key in file.keys():  # noqa: SIM118 - it is no mapping
            part, _, rest = key.partition(".")
            parts.setdefault(part, {})[rest] = file.get_tensor(key)
    encoder = AGGREGATORS[name](**architecture)
    _load(path, encoder, parts["encoder"])
    classifier = None
    if parts["class"]:
        classifier = nn.Linear(encoder.dim, len(card["classes"]))  # type: ignore[arg-type]
        _load(path, classifier, parts["class"])
    model = SlideModel(encoder.eval(), card, classifier, parts["statistics"])
    return model.to(device)


def _load(path: Path, module: nn.Module, weights: dict[str, Tensor]) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{path.name} does not fit its own card: {error}") from error
