"""Files of settings: values of other types, and little text that means much."""

import time

import pytest

from spt_core.errors import InputError
from spt_core.learning.settings import TrainSettings
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.study_settings import StudySettings
from spt_core.training.config_file import read_config


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    settings = TrainSettings(features="f", objective="simclr", out="run")
    settings.write(path)

    def changed(name, text):
        lines = path.read_text().splitlines()
        (at,) = (i for i, one in enumerate(lines) if one.strip().startswith(name + ":"))
        start = lines[at].partition(":")[0]
        lines[at] = f"{start}: {text}"
        path.write_text("\n".join(lines))
        return path

    return changed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("features", ".nan"),
        ("features", '"a\\0b"'),
        ("labels", "[1]"),
        ("slide_table", '"\\ud800"'),
        ("architecture", ".nan"),
        ("site_batches", "{a: 1}"),
        ("mask", "-1"),
        ("split", "null"),
        ("temperature", ".inf"),
        ("seed", "99999999999999999999999"),
        ("seed", "1.5"),
        ("seed", "0x" + "f" * 5000),
        ("seed", "1" + ":1" * 5000),
        ("crop_area", "1"),
    ],
)
def test_a_value_of_another_type_is_a_sentence(config, name, text):
    with pytest.raises(InputError, match=r"config\.yaml") as refused:
        TrainSettings.read(config(name, text))
    assert len(str(refused.value)) < 500


def test_what_was_written_is_read(config):
    read = TrainSettings.read(config("features", "f"))
    assert read == TrainSettings(features="f", objective="simclr", out="run")


def doubled(n):
    return f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n"


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 {x: 1}\n" + "".join(map(doubled, range(1, 40))),
        "a: 1" + ":1" * 100_000,
        "a: 0x" + "f" * 200_000,
        "k: 1\n" * 200_000,
        "- " * 100_000,
    ],
)
def test_little_text_that_means_much_is_refused_soon(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(InputError, match=r"config\.yaml is damaged"):
        read_config(path)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", [TrainSettings, BenchmarkSettings, StudySettings])
def test_many_unknown_settings_are_counted(tmp_path, kind):
    path = tmp_path / "x.yaml"
    path.write_text("".join(f"k{i}: 1\n" for i in range(5000)))
    with pytest.raises(InputError, match=r"x\.yaml: .* and 4990 more") as refused:
        kind.read(path)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("text", ["encode: 1", "views: [1]", "out: 1", "folds: x"])
def test_a_study_s_settings_have_types_too(tmp_path, text):
    path = tmp_path / "study.yaml"
    path.write_text(f"out: a\ngoal: pretrain\nfeatures: b\n{text}\n")
    with pytest.raises(InputError, match=r"study\.yaml"):
        StudySettings.read(path)
