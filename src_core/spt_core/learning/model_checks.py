"""Whether a model file is what its card says, before anything is built of it."""

from collections.abc import Mapping
from inspect import signature
from pathlib import Path

import torch
from torch import Tensor

from spt_core.errors import InputError
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.model_card import Architecture, ModelCard
from spt_core.learning.standardising import SITE_MEAN, SITE_STD
from spt_core.learning.statistics import EMBEDDING, MEAN_TOKEN, QUANTILES
from spt_core.weights_file import counts_batches

Shapes = Mapping[str, tuple[int, ...]]

# No option of an encoder is larger, whatever the file holds.
_LARGEST_OPTION = 2**20


def check_architecture(
    path: Path, kind: type[Aggregator], architecture: Architecture, shapes: Shapes
) -> None:
    """Refuse options that do not go with the tensors; takes neither time nor memory.

    Parameters
    ----------
    shapes
        Of the encoder's tensors, as the file states them.
    """
    # No layer is wider than the widest tensor, and each has a tensor at least.
    widest = max((n for shape in shapes.values() for n in shape), default=0)
    most = min(_LARGEST_OPTION, max(widest, len(shapes), 1024))
    if not shapes:  # pooling has no weights, whatever its tokens' length
        most = _LARGEST_OPTION
    known = signature(kind).parameters
    if "heads" in known and "heads" not in architecture.options:  # no shape shows them
        raise InputError(f"{path.name}: the architecture's heads are not stated.")
    for name, value in architecture.options.items():
        if name not in known:
            raise InputError(
                f"{path.name} cannot be built: {architecture.name} has no option "
                f"{name}."
            )
        least = 1 if name == "heads" else 0
        if known[name].annotation is int and not isinstance(value, int):
            raise InputError(
                f"{path.name}: the architecture's {name} is {value:.6g}, which must be "
                "a whole number. The file is damaged or made by hand."
            )
        if not least <= value <= most:
            raise InputError(
                f"{path.name}: the architecture's {name} is {value:.6g}, which does "
                "not go with its weights. The file is damaged or made by hand."
            )
    if len(shapes) and architecture.options.get("depth", 0) > len(shapes):
        raise InputError(
            f"{path.name}: its card states {architecture.options['depth']:.6g} layers, "
            f"but it holds {len(shapes)} tensors."
        )
    with torch.device("meta"):
        encoder = _built(path, kind, architecture)
    refuse_other_shapes(
        path, {k: tuple(v.shape) for k, v in encoder.state_dict().items()}, shapes
    )


def _built(
    path: Path, kind: type[Aggregator], architecture: Architecture
) -> Aggregator:
    try:
        return kind(**architecture.options)
    # What sizes that do not go together raise depends on where they meet.
    except Exception as error:
        raise InputError(f"{path.name} cannot be built: {error}.") from error


def refuse_other_shapes(path: Path, wanted: Shapes, found: Shapes) -> None:
    """Refuse tensors that are missing, unknown or of other shapes; it names some."""
    for what, names in (
        ("lacks", wanted.keys() - found.keys()),
        ("holds what its card does not state:", found.keys() - wanted.keys()),
        (
            "has other shapes for",
            {n for n in wanted.keys() & found.keys() if wanted[n] != found[n]},
        ),
    ):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise InputError(
                f"{path.name} does not fit its own card: it {what} "
                f"{', '.join(sorted(names)[:3])}{more}."
            )


def check_statistics(path: Path, card: ModelCard, dim: int, shapes: Shapes) -> None:
    """Refuse statistics of tokens or embeddings of another length."""
    wanted: dict[str, tuple[int, ...]] = {}
    for name in ("token_mean", "token_std"):
        if name in shapes:
            wanted[name] = (card.tokens.dim,)
    for name in (SITE_MEAN, SITE_STD):
        if card.standardising.sites:
            wanted[name] = (len(card.standardising.sites), card.tokens.dim)
    for which, length in ((MEAN_TOKEN, card.tokens.dim), (EMBEDDING, dim)):
        if not any(name.startswith(f"{which}_") for name in shapes):
            continue
        axes = shapes.get(f"{which}_axes", ())
        count = axes[0] if axes else 0
        wanted |= {
            f"{which}_centre": (length,),
            f"{which}_axes": (count, length),
            f"{which}_variances": (count,),
            f"{which}_rest": (),
            f"{which}_quantiles": (len(QUANTILES),),
        }
    refuse_other_shapes(path, wanted, shapes)


def check_numbers(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that are no numbers: of them comes no answer."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not counts_batches(name):
            raise InputError(
                f"{path.name}: its weights {name} are no floating-point numbers. The "
                "file is damaged or made by hand: take it again from where it came."
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise InputError(
                f"{path.name}: its weights {name} hold NaN or infinity. The file is "
                "damaged: take it again from where it came."
            )


def check_spreads(path: Path, statistics: Mapping[str, Tensor]) -> None:
    """Refuse spreads below zero: they turn tokens round, or make all slides alike."""
    for name, values in statistics.items():
        divides = name.endswith(("_variances", "_rest"))
        if not divides and not name.endswith(("_std", "_quantiles")):
            continue
        if (values <= 0 if divides else values < 0).any():
            raise InputError(
                f"{path.name}: its {name} are below what any can be. The file is "
                "damaged: take it again from where it came."
            )
