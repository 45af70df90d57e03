"""Two kills of each long command; ``make attack`` kills them a hundred times."""

import os
import random

import pytest

from tests.attack.kills import COMMANDS, attack, contents, differences, write_data

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="there are no process groups"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_ends_as_if_nobody_had_disturbed_it(
    name, data, tmp_path, monkeypatch
):
    monkeypatch.delenv("NAPARI_SPT_ONNX")
    count, _, wrong = attack(name, data, tmp_path, 2, random.Random(3))
    assert not wrong
    assert count["kills"] == count["equal"] == 2


def test_the_comparison_sees_a_change(tmp_path):
    (tmp_path / "out").mkdir()
    table = tmp_path / "out/tables.csv"
    table.write_text("method,score,seconds\nmean,0.5,1.0\n")
    want = contents(tmp_path)
    table.write_text("method,score,seconds\nmean,0.5,2.0\n")
    assert differences(want, contents(tmp_path)) == []
    table.write_text("method,score,seconds\nmean,0.6,1.0\n")
    assert len(differences(want, contents(tmp_path))) == 1
    table.unlink()
    assert differences(want, contents(tmp_path))
