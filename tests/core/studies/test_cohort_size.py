"""The plan of a cohort whose difficulty is known."""

from math import sqrt
from time import process_time
from types import SimpleNamespace

import numpy as np
import pytest

from spt_core.errors import InputError
from spt_core.studies import cohort_size
from spt_core.studies.cohort_size import plan, plan_text
from tests.core.studies.cohorts import made_cohort, plain_cohort


@pytest.fixture(autouse=True)
def _few_draws(request, monkeypatch):
    if "slow" not in request.keywords:
        monkeypatch.setattr(cohort_size, "DRAWS", 2)


def pooled(patients, each=1, apart=1.0, dim=24, seed=0, classes="ab", **more):
    """Two classes ``apart`` standard deviations along each of four directions."""
    rng = np.random.default_rng(seed)
    own = np.repeat(rng.normal(size=(patients, dim)), each, axis=0)
    y = np.arange(patients * each) // each % len(classes)
    own[:, :4] += apart * (y[:, None] - 0.5)
    return plain_cohort(
        patients, each, classes, features=own.astype(np.float32), **more
    )


def test_the_curve_rises_with_patients_and_the_interval_narrows():
    found = plan(pooled(100, apart=1.3), folds=5)
    sizes = [one.per_class for one in found.curve]
    assert sizes == [2, 5, 10, 20, None]
    assert [one.patients for one in found.curve] == [4, 10, 20, 40, 80]
    for probe, rise in (("kNN", 0.02), ("linear", 0.1)):
        scores = [one.values[probe].mean for one in found.curve]
        assert scores[-1] > scores[0] + rise
    assert "From 40 to 80 patients linear changes by" in plan_text(found)
    assert found.score == max(v.mean for v in found.curve[-1].values.values())
    for patients, half in found.expected:
        assert half == pytest.approx(found.half_width * sqrt(100 / patients))
    target = dict(found.expected)[found.needed]
    assert target == pytest.approx(0.05, rel=0.05)


def test_the_expected_width_is_what_larger_cohorts_have():
    small = plan(pooled(40), folds=4)
    large = plan(pooled(160, seed=1), folds=4)
    expected = small.half_width * sqrt(40 / 160)
    assert large.half_width == pytest.approx(expected, rel=0.4)
    binomial = 1.96 * sqrt(large.score * (1 - large.score) / 160)
    assert large.half_width == pytest.approx(binomial, rel=0.3)


def test_slides_of_few_patients_do_not_narrow_the_interval():
    few = plan(pooled(20, each=8, apart=1.0), folds=4)
    many = plan(pooled(160, apart=1.0), folds=4)
    assert (few.slides, few.patients) == (160, 20)
    assert few.half_width > 1.7 * many.half_width


def test_all_right_is_not_certainty():
    found = plan(pooled(12, apart=10.0), folds=3)
    assert found.score == 1
    assert 0.1 < found.half_width < 0.4
    assert found.needed > 12


def test_noise_is_at_chance():
    found = plan(pooled(60, apart=0.0), folds=3)
    assert all(abs(v.mean - 0.5) < 0.15 for v in found.curve[-1].values.values())


@pytest.mark.parametrize("patients", [4, 5, 7])
def test_very_small_cohorts_have_a_plan(patients):
    found = plan(pooled(patients, apart=10.0), folds=5)
    assert found.folds == patients // 2
    assert "The smallest class has" in plan_text(found)


def test_what_cannot_be_planned_is_a_sentence():
    with pytest.raises(InputError, match="two classes"):
        plan(plain_cohort(8, classes="a"))
    rows = [{"label": "ab"[i > 6], "patient": f"p{i}"} for i in range(8)]
    with pytest.raises(InputError, match="Class 'b' has one patient"):
        plan(made_cohort(rows))


def test_slides_without_a_label_take_no_part():
    cohort = pooled(30)
    bare = made_cohort([{}] * 5, features=np.full((5, 24), 99, np.float32))
    both = type(cohort)([*bare.slides, *cohort.slides])
    assert plan(both, folds=3) == plan(cohort, folds=3)


def test_features_in_files_are_read_in_part(monkeypatch):
    monkeypatch.setattr(cohort_size, "MOST_TOKENS", 3)
    stored = np.arange(20, dtype=np.float16)[:, None]
    asked = []

    class Source(SimpleNamespace):
        def read(self, rows, out):
            asked.extend(rows.tolist())
            out[:] = stored[rows]

    slide = made_cohort([{"label": "a"}]).slides[0]
    far = type(slide)(
        name="far",
        p=np.zeros((20, 2), np.int32),
        facts=slide.facts,
        source=Source(shape=(20, 1), dtype=np.dtype(np.float16)),
    )
    assert cohort_size._mean_token(far) == pytest.approx((0 + 9 + 19) / 3)
    assert asked == [0, 9, 19]


def test_the_text_says_what_is_needed():
    found = plan(pooled(40), folds=4)
    text = plan_text(found)
    assert f"For ± 5 points about {found.needed} patients are needed." in text
    assert "40 slides of 40 patients (a 20, b 20)" in text
    assert "| all | 30 |" in text
    assert "square root" in text
    nameless = made_cohort(
        [{"label": s.label} for s in pooled(40)],
        features=np.stack([s.x[0] for s in pooled(40)]),
    )
    assert "patient" not in plan_text(plan(nameless, folds=4))


@pytest.mark.slow
def test_a_plan_takes_seconds():
    cohort = pooled(200, dim=768)
    began = process_time()
    plan(cohort, folds=5)
    assert process_time() - began < 20
