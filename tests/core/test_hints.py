"""Settings and their hints: complete, in range, and without torch."""

import subprocess
import sys
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated

import pytest

from spt_core.errors import InputError
from spt_core.hints import Hint, check, problems, settings_of
from spt_core.learning.settings import TrainSettings
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.patches.training.settings import PatchTrainSettings

CLASSES = (
    EncodeSettings,
    ViewSettings,
    TrainSettings,
    Augmentation,
    PatchTrainSettings,
)


@dataclass(frozen=True)
class Made:
    share: Annotated[float, Hint("a share", above=0, below=1)] = 0.5
    count: Annotated[int | None, Hint("a number", minimum=2, maximum=9)] = None
    colour: Annotated[str, Hint("a colour", choices=("red", "blue"))] = "red"
    span: Annotated[tuple[float, float], Hint("two", above=0, is_range=True)] = (1, 2)
    file: Annotated[Path | None, Hint("a file")] = None
    own: str = "no hint, so no option"


def test_settings_are_read_from_the_annotations():
    known = settings_of(Made)
    assert list(known) == ["share", "count", "colour", "span", "file"]
    assert (known["count"].kind, known["count"].optional) == (int, True)
    assert (known["span"].kind, known["span"].length) == (float, 2)
    assert (known["file"].kind, known["file"].default) == (Path, None)
    assert known["share"].label == "Share"
    assert known["share"].flags == ("--share",)


@pytest.mark.parametrize(
    ("values", "sentences"),
    [
        ({"share": 0.2, "count": None, "span": (1, 1)}, []),
        ({"share": 1.0}, ["share must be greater than 0 and less than 1, not 1."]),
        ({"share": float("nan")}, ["share must be greater than 0 and less than 1, "
                                   "not nan."]),
        ({"count": 1}, ["count must be a number from 2 to 9, not 1."]),
        ({"colour": "green"},
         ["There is no colour 'green'. Choose one of: red, blue."]),
        ({"span": (2, 1)},
         ["span must be the lowest, then the highest value, not 2 1."]),
        ({"span": (0, 1)}, ["span must be greater than 0, not 0 1."]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_a_sentence(values, sentences):
    assert problems(Made, values) == sentences


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(InputError, match=r"share must .* count must .* And this\."):
        check(Made(share=2, count=1), "And this.")


@pytest.mark.parametrize("cls", CLASSES)
def test_hints_fit_their_fields(cls):
    for name, setting in settings_of(cls).items():
        hint = setting.hint
        assert hint.help, name
        assert not hint.help.endswith("."), name
        assert len(hint.choice_labels) in (0, len(hint.choices)), name
        if setting.default is not MISSING:
            assert setting.problem(setting.default, name) is None
        if isinstance(hint.metavar, tuple):
            assert len(hint.metavar) == setting.length, name


@pytest.mark.parametrize(
    "module",
    [
        "spt_core",
        "spt_core.hints",
        "spt_core.insight",
        "spt_core.insight.results",
        "spt_core.learning",
        "spt_core.learning.settings",
        "spt_core.learning.views",
        "spt_core.patches",
        "spt_core.patches.settings",
        "spt_core.patches.training",
        "spt_core.patches.training.augmentation_settings",
        "spt_core.patches.training.settings",
        "spt_core.training.options",
    ],
)
def test_settings_and_results_load_no_torch(module):
    code = (
        f"import sys, {module}\n"
        "loaded = {'torch', 'torchvision', 'timm', 'magicgui'} & set(sys.modules)\n"
        "sys.exit(f'loads {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
