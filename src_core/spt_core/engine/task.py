"""What an analysis needs, opened and checked before any work is done."""

from dataclasses import dataclass, replace
from pathlib import Path

from spt_core.engine.cache import Entry, entry_for
from spt_core.engine.failures import RequestError, title_of
from spt_core.engine.loaded import LoadedModels
from spt_core.engine.protocol import Analyse, Failed, FailureKind
from spt_core.errors import InputError
from spt_core.insight.growing import settings_for
from spt_core.learning.model_file import SlideModel
from spt_core.patches import EncodeSettings, PatchEncoder
from spt_core.slides import Slide, open_slide
from spt_core.slides.grid import PatchGrid, TooSmallError, lay_grid, patch_step
from spt_core.slides.recipe import RGB_RECIPE
from spt_core.slides.stain import NO_STAIN
from spt_core.slides.tissue import Tissue, find_tissue


@dataclass(frozen=True, eq=False)
class Task:
    """All that an analysis needs, opened and checked."""

    slide: Slide
    model: SlideModel | None
    encoder: PatchEncoder
    settings: EncodeSettings
    entry: Entry
    maps_classes: bool
    site: str | None = None

    def tissue(self) -> Tissue:
        """Where the tissue is, as it was kept or as it is found now."""
        tissue = self.entry.tissue()
        if tissue is None:
            tissue = find_tissue(self.slide)
            self.entry.keep_tissue(tissue)
        return tissue

    def grid(self, tissue: Tissue) -> PatchGrid:
        settings = self.settings
        try:
            grid = lay_grid(
                self.slide,
                tissue,
                patch_size=settings.patch_size or 1,
                target_mpp=settings.target_mpp or 1.0,
                min_tissue=settings.min_tissue,
            )
        except TooSmallError as error:
            failed = Failed(FailureKind.TOO_SMALL, tissue=tissue)
            raise RequestError(failed) from error
        if len(grid) == 0:
            raise RequestError(Failed(FailureKind.NO_TISSUE, tissue=tissue))
        return grid


def open_asked(request: Analyse) -> Slide:
    try:
        return open_slide(request.slide, request.slide_mpp, title=title_of(request))
    except InputError as error:
        raise RequestError(Failed(FailureKind.UNREADABLE, str(error))) from error


def task_of(request: Analyse, loaded: LoadedModels, slide: Slide) -> Task:
    settings = EncodeSettings(
        slide_mpp=request.slide_mpp,
        device=request.device or "auto",
        batch_size=request.batch_size,
        stain=request.stain or NO_STAIN,
        channels=request.channels,
    )
    model = None
    if request.model is not None:
        model = loaded.model(request.model, settings.device)
        try:
            settings = settings_for(model, settings)
        except InputError as error:
            raise RequestError(Failed(FailureKind.MODEL, str(error))) from error
        if request.encoder and request.encoder != settings.encoder:
            settings = replace(settings, weights=Path(request.encoder))
    elif request.encoder:
        settings = replace(settings, encoder=request.encoder)
    encoder = loaded.encoder(settings.encoder, settings.weights)
    patch_size, target_mpp = settings.patch(encoder.card)
    settings = replace(settings, patch_size=patch_size, target_mpp=target_mpp)
    if settings.channels is not None:
        mpp, title = request.slide_mpp, title_of(request)
        slide = open_slide(slide.path, mpp, channels=settings.channels, title=title)
    _refuse_unlike(model, encoder, slide)
    patch_step(slide, patch_size=patch_size, target_mpp=target_mpp)
    identity = {
        **settings.identity(encoder.card, encoder.sha256),
        "slide": slide.fingerprint,
        "slide_mpp": slide.mpp_xy,
    }
    if slide.recipe != RGB_RECIPE:
        identity["channels"] = slide.recipe
    entry = entry_for(request.features, identity)
    maps_classes = request.class_map and model is not None and bool(model.classes)
    return Task(slide, model, encoder, settings, entry, maps_classes, request.site)


def _refuse_unlike(
    model: SlideModel | None, encoder: PatchEncoder, slide: Slide
) -> None:
    """Say at once, not after the encoding, that model and encoder do not belong."""
    if model is None:
        return
    stated = model.card.tokens
    if stated.encoder_sha256 not in (None, encoder.sha256):
        raise RequestError(Failed(FailureKind.OTHER_ENCODER, encoder.card.name))
    if stated.channels not in (None, slide.recipe):
        raise InputError(
            f"The model sees slides as {stated.channels}, and {slide.title} is "
            f"{slide.recipe}. Choose a model that was trained on such slides."
        )
