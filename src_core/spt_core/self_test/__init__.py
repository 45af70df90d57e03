"""A self-test of a computer: what it has, and whether each part of the work runs."""

from spt_core.self_test.checks import examine
from spt_core.self_test.finding import Finding, Status

__all__ = ["Finding", "Status", "examine"]
