"""From a folder of features to a map of its slides, kept by what is in them."""

import hashlib
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
from numpy.typing import NDArray

from spt_core._version import __version__
from spt_core.events import Progress
from spt_core.files import written_whole
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.results import pseudonym
from spt_core.insight.slide_map import MapOfSlides, unit_length, unusualness
from spt_core.learning.cohort import Cohort, feature_files, open_cohort
from spt_core.learning.model_card import SITE
from spt_core.learning.model_file import SlideModel
from spt_core.plain_data import arrays_of
from spt_core.studies.embeddings import knowing_sites, pooling_model
from spt_core.tokens import Labels
from spt_core.tokens.finding import name_of

# Fewer slides have no neighbourhoods: they lie by their main directions.
FEWEST = 8
MOST_AXES = 50
_WAIT_SECONDS = 0.2

Mapping = Generator[Progress | MapOfSlides, None, MapOfSlides]


def map_slides(
    features: str | Path,
    model: SlideModel | None = None,
    *,
    model_hash: str = "mean",
    kept: Path | None = None,
    labels: Labels | None = None,
    seed: int = 0,
) -> Mapping:
    """Embed every slide of a folder and give each a place.

    A first map is yielded as soon as all are embedded; the one that is returned has
    places by neighbourhood, which take longer.

    Parameters
    ----------
    model
        None takes the mean of each slide's patches.
    kept
        The folder that keeps maps, by what they were made of and without names.
    labels
        Where the slides are from, for a model that standardises tokens per site.
    """
    cohort = open_cohort(features, labels, in_memory_bytes=0)
    how = f"{__version__} {model_hash} {seed}"
    if model is not None and model.standardiser.kind == SITE:
        model, _ = knowing_sites(model, cohort)
        how += f" {[slide.site for slide in cohort]}"
    fingerprints = [slide.fingerprint() for slide in cohort]
    key = _key(cohort, fingerprints, how)
    file = None if kept is None else kept / f"{key}.npz"
    known = None if file is None else _read(file, cohort, fingerprints)
    if known is not None:
        return known
    embedded = yield from _embedded(features, cohort, model, fingerprints)
    yield embedded
    placed: list[NDArray[np.float32] | BaseException] = []
    # In a thread, so that whoever asks can be heard meanwhile.
    thread = Thread(target=_place, args=(embedded.h, seed, placed), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_WAIT_SECONDS)
        yield Progress(len(cohort), len(cohort), message="placing slides")
    if isinstance(placed[0], BaseException):
        raise placed[0]
    found = replace(embedded, neighbours=placed[0])
    if file is not None:
        _write(file, found)
    return found


def main_directions(h: NDArray[np.floating], axes: int = 2) -> NDArray[np.float32]:
    """Rows (n, dim) by the directions in which they differ most, (n, axes)."""
    centred = np.asarray(h, np.float64) - np.mean(h, axis=0, dtype=np.float64)
    # Of the smaller side: 10,000 slides differ in some hundred numbers.
    _, vectors = np.linalg.eigh(centred.T @ centred)
    largest = vectors[:, ::-1][:, :axes]
    # The sign of a direction is chance: the largest part points up.
    largest = largest * np.sign(largest[np.abs(largest).argmax(axis=0), range(axes)])
    return (centred @ largest).astype(np.float32)


def neighbourhoods(h: NDArray[np.floating], seed: int = 0) -> NDArray[np.float32]:
    """Places (n, 2) by t-SNE, in which those that are alike lie together."""
    n, dim = h.shape
    if n < FEWEST:
        return main_directions(h)
    from sklearn.manifold import TSNE

    axes = min(MOST_AXES, dim, n)
    flat = main_directions(h, axes) if axes < dim else np.asarray(h, np.float32)
    if not np.ptp(flat, axis=0).any():
        return np.zeros((n, 2), np.float32)
    work = TSNE(
        perplexity=min(30.0, (n - 1) / 3), init="pca", random_state=seed, n_jobs=1
    )
    return np.asarray(work.fit_transform(flat), np.float32)


def _place(h: NDArray[np.float32], seed: int, found: list) -> None:
    try:
        found.append(neighbourhoods(h, seed))
    # It is raised again where somebody waits for it.
    except BaseException as error:  # noqa: BLE001
        found.append(error)


def _embedded(
    features: str | Path,
    cohort: Cohort,
    model: SlideModel | None,
    fingerprints: list[str],
) -> Generator[Progress, None, MapOfSlides]:
    asked = model or pooling_model("mean", cohort)
    paths = {name_of(path): path for path in feature_files(features)}
    standardiser, by_themselves = asked.standardiser, 0
    h, shares, learned = [], [], []
    for done, slide in enumerate(cohort, start=1):
        tokens = read_for(asked, paths[slide.name], site=slide.site)
        by_themselves += not standardiser.knows(asked.site_of(tokens))
        prediction = predict(asked, tokens, always_named=True)
        h.append(prediction.embedding)
        learned.append(prediction.trained_on)
        if prediction.probabilities is not None:
            shares.append(prediction.probabilities)
        yield Progress(done, len(cohort), message="embedding slides")
    lengths = unit_length(np.stack(h))
    return MapOfSlides(
        names=tuple(slide.name for slide in cohort),
        pseudonyms=tuple(pseudonym(one) for one in fingerprints),
        h=lengths,
        directions=main_directions(lengths),
        neighbours=None,
        classes=tuple(asked.classes),
        shares=np.stack(shares).astype(np.float32) if asked.classes else None,
        learned=np.array(learned, bool),
        unusual=unusualness(lengths),
        by_themselves=by_themselves,
    )


def _key(cohort: Cohort, fingerprints: list[str], how: str) -> str:
    """Of the slides' tokens in their order, the model, and how they are placed."""
    lines = [how]
    lines += [
        f"{fingerprint} {slide.source.shape} {slide.source.dtype} "
        f"{slide.facts.encoder_sha256 or slide.facts.encoder} {slide.facts.mpp} "
        f"{slide.facts.patch_size} {slide.facts.stain} {slide.facts.channels} "
        f"{hashlib.sha256(slide.p.tobytes()).hexdigest()}"
        for slide, fingerprint in zip(cohort, fingerprints, strict=True)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _write(file: Path, found: MapOfSlides) -> None:
    with written_whole(file) as temporary, temporary.open("wb") as stream:
        np.savez(
            stream,
            h=found.h,
            directions=found.directions,
            neighbours=np.asarray(found.neighbours),
            classes=np.array(found.classes, np.str_),
            shares=np.zeros((0, 0)) if found.shares is None else found.shares,
            learned=found.learned,
            unusual=found.unusual,
            by_themselves=found.by_themselves,
        )


def _read(file: Path, cohort: Cohort, fingerprints: list[str]) -> MapOfSlides | None:
    """A map that was kept, None where there is none that can be read."""
    try:
        stored = arrays_of(file)
        classes = tuple(stored["classes"].tolist())
        return MapOfSlides(
            names=tuple(slide.name for slide in cohort),
            pseudonyms=tuple(pseudonym(one) for one in fingerprints),
            h=stored["h"],
            directions=stored["directions"],
            neighbours=stored["neighbours"],
            classes=classes,
            shares=stored["shares"] if classes else None,
            learned=stored["learned"],
            unusual=stored["unusual"],
            by_themselves=int(stored["by_themselves"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
