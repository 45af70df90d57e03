"""``make attack``: long commands killed at random moments, and run again to their end.

``python -m tests.attack.kills [--kills 100] [--seed 0] [--only COMMAND]``. What a
command leaves after some kills is compared, file by file and bit by bit, with what it
leaves when nobody disturbs it. ``IGNORED`` says what is not compared.
"""

import argparse
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from safetensors import safe_open

from tests.core.patches.conftest import make_slide
from tests.core.patches_training.made_tiles import write_tiles
from tests.core.studies.benchmarks import write_benchmark_cohort

# Files that may differ, and why.
IGNORED = {
    ".lock": "empty",
    "patients.key": "drawn anew in each run",
    "folds.json": "patients under that key; splits.json says the same by slides",
    "checkpoint.pt": "a state on the way, written by the clock too",
    "checkpoint-before.pt": "a state on the way",
    "checkpoint.sha256": "of these two",
    "events.jsonl": "the diary of all attempts",
    "report.html": "results.json as a page, with times",
    "tables.md": "tables.csv for readers, with times",
}
# Columns and fields that may differ: of any file, where a name contains one of these.
IGNORED_FIELDS = (
    "second",  # seconds, slides_per_second ...
    "began",
    "when",
    "time",
    "rate",
    "pid",
    "patient_hmacs",  # under patients.key
)
# And of these files alone.
IGNORED_IN = {
    "summary.csv": ("status", "reason"),  # "skipped" where an attempt before did it
    "run.json": ("data",),  # a hash under patients.key
    "state.json": ("message", "done", "total", "stage"),
}
# The clock says which of these are written (growth.py); those of both are compared.
OPTIONAL = "/growth/"
# What a kill leaves of a file that was being written; see written_whole.
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}(\.\w+)?")
MOST_A_RUN = 5  # kills of one run before it may end
LONGEST = 300.0  # seconds that nothing here takes, but what hangs


@dataclass(frozen=True)
class Command:
    """What is run in a folder of its own, and how it goes on."""

    words: Callable[[Path], list[str]]
    goes_on: Callable[[Path], list[str] | None] = lambda folder: None


def _encode(data):
    words = ["encode", str(data / "slides"), "--out", "out"]
    return [*words, "--patch-size", "64", "--target-mpp", "1"]


def _train(data):
    words = ["train", str(data / "cohort/features"), "--out", "out", "--objective"]
    words += ["simclr", "--labels", str(data / "cohort/labels.csv"), "--model", "small"]
    words += ["--dim", "16", "--heads", "2", "--epochs", "60", "--batch-size", "6"]
    return [*words, "--checkpoint-steps", "3", "--validate-epochs", "4"]


def _train_patches(data):
    words = ["train-patches", str(data / "tiles/tiles"), "--out", "out.safetensors"]
    words += ["--table", str(data / "tiles/tiles.csv"), "--method", "simclr"]
    words += ["--arch", "small-random", "--init", "none", "--patch-size", "48"]
    words += ["--mpp", "0.5", "--view-size", "40", "--epochs", "40", "--batch-size"]
    return [*words, "32", "--checkpoint-steps", "3", "--validate-epochs", "4"]


def _study(data):
    words = ["study", "out", "--goal", "classify", "--slides", str(data / "small")]
    words += ["--labels", str(data / "small.csv"), "--patch-size", "64"]
    words += ["--target-mpp", "1", "--folds", "2", "--steps", "6", "--workers", "1"]
    return [*words, "--pretrain-steps", "6"]


def _benchmark(data):
    words = ["benchmark", str(data / "cohort/features"), "--out", "out", "--labels"]
    words += [str(data / "cohort/labels.csv"), "--folds", "3", "--steps", "20"]
    return [*words, "--methods", "mean", "ssspt-simclr", "abmil", "--workers", "1"]


def _resumed(command, begun, out):
    """A run that has begun is gone on with by name."""

    def words(folder):
        return [command, "--resume", out] if (folder / begun).exists() else None

    return words


COMMANDS = {
    "encode": Command(_encode),
    "train": Command(_train, _resumed("train", "out/config.yaml", "out")),
    "train-patches": Command(
        _train_patches,
        _resumed("train-patches", "out.run/config.yaml", "out.safetensors"),
    ),
    "study": Command(_study),
    "benchmark": Command(_benchmark),
}


def write_data(folder):
    """Slides, features and tiles, all of them small."""
    for number in range(3):
        (folder / "slides").mkdir(exist_ok=True)
        make_slide(folder / f"slides/s{number}.tif", 4000, 3200, seed=number)
    rows = ["slide,label"]
    for number in range(12):
        (folder / "small").mkdir(exist_ok=True)
        make_slide(folder / f"small/s{number}.tif", 900, 800, seed=number)
        rows.append(f"s{number},{'ab'[number % 2]}")
    (folder / "small.csv").write_text("\n".join(rows) + "\n")
    (folder / "cohort").mkdir()
    write_benchmark_cohort(folder / "cohort", patients=24, slides_each=1, sites=2)
    write_tiles(folder / "tiles")
    return folder


# running


class Attempt:
    """One command in a folder, in a process group of its own."""

    def __init__(self, folder, words):
        folder.mkdir(exist_ok=True)
        self._said, self._errors = folder / ".said", folder / ".errors"
        env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "NAPARI_SPT_CACHE": str(folder / ".cache"),
            "NAPARI_SPT_CONFIG": str(folder / ".config"),
        }
        with self._said.open("wb") as said, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spt_core", *words, "--json"],
                cwd=folder,
                stdout=said,
                stderr=errors,
                env=env,
                start_new_session=True,
            )

    def ended(self, seconds):
        """Whether it ends within so many seconds."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        except BaseException:  # nobody waits any longer
            self.kill()
            raise
        return True

    def works_within(self, seconds):
        """Whether it is at work within so many seconds, and has not ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if self.is_at_work:
                return True
            time.sleep(0.02)
        return False

    def kill(self):
        """The whole group, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def is_at_work(self):
        """It has said something: what comes before are imports."""
        return self._said.stat().st_size > 0

    @property
    def errors(self):
        return self._errors.read_text(errors="replace")

    @property
    def trouble(self):
        """Why it did not end well, in its words; empty where it did."""
        code = self.process.returncode
        if code == 0 and "Traceback" not in self.errors:
            return ""
        return f"exit code {code}: {self.errors.strip() or 'not a word'}"


def run_again(command, data, folder):
    """As somebody would who finds that it has stopped."""
    words = command.goes_on(folder) or [*command.words(data), "--device", "cpu"]
    return Attempt(folder, words)


def undisturbed(command, data, folder):
    """What it leaves, in how many seconds, and how many of them are at work."""
    began = time.monotonic()
    attempt = run_again(command, data, folder)
    attempt.works_within(LONGEST)
    worked = time.monotonic()
    if not attempt.ended(LONGEST):
        attempt.kill()
        raise RuntimeError(f"{folder} did not end")
    if attempt.trouble:
        raise RuntimeError(attempt.trouble)
    ended = time.monotonic()
    return contents(folder), ended - began, ended - worked


def attack(name, data, folder, kills, chance):
    """Kill one command so often; counts, and what went wrong in words."""
    command = COMMANDS[name]
    want, *seconds = undisturbed(command, data, folder / f"{name}-undisturbed")
    count, wrong = Counter(), []
    while count["kills"] < kills:
        count["runs"] += 1
        place = folder / f"{name}-{count['runs']}"
        most = min(MOST_A_RUN, kills - count["kills"])
        trouble, killed = killed_often(command, data, place, most, seconds, chance)
        count.update(killed)
        if trouble:
            count["failed"] += killed["kills"]
            wrong.append(f"{place.name}: {trouble}")
            continue
        found = differences(want, contents(place))
        count["different" if found else "equal"] += killed["kills"]
        wrong += [f"{place.name}: {one}" for one in found]
    return count, seconds[0], wrong


def moment(attempt, seconds, at_work, chance):
    """How long it lives from now on: one in five may be killed in its imports."""
    if chance.random() < 0.2:
        return seconds * chance.random()
    attempt.works_within(LONGEST)
    return at_work * chance.random()


def killed_often(command, data, folder, most, seconds, chance):
    """One run to its end, killed up to so often; what its end lacked, and counts."""
    killed = Counter()
    while True:
        attempt = run_again(command, data, folder)
        is_last = killed["kills"] == most
        patience = LONGEST if is_last else moment(attempt, *seconds, chance)
        if attempt.ended(patience):
            return attempt.trouble, killed
        attempt.kill()
        if is_last:
            return f"it hangs: {attempt.errors}", killed
        killed["kills"] += 1
        killed["at work"] += attempt.is_at_work


# comparing


def contents(folder):
    """All that is compared of a folder: by file and place in it, exact values."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.startswith(".") or path.is_dir() or path.name in IGNORED:
            continue
        if TEMPORARY.fullmatch(path.name):
            name = f"{path.parent.relative_to(folder)}/a temporary file"
            found[name] = path.name
            continue
        read = READERS.get(path.suffix, _bytes)
        ignored = (*IGNORED_FIELDS, *IGNORED_IN.get(path.name, ()))
        for place, value in read(path):
            words = place.split("/")
            if not any(part in word for part in ignored for word in words):
                if isinstance(value, str):  # paths of the run's own folder
                    value = value.replace(str(folder), "")
                found[f"{name}: {place}"] = value
        found.setdefault(name, "is there")
    return found


def differences(want, have):
    return [
        f"{name} differs: {_short(want.get(name))}, and {_short(have.get(name))}"
        for name in sorted(want.keys() | have.keys())
        if want.get(name) != have.get(name)
        and (OPTIONAL not in name or (name in want and name in have))
    ]


def _short(value):
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)[:80]


def _bytes(path):
    yield "", path.read_bytes()


def _text(path):
    yield "", path.read_text(encoding="utf-8")


def _h5(path):
    with h5py.File(path) as file:
        places = []
        file.visit(places.append)
        for place in ("/", *places):
            item = file[place]
            for key, value in item.attrs.items():
                yield f"{place}@{key}", np.asarray(value).tobytes()
            if isinstance(item, h5py.Dataset):
                yield place, _exact(item[()])


def _safetensors(path):
    with safe_open(path, "numpy") as file:
        for key in file.keys():  # noqa: SIM118 it is no dictionary
            yield key, _exact(file.get_tensor(key))
        for key, value in (file.metadata() or {}).items():
            yield from _leaves(json.loads(value) if value[:1] in "[{" else value, key)


def _npz(path):
    with np.load(path) as arrays:
        for key, value in arrays.items():
            if value.dtype.kind == "U" and value.ndim == 0:
                yield from _leaves(json.loads(str(value)), key)
            else:
                yield key, _exact(value)


def _json(path):
    yield from _leaves(json.loads(path.read_text(encoding="utf-8")))


def _csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file)):
            yield from _leaves(row, str(number))


def _leaves(value, place=""):
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, f"{place}/{key}")
    elif isinstance(value, list):
        yield f"{place}/length", len(value)
        for number, one in enumerate(value):
            yield from _leaves(one, f"{place}/{number}")
    else:
        yield place, value


def _exact(array):
    array = np.asarray(array)
    return f"{array.dtype}{array.shape}".encode() + array.tobytes()


READERS = {
    ".h5": _h5,
    ".safetensors": _safetensors,
    ".npz": _npz,
    ".json": _json,
    ".csv": _csv,
    ".md": _text,
    ".yaml": _text,
    ".txt": _text,
}


# telling

COLUMNS = ("kills", "at work", "runs", "equal", "different", "failed")


def line_of(name, values):
    return f"{name:>14}" + "".join(f"{value!s:>11}" for value in values)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS, action="append")
    args = parser.parse_args(argv)
    chosen = args.only or list(COMMANDS)
    chance = random.Random(args.seed)
    total, wrong = Counter(), []
    say(line_of("", (*COLUMNS, "seconds")))
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "data").mkdir()
        data = write_data(Path(temporary) / "data")
        for number, name in enumerate(chosen):
            kills = (args.kills + number) // len(chosen)
            count, seconds, found = attack(name, data, Path(temporary), kills, chance)
            values = [count[column] for column in COLUMNS]
            say(line_of(name, (*values, f"{seconds:.1f}")))
            total += count
            wrong += found
    say(line_of("all", [total[column] for column in COLUMNS]))
    for one in wrong:
        say(one)
    return 1 if wrong else 0


def say(words):
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
