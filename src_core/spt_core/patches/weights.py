"""Encoders' weights: where they are kept, reading them, fetching them when asked."""

import hashlib
import os
import urllib.request
from collections.abc import Generator, Mapping
from pathlib import Path

import torch
from platformdirs import user_cache_dir
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from spt_core.card_file import ENDING
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.files import written_whole

# Before the name of a model whose weights timm fetches.
TIMM = "timm:"
_CHUNK = 2**20


def encoders_folder() -> Path:
    """Where fetched weights are kept; the environment may name another folder."""
    cache = os.environ.get("NAPARI_SPT_CACHE") or user_cache_dir("napari-spt", False)
    return Path(cache) / "encoders"


def stored_file(name: str) -> Path:
    return encoders_folder() / f"{name.replace('/', '_')}{ENDING}"


def read(path: Path) -> dict[str, Tensor]:
    """Read weights; nothing in the file is executed."""
    try:
        if path.suffix == ENDING:
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    # Each library has its own errors for a damaged file.
    except Exception as error:
        raise InputError(f"{path} cannot be read as weights: {error}") from error
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(value, Tensor) for value in state.values()
    ):
        raise InputError(f"{path} holds no weights (a table of names and tensors).")
    return state


def counts_batches(name: str) -> bool:
    """Whether a tensor counts training's batches: files leave such tensors out."""
    return name.endswith("num_batches_tracked")


def fill(
    module: nn.Module,
    state: Mapping[str, Tensor],
    path: Path,
    *,
    leave_out: tuple[str, ...] = (),
) -> None:
    """Put weights into a module; anything missing or left over is an error."""
    wanted = module.state_dict()
    given = {
        name.removeprefix("module."): tensor
        for name, tensor in state.items()
        if not name.removeprefix("module.").startswith(leave_out)
        or name.removeprefix("module.") in wanted
    }
    # Counters used in training; files leave them out, and nothing depends on them.
    missing = [
        name for name in wanted if name not in given and not counts_batches(name)
    ]
    unknown = [name for name in given if name not in wanted]
    shapes = [
        name
        for name in given
        if name in wanted and given[name].shape != wanted[name].shape
    ]
    for what, names in (
        ("lacks", missing),
        ("holds what the encoder has not:", unknown),
        ("has other shapes for", shapes),
    ):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise InputError(
                f"{path} is not for this encoder: it {what} "
                f"{', '.join(sorted(names)[:3])}{more}."
            )
    module.load_state_dict({**wanted, **given})


def fetch(name: str, source: str) -> Generator[Progress, None, Path]:
    """Fetch weights once, check them, and keep them as safetensors."""
    target = stored_file(name)
    if source.startswith(TIMM):
        import timm

        yield Progress(0, 1, message=f"fetching {name} by timm")
        model = timm.create_model(
            source.removeprefix(TIMM), pretrained=True, num_classes=0
        )
        state = model.state_dict()
    elif source.startswith("https://"):
        state = yield from _download(source, target)
    else:
        raise InputError(
            f"{name} is not fetched from anywhere: give its weights with "
            "--encoder-weights FILE."
        )
    with written_whole(target) as temporary:
        save_file({k: v.contiguous() for k, v in state.items()}, temporary)
    yield Progress(1, 1, message=f"{name} is ready")
    return target


def _download(
    address: str, target: Path
) -> Generator[Progress, None, dict[str, Tensor]]:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".download.pth")
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            total = int(answer.headers.get("Content-Length") or 0)
            with temporary.open("wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    yield Progress(file.tell(), total, message=address)
        # torchvision's file names end in the first digits of the hash.
        expected = address.rsplit("-", 1)[-1].removesuffix(".pth")
        if not digest.hexdigest().startswith(expected):
            raise InputError(f"What came from {address} is damaged: try again.")
        return read(temporary)
    except OSError as error:
        raise InputError(
            f"{address} cannot be fetched ({error}). Fetch it on another computer and "
            "give it with --encoder-weights FILE."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
