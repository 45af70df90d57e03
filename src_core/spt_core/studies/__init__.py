"""Judging models: evaluation and its report."""
