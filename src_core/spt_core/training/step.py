"""One training step: the exact gradient of the whole batch, on any memory.

The loss needs every embedding of the batch at once, the encoder does not. So:

1. embed all views; if their graphs do not fit in memory, without them, bit by bit
2. gather the embeddings of all processes; heads and loss on all of them
3. the gradient with respect to the embeddings goes back through the encoder; where
   there was no graph, each bit is embedded once more, with one

The result is the one-pass gradient, batch statistics of the heads included, because
no layer of the encoder mixes items. One whose batch norms do has a step of its own,
:mod:`mixing_step`. An encoder with dropout gets one view at a time, and draws by the
seed, the step and the view alone: the same in both passes, in any number of processes,
in a run that is resumed.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from spt_core.devices import (
    autocast,
    free_memory,
    is_out_of_memory,
    with_back_off,
    working_bytes,
)
from spt_core.training.batch import ViewBatch, ViewChunk
from spt_core.training.encoder import Encoder
from spt_core.training.objectives import Objective
from spt_core.training.processes import Processes


class ExactStep:
    """Computes gradients; steps of the optimiser are the caller's.

    Parameters
    ----------
    graph_floats
        Estimates how many numbers the graphs of a batch's views hold, so that memory
        that they would not fit in is not asked for. Without it they are tried.
    micro_batch
        Views in one pass through the encoder. If not given, all graphs are kept when
        they fit in memory; else as many views go through at once as do fit.
    """

    def __init__(
        self,
        encoder: Encoder,
        objective: Objective,
        *,
        device: torch.device,
        processes: Processes,
        graph_floats: Callable[[ViewBatch], float] | None = None,
        micro_batch: int | None = None,
        mixed: bool = True,
    ) -> None:
        self.encoder, self.objective = encoder, objective
        self.device, self.processes, self.mixed = device, processes, mixed
        self.graph_floats = graph_floats
        self.size = micro_batch or 2**31
        self.keep_graphs = micro_batch is None
        self.trains = any(weight.requires_grad for weight in encoder.parameters())
        self.budget = working_bytes(device)
        self.remarks: list[str] = []  # to be reported, and then taken away

    def __call__(
        self,
        batch: ViewBatch,
        labels: Tensor | None = None,
        scale: Tensor | float = 1.0,
    ) -> dict[str, Tensor]:
        """Set all parameters' gradients; give the loss and its parts.

        Parameters
        ----------
        labels : (batch, ...) of the whole batch, all processes together
        scale
            By which gradients are multiplied, for half precision.
        """
        clear_gradients(self.encoder)
        clear_gradients(self.objective)
        h = self._embed(batch)  # (views, items here, dim)
        leaf = self.processes.gather(h.detach(), dim=1).requires_grad_()
        target, h_target = self.objective.target, None
        if target is not None:
            h_target = self.processes.gather(self._without_graph(batch, target), dim=1)
        parts = self.objective(leaf, labels=labels, h_target=h_target)
        (parts["loss"] * scale).backward()
        if self.trains and leaf.grad is not None:
            self._go_back(batch, h, self.processes.own_part(leaf.grad, dim=1))
        self.processes.sum_gradients(self.encoder, self.objective)
        return {name: part.detach() for name, part in parts.items()}

    def _embed(self, batch: ViewBatch) -> Tensor:
        if self.trains and self.keep_graphs and self._graphs_fit(batch):
            try:
                return self._all_of(batch, self.encoder, self.size)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            self._keep_no_graphs()
        return self._without_graph(batch, self.encoder)

    @torch.no_grad()
    def _without_graph(self, batch: ViewBatch, encoder: Encoder) -> Tensor:
        h, self.size = with_back_off(
            lambda size: self._all_of(batch, encoder, size),
            min(self.size, batch.count),
        )
        return h

    def _go_back(self, batch: ViewBatch, h: Tensor, gradient: Tensor) -> None:
        if h.requires_grad:
            try:
                h.backward(gradient)
                return
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            self._keep_no_graphs()
        _, self.size = with_back_off(
            lambda size: self._second_pass(batch, gradient.flatten(0, 1), size),
            min(self.size, batch.count),
        )

    def _second_pass(self, batch: ViewBatch, gradient: Tensor, size: int) -> None:
        clear_gradients(self.encoder)  # of an attempt that ran out of memory
        for chunk in self._passes(batch, size):
            h = self._pass(chunk, self.encoder)
            h.backward(gradient[chunk.places.to(self.device)])

    def _all_of(self, batch: ViewBatch, encoder: Encoder, size: int) -> Tensor:
        """Embeddings (views, items here, dim) in the batch's order."""
        places, found = [], []
        for chunk in self._passes(batch, size):
            places.append(chunk.places)
            found.append(self._pass(chunk, encoder))
        order = torch.cat(places).argsort().to(self.device)
        return torch.cat(found)[order].unflatten(0, (batch.views, -1))

    def _passes(self, batch: ViewBatch, size: int) -> Iterator[ViewChunk]:
        """The batch's chunks in pieces of at most ``size`` views."""
        for chunk in batch.chunks:
            if not self.encoder.has_dropout:
                yield from chunk.split(size)
                continue
            for view in chunk.split(1):
                self._draw_by(batch, int(view.places[0]))
                yield view

    def _draw_by(self, batch: ViewBatch, place: int) -> None:
        view, item = divmod(place, batch.count // batch.views)
        first = self.processes.rank * (batch.count // batch.views)
        key = (*batch.seed, view, int(batch.items[first + item]))
        (seed,) = np.random.SeedSequence(key).generate_state(1, np.uint64)
        torch.manual_seed(int(seed))

    def _pass(self, chunk: ViewChunk, encoder: Encoder) -> Tensor:
        inputs = chunk.inputs_on(self.device)
        with autocast(self.device, mixed=self.mixed):
            return encoder.for_objective(*inputs).float()

    def _graphs_fit(self, batch: ViewBatch) -> bool:
        if self.graph_floats is None:
            return True
        return 4 * self.graph_floats(batch) <= self.budget

    def _keep_no_graphs(self) -> None:
        self.keep_graphs = False
        free_memory()


def clear_gradients(module: nn.Module) -> None:
    """Forget gradients; sooner than zeroing them."""
    for weight in module.parameters():
        weight.grad = None
