"""How like a chosen patch every other patch of a slide is, fast enough for a click."""

import numpy as np
from numpy.typing import NDArray


class LookAlikes:
    """The tokens of one slide, prepared once and compared many times.

    Likeness is the cosine of tokens from which the slide's mean is subtracted, because
    tokens of one slide have much in common.
    """

    def __init__(self, x: NDArray[np.floating]) -> None:
        centred = np.asarray(x, np.float32)
        centred = centred - centred.mean(axis=0, dtype=np.float64).astype(np.float32)
        length = np.linalg.norm(centred, axis=1, keepdims=True)
        self._centred = centred
        self._length = np.maximum(length[:, 0], 1e-12)

    def __len__(self) -> int:
        return len(self._centred)

    def like(self, rows: NDArray[np.integer] | list[int]) -> NDArray[np.float32]:
        """How like (-1 to 1) every patch is to the mean of the given ones, (n,)."""
        asked = self._centred[np.asarray(rows)].mean(axis=0)
        length = self._length * max(float(np.linalg.norm(asked)), 1e-12)
        return (self._centred @ asked) / length
