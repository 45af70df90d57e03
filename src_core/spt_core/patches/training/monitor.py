"""Is it learning? Signals from the features of a fixed few tiles, as in use."""

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.patches.training.augment import middle
from spt_core.patches.training.network import PatchNetwork
from spt_core.patches.training.pool import TilePool
from spt_core.training.knn import knn_probabilities, mean_class_accuracy
from spt_core.training.signals import Validation, effective_rank, spread

MOST_TILES = 512
_AT_ONCE = 64


class PatchMonitor:
    """Spread and rank of features; with labels, a vote of other patients' tiles."""

    def __init__(self, pool: TilePool, size: int, mpp: float, seed: int) -> None:
        order = np.random.default_rng([seed, 43]).permutation(len(pool))
        order = order[np.argsort(pool.label[order] < 0, kind="stable")][:MOST_TILES]
        self.chosen = np.sort(order)
        # These alone: the others make room for new ones.
        self.tiles = [pool.tiles[i] for i in self.chosen]
        self.um, self.size, self.mpp = pool.um[self.chosen], size, mpp
        self.y = pool.label[self.chosen]
        self.asked = self.y >= 0
        patients = pool.patient[self.chosen][self.asked]
        self.forbidden = patients[:, None] == patients[None, :]

    def validate(
        self, network: PatchNetwork, device: torch.device, step: int
    ) -> Validation:
        h = self.features(network, device)
        knn = None
        y = self.y[self.asked]
        if len(np.unique(y)) > 1:
            known = h[self.asked]
            shares = knn_probabilities(
                known, y, known, int(y.max()) + 1, forbidden=self.forbidden
            )
            knn = mean_class_accuracy(y, shares.argmax(axis=1))
        return Validation(step, spread(h), effective_rank(h), knn)

    @torch.no_grad()
    def features(
        self, network: PatchNetwork, device: torch.device
    ) -> NDArray[np.float32]:
        found = []
        for start in range(0, len(self.chosen), _AT_ONCE):
            pixels = [
                middle(tile, um, self.size, self.mpp)
                for tile, um in zip(
                    self.tiles[start : start + _AT_ONCE],
                    self.um[start : start + _AT_ONCE],
                    strict=True,
                )
            ]
            found.append(network(torch.cat(pixels).to(device)).float().cpu().numpy())
        return np.concatenate(found)
