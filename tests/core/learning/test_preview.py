"""What a window shows of views is what training uses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spt_core.learning.batches import SlidePlan
from spt_core.learning.cohort import open_cohort
from spt_core.learning.preview import preview, suggested_crop
from spt_core.learning.views import ViewSettings, move, slide_views, view_generator
from tests.core.studies.benchmarks import write_benchmark_cohort

SETTINGS = (
    ViewSettings(crop_area=(9, 30), max_tokens=7),
    ViewSettings(split=False, crop_area=(9, 30)),
    ViewSettings(views=3, crop=False),
    ViewSettings(crop_area=(9, 30), turn=True, shift=40),
)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_preview_is_the_views_of_training(tmp_path, settings):
    folder = write_benchmark_cohort(tmp_path, patients=6, slides_each=1, sites=1)
    cohort = open_cohort(folder / "features")
    plan = SlidePlan(cohort, settings, batch=3, seed=11, device=torch.device("cpu"))
    for step in range(2 * plan.steps_per_epoch):
        batch = plan.make(step)
        epoch, slides = step // plan.steps_per_epoch, plan.slides(step)
        used = {}
        for chunk in batch.chunks:
            x, p, mask = chunk.inputs
            for place, xs, ps, real in zip(
                chunk.places.tolist(), x, p, mask, strict=True
            ):
                used[place] = (xs[real].numpy(), ps[real].numpy())
        for number, slide in enumerate(slides.tolist()):
            found = preview(
                cohort[slide].p, settings, seed=11, epoch=epoch, slide=slide
            )
            for view, rows in enumerate(found.rows):
                x, p = used[view * len(slides) + number]
                np.testing.assert_array_equal(x, cohort[slide].tokens()[rows])
                if not settings.turn:
                    np.testing.assert_array_equal(p, cohort[slide].p[rows])


def test_training_moves_places_and_keeps_tokens(tmp_path):
    """Each view by a draw of its own, after all that says which patches it has."""
    folder = write_benchmark_cohort(tmp_path, patients=6, slides_each=1, sites=1)
    cohort = open_cohort(folder / "features")
    plain, moves = SETTINGS[0], replace(SETTINGS[0], turn=True, shift=40)
    was, now = (
        SlidePlan(cohort, one, batch=6, seed=3, device=torch.device("cpu")).make(1)
        for one in (plain, moves)
    )
    for before, after in zip(was.chunks, now.chunks, strict=True):
        torch.testing.assert_close(before.places, after.places, rtol=0, atol=0)
        (x, _, mask), (moved_x, p, moved_mask) = before.inputs, after.inputs
        assert torch.equal(x, moved_x)
        assert torch.equal(mask, moved_mask)
        for place, found, real in zip(after.places.tolist(), p, mask, strict=True):
            view, number = divmod(place, 6)
            slide = int(now.items[number])
            rng = view_generator(3, 1, slide)
            rows = slide_views(cohort[slide].p, rng, plain)
            drawn = [move(cohort[slide].p[row], rng, moves) for row in rows]
            np.testing.assert_array_equal(found[real].numpy(), drawn[view])
            assert not found[~real].any()
            assert not np.array_equal(drawn[view], cohort[slide].p[rows[view]])


def test_counts_and_overlap():
    p = np.stack(np.meshgrid(range(20), range(20), indexing="ij"), -1).reshape(-1, 2)
    whole = preview(p, ViewSettings(split=False, crop=False, mask=False))
    assert whole.shared == len(p)
    assert whole.same_place == 1
    assert [len(rows) for rows in whole.rows] == [len(p)] * 2
    apart = preview(p, ViewSettings(crop=False, mask=False))
    assert apart.shared == 0
    assert sorted(np.concatenate(apart.rows)) == list(range(len(p)))
    masked = preview(p, ViewSettings(crop=False, max_tokens=5))
    assert sum(map(len, masked.rows)) == 10


def test_the_suggested_crop_grows_with_the_tissue():
    def square(side):
        grid = np.meshgrid(range(side), range(side), indexing="ij")
        return np.stack(grid, -1).reshape(-1, 2)

    settings = ViewSettings()
    low, high = suggested_crop([square(40)] * 4, settings)
    larger = suggested_crop([square(120)] * 4, settings)
    assert low <= high < larger[1]
    # The smaller part is 0.3 of the patches: 16 of them need more than 53 cells.
    assert low == 100
    assert high / 40**2 <= 0.5
    assert suggested_crop([square(3)], settings) is None
    assert suggested_crop([], settings) is None
