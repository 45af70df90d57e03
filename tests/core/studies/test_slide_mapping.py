"""A map of slides: places by content, kept without names, the same every time."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.neighbors import NearestNeighbors

from spt_core.events import Progress
from spt_core.insight.slide_map import MapOfSlides
from spt_core.learning.cohort import open_cohort
from spt_core.learning.standardising import fit_standardiser, standardised
from spt_core.studies.embeddings import pooling_model
from spt_core.studies.slide_mapping import (
    FEWEST,
    main_directions,
    map_slides,
    neighbourhoods,
)
from spt_core.tokens import read_labels, read_tokens
from tests.core.studies.benchmarks import write_benchmark_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("map")
    return write_benchmark_cohort(folder, patients=12, slides_each=1, sites=2)


def run(work):
    seen = []
    while True:
        try:
            seen.append(next(work))
        except StopIteration as stop:
            return stop.value, seen


def test_a_map_is_of_mean_patches_and_comes_in_two_steps(cohort):
    found, seen = run(map_slides(cohort / "features"))
    paths = sorted((cohort / "features").glob("*.h5"))
    assert found.names == tuple(path.stem for path in paths)
    mean = np.stack([read_tokens(path).x.mean(axis=0) for path in paths])
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(found.h, mean, atol=1e-5)
    first = next(one for one in seen if isinstance(one, MapOfSlides))
    assert first.neighbours is None
    np.testing.assert_array_equal(first.directions, found.directions)
    assert found.neighbours.shape == (len(paths), 2)
    assert found.shares is None
    assert found.predicted == (None,) * len(paths)
    done = [one.done for one in seen if isinstance(one, Progress)]
    assert done[: len(paths)] == list(range(1, len(paths) + 1))


def test_nearest_and_unusual_are_scikit_learns(cohort):
    found, _ = run(map_slides(cohort / "features"))
    reference = NearestNeighbors(n_neighbors=6, metric="cosine").fit(found.h)
    far, near = reference.kneighbors(found.h)
    for slide in range(len(found)):
        rows, distances = zip(*found.nearest(slide, 5), strict=True)
        assert set(rows) == set(near[slide].tolist()) - {slide}
        np.testing.assert_allclose(distances, np.sort(far[slide])[1:], atol=1e-5)
    mean = np.sort(far, axis=1)[:, 1:].mean(axis=1)
    np.testing.assert_allclose(found.unusual, mean / np.median(mean), rtol=1e-3)


def test_a_kept_map_is_read_and_knows_no_names(cohort, tmp_path):
    found, _ = run(map_slides(cohort / "features", kept=tmp_path))
    again, seen = run(map_slides(cohort / "features", kept=tmp_path))
    assert seen == []
    np.testing.assert_array_equal(again.neighbours, found.neighbours)
    assert again.names == found.names
    assert again.shares is None
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    assert not any(name.encode() in content for name in found.names)
    # Broken, it is made again; by another model it is another map.
    file.write_bytes(b"broken")
    mended, seen = run(map_slides(cohort / "features", kept=tmp_path))
    np.testing.assert_array_equal(mended.h, found.h)
    assert seen
    run(map_slides(cohort / "features", kept=tmp_path, model_hash="other"))
    assert len(list(tmp_path.iterdir())) == 2


def test_places_are_the_same_every_time_and_keep_neighbours_together():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 24)) * 8
    h = np.concatenate([centre + rng.normal(size=(30, 24)) for centre in centres])
    places = neighbourhoods(h, seed=3)
    np.testing.assert_array_equal(places, neighbourhoods(h, seed=3))
    assert trustworthiness(h, places, n_neighbors=10) > 0.9
    reference = PCA(2).fit_transform(h)
    found = main_directions(h)
    for axis in range(2):
        sign = np.sign(reference[:, axis] @ found[:, axis])
        np.testing.assert_allclose(sign * found[:, axis], reference[:, axis], atol=1e-3)


@pytest.mark.parametrize("n", [1, 2, FEWEST - 1, FEWEST])
def test_few_slides_have_places_too(n):
    h = np.random.default_rng(n).normal(size=(n, 16)).astype(np.float32)
    assert neighbourhoods(h).shape == (n, 2)
    assert np.isfinite(neighbourhoods(h)).all()
    same = np.ones((n, 16), np.float32)
    assert np.isfinite(neighbourhoods(same)).all()


def test_a_model_that_judges_by_site_is_told_the_sites(cohort, tmp_path):
    labels = read_labels(cohort / "labels.csv")
    slides = open_cohort(cohort / "features", labels)
    one = sorted({slide.site for slide in slides})[0]
    known = replace(slides, slides=[s for s in slides if s.site == one])
    by = fit_standardiser("site", known, "labels")
    model = pooling_model("mean", slides).standardised_by(by)
    told, _ = run(map_slides(cohort / "features", model, kept=tmp_path, labels=labels))
    # The other site is measured by its slides here.
    everywhere = standardised(slides, by.with_sites_of(slides))
    mean = np.stack([slide.tokens().mean(axis=0) for slide in everywhere])
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(told.h, mean, atol=1e-4)
    assert told.by_themselves == 0
    untold, _ = run(map_slides(cohort / "features", model, kept=tmp_path))
    others = len(slides) - len(known)  # the rest is known by its pixels
    assert untold.by_themselves == others
    assert not np.allclose(untold.h, told.h, atol=1e-2)
    again, seen = run(map_slides(cohort / "features", model, kept=tmp_path))
    assert (again.by_themselves, seen) == (others, [])
