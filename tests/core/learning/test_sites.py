"""A scanner's trace: taken out of the tokens, alike wherever a model meets them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from spt_core.errors import InputError
from spt_core.insight.class_map import class_map
from spt_core.insight.faithfulness import what_if
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.results import RemarkKind, Verdict
from spt_core.insight.wording import prediction_sentence
from spt_core.learning.adding_sites import add_site
from spt_core.learning.batches import SlidePlan
from spt_core.learning.cohort import open_cohort
from spt_core.learning.finding_sites import find_sites
from spt_core.learning.model_card import read_model_card
from spt_core.learning.model_file import load_model
from spt_core.learning.monitor import SlideMonitor, embed_slide
from spt_core.learning.sites import settle_sites, site_wins, with_found_sites
from spt_core.learning.standardising import fit_standardiser, own_scale, standardised
from spt_core.learning.task import kept_apart
from spt_core.learning.training import resume, train
from spt_core.learning.views import THE_PAPERS
from spt_core.tokens import TokenFacts, Tokens, read_labels, write_tokens
from spt_core.training.alarms import Alarms
from spt_core.training.objectives.simclr import (
    level_of_chance,
    no_negatives,
    nt_xent,
)
from spt_core.training.signals import AskedOf
from tests.core.learning.runs import assert_bitwise, stop_after, tiny
from tests.events import run_through

DIM, SIDE, SITES = 16, 12, 3
CPU = torch.device("cpu")


def finish(events):
    """What is returned in the end."""
    return run_through(events)[1]


def write_site_cohort(
    folder, slides=24, *, seed=0, sites=SITES, trace=6.0, first=0, printed=False
):
    """Two classes by what tokens are among them, and a constant per site on all."""
    rng = np.random.default_rng(seed)
    marks = trace * rng.normal(size=(sites, DIM))
    lines = ["slide,label,patient,site"]
    for number in range(slides):
        kind, site = number % 2, number // 2 % sites
        x = rng.normal(size=(SIDE * SIDE, DIM))
        x[rng.random(len(x)) < 0.5, kind] += 5.0
        p = np.stack(np.divmod(np.arange(len(x)), SIDE), axis=1)
        name = f"slide{seed}-{number:02d}"
        facts = TokenFacts(encoder="made-up", mpp=0.5, patch_size=256,
                           l0_patch_xy=(256, 256),
                           slide_fingerprint=name if printed else None)  # fmt: skip
        tokens = Tokens(
            (x + marks[site]).astype(np.float32), p, p[:, ::-1] * 256, facts
        )
        write_tokens(folder / "features" / f"{name}.h5", tokens)
        place = f"site-{'abcdef'[first + site]}"
        lines.append(
            f"{name},{'ab'[kind]},person{seed}-{kind}{site}{number // 12},{place}"
        )
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def site_cohort(tmp_path_factory):
    return write_site_cohort(tmp_path_factory.mktemp("sites"))


def opened(folder):
    return open_cohort(folder / "features", read_labels(folder / "labels.csv"))


def run_of(folder, out, **changes):
    views = replace(THE_PAPERS, crop_area=(36, 100), max_tokens=64)
    return tiny(
        folder, out, **{"epochs": 20, "batch_size": 24, "views": views, **changes}
    )


@pytest.fixture(scope="module")
def by_default(site_cohort, tmp_path_factory):
    return finish(train(run_of(site_cohort, tmp_path_factory.mktemp("runs") / "by")))


@pytest.fixture(scope="module")
def classified(site_cohort, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "classified"
    settings = run_of(site_cohort, out, objective="classify", batch_size=8)
    return finish(train(replace(settings, learning_rate=3e-3, epochs=12)))


def test_a_planted_signature_no_longer_decides(site_cohort, by_default, tmp_path):
    plain = finish(train(run_of(site_cohort, tmp_path / "run", standardise="no")))
    assert plain.metrics["site_knn"] > 0.95
    assert by_default.metrics["site_knn"] < 0.6  # chance is a third
    assert by_default.metrics["knn"] > plain.metrics["knn"]
    assert by_default.metrics["knn"] > 0.9
    card = read_model_card(by_default.best).standardising
    assert card.kind == "site"
    assert card.site_names == ("site-a", "site-b", "site-c")
    assert [one.slides for one in card.sites] == [8, 8, 8]
    assert read_model_card(plain.best).standardising.kind == "no"


def test_statistics_are_those_of_all_tokens_of_a_site(site_cohort, by_default):
    cohort = opened(site_cohort)
    found = load_model(by_default.best).standardiser.scales
    for site, scale in found.items():
        x = np.concatenate([s.stored() for s in cohort if s.site == site])
        np.testing.assert_allclose(scale.mean, x.mean(0), atol=1e-4)
        np.testing.assert_allclose(scale.std, x.std(0), rtol=1e-4)


def test_what_hardly_varies_is_not_blown_up():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, DIM)).astype(np.float32)
    x[:, 3] = 1e3 / 3
    scaled = own_scale(x)(x)
    assert np.isfinite(scaled).all()
    np.testing.assert_allclose(scaled[:, 3], 0, atol=1e-2)
    # A single token, or many of one kind, tell nothing of a spread.
    for alike in (x[:1], np.repeat(x[:1], 9, axis=0)):
        np.testing.assert_array_equal(own_scale(alike)(alike), np.zeros_like(alike))


def test_alike_in_training_prediction_and_maps(site_cohort, classified):
    """Bitwise the tokens, and bitwise the embedding of the whole slide."""
    model = load_model(classified.last)
    cohort = standardised(opened(site_cohort), model.standardiser)
    for number in (0, 5):
        slide = cohort[number]
        path = site_cohort / "features" / f"{slide.name}.h5"
        tokens = read_for(model, path, site=slide.site)
        rows = np.array([7, 3, 90])
        x = np.empty((3, DIM), np.float32)
        slide.read(rows, x)
        np.testing.assert_array_equal(model.prepared(tokens).x[rows], x)
        np.testing.assert_array_equal(model.prepared(tokens).x, slide.tokens())
        trained = embed_slide(model.encoder, slide, CPU)
        asked = predict(model, tokens)
        np.testing.assert_array_equal(asked.embedding, trained)
        # The reference does by hand what the model file states.
        scale = model.standardiser.scales[slide.site]
        by_hand = (slide.stored() - scale.mean) / scale.std
        places = torch.from_numpy(slide.p)
        h, attention = model.encoder.attend(torch.from_numpy(by_hand), places)
        np.testing.assert_array_equal(asked.embedding, h.detach().numpy())
        np.testing.assert_array_equal(asked.attention, attention.detach().numpy())
        plain = replace(tokens, x=by_hand)
        bare = load_model(classified.last).standardised_by(fit_none())
        one, other = (
            finish(class_map(m, t)) for m, t in ((model, tokens), (bare, plain))
        )
        np.testing.assert_array_equal(one.probabilities, other.probabilities)
        some = np.arange(len(tokens)) < 20
        one, other = what_if(model, tokens, some), what_if(bare, plain, some)
        np.testing.assert_array_equal(one.after.embedding, other.after.embedding)


def fit_none():
    from spt_core.learning.standardising import Standardiser

    return Standardiser()


def test_removed_patches_move_no_others_where_a_slide_measures_itself(
    site_cohort, tmp_path
):
    changes = {"objective": "classify", "batch_size": 8, "epochs": 1}
    run = run_of(site_cohort, tmp_path / "run", standardise="slide", **changes)
    model = load_model(finish(train(run)).last)
    path = next((site_cohort / "features").glob("*.h5"))
    tokens = read_for(model, path)
    scaled = own_scale(tokens.x)(tokens.x)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-4)
    np.testing.assert_array_equal(model.prepared(tokens).x, scaled)
    some = np.arange(len(tokens)) < 40
    h, _ = model.encoder.attend(
        torch.from_numpy(scaled[40:]), torch.from_numpy(tokens.p[40:])
    )
    after = what_if(model, tokens, some).after
    np.testing.assert_array_equal(after.embedding, h.detach().numpy())
    kinds = [one.kind for one in predict(model, tokens).remarks]
    assert RemarkKind.STANDARDISED_BY_SLIDE in kinds
    # Its mean is 0 but for rounding, which makes no slide unlike.
    far = replace(tokens, x=tokens.x + np.float32(4096))
    likeness = predict(model, far).likeness
    assert likeness is not None
    assert not likeness.is_unlike


def test_a_slide_of_an_unknown_site_is_said_to_be_one(site_cohort, classified):
    model = load_model(classified.last)
    path = sorted((site_cohort / "features").glob("*.h5"))[0]
    known = predict(model, read_for(model, path, site="site-a"))
    assert known.verdict in (Verdict.ANSWERED, Verdict.UNDECIDED)
    assert "the site site-a" in prediction_sentence(known)
    for site, kind in ((None, "SITE_NOT_NAMED"), ("elsewhere", "SITE_UNKNOWN")):
        tokens = read_for(model, path, site=site)
        asked = predict(model, tokens)
        assert asked.verdict == Verdict.UNLIKE
        assert asked.answer is None
        assert RemarkKind[kind] in [one.kind for one in asked.remarks]
        assert "Unlike" in prediction_sentence(asked)
        # By itself, never by another site's statistics.
        own = own_scale(tokens.x)(tokens.x)
        np.testing.assert_array_equal(model.prepared(tokens).x, own)


def test_slides_that_a_site_was_measured_by_need_not_name_it(classified, tmp_path):
    folder = write_site_cohort(tmp_path, 8, seed=1, sites=1, first=3, printed=True)
    cohort = opened(folder)
    some = replace(cohort, slides=list(cohort)[:4])
    model, _ = add_site(load_model(classified.last), "site-d", some)
    for number, slide in enumerate(cohort):
        path = folder / "features" / f"{slide.name}.h5"
        unsaid = predict(model, read_for(model, path))
        said = predict(model, read_for(model, path, site="site-d"))
        assert np.array_equal(unsaid.embedding, said.embedding) == (number < 4)
        kinds = {one.kind: one.value for one in unsaid.remarks}
        if number < 4:
            assert kinds[RemarkKind.STANDARDISED_BY_SITE] == "site-d"
        else:
            assert RemarkKind.SITE_NOT_NAMED in kinds
    # What is said counts more than what is known.
    other = predict(model, read_for(model, path, site="site-a"))
    assert not np.array_equal(other.embedding, said.embedding)


def test_sites_of_others_are_measured_by_their_own_slides(by_default, tmp_path):
    others = opened(write_site_cohort(tmp_path, 12, seed=1, first=3))
    model = load_model(by_default.best)
    extended = model.standardiser.with_sites_of(others)
    assert extended.card.site_names[:3] == model.card.standardising.site_names
    assert set(extended.scales) == {f"site-{one}" for one in "abcdef"}
    for slide in standardised(others, extended):
        x = np.concatenate([s.stored() for s in others if s.site == slide.site])
        want = (slide.stored() - x.mean(0)) / x.std(0)
        np.testing.assert_allclose(slide.tokens(), want, atol=1e-3)


def test_older_files_are_not_standardised(by_default, tmp_path):
    """A card without the field, as files of before have it."""
    from safetensors import safe_open

    with safe_open(by_default.best, "pt") as file:
        metadata = file.metadata()
    (name,) = (key for key, text in metadata.items() if "standardising" in text)
    record = json.loads(metadata[name])
    del record["standardising"]
    del record["metrics"]["site_knn"]
    tensors = {n: t for n, t in load_file(by_default.best).items() if ".site_" not in n}
    path = tmp_path / "older.safetensors"
    save_file(tensors, path, {**metadata, name: json.dumps(record)})
    model = load_model(path)
    assert model.standardiser.kind == "no"
    x = np.ones((2, DIM), np.float32)
    tokens = Tokens(x, np.zeros((2, 2), int), np.zeros((2, 2), int))
    assert model.prepared(tokens) is tokens


def test_a_file_without_the_statistics_that_it_names_is_refused(by_default):
    model = load_model(by_default.best)
    del model.statistics["site_mean"]
    with pytest.raises(InputError, match="damaged"):
        _ = model.standardiser


def test_a_resumed_run_is_the_same(site_cohort, tmp_path):
    changes = {"epochs": 4, "batch_size": 6, "site_batches": True, "negatives": "site"}
    whole = finish(train(run_of(site_cohort, tmp_path / "whole", **changes)))
    settings = run_of(site_cohort, tmp_path / "parts", **changes)
    stop_after(train(settings), 5)
    parts = finish(resume(tmp_path / "parts"))
    assert_bitwise(whole.last, parts.last)
    one, other = load_file(whole.last), load_file(parts.last)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_runs_of_before_go_on_as_they_began(site_cohort, tmp_path):
    settings = run_of(site_cohort, tmp_path / "run")
    cohort = opened(site_cohort)
    settled = settle_sites(settings, cohort, cohort, resumed=True)
    assert settled.settings.standardise == "no"
    assert settled.settings.negatives == "all"


def without_sites(cohort, count):
    slides = [
        replace(slide, site=None) if number < count else slide
        for number, slide in enumerate(cohort)
    ]
    return replace(cohort, slides=slides)


def test_what_is_done_where_nobody_says(site_cohort, tmp_path):
    settings = run_of(site_cohort, tmp_path)
    cohort = opened(site_cohort)

    def usual(slides, **changes):
        found = settle_sites(replace(settings, **changes), slides, slides)
        return found.settings.standardise, " ".join(found.notes)

    assert usual(cohort)[0] == "site"
    assert settle_sites(settings, cohort, cohort).settings.negatives == "site"
    few = settle_sites(settings, *[cohort.subset(range(18))] * 2).settings
    assert (few.standardise, few.negatives) == ("site", "all")
    assert usual(without_sites(cohort, 24)) == ("no", "")
    one = [replace(slide, site="here") for slide in cohort]
    kind, said = usual(replace(cohort, slides=one))
    assert kind == "no"
    assert "only one site" in said
    kind, said = usual(without_sites(cohort, 2))
    assert kind == "no"
    assert "2 of 24 slides have no site" in said
    assert "--standardise site" not in said  # which would not be possible
    assert usual(cohort.subset(range(6)))[0] == "no"  # two slides of each
    kind, said = usual(replace(cohort, slides=[
        s for s in cohort if (s.site, s.label) != ("site-b", "b")
    ]))  # fmt: skip
    assert kind == "site"
    assert "one class alone: site-b." in said
    told = [replace(s, site=f"site-{s.label}") for s in cohort]
    kind, said = usual(replace(cohort, slides=told))
    assert kind == "no"
    assert "one class alone" in said
    with pytest.raises(InputError, match="2 of 24 slides have no site"):
        usual(without_sites(cohort, 2), standardise="site")


def test_a_batch_must_hold_enough_slides_of_a_site(site_cohort, tmp_path):
    """Of many sites, or in small batches, hardly one of the same site is beside."""
    cohort = opened(site_cohort)
    settings = run_of(site_cohort, tmp_path)

    def settled(slides, **changes):
        return settle_sites(replace(settings, **changes), slides, slides)

    assert settled(cohort).settings.negatives == "site"
    assert settled(cohort, batch_size=12).settings.negatives == "all"
    many = [
        replace(s, name=f"{s.name}-{n}", site=f"{s.site}-{n}", patient=None)
        for n in range(12)
        for s in cohort
    ]
    found = settled(replace(cohort, slides=many), batch_size=None)  # 36 sites of 8
    assert (found.settings.standardise, found.settings.negatives) == ("site", "all")


def test_slides_that_are_kept_apart_from_no_other(site_cohort, tmp_path):
    cohort = opened(site_cohort)
    settings = replace(run_of(site_cohort, tmp_path), negatives="site")
    one = [replace(s, patient="one" if s.site == "site-b" else s.name) for s in cohort]
    said = settle_sites(settings, *[replace(cohort, slides=one)] * 2).notes
    (told,) = (note for note in said if "of one patient alone" in note)
    assert "site-b" in told
    all_one = replace(cohort, slides=[replace(s, patient=s.site) for s in cohort])
    with pytest.raises(InputError, match="--negatives all"):
        settle_sites(settings, all_one, all_one)
    unsaid = settle_sites(replace(settings, negatives=None), all_one, all_one)
    assert unsaid.settings.negatives == "all"


def test_statistics_are_of_slides_without_labels_too(site_cohort, tmp_path):
    """And never of slides to validate or test on."""
    cohort = opened(site_cohort)
    slides = [
        replace(
            s,
            label=s.label if n % 8 < 2 else None,
            split="test" if n >= 20 else "val" if n >= 16 else None,
        )
        for n, s in enumerate(cohort)
    ]
    cohort = replace(cohort, slides=slides)
    learned_from = cohort.subset(n for n in range(16) if n % 8 < 2)
    settings = run_of(site_cohort, tmp_path, objective="classify", standardise="site")
    by = settle_sites(settings, cohort, learned_from).standardiser
    for site, scale in by.scales.items():
        x = [s.stored() for s in slides if s.site == site and s.split is None]
        np.testing.assert_allclose(scale.mean, np.concatenate(x).mean(0), atol=1e-4)
    assert sum(one.slides for one in by.card.sites) == 16


def test_slides_of_found_sites_are_known_again(site_cohort, tmp_path):
    """Those that nothing was learned from too: who could say of which group one is?"""
    cohort = opened(write_site_cohort(tmp_path, printed=True))
    slides = [
        replace(s, site=None, split="test" if n % 4 == 3 else None)
        for n, s in enumerate(cohort)
    ]
    cohort = replace(cohort, slides=slides)
    settings = replace(run_of(site_cohort, tmp_path), sites="found")
    by = settled_by(settings, cohort).standardiser.card
    # Groups that a model to start from knows keep their names, with fewer slides too.
    part = cohort.subset(n for n in range(24) if n // 2 % 3 != 0 or n > 20)
    again = with_found_sites(part, settings, by)
    for slide in again:
        assert slide.site == by.known_site(slide.facts)
    unasked = with_found_sites(part, replace(settings, sites=None), by)
    assert [one.site for one in unasked] == [one.site for one in again]
    found = {by.known_site(s.facts) for s in cohort}
    assert found == {"found-1", "found-2", "found-3"}
    # Of new slides new groups are made.
    others = [
        replace(s, facts=replace(s.facts, slide_fingerprint=f"new {s.name}"))
        for s in cohort
    ]
    named = {
        s.site for s in with_found_sites(replace(cohort, slides=others), settings, by)
    }
    assert named == {"found-4", "found-5", "found-6"}


def settled_by(settings, cohort):
    found = with_found_sites(cohort, settings)
    part = found.subset(n for n, slide in enumerate(found) if slide.split is None)
    return settle_sites(settings, found, part)


def test_a_model_that_goes_on_keeps_its_standardising(
    site_cohort, by_default, tmp_path
):
    settings = run_of(
        site_cohort, tmp_path / "run", init=str(by_default.best), epochs=1
    )
    result = finish(train(replace(settings, objective="classify", batch_size=8)))
    before, after = (
        load_model(one).standardiser for one in (by_default.best, result.last)
    )
    assert before.card.site_names == after.card.site_names
    for name, scale in before.scales.items():
        np.testing.assert_array_equal(after.scales[name].mean, scale.mean)
    cohort = without_sites(opened(site_cohort), 24)
    with pytest.raises(InputError, match="standardised per site"):
        finish(train(replace(settings, out=str(tmp_path / "two")), cohort=cohort))


def test_batches_of_one_site(site_cohort):
    cohort = opened(site_cohort)
    plan = SlidePlan(cohort, THE_PAPERS, 6, 0, CPU, by_site=True)
    assert plan.steps_per_epoch == 6  # two of four slides, of each of three sites
    for epoch in range(2):
        steps = range(epoch * 6, epoch * 6 + 6)
        drawn = [plan.slides(step) for step in steps]
        assert all(len({cohort[int(i)].site for i in one}) == 1 for one in drawn)
        assert sorted(np.concatenate(drawn).tolist()) == list(range(24))
    assert not np.array_equal(plan.slides(0), plan.slides(6))


def test_who_is_kept_apart():
    patients, sites = [0, 0, 1, 2], [0, 0, 0, 1]
    left_out = no_negatives(torch.tensor([patients, sites]).T)
    for i in range(4):
        for j in range(4):
            negative = patients[i] != patients[j] and sites[i] == sites[j]
            assert bool(left_out[i, j]) == (i != j and not negative)


@pytest.mark.parametrize("negatives", ["all", "site"])
def test_a_run_keeps_apart_by_the_names_of_patients_and_sites(
    site_cohort, tmp_path, negatives
):
    cohort = opened(site_cohort)
    slides = [replace(s, patient=None if n > 20 else s.patient)
              for n, s in enumerate(cohort)]  # fmt: skip
    cohort = replace(cohort, slides=slides)
    settings = replace(run_of(site_cohort, tmp_path), negatives=negatives)
    left_out = no_negatives(kept_apart(settings, cohort))
    for i, one in enumerate(cohort):
        for j, other in enumerate(cohort):
            same = one.patient is not None and one.patient == other.patient
            far = negatives == "site" and one.site != other.site
            assert bool(left_out[i, j]) == (i != j and (same or far))
    alone = [replace(s, patient=s.name) for s in cohort]
    nobody = kept_apart(settings, replace(cohort, slides=alone))
    assert (nobody is None) == (negatives == "all")


def test_the_loss_over_those_kept_apart():
    """By a loop, with the formula of the paper and the sum over negatives alone."""
    torch.manual_seed(0)
    z = torch.randn(2, 4, 8, dtype=torch.float64)
    groups = torch.tensor([[0, 0], [0, 0], [1, 0], [2, 1]])
    unit = torch.nn.functional.normalize(z.flatten(0, 1).float(), dim=1)
    item = [0, 1, 2, 3] * 2
    total = 0.0
    for i in range(8):
        odds = {}
        for a in range(8):
            other = item[a] != item[i]
            same_patient = groups[item[a], 0] == groups[item[i], 0]
            same_site = groups[item[a], 1] == groups[item[i], 1]
            if a != i and not (other and (same_patient or not same_site)):
                odds[a] = float(torch.exp(unit[i] @ unit[a] / 0.5))
        total -= np.log(odds[(i + 4) % 8] / sum(odds.values()))
    found = nt_xent(z, 0.5, no_negatives(groups))
    assert float(found) == pytest.approx(total / 8, rel=1e-5)


def test_a_loss_at_chance_is_noticed_where_few_are_kept_apart(
    site_cohort, tmp_path, monkeypatch
):
    groups = torch.tensor([[0, 0], [0, 0], [1, 0], [2, 1]])
    alike = nt_xent(torch.ones(2, 4, 8), 0.07, no_negatives(groups))
    assert float(alike) == pytest.approx(level_of_chance(groups, 2), rel=1e-5)
    seen = []
    monkeypatch.setattr(
        "spt_core.training.run.Alarms",
        lambda **told: seen.append(told["chance"]) or Alarms(**told),
    )
    finish(train(run_of(site_cohort, tmp_path / "run", epochs=1)))
    # Each of the eight slides of a site, but for those of its patient.
    patients = [slide.patient for slide in opened(site_cohort)]
    apart = [9 - patients.count(one) for one in patients]
    assert seen == [pytest.approx(np.log(2 * np.array(apart) - 1).mean())]


def test_sites_are_found_by_the_slides_means(site_cohort, tmp_path):
    cohort = opened(site_cohort)
    found = find_sites(cohort)
    pairs = {(slide.site, name) for slide, name in zip(cohort, found, strict=True)}
    assert len(pairs) == SITES
    assert set(found) == {"found-1", "found-2", "found-3"}
    events = train(run_of(site_cohort, tmp_path / "run", sites="found", epochs=1))
    said, result = [], None
    while result is None:
        try:
            said.append(str(getattr(next(events), "message", "")))
        except StopIteration as stop:
            result = stop.value
    table = next(i for i, one in enumerate(said) if "found-1" in one)
    assert table < next(i for i, one in enumerate(said) if "steps" in one)
    assert read_model_card(result.last).standardising.sites_from == "found"
    # A few slides that are like no others are no site, however far away they lie.
    rng = np.random.default_rng(0)
    odd = [
        replace(s, x=s.x - s.x.mean(axis=0) + rng.normal(size=DIM) + 1e3 * (n < 2))
        for n, s in enumerate(cohort)
    ]
    with pytest.raises(InputError, match="no clear groups"):
        find_sites(replace(cohort, slides=odd))
    alike = [
        replace(slide, x=rng.normal(size=slide.x.shape).astype("f4"))
        for slide in cohort
    ]
    with pytest.raises(InputError, match="no clear groups"):
        find_sites(replace(cohort, slides=alike))


def test_sites_are_taken_from_scanners_where_asked(site_cohort, tmp_path):
    cohort = opened(site_cohort)
    settings = run_of(site_cohort, tmp_path / "run", sites="scanner", epochs=1)
    with pytest.raises(InputError, match="24 of 24 feature files do not state"):
        finish(train(settings, cohort=cohort))
    slides = [
        replace(s, site=None, facts=replace(s.facts, scanner=f"aperio {s.site}"))
        for s in cohort
    ]
    result = finish(train(settings, cohort=replace(cohort, slides=slides)))
    card = read_model_card(result.last).standardising
    assert card.sites_from == "scanner"
    assert card.site_names == ("aperio site-a", "aperio site-b", "aperio site-c")
    # What a new slide's file says of its scanner is enough.
    model = load_model(result.last)
    path = sorted((site_cohort / "features").glob("*.h5"))[0]
    for scanner, kind in (
        ("aperio site-a", "STANDARDISED_BY_SITE"),
        ("another", "SITE_UNKNOWN"),
        (None, "SITE_NOT_NAMED"),
    ):
        tokens = read_for(model, path)
        tokens = replace(tokens, facts=replace(tokens.facts, scanner=scanner))
        said = {one.kind: one.value for one in predict(model, tokens).remarks}
        assert said[RemarkKind[kind]] == scanner


def test_the_card_states_how_slides_were_drawn_and_compared(
    site_cohort, by_default, tmp_path
):
    training = read_model_card(by_default.best).training
    assert (training.negatives, training.site_batches) == ("site", False)
    run = run_of(site_cohort, tmp_path / "run", epochs=1, site_batches=True)
    run = replace(run, objective="classify", batch_size=8)
    training = read_model_card(finish(train(run)).best).training
    assert (training.negatives, training.site_batches) == (None, True)


def test_the_site_is_watched(site_cohort, by_default, tmp_path):
    rows = (by_default.run / "metrics.csv").read_text().splitlines()
    columns = rows[0].split(",")
    last = dict(zip(columns, rows[-1].split(","), strict=True))
    gap = float(last["knn"]) - float(last["site_knn"])
    assert float(last["knn_gap"]) == pytest.approx(gap)
    metrics = read_model_card(by_default.last).metrics
    assert metrics.site_knn == pytest.approx(float(last["site_knn"]))
    settings = replace(run_of(site_cohort, tmp_path), standardise="no")
    asked = AskedOf(classes=2, sites=3, patients=12)
    assert site_wins(metrics, settings, asked) == ""
    won = replace(metrics, knn=0.4, site_knn=0.9)
    said = site_wins(won, settings, asked)
    assert "--standardise site" in said
    assert "0.900" in said
    done = replace(settings, standardise="site", site_batches=True)
    again = site_wins(replace(metrics, knn=0.1, site_knn=0.9), done, asked)
    assert "better than the class" in again
    assert "--standardise" not in again
    # Of few patients it may be anything, and one of two sites is told by chance.
    assert site_wins(won, settings, replace(asked, patients=9)) == ""
    guessed = replace(metrics, knn=0.45, site_knn=0.5)
    assert site_wins(guessed, settings, AskedOf(5, 2, 40)) == ""


def test_a_site_of_one_patient_is_not_asked_for(site_cohort):
    """None of another patient's slides can tell it."""
    cohort = opened(site_cohort)
    one = {"site-c": "somebody"}
    slides = [replace(s, patient=one.get(s.site, s.name)) for s in cohort]
    seen = SlideMonitor(replace(cohort, slides=slides), 0)
    assert (seen.asked_of.sites, seen.asked_of.patients) == (2, 16)
    alone = [replace(s, site=s.name) for s in cohort]
    assert not SlideMonitor(replace(cohort, slides=alone), 0).has_sites


def test_slides_of_other_sites_to_validate_on(site_cohort, tmp_path):
    cohort = opened(site_cohort)
    slides = [
        replace(s, split="val" if s.site == "site-c" else "train") for s in cohort
    ]
    result = finish(
        train(run_of(site_cohort, tmp_path / "run", epochs=1),
              cohort=replace(cohort, slides=slides))
    )  # fmt: skip
    assert read_model_card(result.last).standardising.site_names == ("site-a", "site-b")


def test_tokens_measured_by_hand(site_cohort):
    cohort = opened(site_cohort)
    by = fit_standardiser("site", cohort, "labels")
    for slide in standardised(cohort, by):
        x = np.empty((5, DIM))
        slide.read(np.arange(5), x)
        want = slide.stored()[:5] - by.scales[slide.site].mean
        np.testing.assert_array_equal(x, want / by.scales[slide.site].std)
        assert (
            slide.fingerprint()
            == next(one for one in cohort if one.name == slide.name).fingerprint()
        )


def test_a_site_is_added_from_a_handful_of_its_slides(
    site_cohort, classified, tmp_path, capsys
):
    from spt_core.cli import main

    folder = write_site_cohort(tmp_path, 8, seed=1, sites=1, first=3)
    files = sorted(map(str, (folder / "features").glob("*.h5")))
    out, asked = tmp_path / "more.safetensors", tmp_path / "asked.json"
    add = ["add-site", str(classified.last), "site-d"]
    predict_it = ["predict", str(out), files[0], "--out", str(asked)]
    assert main([*add, *files[:4], "--out", str(out)]) == 0
    assert "4 sites" in capsys.readouterr().out
    for options, verdict in (([], "unlike"), (["--site", "site-d"], None)):
        assert main([*predict_it, *options]) == 0
        (found,) = json.loads(asked.read_text())
        assert (found["verdict"] == "unlike") == (verdict == "unlike")
    assert "site-d" in found["sentence"]
    assert found["remarks"]["standardised by its site"] == "site-d"
    model = load_model(out)
    (site,) = (one for one in model.card.standardising.sites if one.added)
    assert (site.name, site.slides) == ("site-d", 4)
    x = np.concatenate([slide.stored() for slide in opened(folder)][:4])
    scale = model.standardiser.scales["site-d"]
    np.testing.assert_allclose(scale.mean, x.mean(0), atol=1e-4)
    # Nothing else changes, and what is there is not written over unasked.
    before, after = load_file(classified.last), load_file(out)
    for name, tensor in before.items():
        known = after[name] if ".site_" not in name else after[name][:SITES]
        assert torch.equal(known, tensor), name
    assert main(["add-site", str(out), "site-d", *files]) == 1
    assert "already" in capsys.readouterr().err


def test_an_evaluation_says_what_new_sites_were_measured_by(
    site_cohort, classified, tmp_path
):
    from spt_core.studies.embeddings import knowing_sites
    from spt_core.studies.evaluation import evaluate

    folder = write_site_cohort(tmp_path, 16, seed=2, sites=2, first=3)
    labels = read_labels(folder / "labels.csv")
    model = load_model(classified.last)
    found = finish(evaluate(model, folder / "features", labels, folds=2))
    (said,) = (one for one in found.remarks if "does not know these sites" in one)
    assert "site-d 8, site-e 8" in said
    # Slides without a label count, and their sites alone are named that are asked.
    cohort = opened(folder)
    part = cohort.subset(n for n, slide in enumerate(cohort) if slide.site == "site-d")
    knowing, (said,) = knowing_sites(model, part.subset(range(3)), cohort)
    assert "site-d 8)" in said
    x = np.concatenate([slide.stored() for slide in part])
    found_mean = knowing.standardiser.scales["site-d"].mean
    np.testing.assert_allclose(found_mean, x.mean(0), atol=1e-4)
    # The trace is another, and what the model learned holds all the same.
    assert found.row("own classifier").values["accuracy"].mean > 0.8
