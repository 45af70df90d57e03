"""The made-up cohort and models of the tests of insight, for evaluations of them."""

from tests.core.insight.conftest import _one_thread, mean_model, model_path, trained

__all__ = ["_one_thread", "mean_model", "model_path", "trained"]
