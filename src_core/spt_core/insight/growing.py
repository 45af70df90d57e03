"""A prediction that grows while the slide is still being encoded.

A slide model learns from masked and cropped views, so a part of a slide is a fair
question to it; patches are encoded from coarse to fine, so any part is a fair sample.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.devices import choose_device
from spt_core.errors import InputError
from spt_core.insight.predicting import MARGIN, Patient, of_site, predict, read_for
from spt_core.insight.results import Prediction
from spt_core.learning.model_file import SlideModel
from spt_core.patches import (
    EncodeSettings,
    PartialTokens,
    PatchEncoder,
    SlideResult,
    SlideStarted,
    encode_slide,
)
from spt_core.patches.encoder_file import is_place
from spt_core.patches.job import NoTissueError
from spt_core.slides import Slide, open_slide, slide_name
from spt_core.slides.recipe import asked_recipe, to_ask_for
from spt_core.slides.stain import NO_STAIN
from spt_core.tokens import TokenFacts, Tokens

FIRST, FEWEST = 128, 16
# The first prediction comes after this share of a small slide's patches.
FIRST_SHARE = 0.0125
# Smaller than encoding alone would choose: the first tokens come sooner.
CPU_BATCH = 16
# Looking, between those moments, takes at most such a share of the time.
LOOKING_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Grown:
    """All tokens of a slide so far; ``total`` patches are expected."""

    tokens: Tokens
    total: int


def moments(total: int) -> Iterator[int]:
    """Token counts at which to look: doubling, the first early on small slides too."""
    count = max(FEWEST, min(FIRST, round(total * FIRST_SHARE)))
    while count < total:
        yield count
        count *= 2


def settings_for(
    model: SlideModel, settings: EncodeSettings | None = None
) -> EncodeSettings:
    """How slides must be encoded for a model."""
    stated = model.card.tokens
    if not stated.encoder:
        raise InputError(
            "The model's card names no patch encoder: encode the slide yourself and "
            "give its features."
        )
    if is_place(stated.encoder):
        raise InputError(
            f"The model's card gives a place ({stated.encoder}) as the name of its "
            "patch encoder, and no file is opened that another one names. Encode the "
            "slide yourself and give its features."
        )
    return replace(
        settings or EncodeSettings(),
        encoder=stated.encoder,
        patch_size=stated.patch_size,
        target_mpp=stated.mpp,
        stain=stated.stain or NO_STAIN,
        channels=_channels_for(stated.channels, settings),
    )


def _channels_for(stated: str | None, settings: EncodeSettings | None) -> str | None:
    given = asked_recipe(settings.channels) if settings else None
    if stated is None:
        return given
    if given is not None and given != stated:
        raise InputError(
            f"The model takes the channels {stated}, not {given}: leave the choice to "
            "it, or choose another model."
        )
    return to_ask_for(stated)


def predict_slide(
    model: SlideModel,
    path: str | Path,
    features: str | Path,
    settings: EncodeSettings | None = None,
    *,
    encoder: PatchEncoder | None = None,
    l0_from: tuple[float, float] | None = None,
    margin: float = MARGIN,
    patient: Patient | None = None,
    site: str | None = None,
) -> Generator[Any, None, Prediction]:
    """Encode a slide and predict all the while.

    Yields the events of encoding, with a ``Prediction`` at 128, 256, 512 ... patches
    (sooner on a small slide) in place of the tokens. Closing the generator keeps what
    is encoded; the same call goes on from there.

    Parameters
    ----------
    features
        The folder that keeps the slide's features.
    site
        Where the slide is from, for models whose tokens are standardised per site.

    Returns
    -------
    The prediction of the whole slide, as ``predict`` gives it from the feature file.
    """
    settings = settings_for(model, settings)
    ask = {"margin": margin, "patient": patient}
    events = grow_tokens(path, features, settings, encoder=encoder, l0_from=l0_from)
    try:
        with closing(events):
            while True:
                try:
                    event = next(events)
                except StopIteration as stop:
                    result = stop.value
                    break
                if isinstance(event, Grown):
                    tokens, total = of_site(event.tokens, site), event.total
                    yield predict(model, tokens, total=total, **ask)  # type: ignore[arg-type]
                else:
                    yield event
    except NoTissueError:
        return predict(model, no_tokens(model, path))
    tokens = read_for(model, result.path, site=site)
    return predict(model, tokens, **ask)  # type: ignore[arg-type]


def grow_tokens(
    slide: str | Path | Slide,
    features: str | Path,
    settings: EncodeSettings,
    *,
    every: float | None = None,
    **options: Any,
) -> Generator[Any, None, SlideResult]:
    """Encode a slide, and hand over all its tokens so far from time to time.

    Yields the events of ``encode_slide``, to which ``options`` go, with ``Grown`` in
    place of the tokens: at 128, 256, 512 ... of them (sooner on a small slide).

    Parameters
    ----------
    every
        Seconds after which to look in between, too, if looking took less than a tenth
        of the time since.
    """
    if settings.batch_size is None and choose_device(settings.device).type == "cpu":
        settings = replace(settings, batch_size=CPU_BATCH)
    parts: list[Tokens] = []
    seen, total = 0, 0
    left: Iterator[int] = iter(())
    next_look: int | None = None
    looked = time.perf_counter()
    pause = every
    events = encode_slide(slide, features, settings, **options)
    with closing(events):
        while True:
            try:
                event = next(events)
            except StopIteration as stop:
                return stop.value
            if isinstance(event, SlideStarted):
                total = event.total
                left = moments(total)
                # What an earlier run left comes by itself, and not evenly: all of it
                # is the first thing to look at.
                next_look = event.done or next(left, None)
            if not isinstance(event, PartialTokens):
                yield event
                continue
            parts.append(event.tokens)
            seen += len(event.tokens)
            if seen >= total:
                continue
            began = time.perf_counter()
            is_due = next_look is not None and seen >= next_look
            if is_due or (pause is not None and began - looked > pause):
                parts = [joined(parts)]
                yield Grown(parts[0], total)
                looked = time.perf_counter()
                if every is not None:
                    pause = max(every, (looked - began) / LOOKING_SHARE)
                while next_look is not None and next_look <= seen:
                    next_look = next(left, None)


def joined(parts: list[Tokens]) -> Tokens:
    """Tokens of one slide that came in several parts."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        x=np.concatenate([part.x for part in parts]),
        p=np.concatenate([part.p for part in parts]),
        xy=np.concatenate([part.xy for part in parts]),
    )


def no_tokens(model: SlideModel, path: str | Path) -> Tokens:
    """The tokens of an empty slide."""
    nothing = np.zeros((0, 2), np.int64)
    dim = model.card.tokens.dim
    slide = open_slide(path)
    facts = TokenFacts(name=slide_name(path), slide_fingerprint=slide.fingerprint)
    return Tokens(np.zeros((0, dim), np.float32), nothing, nothing, facts)
