"""Fetching an encoder's weights, when asked."""

import hashlib
import socket
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.known_entry import HUB
from spt_core.patches.listing import how_to_get
from spt_core.patches.store import encoders_folder
from spt_core.weights_file import read_weights

# Before the name of a model whose weights timm fetches.
TIMM = "timm:"
_CHUNK = 2**20


def fetch(
    card: EncoderCard, keep: Callable[[dict[str, Tensor], Path], Path]
) -> Generator[Progress, None, Path]:
    """Fetch an encoder's weights once, and hand them on to be checked and kept."""
    source = card.weights
    folder = encoders_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".fetching-") as temporary:
        if source.startswith(TIMM):
            import timm

            yield Progress(0, 1, message=f"fetching {card.name} by timm")
            path = Path(source.removeprefix(TIMM))
            model = timm.create_model(str(path), pretrained=True, num_classes=0)
            state = dict(model.state_dict())
        elif source.startswith(HUB):
            yield Progress(0, 1, message=f"fetching {card.name} from {card.page}")
            path = _from_hub(card, Path(temporary))
            state = read_weights(path)
        elif source.startswith("https://"):
            path = Path(temporary) / source.rsplit("/", 1)[-1]
            yield from _download(card.name, source, path)
            state = read_weights(path)
        else:
            raise InputError(
                f"{card.name} is not fetched from anywhere: {how_to_get(card)}."
            )
        kept = keep(state, path)
    yield Progress(1, 1, message=f"{card.name} is ready")
    return kept


def _from_hub(card: EncoderCard, folder: Path) -> Path:
    """Download one file of a repository, with the user's own token if there is one."""
    import huggingface_hub
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    # Offline it tells of each attempt; what is to be said is said once, below.
    huggingface_hub.utils.logging.set_verbosity_error()
    owner, repository, file = card.weights.removeprefix(HUB).split("/", 2)
    try:
        found = huggingface_hub.hf_hub_download(
            f"{owner}/{repository}", file, local_dir=folder
        )
    except (GatedRepoError, RepositoryNotFoundError) as error:
        raise InputError(
            f"{card.name} is not open to you yet: accept its terms at {card.page}, "
            "make a token in your account's settings there, and set HF_TOKEN to it "
            f"(or run 'hf auth login'). Then 'spt encoders get {card.name}' again."
        ) from error
    # Offline, a proxy, a full disk: each layer of the library has its own errors.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, LocalEntryNotFoundError):
            reason = "it cannot be reached from here"
        terms = ", where its terms are to be accepted," if card.gated else ""
        raise InputError(
            f"{card.name} cannot be fetched from {card.page} ({reason}). Fetch {file} "
            f"there{terms} on another computer, and 'spt encoders get {card.name} "
            f"--from {file}' here."
        ) from error
    return Path(found)


def _download(name: str, address: str, target: Path) -> Generator[Progress, None, None]:
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            total = int(answer.headers.get("Content-Length") or 0)
            with target.open("wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    yield Progress(file.tell(), total, message=address)
        # torchvision's file names end in the first digits of the hash.
        expected = address.rsplit("-", 1)[-1].removesuffix(".pth")
        if not digest.hexdigest().startswith(expected):
            raise InputError(f"What came from {address} is damaged: try again.")
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, socket.gaierror):
            reason = "it cannot be reached from here"
        raise InputError(
            f"{address} cannot be fetched ({reason}). Fetch it on another computer, "
            f"and 'spt encoders get {name} --from {target.name}' here."
        ) from error
