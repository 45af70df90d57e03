"""Synthetic H&E slides whose truth is known: sample data, demo and tests."""

from spt_core.sample.cohort import write_sample_cohort
from spt_core.sample.single import sample_slide, write_sample_slide
from spt_core.sample.tissue import TUMOURS, TissueClass
from spt_core.sample.truth import truth_paths

__all__ = [
    "TUMOURS",
    "TissueClass",
    "sample_slide",
    "truth_paths",
    "write_sample_cohort",
    "write_sample_slide",
]
