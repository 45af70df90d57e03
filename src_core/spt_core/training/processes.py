"""Several processes, on one computer or many, that train one model.

``torchrun`` starts them and says so in the environment; without it there is one. The
heads and the loss run on the gathered embeddings in every process alike, so only
embeddings and gradients travel.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from spt_core.errors import InputError


class LostProcessError(InputError):
    """Another of the processes that train together is gone."""


@contextmanager
def together() -> Iterator[None]:
    """Around what needs all processes; gloo and NCCL have words of their own."""
    try:
        yield
    except RuntimeError as error:
        # Without the place in their source, and their advice.
        why = re.sub(r"^\[[^]]*\] *", "", str(error)).partition(". ")[0][:100]
        raise LostProcessError(
            "Another of the processes that train together was lost, so this one has "
            f"stopped too ({why}). What was done is kept: start all of them again with "
            "--resume."
        ) from error


@dataclass(frozen=True)
class Processes:
    """Who we are among those that train together."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def gather(self, part: Tensor, dim: int) -> Tensor:
        """All processes' parts, one after another along ``dim``; without gradient."""
        if self.world == 1:
            return part
        parts = [torch.empty_like(part) for _ in range(self.world)]
        with together():
            dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim=dim)

    def own_part(self, whole: Tensor, dim: int) -> Tensor:
        """The part of a gathered tensor that came from here."""
        return whole.chunk(self.world, dim=dim)[self.rank]

    def sum_gradients(self, encoder: nn.Module, objective: nn.Module) -> None:
        """Join gradients in place.

        Each process has its items' part of the encoder's gradient: those are added.
        All have the whole of the objective's: its mean keeps them exactly alike.
        """
        if self.world == 1:
            return
        added = [w.grad for w in encoder.parameters() if w.grad is not None]
        shared = [w.grad for w in objective.parameters() if w.grad is not None]
        torch._foreach_div_(shared, self.world)
        gradients = added + shared
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with together():
            dist.all_reduce(flat)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, total in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(total.view_as(gradient))

    def copy_from_first(self, *modules: nn.Module) -> None:
        """Give every process the first one's weights."""
        if self.world == 1:
            return
        for module in modules:
            for tensor in module.state_dict().values():
                with together():
                    dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            with together():
                dist.barrier()


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun started, if it did."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        # What names no GPU (a stream, a barrier) would otherwise use the first.
        torch.cuda.set_device(device)
    if world == 1:
        yield Processes()
        return
    if dist.is_initialized():  # by the caller, who also ends it
        yield Processes(dist.get_rank(), dist.get_world_size())
        return
    # The others wait while the first embeds whole slides; that may take hours.
    with _stdout_kept_clean():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            timeout=timedelta(days=2),
            device_id=device if device.type == "cuda" else None,
        )
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


@contextmanager
def _stdout_kept_clean() -> Iterator[None]:
    """Send what C++ prints (gloo tells of its peers) to standard error instead."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def own_device(device: torch.device) -> torch.device:
    """With several GPUs on a computer, each process's own."""
    if device.type != "cuda":
        return device
    on_this_computer = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device.index is not None:
        if on_this_computer > 1:
            raise InputError(
                f"{on_this_computer} processes cannot share {device}: use --device "
                "cuda, and each takes a GPU of its own."
            )
        return device
    gpus = torch.cuda.device_count()
    if on_this_computer > gpus:
        raise InputError(
            f"torchrun started {on_this_computer} processes on a computer with "
            f"{gpus} GPUs. Start as many as there are: --nproc-per-node {gpus}."
        )
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
