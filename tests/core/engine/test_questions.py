"""Questions about an analysed slide, against the core's own answers."""

import numpy as np

from spt_core import load_model, read_tokens
from spt_core.insight.faithfulness import faithfulness
from spt_core.insight.predicting import predict, read_for
from spt_core.insight.wording import faithfulness_sentence
from tests.core.engine.pipe import of
from tests.core.insight.conftest import finish


def test_explore(engine, analysed):
    features = analysed[-1]["features"]
    end = engine.finish(engine.ask("explore", features=features))[-1]
    assert end["event"] == "done"
    tokens = read_tokens(features)
    np.testing.assert_array_equal(engine.array(end, "l0_xy"), tokens.xy)
    cluster, outlier = engine.array(end, "cluster"), engine.array(end, "outlier")
    assert cluster.shape == outlier.shape == (len(tokens),)
    assert len(end["names"]) == len(end["colours"]) == cluster.max() + 1
    # Each patch is nearer to its own kind's middle than to most others'.
    middles = np.stack(
        [tokens.x[cluster == k].mean(axis=0) for k in range(cluster.max() + 1)]
    )
    far = np.linalg.norm(tokens.x[:, None] - middles, axis=2)
    assert (far.argmin(axis=1) == cluster).mean() > 0.8
    # The same slide again keeps its colours.
    again = engine.finish(engine.ask("explore", features=features))[-1]
    assert sorted(again["colours"]) == sorted(end["colours"])


def test_what_if(engine, analysed, model):
    features = analysed[-1]["features"]
    loaded = load_model(model)
    tokens = read_for(loaded, features)
    # Two rectangles around whole patches; the second overlaps the first.
    left, top = tokens.xy.min(axis=0)
    right, bottom = tokens.xy.max(axis=0) + 128
    half = (left + right) / 2
    one = [[left, top], [half, top], [half, bottom], [left, bottom]]
    two = [[left, top], [half - 300, top], [half - 300, bottom], [left, bottom]]
    region = np.array([one, two], float).tolist()
    seen = engine.finish(
        engine.ask("what_if", features=features, model=model, region=region)
    )
    end = seen[-1]
    assert end["event"] == "done", end
    gone = tokens.xy[:, 0] + 64 < half
    assert end["removed"] == gone.sum()
    np.testing.assert_array_equal(engine.array(end, "removed"), gone)
    after = predict(loaded, tokens.take(np.flatnonzero(~gone)))
    np.testing.assert_allclose(
        end["after"]["probabilities"], after.probabilities, rtol=1e-5
    )
    np.testing.assert_allclose(
        end["before"]["probabilities"], analysed[-1]["probabilities"], rtol=1e-5
    )
    assert of(seen, "progress")


def test_a_region_of_nothing_or_of_everything_is_told(engine, analysed, model):
    features = analysed[-1]["features"]
    for l0_size, word in ((10, "no tissue"), (1e6, "all of the tissue")):
        square = [[0, 0], [l0_size, 0], [l0_size, l0_size], [0, l0_size]]
        end = engine.finish(
            engine.ask("what_if", features=features, model=model, region=[square])
        )[-1]
        assert end["event"] == "failed"
        assert word in end["sentence"]


def test_faithfulness(engine, analysed, model):
    features = analysed[-1]["features"]
    seen = engine.finish(engine.ask("faithfulness", features=features, model=model))
    end = seen[-1]
    assert end["event"] == "done", end
    loaded = load_model(model)
    expected, _ = finish(faithfulness(loaded, read_for(loaded, features)))
    for name, values in (
        ("removed", expected.removed),
        ("most", expected.most_first),
        ("random", expected.random),
        ("least", expected.least_first),
    ):
        np.testing.assert_allclose(engine.array(end, name), values, atol=1e-5)
    said = faithfulness_sentence(expected)
    assert end["sentence"].split(":")[0] == said.split(":")[0]
    assert len(of(seen, "progress")) > 1


def test_missing_features_are_a_sentence(engine, model, tmp_path):
    missing = tmp_path / "gone.h5"
    for do, facts in (
        ("explore", {}),
        ("what_if", {"model": model, "region": []}),
        ("faithfulness", {"model": model}),
    ):
        end = engine.finish(engine.ask(do, features=missing, **facts))[-1]
        assert end["event"] == "failed"
        assert "gone.h5" in end["sentence"]
        end = engine.finish(
            engine.ask(do, features=missing, title="Biopsy 7", **facts)
        )[-1]
        assert "Biopsy 7" in end["sentence"]
        assert "gone" not in end["sentence"]


def test_features_of_another_kind_are_told_by_the_title(engine, analysed):
    features = analysed[-1]["features"]
    end = engine.finish(
        engine.ask(
            "what_if", features=features, model="bundled", region=[], title="Biopsy 7"
        )
    )[-1]
    assert (end["event"], end["kind"]) == ("failed", "model")
    assert "The tokens of Biopsy 7 do not fit" in end["sentence"]
