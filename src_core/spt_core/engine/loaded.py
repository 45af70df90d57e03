"""What the engine has loaded, kept from one request to the next."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from spt_core import bundled
from spt_core.devices import choose_device
from spt_core.engine.failures import RequestError
from spt_core.engine.protocol import Failed, FailureKind
from spt_core.errors import InputError
from spt_core.insight.predicting import of_site
from spt_core.insight.tissue_map import Kinds
from spt_core.learning.model_file import SlideModel, load_model
from spt_core.patches import PatchEncoder, load_encoder
from spt_core.tokens import Tokens, read_tokens

Value = TypeVar("Value")


class RecentlyUsed(Generic[Value]):
    """The few values that were used last, by their keys."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, load: Callable[[], Value]) -> Value:
        if key not in self._values:
            # Before the next is loaded: there may be no room for both.
            while len(self._values) >= self._size:
                self._values.popitem(last=False)
            self._values[key] = load()
        self._values.move_to_end(key)
        return self._values[key]

    def clear(self) -> None:
        self._values.clear()


class LoadedModels:
    """Models, encoders and tokens; a file that has changed is loaded again.

    Attributes
    ----------
    kinds
        Kinds of tissue by encoder: the slides of one session share their colours.
    """

    def __init__(self) -> None:
        self._models: RecentlyUsed[SlideModel] = RecentlyUsed(2)
        self._encoders: RecentlyUsed[PatchEncoder] = RecentlyUsed(1)
        self._tokens: RecentlyUsed[Tokens] = RecentlyUsed(1)
        self.kinds: dict[str | None, Kinds] = {}

    def model(self, path: Path, device: str | None = None) -> SlideModel:
        try:
            if str(path) == bundled.SLIDE_MODEL:
                path = bundled.slide_model_path()
            where = choose_device(device or "auto")
            return self._models.get(
                (_version(path), str(where)), lambda: load_model(path, where)
            )
        except InputError as error:
            raise RequestError(Failed(FailureKind.MODEL, str(error))) from error

    def encoder(self, name: str, weights: Path | None = None) -> PatchEncoder:
        try:
            key = (name, None if weights is None else _version(weights))
            return self._encoders.get(key, lambda: load_encoder(name, weights))
        except InputError as error:
            raise RequestError(Failed(FailureKind.MODEL, str(error))) from error

    def tokens(
        self,
        path: Path,
        title: str,
        model: SlideModel | None = None,
        site: str | None = None,
    ) -> Tokens:
        """A feature file's tokens, of a slide of a site; fit for the model, if any."""
        kind = FailureKind.FEATURES
        try:
            # In the stored precision, by which a model knows its training slides.
            tokens = self._tokens.get(
                _version(path), lambda: read_tokens(path, dtype=None, title=title)
            )
            kind = FailureKind.MODEL
            if model is not None:
                model.refuse_unlike(replace(tokens.facts, name=title), tokens.dim)
        except InputError as error:
            raise RequestError(Failed(kind, str(error))) from error
        return of_site(tokens, site)

    def clear(self) -> None:
        """Let go of all that takes memory."""
        for kept in (self._models, self._encoders, self._tokens):
            kept.clear()


def _version(path: Path) -> tuple[str, int, int]:
    """A file as it is now."""
    try:
        state = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), state.st_mtime_ns, state.st_size
