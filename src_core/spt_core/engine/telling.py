"""Predictions and class maps as messages."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from spt_core.engine.messages import Say
from spt_core.insight.class_map import class_map
from spt_core.insight.predicting import predict
from spt_core.insight.results import ClassMap, Prediction, Verdict
from spt_core.insight.wording import prediction_sentence, remark_sentence
from spt_core.learning.model_file import SlideModel
from spt_core.tokens import Tokens


def prediction_of(model: SlideModel | None, tokens: Tokens, total: int) -> Prediction:
    if model is not None:
        return predict(model, tokens, total=total)
    return Prediction(
        facts=tokens.facts,
        p=tokens.p,
        xy=tokens.xy,
        classes=(),
        probabilities=None,
        calibrated=False,
        embedding=np.zeros(0, np.float32),
        attention=np.zeros((0, len(tokens)), np.float32),
        seen=len(tokens),
        total=total,
        verdict=Verdict.NO_CLASSES if len(tokens) else Verdict.EMPTY,
    )


def facts_of(prediction: Prediction) -> dict[str, Any]:
    """A prediction without its arrays."""
    shares = prediction.probabilities
    verdict: str = prediction.verdict
    if verdict == Verdict.ANSWERED:
        verdict = "seen in training" if prediction.trained_on else "class"
    lead = prediction_sentence(replace(prediction, remarks=()))
    return {
        "seen": prediction.seen / max(prediction.total, 1),
        "patches": prediction.seen,
        "total": prediction.total,
        "classes": list(prediction.classes),
        "probabilities": None if shares is None else shares.tolist(),
        "calibrated": prediction.calibrated,
        "verdict": verdict,
        "answer": prediction.answer,
        "trained_on": prediction.trained_on,
        "sentences": [lead, *map(remark_sentence, prediction.remarks)],
        "patch_l0": list(prediction.facts.l0_patch_xy or (1, 1)),
    }


def said_of(prediction: Prediction) -> Say:
    """A prediction as a message."""
    return Say(
        "prediction",
        facts_of(prediction),
        {
            "l0_xy": prediction.xy,
            "g_rc": prediction.p + np.asarray(prediction.facts.g_origin, np.int64),
            "attention": prediction.attention,
        },
    )


def map_of(
    model: SlideModel | None, tokens: Tokens, meanwhile: Say | None = None
) -> Iterator[Say]:
    """The class map of tokens, with its progress, or saying ``meanwhile`` instead."""
    if model is None:
        return
    work = class_map(model, tokens)
    with closing(work):
        while True:
            try:
                event = replace(next(work), message="mapping the classes")
            except StopIteration as stop:
                found: ClassMap = stop.value
                break
            yield meanwhile or Say.progress(event)
    yield Say(
        "class_map",
        {"classes": list(found.classes), "calibrated": found.calibrated},
        {
            "l0_xy": tokens.xy,
            "g_rc": tokens.g_rc,
            "probabilities": found.probabilities,
            "unsure": found.unsure,
        },
    )
