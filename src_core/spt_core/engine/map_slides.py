"""Work on a map of slides: from a folder of features to places."""

import hashlib
from contextlib import closing
from dataclasses import replace

from spt_core import bundled
from spt_core.engine.loaded import LoadedModels
from spt_core.engine.protocol import (
    MapSlides,
    SlidesEmbedded,
    SlidesMapped,
    Step,
    Work,
    Working,
)
from spt_core.insight.slide_map import MapOfSlides
from spt_core.studies.slide_mapping import map_slides
from spt_core.tokens import read_labels


def slides_mapped(request: MapSlides, loaded: LoadedModels) -> Work:
    """Places of all slides of a folder, by a model or by the mean of their patches."""
    model, model_hash = None, "mean"
    if request.model is not None:
        yield Working(Step.LOADING_MODEL)
        model = loaded.model(request.model, request.device)
        file = request.model
        if str(file) == bundled.SLIDE_MODEL:
            file = bundled.slide_model_path()
        model_hash = hashlib.sha256(file.read_bytes()).hexdigest()
    yield Working(Step.EMBEDDING_SLIDES)
    labels = read_labels(request.labels) if request.labels else None
    work = map_slides(
        request.features,
        model,
        model_hash=model_hash,
        kept=request.maps,
        labels=labels,
    )
    step = Step.EMBEDDING_SLIDES
    with closing(work):
        while True:
            try:
                reply = next(work)
            except StopIteration as stop:
                return SlidesMapped(stop.value)
            if isinstance(reply, MapOfSlides):
                step = Step.PLACING_SLIDES
                yield SlidesEmbedded(reply)
                yield Working(step)
            elif step is Step.EMBEDDING_SLIDES:
                yield Working(step, replace(reply, message=""))
            else:
                yield Working(step)
