"""A slide's site reaches every answer, and its tokens are the same in all of them."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from spt_core import load_model
from spt_core.engine.handlers import Handlers
from spt_core.engine.protocol import (
    Analysed,
    AskWithout,
    CheckFaithfulness,
    ClassesMapped,
    FaithfulnessChecked,
    Predicted,
    WithoutAnswered,
)
from spt_core.insight.class_map import class_map
from spt_core.insight.faithfulness import faithfulness
from spt_core.insight.growing import predict_slide
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.results import Prediction, RemarkKind, Verdict
from spt_core.learning.model_card import SiteFacts, Standardising
from spt_core.learning.model_file import save_model
from spt_core.learning.standardising import Standardiser, TokenScale
from spt_core.patches import EncodeSettings
from spt_core.slides import open_slide
from tests.core.engine.pipe import analysis, of
from tests.core.insight.slides import make_model
from tests.events import run_through


@pytest.fixture(scope="module")
def site_model(tmp_path_factory):
    """Knows two sites, by statistics that nobody could mistake for one another."""
    path = make_model(tmp_path_factory.mktemp("model") / "m.safetensors")
    rng = np.random.default_rng(0)
    scales = {
        name: TokenScale(
            rng.normal(size=64).astype(np.float32),
            rng.uniform(0.2, 2, 64).astype(np.float32),
        )
        for name in ("here", "there")
    }
    facts = tuple(SiteFacts(name, 5, 500) for name in scales)
    by = Standardiser(Standardising("site", facts, "labels"), scales)
    save_model(path, load_model(path).standardised_by(by))
    return path


def answered(request):
    seen, last = run_through(Handlers().start(request))
    return [*seen, last]


def test_alike_growing_in_the_engine_and_from_a_file(slide, site_model, tmp_path):
    model = load_model(site_model)
    request = analysis(slide, tmp_path, model=site_model, site="here", device="cpu")
    messages = answered(request)
    features = of(messages, Analysed)[0].features
    grown, last = run_through(
        predict_slide(
            model,
            slide,
            tmp_path / "own",
            EncodeSettings(batch_size=16, device="cpu"),
            site="here",
        )
    )
    tokens = read_for(model, features, site="here")
    asked = predict(model, tokens)
    # By hand, from the file and the statistics.
    scale = model.standardiser.scales["here"]
    x = (tokens.x.astype(np.float32) - scale.mean) / scale.std
    with torch.no_grad():
        h, attention = model.encoder.attend(
            torch.from_numpy(x), torch.from_numpy(tokens.p)
        )
    engine = of(messages, Predicted)[-1].prediction
    for one in (asked, last, engine):
        np.testing.assert_array_equal(one.embedding, h.numpy())
        np.testing.assert_array_equal(one.attention, attention.numpy())
        kinds = {remark.kind: remark.value for remark in one.remarks}
        assert kinds[RemarkKind.STANDARDISED_BY_SITE] == "here"
    drawn = of(messages, ClassesMapped)[-1].class_map
    _, again = run_through(class_map(model, tokens))
    np.testing.assert_array_equal(drawn.probabilities, again.probabilities)
    bare = replace(tokens, x=x)
    _, plain = run_through(class_map(model.standardised_by(Standardiser()), bare))
    np.testing.assert_array_equal(drawn.probabilities, plain.probabilities)
    # Parts of it too, whichever patches had come by then.
    parts = [one for one in grown if isinstance(one, Prediction)]
    parts += [one.prediction for one in of(messages, Predicted)]
    assert len(parts) > 4
    row = {tuple(place): number for number, place in enumerate(tokens.xy.tolist())}
    for one in parts:
        rows = [row[tuple(place)] for place in one.xy.tolist()]
        with torch.no_grad():
            h, _ = model.encoder.attend(
                torch.from_numpy(x[rows]), torch.from_numpy(tokens.p[rows])
            )
        np.testing.assert_allclose(one.embedding, h.numpy(), atol=1e-5)
    # Questions are about the same tokens.
    title = slide.name
    half = np.array([(0, 0), (1300, 0), (1300, 2200), (0, 2200)], float)
    without = AskWithout(features, title, site_model, (half,), "cpu", "here")
    found = of(answered(without), WithoutAnswered)[0].what_if
    np.testing.assert_array_equal(found.before.embedding, asked.embedding)
    check = CheckFaithfulness(features, title, site_model, "cpu", None, "here")
    found = of(answered(check), FaithfulnessChecked)[0].faithfulness
    _, again = run_through(faithfulness(model, tokens))
    np.testing.assert_array_equal(found.most_first, again.most_first)
    # Kept features, asked again as of elsewhere and of nowhere.
    for site, verdict in (("there", None), (None, Verdict.UNLIKE)):
        other = answered(replace(request, site=site, class_map=False))
        said = of(other, Predicted)[-1].prediction
        assert not np.array_equal(said.embedding, asked.embedding)
        assert (said.verdict == Verdict.UNLIKE) == (verdict == Verdict.UNLIKE)


def standardised_model(folder, card, scales=None):
    path = make_model(folder / "m.safetensors")
    by = Standardiser(card, scales or {})
    save_model(path, load_model(path).standardised_by(by))
    return path


def test_a_part_of_a_slide_is_measured_by_itself(slide, tmp_path):
    """Where a slide measures itself, an answer that grows is of what was seen by then.

    The last one is bitwise that of the whole slide, in the engine too.
    """
    path = standardised_model(tmp_path, Standardising("slide"))
    model = load_model(path)
    request = analysis(slide, tmp_path, model=path, device="cpu", class_map=True)
    messages = answered(request)
    settings = EncodeSettings(batch_size=16, device="cpu")
    grown, last = run_through(predict_slide(model, slide, tmp_path / "own", settings))
    features = of(messages, Analysed)[0].features
    tokens = read_for(model, features)
    parts = [one for one in grown if isinstance(one, Prediction)]
    parts += [one.prediction for one in of(messages, Predicted)]
    row = {tuple(place): number for number, place in enumerate(tokens.xy.tolist())}
    assert len({one.seen for one in parts}) > 3
    for one in parts:
        rows = [row[tuple(place)] for place in one.xy.tolist()]
        x = tokens.x[rows].astype(np.float64)
        x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
        with torch.no_grad():
            h, _ = model.encoder.attend(
                torch.from_numpy(x), torch.from_numpy(tokens.p[rows])
            )
        np.testing.assert_allclose(one.embedding, h.numpy(), atol=1e-3)
        assert RemarkKind.STANDARDISED_BY_SLIDE in {r.kind for r in one.remarks}
    asked = predict(model, tokens)
    for one in (last, of(messages, Predicted)[-1].prediction):
        np.testing.assert_array_equal(one.embedding, asked.embedding)
        np.testing.assert_array_equal(one.attention, asked.attention)
    # Windows of the class map are of tokens measured by the whole slide.
    whole = replace(tokens, x=model.prepared(tokens).x)
    _, plain = run_through(class_map(model.standardised_by(Standardiser()), whole))
    drawn = of(messages, ClassesMapped)[-1].class_map
    np.testing.assert_array_equal(drawn.probabilities, plain.probabilities)


def test_a_slide_that_is_known_is_known_from_its_first_patches_on(slide, tmp_path):
    with closing(open_slide(slide)) as opened:
        fingerprint = opened.fingerprint
    fact = SiteFacts("here", 1, 90, slide_fingerprints=frozenset({fingerprint}))
    scale = TokenScale(np.full(64, 0.1, np.float32), np.ones(64, np.float32))
    path = standardised_model(tmp_path, Standardising("site", (fact,)), {"here": scale})
    messages = answered(analysis(slide, tmp_path, model=path, device="cpu"))
    found = [one.prediction for one in of(messages, Predicted)]
    assert len({one.seen for one in found}) > 3
    for one in found:
        kinds = {remark.kind: remark.value for remark in one.remarks}
        assert kinds[RemarkKind.STANDARDISED_BY_SITE] == "here"
