"""Tests of the torch parts."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Models here are tiny: threads only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
