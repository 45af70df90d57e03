"""What an analysis needs, opened and checked before any work is done."""

from dataclasses import dataclass, replace
from pathlib import Path

from spt_core.engine import failures
from spt_core.engine.cache import Entry, entry_for
from spt_core.engine.desk import Desk
from spt_core.engine.messages import MODEL, UNREADABLE, Failure, Request
from spt_core.engine.titles import given_title, in_words
from spt_core.errors import InputError
from spt_core.insight.growing import settings_for
from spt_core.learning.model_file import SlideModel
from spt_core.patches import EncodeSettings, PatchEncoder
from spt_core.slides import Slide, open_slide
from spt_core.slides.grid import MissingPixelSizeError, patch_step
from spt_core.slides.stain import NO_STAIN


@dataclass(frozen=True, eq=False)
class Task:
    """All that an analysis needs, opened and checked."""

    slide: Slide
    title: str
    model: SlideModel | None
    encoder: PatchEncoder
    settings: EncodeSettings
    entry: Entry
    wants_map: bool

    @property
    def maps_classes(self) -> bool:
        return self.wants_map and self.model is not None and bool(self.model.classes)

    def in_words(self, text: str) -> str:
        """A sentence of the core, which knows the slide by its key alone."""
        return in_words(text, self.title, self.entry.key, self.slide.path)


def open_asked(request: Request) -> Slide:
    mpp = request.get("slide_mpp")
    try:
        return open_slide(request["slide"], None if mpp is None else float(mpp))
    except InputError as error:
        path = Path(request["slide"]).expanduser().absolute()
        sentence = in_words(str(error), given_title(request), path, request["slide"])
        raise Failure(UNREADABLE, sentence) from error


def task_of(request: Request, desk: Desk, slide: Slide) -> Task:
    device = request.get("device") or "auto"
    settings = EncodeSettings(
        slide_mpp=request.get("slide_mpp"),
        device=device,
        batch_size=request.get("batch_size"),
        stain=request.get("stain") or NO_STAIN,
    )
    title = given_title(request) or slide.path.name
    asked = request.get("encoder")
    model = None
    if request.get("model"):
        model = desk.model(request["model"], device)
        try:
            settings = settings_for(model, settings)
        except InputError as error:
            raise Failure(MODEL, str(error)) from error
        if asked and asked != settings.encoder:
            settings = replace(settings, weights=Path(asked))
    elif asked:
        settings = replace(settings, encoder=str(asked))
    encoder = desk.encoder(settings.encoder, settings.weights)
    patch_size, target_mpp = settings.patch(encoder.card)
    settings = replace(settings, patch_size=patch_size, target_mpp=target_mpp)
    _refuse_unlike(model, encoder)
    try:
        patch_step(slide, patch_size=patch_size, target_mpp=target_mpp)
    except MissingPixelSizeError:
        raise failures.no_pixel_size(title) from None
    except InputError:
        raise failures.too_coarse(title, slide.mpp or 0.0, target_mpp) from None
    identity = {
        **settings.identity(encoder.card, encoder.sha256),
        "slide": slide.fingerprint,
        "slide_mpp": slide.mpp_xy,
    }
    folder = Path(request["features"])
    entry = entry_for(folder, identity)
    wants_map = bool(request.get("class_map", True))
    return Task(slide, title, model, encoder, settings, entry, wants_map)


def _refuse_unlike(model: SlideModel | None, encoder: PatchEncoder) -> None:
    """Say at once, not after the encoding, that model and encoder do not belong."""
    stated = None if model is None else model.card.tokens.encoder_sha256
    if stated is not None and stated != encoder.sha256:
        raise Failure(
            MODEL,
            f"This model learned with another version of {encoder.card.name} than the "
            "one on this computer. Give the one that it came with under Advanced.",
        )
