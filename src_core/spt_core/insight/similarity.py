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

    @property
    def dim(self) -> int:
        return int(self._centred.shape[1])

    def vector(self, row: int) -> NDArray[np.float32]:
        """What one patch is like, to compare patches of other slides with, (d,)."""
        return self._centred[row]

    def like_vector(self, asked: NDArray[np.floating]) -> NDArray[np.float32]:
        """How like (-1 to 1) every patch is to a vector of any slide's, (n,)."""
        length = self._length * max(float(np.linalg.norm(asked)), 1e-12)
        return (self._centred @ np.asarray(asked, np.float32)) / length

    def like(self, rows: NDArray[np.integer] | list[int]) -> NDArray[np.float32]:
        """How like (-1 to 1) every patch is to the mean of the given ones, (n,)."""
        return self.like_vector(self._centred[np.asarray(rows)].mean(axis=0))


def most_alike(
    like: NDArray[np.floating],
    l0_xy: NDArray[np.integer],
    l0_step_xy: tuple[float, float],
    *,
    count: int = 8,
    apart: int = 3,
) -> list[int]:
    """Rows of the likest patches, no two of them within ``apart`` patches."""
    chosen: list[int] = []
    far = apart * np.asarray(l0_step_xy, float)
    for row in np.argsort(-np.asarray(like), kind="stable").tolist():
        gaps = np.abs(l0_xy[chosen] - l0_xy[row])
        if not (gaps < far).all(axis=1).any():
            chosen.append(row)
            if len(chosen) == count:
                break
    return chosen
