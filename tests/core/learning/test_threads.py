"""How many of torch's threads a run uses, and how they wait for one another."""

import os
import subprocess
import sys

import pytest
import torch

from spt_core.events import Progress
from spt_core.learning.training import train
from tests.core.learning.runs import tiny


def test_a_run_takes_the_threads_it_can_use_and_gives_them_back(
    cohort, tmp_path, monkeypatch
):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    torch.set_num_threads(2)
    try:
        seen = set()
        for event in train(tiny(cohort, tmp_path / "run")):
            if isinstance(event, Progress):
                seen.add(torch.get_num_threads())
        assert seen == {1}
        assert torch.get_num_threads() == 2
        events = train(tiny(cohort, tmp_path / "stopped"))
        for event in events:
            if isinstance(event, Progress) and event.done:
                break
        events.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.slow
def test_threads_of_the_training_commands_sleep_while_they_wait(tmp_path):
    """Said before torch is loaded, or it would not be heard."""
    for command in ("train", "train_patches"):
        code = (
            "import os, sys, importlib;"
            f"command = importlib.import_module('spt_core.commands.{command}');"
            "assert 'torch' not in sys.modules;"
            "heard = []; late = lambda: heard.append('torch' in sys.modules);"
            "command.sleep_while_waiting = late;"
            "from spt_core.cli import main;"
            f"name, out = '{command}'.replace('_', '-'), r'{tmp_path / command}';"
            "options = ['--objective', 'simclr'] if name == 'train' else "
            "['--method', 'simclr'];"
            f"main([name, r'{tmp_path / 'none'}', '--out', out, *options]);"
            "assert heard == [False], heard"
        )
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
