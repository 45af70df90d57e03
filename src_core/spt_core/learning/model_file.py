"""The model file: weights in safetensors, and in its metadata a JSON card.

Loading runs no code from the file. The card says what the model takes, so that tokens
of another encoder, pixel size or patch size are refused with a sentence.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.aggregators import AGGREGATORS
from spt_core.learning.model_card import (
    Architecture,
    ModelCard,
    Stage,
    model_metadata,
    read_model_card,
)
from spt_core.learning.model_checks import (
    check_architecture,
    check_numbers,
    check_spreads,
    check_statistics,
)
from spt_core.learning.standardising import (
    SITE_MEAN,
    SITE_STD,
    Standardiser,
    TokenScale,
    standardiser_from,
)
from spt_core.slides.recipe import to_ask_for
from spt_core.tokens import TokenFacts, Tokens

# What the names of a file's tensors begin with.
ENCODER, CLASSIFIER, STATISTICS = "encoder", "class", "statistics"
_OF_SITES = (SITE_MEAN, SITE_STD)


@dataclass(eq=False)
class SlideModel:
    """A slide encoder with all that is needed to use it.

    Attributes
    ----------
    encoder
        ``h = encoder(x, p, mask)``; ``h, attention = encoder.attend(x, p)``.
    card
        What the model is and what it learned from.
    classifier
        From h to class scores, where the model has classes.
    statistics
        Of the training tokens and embeddings; see :mod:`spt_core.learning.statistics`.
        Those of sites are of tokens as they are stored, the others of standardised ones
        (:mod:`spt_core.learning.standardising`).
    """

    encoder: Aggregator
    card: ModelCard
    classifier: nn.Linear | None = None
    statistics: dict[str, Tensor] = field(default_factory=dict)

    @property
    def classes(self) -> list[str]:
        """Class names in the order of the classifier's scores; none without one."""
        return list(self.card.classes) if self.classifier else []

    @property
    def facts(self) -> TokenFacts:
        """The facts of tokens that the model takes."""
        return self.card.tokens.facts

    @property
    def standardiser(self) -> Standardiser:
        """What is done to tokens before the encoder sees them."""
        arrays = {
            name: self.statistics[name].float().cpu().numpy()
            for name in _OF_SITES
            if name in self.statistics
        }
        return standardiser_from(self.card.standardising, arrays)

    def standardised_by(self, standardiser: Standardiser) -> "SlideModel":
        """The same model with other statistics of sites."""
        arrays = standardiser.arrays()
        statistics = {n: t for n, t in self.statistics.items() if n not in _OF_SITES}
        statistics |= {n: torch.from_numpy(array) for n, array in arrays.items()}
        card = replace(self.card, standardising=standardiser.card)
        return replace(self, card=card, statistics=statistics)

    def site_of(self, tokens: Tokens) -> str | None:
        """Where a slide is from: as it is stated, or as the model knows it."""
        facts = tokens.facts
        return facts.site or self.card.standardising.known_site(facts)

    def scale_for(self, tokens: Tokens) -> TokenScale | None:
        """By which a slide's tokens are standardised; None leaves them as they are."""
        return self.standardiser.scale_for(self.site_of(tokens), tokens.x)

    def prepared(self, tokens: Tokens, scale: TokenScale | None = None) -> Tokens:
        """Tokens as the encoder takes them, as in training.

        All that puts tokens into the encoder calls this, once.

        Parameters
        ----------
        scale
            Of the whole slide, where ``tokens`` are a part of it.
        """
        scale = scale or self.scale_for(tokens)
        return tokens if scale is None else replace(tokens, x=scale(tokens.x))

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
        takes = self.card.tokens
        if token_length != takes.dim:
            wrong.append(f"token length {token_length} (the model takes {takes.dim})")
        if wrong:
            how = "".join(
                f" --{option} {value}"
                for option, value in (
                    ("encoder", takes.encoder),
                    ("target-mpp", takes.mpp),
                    ("patch-size", takes.patch_size),
                    ("channels", to_ask_for(takes.channels)),
                )
                if value is not None
            )
            raise InputError(
                f"The tokens of {facts.name or 'this slide'} do not fit this model: "
                f"{', '.join(wrong)}. Encode the slide with 'spt encode SLIDE{how}', "
                "or choose a model trained on such tokens."
            )

    def stages(self) -> list[Stage]:
        """What it learned from: its own training, and that of what it began from."""
        return self.card.stages()

    def trained_on_slide(self, fingerprint: str) -> bool:
        return any(stage.has_slide(fingerprint) for stage in self.stages())

    def trained_on_patient(self, patient: str, key: bytes) -> bool:
        """Whether a patient was trained on, by the key kept in the run folder."""
        return any(stage.has_patient(patient, key) for stage in self.stages())


def save_model(path: str | os.PathLike[str], model: SlideModel) -> None:
    """Write a model file whole."""
    parts: dict[str, Mapping[str, Tensor]] = {
        ENCODER: model.encoder.state_dict(),
        CLASSIFIER: model.classifier.state_dict() if model.classifier else {},
        STATISTICS: model.statistics,
    }
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    built = Architecture(model.encoder.name, model.encoder.config)
    content = save(tensors, model_metadata(replace(model.card, architecture=built)))
    with written_whole(Path(path)) as temporary:
        temporary.write_bytes(content)


def load_model(
    path: str | os.PathLike[str], device: str | torch.device = "cpu"
) -> SlideModel:
    """Load a model file, ready to use."""
    path = Path(path)
    card = read_model_card(path)
    kind = AGGREGATORS.get(card.architecture.name)
    if kind is None:
        raise InputError(
            f"{path.name} has an unknown architecture {card.architecture.name!r}."
        )
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    tensors: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            keys = list(file.keys())
            for key in keys:
                part, _, rest = key.partition(".")
                shape = tuple(file.get_slice(key).get_shape())
                shapes.setdefault(part, {})[rest] = shape
            _check_parts(path, card, kind, shapes)
            for key in keys:
                part, _, rest = key.partition(".")
                tensors.setdefault(part, {})[rest] = file.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path.name} cannot be read: {error}.") from error
    for named in tensors.values():
        check_numbers(path, named)
    encoder = kind(**card.architecture.options)
    _load(path, encoder, tensors.get(ENCODER, {}))
    classifier = None
    if tensors.get(CLASSIFIER):
        classifier = nn.Linear(encoder.dim, len(card.classes))
        _load(path, classifier, tensors[CLASSIFIER])
    statistics = {k: v.float() for k, v in tensors.get(STATISTICS, {}).items()}
    check_statistics(path, card, encoder.dim, shapes.get(STATISTICS, {}))
    check_spreads(path, statistics)
    model = SlideModel(encoder.eval(), card, classifier, statistics)
    return model.to(device)


def _check_parts(
    path: Path,
    card: ModelCard,
    kind: type[Aggregator],
    shapes: Mapping[str, Mapping[str, tuple[int, ...]]],
) -> None:
    """Refuse what does not go together, by the tensors' shapes alone."""
    in_dim = card.architecture.options.get("in_dim", card.tokens.dim)
    if in_dim != card.tokens.dim:
        raise InputError(
            f"{path.name}: its encoder takes tokens of {in_dim:.6g} numbers, its card "
            f"states {card.tokens.dim}."
        )
    rows = {shape[:1] for shape in shapes.get(CLASSIFIER, {}).values()}
    if rows and (rows != {(len(card.classes),)} or not card.classes):
        found = ", ".join(str(n) for row in rows for n in row) or "none"
        raise InputError(
            f"{path.name}: its card names {len(card.classes)} classes, its classifier "
            f"is of {found}."
        )
    check_architecture(path, kind, card.architecture, shapes.get(ENCODER, {}))


def _load(path: Path, module: nn.Module, weights: dict[str, Tensor]) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        said = " ".join(str(error).split())[:300]
        raise InputError(f"{path.name} does not fit its own card: {said}") from error
