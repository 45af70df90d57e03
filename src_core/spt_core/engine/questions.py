"""Questions about an analysed slide: what if not here, does it look right, what is it.

All work on a feature file that an analysis has left.
"""

from contextlib import closing
from dataclasses import replace

import numpy as np

from spt_core.engine.failures import RequestError, title_of
from spt_core.engine.loaded import LoadedModels
from spt_core.engine.protocol import (
    AskWithout,
    CheckFaithfulness,
    Failed,
    FailureKind,
    FaithfulnessChecked,
    MapTissue,
    Step,
    TissueMapped,
    WithoutAnswered,
    Work,
    Working,
)
from spt_core.insight.codebook import (
    codebook_file,
    read_codebook,
    together,
    write_codebook,
)
from spt_core.insight.exploring import explore
from spt_core.insight.faithfulness import faithfulness, patches_within, what_if


def map_tissue(request: MapTissue, loaded: LoadedModels) -> Work:
    """Kinds of tissue and outliers, without any model."""
    yield Working(Step.READING_FEATURES)
    tokens = loaded.tokens(request.features, title_of(request))
    yield Working(Step.GROUPING_TISSUE)
    if request.codebooks is None:
        encoder = tokens.facts.encoder_sha256 or tokens.facts.encoder
        known = loaded.kinds.get(encoder)
        found = explore(tokens, known=known)
        loaded.kinds[encoder] = together(known, found.kinds)
        return TissueMapped(found)
    file = codebook_file(request.codebooks, tokens.facts)
    known = read_codebook(file)
    found = explore(tokens, known=known)
    if len(found.kinds):
        write_codebook(file, together(known, found.kinds))
    return TissueMapped(found)


def ask_without(request: AskWithout, loaded: LoadedModels) -> Work:
    """The prediction with and without the patches in some polygons."""
    yield Working(Step.LOADING_MODEL)
    model = loaded.model(request.model, request.device)
    tokens = loaded.tokens(request.features, title_of(request), model, request.site)
    removed = np.zeros(len(tokens), bool)
    for l0_polygon in request.l0_polygons:
        if len(l0_polygon) >= 3:
            removed |= patches_within(l0_polygon, tokens)
    if not removed.any():
        raise RequestError(Failed(FailureKind.NOTHING_DRAWN))
    if removed.all():
        raise RequestError(Failed(FailureKind.ALL_DRAWN))
    yield Working(Step.ASKING_WITHOUT)
    return WithoutAnswered(what_if(model, tokens, removed), removed)


def check_faithfulness(request: CheckFaithfulness, loaded: LoadedModels) -> Work:
    """Whether what the model attends to is what it decides by."""
    yield Working(Step.LOADING_MODEL)
    model = loaded.model(request.model, request.device)
    tokens = loaded.tokens(request.features, title_of(request), model, request.site)
    work = faithfulness(model, tokens, class_name=request.class_name)
    with closing(work):
        while True:
            try:
                progress = replace(next(work), message="")
            except StopIteration as stop:
                return FaithfulnessChecked(stop.value)
            yield Working(Step.REMOVING, progress)
