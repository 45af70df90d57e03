"""One pass from tokens to prediction, embedding and attention.

The commands, the engine, the class map and the evaluation all use it, so that the
heatmap's prediction is the evaluation's.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.devices import copy_to
from spt_core.errors import InputError
from spt_core.insight.calibration import softmax
from spt_core.insight.results import (
    MARGIN,
    Likeness,
    Prediction,
    Remark,
    RemarkKind,
    Verdict,
)
from spt_core.learning.model_card import SITE, SLIDE
from spt_core.learning.model_file import SlideModel
from spt_core.learning.standardising import TokenScale
from spt_core.learning.statistics import EMBEDDING, MEAN_TOKEN, QUANTILES, distance
from spt_core.tokens import Tokens, read_tokens

# From fewer training slides the spread of slides is unknown, and fewer patches do not
# show what a slide is like.
FEWEST_SLIDES = 8
FEWEST_PATCHES = 32


_NO_NUMBER = (
    "The model makes no number of this slide's features (NaN or infinity): its weights "
    "or the features are damaged, or they do not belong together."
)


@dataclass(frozen=True)
class Patient:
    """Whose slide it is, and the key under which a run keeps its patients."""

    name: str
    key: bytes


def read_for(
    model: SlideModel,
    path: str | Path,
    *,
    dtype: type | None = None,
    site: str | None = None,
) -> Tokens:
    """Read a feature file that fits a model, in the stored precision.

    What the file does not state (encoder, pixel size) is taken to be the model's.

    Parameters
    ----------
    site
        Where the slide is from, for models whose tokens are standardised per site.
    """
    tokens = read_tokens(path, dtype=dtype)
    model.refuse_unlike(tokens.facts, tokens.dim)
    return of_site(tokens, site)


def of_site(tokens: Tokens, site: str | None) -> Tokens:
    """The same tokens, of which it is known where the slide is from."""
    if site is None:
        return tokens
    return replace(tokens, facts=replace(tokens.facts, site=site))


@torch.no_grad()
def predict(
    model: SlideModel,
    tokens: Tokens,
    *,
    total: int | None = None,
    margin: float = MARGIN,
    patient: Patient | None = None,
    always_named: bool = False,
    scale: TokenScale | None = None,
) -> Prediction:
    """The model's answer for a slide's tokens, which are as they are stored.

    A slide whose site the model has no statistics of is unlike those it learned from.

    Parameters
    ----------
    total
        Patches of the whole slide, where ``tokens`` are a part of it.
    margin
        The least distance between the two likeliest classes for an answer.
    always_named
        Give probabilities even where a demonstration would name no class.
    scale
        By which the whole slide is standardised, where ``tokens`` are a part of it.
    """
    model.refuse_unlike(tokens.facts, tokens.dim)
    n = len(tokens)
    fingerprint = fingerprint_of(tokens)
    trained_on, remarks = _known(model, fingerprint, patient)
    if n == 0:
        return _empty(model, tokens, total or 0, fingerprint)
    prepared = model.prepared(tokens, scale)
    x, p = torch.from_numpy(prepared.x), torch.from_numpy(prepared.p)
    device = device_of(model)
    attended = model.encoder.attend(copy_to(x, device), copy_to(p, device))
    h, attention = attended
    if not (torch.isfinite(h).all() and torch.isfinite(attention).all()):
        raise InputError(_NO_NUMBER)
    likeness, doubts = _likeness(model, prepared, h)
    site_is_known = model.standardiser.knows(model.site_of(tokens))
    remarks += doubts + _unknown(model, tokens) + _standardised(model, tokens)
    shares = None
    alike = likeness is not None and not likeness.is_unlike and site_is_known
    if model.classes and (always_named or alike or not is_demonstration(model)):
        shares = probabilities(model, h[None])[0]
        if not np.isfinite(shares).all():
            raise InputError(_NO_NUMBER)
    is_unlike = not site_is_known or (likeness is not None and likeness.is_unlike)
    verdict, answer = _decide(model.classes, shares, is_unlike, margin)
    if attended.groups > 1:
        remarks.append(Remark(RemarkKind.IN_GROUPS, attended.groups))
    return Prediction(
        facts=tokens.facts,
        p=tokens.p,
        xy=tokens.xy,
        classes=tuple(model.classes),
        probabilities=shares,
        # Measured on whole slides: of a part nobody knows how often a number holds.
        calibrated=temperature(model) is not None and n >= (total or n),
        embedding=h.float().cpu().numpy(),
        attention=attention.float().cpu().numpy(),
        seen=n,
        total=max(n, total or n),
        verdict=verdict,
        answer=answer,
        likeness=likeness,
        groups=attended.groups,
        trained_on=trained_on,
        remarks=tuple(remarks),
        fingerprint=fingerprint,
    )


def is_demonstration(model: SlideModel) -> bool:
    """Whether a model names classes only of slides like those it learned from."""
    return model.card.demonstration


def temperature(model: SlideModel) -> float | None:
    """The model's calibration, where it has one that helps."""
    return model.card.temperature


@torch.no_grad()
def logits(model: SlideModel, h: torch.Tensor) -> NDArray[np.float64]:
    """Class scores (..., classes) of embeddings, before any temperature."""
    return model.logits(h).cpu().double().numpy()  # in this order: MPS has no double


def probabilities(model: SlideModel, h: torch.Tensor) -> NDArray[np.float64]:
    """Class shares (..., classes), calibrated where the model is."""
    return softmax(logits(model, h), temperature(model) or 1.0)


def fingerprint_of(tokens: Tokens) -> str:
    """How a model file recognises a slide: by its pixels, else by its tokens.

    The tokens must be in their stored precision, as ``read_for`` gives them.
    """
    if tokens.facts.slide_fingerprint:
        return tokens.facts.slide_fingerprint
    digest = hashlib.sha256(np.ascontiguousarray(tokens.p, np.int32).tobytes())
    if len(tokens):
        ends = np.unique([0, len(tokens) - 1])
        digest.update(np.ascontiguousarray(tokens.x[ends]).tobytes())
    return f"tokens:{digest.hexdigest()}"


def _known(
    model: SlideModel, fingerprint: str, patient: Patient | None
) -> tuple[bool, list[Remark]]:
    if model.trained_on_slide(fingerprint):
        return True, [Remark(RemarkKind.TRAINED_ON_SLIDE)]
    if patient is not None and model.trained_on_patient(patient.name, patient.key):
        return True, [Remark(RemarkKind.TRAINED_ON_PATIENT)]
    if patient is not None and any(
        stage.patient_hmacs and not stage.same_key for stage in model.stages()
    ):
        return False, [Remark(RemarkKind.PATIENT_NOT_CHECKED)]
    return False, []


def _unknown(model: SlideModel, tokens: Tokens) -> list[Remark]:
    """What the tokens do not state, and is taken from the model."""
    return [
        Remark(kind, ours)
        for kind, name in (
            (RemarkKind.ENCODER_ASSUMED, "encoder"),
            (RemarkKind.PIXEL_SIZE_ASSUMED, "mpp"),
        )
        if getattr(tokens.facts, name) is None
        and (ours := getattr(model.card.tokens, name)) is not None
    ]


def _standardised(model: SlideModel, tokens: Tokens) -> list[Remark]:
    """By what the tokens were standardised, where they were."""
    site = model.site_of(tokens)
    kind = model.standardiser.kind
    if kind == SLIDE:
        return [Remark(RemarkKind.STANDARDISED_BY_SLIDE)]
    if kind != SITE:
        return []
    if model.standardiser.knows(site):
        return [Remark(RemarkKind.STANDARDISED_BY_SITE, site)]
    if site is None:
        return [Remark(RemarkKind.SITE_NOT_NAMED)]
    return [Remark(RemarkKind.SITE_UNKNOWN, site)]


def _likeness(
    model: SlideModel, tokens: Tokens, h: torch.Tensor
) -> tuple[Likeness | None, list[Remark]]:
    if f"{MEAN_TOKEN}_quantiles" not in model.statistics:
        return None, [Remark(RemarkKind.NO_STATISTICS)]
    slides = model.card.training.slides
    if slides < FEWEST_SLIDES:
        return None, [Remark(RemarkKind.FEW_TRAINING_SLIDES, slides)]
    if len(tokens) < FEWEST_PATCHES:
        return None, [Remark(RemarkKind.FEW_PATCHES, len(tokens))]
    mean = tokens.x.mean(axis=0, dtype=np.float64)
    compared = {MEAN_TOKEN: torch.from_numpy(mean), EMBEDDING: h}
    # Where a slide measures itself its mean is 0, and what is left is rounding.
    if model.standardiser.kind == SLIDE:
        del compared[MEAN_TOKEN]
    distances, limits = {}, {}
    for name, value in compared.items():
        home = model.statistics[f"{name}_centre"].device
        distances[name] = float(distance(model.statistics, name, copy_to(value, home)))
        if not np.isfinite(distances[name]):
            raise InputError(_NO_NUMBER)
        quantiles = model.statistics[f"{name}_quantiles"]
        limits[name] = _limit(name, quantiles, strict=is_demonstration(model))
    return Likeness(distances, limits), []


def _limit(which: str, quantiles: torch.Tensor, *, strict: bool = False) -> float:
    """The distance above which a slide is unlike: beyond all of the training.

    Distances of training slides were measured with the slide left out, so those of
    new slides of the same kind lie among them; because few slides determine the
    largest, the limit of the mean token is a quarter above it. The model was fitted to
    the embeddings, which therefore lie closer together than those of new slides: twice
    the distance is still alike. A demonstration, which should rather name no class, is
    ``strict``: no room, and its few farthest slides do not count.
    """
    room = {MEAN_TOKEN: 1.25, EMBEDDING: 2.0}[which]
    known = dict(zip(QUANTILES, quantiles.tolist(), strict=True))
    if strict:
        return known[0.99] + max(known[0.95] - known[0.5], 0.0)
    return room * known[1.0] + max(known[0.95] - known[0.5], 0.0)


def _decide(
    classes: list[str],
    shares: NDArray[np.float64] | None,
    is_unlike: bool,
    margin: float,
) -> tuple[Verdict, str | None]:
    if is_unlike:
        return Verdict.UNLIKE, None
    if shares is None:
        return Verdict.NO_CLASSES, None
    order = np.sort(shares)[::-1]
    if len(order) > 1 and order[0] - order[1] < margin:
        return Verdict.UNDECIDED, None
    return Verdict.ANSWERED, classes[int(shares.argmax())]


def _empty(
    model: SlideModel, tokens: Tokens, total: int, fingerprint: str
) -> Prediction:
    return Prediction(
        facts=tokens.facts,
        p=tokens.p,
        xy=tokens.xy,
        classes=tuple(model.classes),
        probabilities=None,
        calibrated=False,
        embedding=np.full(model.encoder.dim, np.nan, np.float32),
        attention=np.zeros((model.encoder.heads, 0), np.float32),
        seen=0,
        total=total,
        verdict=Verdict.EMPTY,
        fingerprint=fingerprint,
    )


def device_of(model: SlideModel) -> torch.device:
    """Where a model is; the CPU where it has no weights."""
    for module in (model.encoder, model.classifier):
        for weight in module.parameters() if module is not None else ():
            return weight.device
    return torch.device("cpu")
