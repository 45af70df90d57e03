"""Files of weights as others publish them: read without running anything in them."""

import argparse
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from spt_core.card_file import ENDING
from spt_core.errors import InputError
from spt_core.files import refuse_no_file

# Under which training programs keep the weights in their checkpoints; DINO keeps the
# student's beside the teacher's, which are the better ones.
_INSIDE = ("teacher", "state_dict", "model")
# How an encoder's weights begin inside what was trained, and what else is there that
# serves training alone: heads, losses, the scores' counts.
_WRAPPINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("module.backbone.", ("module.head.",)),
    ("backbone.", ("head.", "dino_head.", "ibot_head.")),
    ("model.bb.", ("model.proj.", "criterion.", "train_loss.", "val_loss.")),
    ("model.backbone.", ("model.proj.", "criterion.", "train_loss.", "val_loss.")),
    ("module.", ()),
)
_UNKNOWN_CLASS = re.compile(r"(?:GLOBAL|Unsupported class:?) ([\w.]+)")
_LISTED = 8


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights in a ``.safetensors`` or a checkpoint of torch, by their names.

    Raises
    ------
    InputError
        Where there is no such file, it is damaged, holds no weights, or is a pickle
        that holds more than plain data.
    """
    refuse_no_file(path)
    try:
        if path.suffix == ENDING:
            return load_file(path)
        # DINO keeps the options of its command beside the weights: plain data.
        with torch.serialization.safe_globals([argparse.Namespace]):
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except pickle.UnpicklingError as error:
        # What else torch says is of how to run what is in the file.
        wanted = _UNKNOWN_CLASS.search(str(error))
        if wanted is None:
            raise InputError(
                f"{path} cannot be read as weights: it is damaged, or no file of "
                "weights. Take it again from where it came."
            ) from error
        raise InputError(
            f"{path} cannot be read as weights: a pickle is read only where it holds "
            f"weights and plain data, and this one asks for {wanted[1]}. "
            "Ask for a .safetensors file of them."
        ) from error
    # Each library has its own errors for a damaged file.
    except Exception as error:
        # torch explains at length what may have happened.
        reason = str(error).splitlines()[0].partition(". ")[0] if str(error) else ""
        reason = reason or type(error).__name__
        raise InputError(
            f"{path} cannot be read as weights: it is damaged, or no file of weights "
            f"({reason}). Take it again from where it came."
        ) from error
    for key in _INSIDE:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor)
        for name, value in state.items()
    ):
        raise InputError(f"{path} holds no weights (a table of names and tensors).")
    return state


def unwrapped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by the encoder's own names, without what surrounded it in training."""
    for prefix, others in _WRAPPINGS:
        if any(name.startswith(prefix) for name in state):
            return {
                name.removeprefix(prefix): tensor
                for name, tensor in state.items()
                if not name.startswith(others)
            }
    return dict(state)


def counts_batches(name: str) -> bool:
    """Whether a tensor counts training's batches: files leave such tensors out."""
    return name.endswith("num_batches_tracked")


def fill(
    module: nn.Module,
    given: Mapping[str, Tensor],
    path: Path,
    *,
    what: str = "this encoder",
) -> None:
    """Put weights into a module; anything missing, left over or NaN is an error.

    Parameters
    ----------
    what
        What the module is, for the sentence.
    """
    refuse_misfit(module, given, path, what=what)
    wanted = module.state_dict()
    fitting = {
        name: given[name].to(wanted[name].dtype)
        for name in wanted.keys() & given.keys()
    }
    refuse_no_numbers(fitting, path)
    module.load_state_dict({**wanted, **fitting})


def refuse_no_numbers(given: Mapping[str, Tensor], path: Path) -> None:
    """Raise InputError where a weight is NaN or infinite."""
    for name, tensor in given.items():
        # The smallest kinds of numbers know no such question.
        if tensor.is_floating_point() and not torch.isfinite(tensor.float()).all():
            raise InputError(
                f"{path}: its weights {name} hold NaN or infinity. The file is "
                "damaged: take it again from where it came."
            )


def refuse_misfit(
    module: nn.Module,
    given: Mapping[str, Tensor],
    path: Path,
    *,
    what: str = "this encoder",
) -> None:
    """Raise InputError, with the keys, where weights are not exactly a module's.

    The module may be on the meta device: only names, shapes and kinds are compared.
    """
    wanted = module.state_dict()
    # Counters used in training; files leave them out, and nothing depends on them.
    missing = {n for n in wanted.keys() - given.keys() if not counts_batches(n)}
    unknown = {n for n in given.keys() - wanted.keys() if not counts_batches(n)}
    shapes = {
        f"{name} {_shape(given[name])} instead of {_shape(wanted[name])}"
        for name in wanted.keys() & given.keys()
        if given[name].shape != wanted[name].shape
    }
    # Weights that were rounded to whole numbers, or lost a part, are not the same.
    kinds = {
        f"{name} ({str(given[name].dtype).removeprefix('torch.')})"
        for name in wanted.keys() & given.keys()
        if given[name].is_complex()
        or given[name].is_floating_point() != wanted[name].is_floating_point()
    }
    wrong = [
        f"it {how} {_listed(names)}"
        for how, names in (
            ("has other shapes for", shapes),
            ("has numbers of another kind for", kinds),
            ("lacks", missing),
            ("holds, beside them,", unknown),
        )
        if names
    ]
    if wrong:
        raise InputError(f"{path} is not for {what}: {'; '.join(wrong)}.")


def _shape(tensor: Tensor) -> str:
    return "×".join(str(n) for n in tensor.shape) or "a number"


def _listed(names: set[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(sorted(names)[:_LISTED]) + more
