"""A patch encoder: pixels in, vectors out."""

import copy
import hashlib
from importlib.metadata import version
from typing import Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from spt_core.errors import InputError
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.graph import Graph, GraphKeeper
from spt_core.patches.stain_step import StainStep
from spt_core.patches.vit_shape import CLS_AND_MEAN
from spt_core.weights_file import counts_batches

# The way of computing that every encoder knows.
TORCH = "torch"


class PatchEncoder(Protocol):
    """What the pipeline needs of an encoder."""

    card: EncoderCard
    sha256: str

    def to(self, device: torch.device) -> Self:
        """Move to a device and make ready to run there."""

    def way(self, patches: int) -> str:
        """How a slide of so many patches is best computed here.

        Two ways give the same features but for their last digits; one gives the same
        to the last bit, so a slide is encoded by one way as a whole.
        """

    def knows(self, way: str) -> bool:
        """Whether it can compute so, here and now."""

    def __call__(
        self,
        pixels: Tensor,
        size: int,
        stain: StainStep | None = None,
        way: str = TORCH,
    ) -> Tensor:
        """Encode uint8 pixels (b, h, w, 3) on the device, seen at ``size`` pixels.

        ``stain`` and ``way`` are those of the slide they are from; one encoder sees
        many slides.

        Returns
        -------
        (b, dim) float32, on the device
        """


class TorchEncoder:
    """Any torch module that takes (b, 3, s, s) and gives (b, dim) or a feature map.

    Batch norms are folded into the convolutions before them, and weights and pixels
    are kept channels last: on a CPU that nearly doubles a MobileNet's speed. There, a
    graph by ONNX Runtime is the better way where it gives the same and is quicker.
    """

    def __init__(self, module: nn.Module, card: EncoderCard) -> None:
        self.card = card
        self.sha256 = weights_hash(module, card)
        self.module = _made_fast(module.eval().requires_grad_(False), card)
        self._graphs: GraphKeeper | None = None
        std = torch.tensor(card.std).view(1, 3, 1, 1)
        self._scale = 1 / (255 * std)
        self._shift = -torch.tensor(card.mean).view(1, 3, 1, 1) / std

    def to(self, device: torch.device) -> Self:
        self.module = self.module.to(device)
        self._graphs = (
            GraphKeeper(self.module, self.card, self.sha256)
            if device.type == "cpu"
            else None
        )
        self._scale, self._shift = self._scale.to(device), self._shift.to(device)
        return self

    def way(self, patches: int) -> str:
        graph = None if self._graphs is None else self._graphs.for_slide(patches)
        return TORCH if graph is None else _way_by(graph)

    def knows(self, way: str) -> bool:
        return way == TORCH or self._graph(way) is not None

    def __call__(
        self,
        pixels: Tensor,
        size: int,
        stain: StainStep | None = None,
        way: str = TORCH,
    ) -> Tensor:
        seen = resized(pixels, self.card.seen_size(size))  # (b, 3, s, s)
        if self.card.resize_to:
            seen = middle(seen, self.card.input_size or self.card.resize_to)
        seen = seen.to(torch.float32, memory_format=torch.channels_last)
        if stain is not None:
            seen = stain(seen)
        seen = torch.addcmul(self._shift, seen, self._scale)
        out = (self._graph(way) or self.module)(seen)
        if out.ndim == 4:
            out = out.mean(dim=(2, 3))
        if out.shape != (len(pixels), self.card.dim):
            raise InputError(
                f"The encoder {self.card.name} gives {tuple(out.shape[1:])} numbers a "
                f"patch, and its card states {self.card.dim}: the file is damaged or "
                "made by hand."
            )
        return out.float()

    def _graph(self, way: str) -> Graph | None:
        graph = None if self._graphs is None else self._graphs.graph
        return graph if graph is not None and _way_by(graph) == way else None


def _way_by(graph: Graph) -> str:
    return f"onnxruntime {version('onnxruntime')} {graph.sha256[:16]}"


def resized(pixels: Tensor, size: int) -> Tensor:
    """Resample (b, h, w, 3) uint8 to (b, 3, size, size) as PIL's bilinear does."""
    planes = pixels.permute(0, 3, 1, 2)  # a view whose memory is channels last
    if planes.shape[2:] == (size, size):
        return planes
    home = planes.device
    if home.type == "mps":
        planes = planes.cpu()  # no antialiasing there
    elif home.type != "cpu":
        planes = planes.float()  # whole numbers are resampled on a CPU only
    planes = functional.interpolate(
        planes, (size, size), mode="bilinear", antialias=True
    )
    return planes.to(home)


def middle(planes: Tensor, size: int) -> Tensor:
    """The middle (b, 3, size, size) of larger pictures."""
    top, left = ((side - size) // 2 for side in planes.shape[2:])
    return planes[:, :, top : top + size, left : left + size]


def weights_hash(module: nn.Module, card: EncoderCard) -> str:
    """A hash of all that decides what the encoder gives for given pixels."""
    decides = ("dim", "input_size", "mean", "name", "std")
    facts = [(name, getattr(card, name)) for name in decides]
    # Stated only where it is not the one way: earlier files' hashes stay valid.
    if card.output == CLS_AND_MEAN:
        facts.append(("output", card.output))
    if card.resize_to:
        facts.append(("resize_to", card.resize_to))
    digest = hashlib.sha256(repr(facts).encode())
    for name, tensor in sorted(module.state_dict().items()):
        if counts_batches(name):
            continue
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _made_fast(module: nn.Module, card: EncoderCard) -> nn.Module:
    """Fold batch norms where that changes nothing, and keep weights channels last."""
    folded = copy.deepcopy(module)
    if _fold_batch_norms(folded):
        side = card.input_size or 96
        probe = torch.rand(
            (2, 3, side, side), generator=torch.Generator().manual_seed(0)
        )
        with torch.inference_mode():
            want, have = module(probe), folded(probe)
        if not torch.isfinite(want).all():
            raise InputError(
                f"The encoder {card.name} answers with NaN or infinity, so its weights "
                "are damaged: take them again from where they came."
            )
        # Children are not always called in the order in which they are listed.
        if not torch.allclose(want, have, rtol=1e-3, atol=1e-3 * float(want.std())):
            folded = module
    return folded.to(memory_format=torch.channels_last)


def _fold_batch_norms(module: nn.Module) -> int:
    count = 0
    before: tuple[str, nn.Module] | None = None
    for name, child in list(module.named_children()):
        if (
            before is not None
            and isinstance(child, nn.BatchNorm2d)
            and isinstance(before[1], nn.Conv2d)
            and before[1].out_channels == child.num_features
        ):
            setattr(module, before[0], fuse_conv_bn_eval(before[1], child))
            # timm's batch norms hold the activation that follows.
            follows = getattr(child, "act", None)
            setattr(module, name, follows if follows is not None else nn.Identity())
            count += 1
            before = None
            continue
        count += _fold_batch_norms(child)
        before = (name, child)
    return count
