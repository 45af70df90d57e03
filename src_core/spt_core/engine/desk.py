"""What the engine keeps at hand from one request to the next."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from spt_core import bundled
from spt_core.devices import choose_device
from spt_core.engine.messages import MODEL, OTHER, Failure
from spt_core.engine.titles import in_words
from spt_core.errors import InputError
from spt_core.insight.tissue_map import Kinds
from spt_core.learning.model_file import SlideModel, load_model
from spt_core.patches import PatchEncoder, load_encoder
from spt_core.tokens import Tokens, layout, read_tokens

Value = TypeVar("Value")


class Shelf(Generic[Value]):
    """The last few things that were made, by their keys."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._things: OrderedDict[Any, Value] = OrderedDict()

    def get(self, key: Any, make: Callable[[], Value]) -> Value:
        if key not in self._things:
            while len(self._things) >= self._room:
                self._things.popitem(last=False)
            self._things[key] = make()
        self._things.move_to_end(key)
        return self._things[key]

    def clear(self) -> None:
        self._things.clear()


class Desk:
    """Loaded models, encoders and tokens, and what kinds of tissue were called."""

    def __init__(self) -> None:
        self._models: Shelf[SlideModel] = Shelf(2)
        self._encoders: Shelf[PatchEncoder] = Shelf(1)
        self._tokens: Shelf[Tokens] = Shelf(1)
        # By encoder: slides of one session share the colours of their tissue.
        self.kinds: dict[str | None, Kinds] = {}

    def model(self, path: str, device: str | None = None) -> SlideModel:
        try:
            if path == bundled.SLIDE_MODEL:
                path = str(bundled.slide_model_path())
            where = choose_device(device or "auto")
            return self._models.get(
                (_version(path), str(where)), lambda: load_model(path, where)
            )
        except InputError as error:
            raise Failure(MODEL, str(error)) from error

    def encoder(self, name: str, weights: Path | None = None) -> PatchEncoder:
        try:
            key = (name, None if weights is None else _version(weights))
            return self._encoders.get(key, lambda: load_encoder(name, weights))
        except InputError as error:
            raise Failure(MODEL, str(error)) from error

    def tokens(
        self,
        path: str | Path,
        model: SlideModel | None = None,
        title: str | None = None,
    ) -> Tokens:
        """A feature file's tokens; fit for the model, where one is given.

        Sentences about it call it by the slide's title, where one is given.
        """
        # In the stored precision, by which a model knows its training slides.
        names = (path, Path(path).name.removesuffix(layout.ENDING))
        kind = OTHER
        try:
            tokens = self._tokens.get(
                _version(path), lambda: read_tokens(path, dtype=None)
            )
            kind = MODEL
            if model is not None:
                model.refuse_unlike(tokens.facts, tokens.dim)
        except InputError as error:
            raise Failure(kind, in_words(str(error), title, *names)) from error
        return tokens

    def tidy(self) -> None:
        """Let go of all that takes memory."""
        for shelf in (self._models, self._encoders, self._tokens):
            shelf.clear()


def _version(path: str | Path) -> tuple[str, int, int]:
    """A file as it is now."""
    try:
        state = Path(path).stat()
    except OSError:
        return str(path), 0, 0
    return str(path), state.st_mtime_ns, state.st_size
