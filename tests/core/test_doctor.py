"""``spt doctor``: a real run here, and how it judges what is not here."""

import getpass
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spt_core.cli import main
from spt_core.commands import doctor
from spt_core.self_test import checks, children, machine, work
from spt_core.self_test.finding import Finding, Status, anonymous, failed, ok

OK, DOUBTFUL, FAILED = Status.OK, Status.DOUBTFUL, Status.FAILED


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    """The command in a process of its own, for a user called jane.doe."""
    home = tmp_path_factory.mktemp("homes") / "jane.doe"
    temporary = home / "temporary"
    temporary.mkdir(parents=True)
    names = dict.fromkeys(("USER", "LOGNAME", "USERNAME", "LNAME"), "jane.doe")
    homes = dict.fromkeys(("HOME", "USERPROFILE"), str(home))
    temporaries = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    code = (
        "import sys; from spt_core.cli import main; code = main(['doctor', '--json']);"
        "loaded = [n for n in ('napari', 'qtpy', 'PySide6') if n in sys.modules];"
        "print('exit', code, 'loaded', loaded)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **names, **homes, **temporaries},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    *lines, last = done.stdout.splitlines()
    return done, [json.loads(line) for line in lines], last, temporary


def test_nothing_fails_on_this_machine(real_run):
    _, lines, last, temporary = real_run
    *findings, summary = lines
    assert [one["check"] for one in findings if one["status"] == "failed"] == []
    assert last == "exit 0 loaded []"
    seen = {one["check"]: one for one in findings}
    assert {
        *("system", "packages", "memory", "disk of the cache", "device cpu", "slides"),
        *("encode on cpu", "training step on cpu", "napari", "plugin", "Qt"),
        *("display", "engine"),
    } <= set(seen)
    assert "read by openslide" in seen["slides"]["found"]
    assert f"torch {torch.__version__}" in seen["packages"]["found"]
    assert "encodes in float32" in seen["device cpu"]["found"]
    for one in findings:
        assert one["event"] == "finding"
        assert bool(one["advice"]) == (one["status"] != "ok")
    assert summary["event"] == "summary"
    assert summary["ok"] == sum(one["status"] == "ok" for one in findings) >= 10
    assert list(temporary.glob("tmp*")) == []  # nothing is left behind


def test_it_does_not_say_whose_computer_it_is(real_run):
    done, *_ = real_run
    assert "jane" not in done.stdout
    assert str(Path(tempfile.gettempdir())) not in done.stdout


def test_names_and_folders_are_taken_out():
    home, user = Path.home(), getpass.getuser()
    text = anonymous(
        f"{home / 'slides' / 'a.svs'}, {sys.prefix}/lib, of {user}: "
        f"{Path(tempfile.gettempdir()) / 'x'}"
    )
    assert str(home) not in text
    assert sys.prefix not in text
    assert f"of {user}:" not in text
    assert "a.svs" in text
    assert "(temporary)" in text
    assert "(environment)" in text
    # in every line, by whichever way it came there
    found = failed("x", f"cannot open {home}/secret", f"Look in {home}")
    assert str(home) not in found.found + found.advice


def test_the_command_fails_if_a_check_does(monkeypatch, capsys):
    findings = [ok("slides", "fine"), failed("engine", "it is gone", "Install again.")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "ok        slides" in said
    assert "failed    engine" in said
    assert "-> Install again." in said
    assert "1 ok, 0 doubtful, 1 failed" in said
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings[:1]))
    assert main(["doctor"]) == 0


def test_one_check_that_breaks_stops_no_other():
    def broken():
        yield ok("one", "")
        raise RuntimeError("of the driver")

    found = list(checks._guarded("devices", broken))
    assert [one.status for one in found] == [OK, FAILED]
    assert found[1].found == "RuntimeError: of the driver"


# what other devices give, compared with the CPU


@pytest.mark.parametrize(
    ("noise", "precision", "status"),
    [
        (0.0, "float32", OK),
        (0.013, "float16", OK),
        (0.013, "float32", DOUBTFUL),
        (0.08, "bfloat16", OK),
        (0.08, "float16", DOUBTFUL),
        (0.5, "bfloat16", FAILED),
    ],
)
def test_tokens_of_a_device_are_compared_with_the_cpus(noise, precision, status):
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(30, 64)).astype(np.float32)
    x = reference + noise * rng.normal(size=reference.shape).astype(np.float32)
    found = work.compared("encode", "30 patches", x, reference, precision)
    assert found.status is status
    share = float(found.found.rpartition("by ")[2].removesuffix("%")) / 100
    assert share == pytest.approx(noise, rel=0.1, abs=1e-6)


def test_tokens_that_are_no_numbers_fail():
    reference = np.ones((3, 4), np.float32)
    for x in (np.full((3, 4), np.nan, np.float32), reference[:2]):
        assert work.compared("encode", "", x, reference, "float16").status is FAILED


def test_a_training_step_is_compared_with_the_cpus():
    good = work.one_step(torch.device("cpu"))
    assert good.after < good.loss

    def judged(precision="float32", **changes):
        step = replace(good, **changes)
        return work.judged_step("step", step, good, precision, 0.1).status

    noise = torch.randn(len(good.gradient), generator=torch.Generator().manual_seed(0))
    noise *= good.gradient.norm() / noise.norm()
    assert judged() is OK
    assert judged(gradient=good.gradient + 0.1 * noise) is DOUBTFUL
    assert judged("bfloat16", gradient=good.gradient + 0.1 * noise) is OK
    assert judged(gradient=noise) is FAILED
    assert judged(loss=1.2 * good.loss) is FAILED
    assert judged(loss=float("nan")) is FAILED
    assert judged(after=1.01 * good.loss) is FAILED  # uphill


def test_another_device_is_tried_in_a_process_of_its_own(tmp_path):
    """The CPU stands in for it; its reference is there already."""
    assert [one.status for one in work.slides(tmp_path)] == [OK]
    assert [one.status for one in work.encoding_on("cpu", tmp_path)] == [OK]
    found = children.on_device("cpu", tmp_path)
    assert [one.status for one in found] == [OK, OK]


def ends_its_process(name, folder):
    os._exit(6)


def test_a_driver_that_ends_its_process_ends_no_other(monkeypatch, tmp_path):
    monkeypatch.setattr(children, "work_on", ends_its_process)
    (found,) = children.on_device("cuda:0", tmp_path)
    assert found.status is FAILED
    assert found.check == "work on cuda:0"
    assert "--device cpu" in found.advice


def test_a_device_that_does_not_answer_is_an_ordinary_finding(tmp_path):
    """There is no such device here: its own error is what is found."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (found,) = children.on_device("cuda:0", tmp_path)
    assert found.status is FAILED


# what a computer has


def test_gpus_are_described_with_their_precision(monkeypatch):
    facts = SimpleNamespace(name="Some GPU", major=8, minor=6)
    for name, answer in {
        "is_available": True,
        "device_count": 1,
        "get_device_properties": facts,
        "get_device_capability": (8, 6),
        "mem_get_info": (20e9, 24e9),
        "is_bf16_supported": True,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, a=answer, **__: a)
    found = {one.check: one.found for one in machine.described_devices()}
    assert "Some GPU, compute capability 8.6, 24.0 GB" in found["device cuda:0"]
    assert "encodes in float16, trains in bfloat16" in found["device cuda:0"]


def test_a_gpu_that_torch_cannot_use_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    last = list(machine.described_devices())[-1]
    assert (last.check, last.status) == ("device cuda", DOUBTFUL)
    assert "pytorch.org" in last.advice


@pytest.mark.parametrize(
    ("free", "status"), [(50e9, OK), (5e9, DOUBTFUL), (0.5e9, FAILED)]
)
def test_little_room_on_a_disk_is_told(monkeypatch, free, status):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert {one.status for one in machine.disks()} == {status}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((16e9, 8e9), OK),
        ((16e9, 1e9), DOUBTFUL),
        ((16e9, None), OK),
        ((None, None), DOUBTFUL),
    ],
)
def test_little_memory_is_told(monkeypatch, answer, status):
    monkeypatch.setattr(machine, "memory_bytes", lambda: answer)
    assert [one.status for one in machine.memory()] == [status]


# the window and the engine

WINDOW = {"napari": "0.9", "manifest": 8, "qt": "PySide6 6.11", "display": "xcb"}


def judged(ended=0, **changes) -> dict[str, Finding]:
    said = {name: value for name, value in {**WINDOW, **changes}.items() if value}
    return {one.check: one for one in children.judged_window(said, ended)}


def test_a_window_is_judged_by_what_its_process_said():
    assert {one.status for one in judged().values()} == {OK}
    none = judged(napari=None, qt=None, display=None)
    assert none["napari"].status is DOUBTFUL  # commands work without
    assert none["Qt"].status is DOUBTFUL
    assert "napari-spt[all]" in none["Qt"].advice
    assert "display" not in none
    assert judged(manifest=None)["plugin"].status is FAILED
    gone = judged(ended=-6, display=None)["display"]
    assert gone.status is DOUBTFUL
    assert "ended with -6" in gone.found
    assert "took too long" in judged(ended=None, display=None)["display"].found


def test_an_engine_that_does_not_start_says_why(monkeypatch, tmp_path):
    code = "import sys; print('no file libsomething.so', file=sys.stderr); sys.exit(1)"
    monkeypatch.setattr(children, "_ENGINE", ("-c", code))
    (found,) = children.engine(tmp_path)
    assert found.status is FAILED
    assert found.found == "no file libsomething.so"


def test_an_engine_that_hangs_is_not_waited_for(monkeypatch, tmp_path):
    monkeypatch.setattr(children, "_ENGINE", ("-c", "import time; time.sleep(99)"))
    monkeypatch.setattr(children, "_ENGINE_SECONDS", 1)
    (found,) = children.engine(tmp_path)
    assert found.status is FAILED
