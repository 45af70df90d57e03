"""Questions about an analysed slide: what if not here, does it look right, what is it.

All work on a feature file that an analysis has left.
"""

from contextlib import closing
from dataclasses import replace

import numpy as np

from spt_core.engine.desk import Desk
from spt_core.engine.messages import OTHER, Failure, Request, Say, Work
from spt_core.engine.telling import facts_of
from spt_core.engine.titles import given_title
from spt_core.insight.exploring import explore
from spt_core.insight.faithfulness import faithfulness, patches_within, what_if
from spt_core.insight.wording import faithfulness_sentence, what_if_sentence


def explore_slide(request: Request, desk: Desk) -> Work:
    """Kinds of tissue and outliers, without any model."""
    yield Say.step("reading the slide's features")
    tokens = desk.tokens(request["features"], None, given_title(request))
    yield Say.step("grouping the tissue")
    encoder = tokens.facts.encoder_sha256 or tokens.facts.encoder
    found = explore(tokens, known=desk.kinds.get(encoder))
    if len(found.kinds.centres):
        desk.kinds[encoder] = found.kinds
    count = len(found.kinds.colours)
    return Say(
        "done",
        {
            "names": [f"tissue kind {i + 1}" for i in range(count)],
            "colours": found.kinds.rgb.tolist(),
            "patch_l0": list(tokens.facts.l0_patch_xy or (1, 1)),
        },
        {
            "l0_xy": tokens.xy,
            "g_rc": tokens.g_rc,
            "cluster": found.labels,
            "outlier": found.outlier_score.astype(np.float32),
            "outliers": found.outliers,
        },
    )


def without_region(request: Request, desk: Desk) -> Work:
    """The prediction with and without the patches in some polygons."""
    yield Say.step("loading the model")
    model = desk.model(request["model"], request.get("device"))
    tokens = desk.tokens(request["features"], model, given_title(request))
    gone = np.zeros(len(tokens), bool)
    for polygon in request["region"]:
        l0_polygon = np.asarray(polygon, float).reshape(-1, 2)
        if len(l0_polygon) >= 3:
            gone |= patches_within(l0_polygon, tokens)
    if not gone.any():
        raise Failure(
            OTHER,
            "The drawn region holds no tissue that was looked at: draw it over some.",
        )
    if gone.all():
        raise Failure(
            OTHER,
            "The drawn region holds all of the tissue: nothing would be left to ask "
            "about. Draw a smaller one.",
        )
    yield Say.step("asking again without the region")
    found = what_if(model, tokens, gone)
    return Say(
        "done",
        {
            "before": facts_of(found.before),
            "after": facts_of(found.after),
            "classes": list(found.before.classes),
            "removed": found.removed,
            "sentence": what_if_sentence(found),
        },
        {"removed": gone},
    )


def faithfulness_of(request: Request, desk: Desk) -> Work:
    """Whether what the model attends to is what it decides by."""
    yield Say.step("loading the model")
    model = desk.model(request["model"], request.get("device"))
    tokens = desk.tokens(request["features"], model, given_title(request))
    work = faithfulness(model, tokens, class_name=request.get("class_name"))
    with closing(work):
        while True:
            try:
                event = replace(next(work), message="removing tissue bit by bit")
            except StopIteration as stop:
                found = stop.value
                break
            yield Say.progress(event)
    return Say(
        "done",
        {
            "class_name": found.class_name,
            "area": found.area,
            "sentence": faithfulness_sentence(found),
            "patches": found.patches,
            "thinned": found.thinned,
        },
        {
            "removed": found.removed,
            "most": found.most_first,
            "random": found.random,
            "least": found.least_first,
        },
    )
