"""Options of commands: made from the settings, told without torch."""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from spt_core.cli import COMMANDS, build_parser, main
from spt_core.commands.encode import WorkerSettings
from spt_core.commands.help_page import EXAMPLES
from spt_core.commands.options import add_options, settings_from
from spt_core.commands.train import train_settings
from spt_core.commands.train_patches import patch_settings
from spt_core.learning.settings import TrainSettings
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.patches.training.settings import PatchTrainSettings

# What scripts rely on: kind, number, default, choices and whether it must be given.
EXPECTED = json.loads(Path(__file__).with_name("command_options.json").read_text())
TRAIN = ["train", "x", "--objective", "simclr", "--out", "y"]


def own_parser(command):
    parser = build_parser(command)
    commands = next(
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return commands.choices[command]


def described(action):
    kind = "switch" if action.nargs == 0 else getattr(action.type, "__name__", "str")
    default = action.default
    return [
        kind,
        action.nargs,
        list(default) if isinstance(default, tuple) else default,
        list(action.choices) if action.choices else None,
        action.required,
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_options_stay_what_they_are(command):
    found = {
        " ".join(action.option_strings) or action.dest: described(action)
        for action in own_parser(command)._actions
        if action.dest != "help"
    }
    assert found == EXPECTED[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    parser = own_parser(command)
    assert all(action.help for action in parser._actions)
    assert parser.format_help()


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_commands(command):
    for line in EXAMPLES[command]:
        spt, *words = shlex.split(line, comments=True)
        assert (spt, words[0]) == ("spt", command)
        build_parser(command).parse_args(words)
        assert line in own_parser(command).format_help()


def test_a_mistyped_command_is_one_line_that_names_the_help(capsys):
    for words, said in (
        (["predict", "x", "--nonsense"], "spt predict: it does not take --nonsense."),
        (["encode", "x"], "spt encode: the following arguments are required: --out."),
    ):
        with pytest.raises(SystemExit) as info:
            main(words)
        assert info.value.code == 2
        told = capsys.readouterr().err
        assert told == f"{said} See 'spt {words[0]} --help'.\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_no_torch(command):
    code = (
        "import sys; from spt_core.cli import main\n"
        f"try: main([{command!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "loaded = {'torch', 'torchvision', 'timm', 'magicgui'} & set(sys.modules)\n"
        "sys.exit(f'loads {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_options_are_the_defaults(tmp_path):
    args = own_parser("encode").parse_args(["a.svs", "--out", "features"])
    assert settings_from(args, EncodeSettings) == EncodeSettings()
    assert settings_from(args, WorkerSettings).workers == 0
    features = str(tmp_path)
    args = own_parser("train").parse_args(
        [features, "--objective", "simclr", "--out", "run"]
    )
    assert train_settings(args) == TrainSettings(features, "simclr", "run")
    args = own_parser("train-patches").parse_args(
        [features, "--method", "simclr", "--out", "encoder.safetensors"]
    )
    plain = PatchTrainSettings((features,), "simclr", "run")
    assert patch_settings(args, Path("run")) == plain


def test_options_reach_their_settings(tmp_path):
    args = own_parser("train").parse_args(
        [
            *(str(tmp_path), "--objective", "byol", "--out", "run", "--no-crop"),
            *("--mask-keep", "0.2", "0.4", "--max-tokens", "32", "--full-precision"),
            *("--turn", "--shift", "16"),
            *("--lr", "0.001", "--dim", "64", "--labels", "labels.csv"),
        ]
    )
    settings = train_settings(args)
    views = ViewSettings(
        crop=False, mask_keep=(0.2, 0.4), max_tokens=32, turn=True, shift=16
    )
    assert settings.views == views
    assert not settings.mixed_precision
    assert settings.learning_rate == 0.001
    assert settings.architecture == {"dim": 64}
    assert settings.labels == str(Path("labels.csv").absolute())
    args = own_parser("train-patches").parse_args(
        [
            *(str(tmp_path), "--method", "hidisc", "--out", "own", "--memory", "2"),
            *("--scale", "0.5", "1.5", "--stain", "0.1", "--group", "3", "4"),
            *("--init", "none", "--name", "mine", "--table", "tiles.csv"),
        ]
    )
    settings = patch_settings(args, Path("own"))
    assert settings.memory_gb == 2
    assert settings.augmentation == Augmentation(scale=(0.5, 1.5), stain=0.1)
    assert settings.group == (3, 4)
    assert (settings.init, settings.name) == ("none", "mine")
    assert settings.tables == (str(Path("tiles.csv").absolute()),)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["encode", "x", "--out", "y", "--workers", "-1"], "--workers must be at"),
        (
            [*TRAIN, "--epochs", "0"],
            "--epochs must be greater than 0, not 0.",
        ),
        (
            [*TRAIN, "--mask-keep", "0.5", "0.1"],
            "--mask-keep must be the lowest, then the highest value, not 0.5 0.1.",
        ),
        (
            ["train-patches", "x", "--method", "simclr", "--out", "y", "--blend", "2"],
            "--blend must be greater than 0 and at most 1, not 2.",
        ),
        (
            ["evaluate", "x", "y", "--labels", "z", "--out", "o", "--folds", "1"],
            "--folds must be at least 2, not 1.",
        ),
        (["predict", "x", "--margin", "2"], "--margin must be a number from 0 to 1"),
        (["heatmap", "x", "--out", "a.png", "--stride", "0"], "--stride must be"),
    ],
)
def test_numbers_out_of_range_are_a_sentence_by_the_options_name(
    arguments, sentence, capsys
):
    assert main(arguments) == 1
    assert sentence in capsys.readouterr().err


def test_help_states_units_and_what_automatic_means():
    parser = argparse.ArgumentParser()
    add_options(parser, EncodeSettings, "patch_size", "min_tissue")
    words = " ".join(parser.format_help().split())
    assert "side of a patch (in px, default: the encoder's own)" in words
    assert "(default: 0.25)" in words
