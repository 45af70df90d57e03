"""What the training slides were like, so that an unlike slide can be noticed.

Two looks at a slide: its mean token (another scanner, stain or organ moves it) and its
embedding (an unlike arrangement moves it). For each the training slides' centre and
spread are kept with the distances that they themselves have from it, each measured with
its patient left out: slides of one patient are alike, and a new slide is most often of
a new patient.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spt_core.learning.cohort import Cohort

# What is looked at of a slide; the names of its statistics begin so.
MEAN_TOKEN, EMBEDDING = "mean_token", "embedding"
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)
MOST_SLIDES = 1000
MOST_TOKENS = 256  # of each slide
MOST_AXES = 32
FOLDS = 5


def training_statistics(
    cohort: Cohort, embeddings: NDArray[np.floating], seed: int = 0
) -> dict[str, Tensor]:
    """Summaries of a cohort and its embeddings (slides, dim), as named tensors."""
    rng = np.random.default_rng([seed, 11])
    chosen = rng.permutation(len(cohort))[:MOST_SLIDES]
    means, squares = [], []
    for index in chosen:
        slide = cohort[int(index)]
        rows = np.sort(rng.permutation(len(slide))[:MOST_TOKENS])
        x = np.empty((len(rows), cohort.dim), np.float64)
        slide.read(rows, x)
        means.append(x.mean(axis=0))
        squares.append(np.square(x).mean(axis=0))
    slide_means = np.stack(means)
    patients = cohort.patients()
    token_mean = slide_means.mean(axis=0)
    variance = np.mean(squares, axis=0) - np.square(token_mean)
    found = {
        "token_mean": token_mean,
        "token_std": np.sqrt(np.maximum(variance, 0)),
        **_summary(MEAN_TOKEN, slide_means, [patients[index] for index in chosen]),
        **_summary(EMBEDDING, embeddings, patients),
    }
    return {
        name: torch.from_numpy(np.asarray(value, np.float32))
        for name, value in found.items()
    }


def distance(statistics: Mapping[str, Tensor], which: str, values: Tensor) -> Tensor:
    """How far (..., k) values lie from the training slides', in their own spread.

    Parameters
    ----------
    which
        ``MEAN_TOKEN`` or ``EMBEDDING``. Compare with ``statistics[which +
        "_quantiles"]``: the training slides' own distances at :data:`QUANTILES`, each
        measured from the others, with a fifth of the patients left out.
    """
    parts = ("centre", "axes", "variances", "rest")
    return _distance(values.float(), *(statistics[f"{which}_{p}"] for p in parts))


def _summary(
    which: str, values: NDArray[np.floating], patients: Sequence[str]
) -> dict[str, NDArray]:
    """A cloud of points (n, k), and how far its own points lie from it."""
    points: NDArray[np.float64] = np.asarray(values, np.float64)
    n = len(points)
    folds = _folds(patients)
    far = np.zeros(n)
    for fold in np.unique(folds):
        # As a new patient's slide would be seen: from a cloud without that patient.
        others = points[folds != fold] if n > FOLDS else points[:]
        cloud = [torch.as_tensor(part) for part in _cloud(others).values()]
        out = torch.from_numpy(points[folds == fold])
        far[folds == fold] = _distance(out, *cloud).numpy()
    found = {**_cloud(points), "quantiles": np.quantile(far, QUANTILES)}
    return {f"{which}_{name}": value for name, value in found.items()}


def _folds(patients: Sequence[str]) -> NDArray[np.int64]:
    """For each slide the number of its fold; slides of one patient share it."""
    number = {patient: index for index, patient in enumerate(dict.fromkeys(patients))}
    if len(number) == 1:  # what another patient is like is not known
        return np.arange(len(patients)) % FOLDS
    return np.array([number[patient] % FOLDS for patient in patients], np.int64)


def _cloud(points: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Centre, main axes with their variances, and the mean variance off them."""
    n, dim = points.shape
    centre = points.mean(axis=0)
    _, singular, axes = np.linalg.svd(points - centre, full_matrices=False)
    variances = np.square(singular) / max(n - 1, 1)
    k = max(1, min(MOST_AXES, n // 5, dim - 1))
    rest = variances[k:].sum() / max(dim - k, 1)
    floor = max(float(variances.sum()) / dim * 0.01, 1e-12)
    return {
        "centre": centre,
        "axes": axes[:k],
        "variances": np.maximum(variances[:k], floor),
        "rest": np.maximum(rest, floor),
    }


def _distance(
    points: Tensor, centre: Tensor, axes: Tensor, variances: Tensor, rest: Tensor
) -> Tensor:
    offset = points - centre
    along = offset @ axes.T
    left = (offset.square().sum(-1) - along.square().sum(-1)).clamp_min(0)
    squared = (along.square() / variances).sum(-1) + left / rest
    return (squared / offset.shape[-1]).sqrt()
