"""Studies wait for one another, outlive whoever started them, and are found again."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spt_core.cli import build_parser
from spt_core.commands.study import study_settings
from spt_core.commands.written import (
    command_to_share,
    study_arguments,
    study_command,
)
from spt_core.engine import study_queue
from spt_core.engine.study_queue import StudyQueue, do_study, serve, serve_apart
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.studies.study_folder import Request, Stage, Status, StudyFolder
from spt_core.studies.study_recorder import Recorder
from spt_core.studies.study_settings import StudySettings
from tests.core.studies.benchmarks import write_benchmark_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    return write_benchmark_cohort(folder, patients=6, slides_each=1, sites=2)


def begun(cohort, out, **changes):
    values = {"features": str(cohort / "features"), "device": "cpu", **changes}
    folder = StudyFolder(out)
    folder.begin(StudySettings(out=str(out), goal="pretrain", **values))
    return folder


def wait_until(true, seconds=60.0):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_what_is_known_and_what_waits(tmp_path, cohort):
    queue = StudyQueue(tmp_path / "studies.json")
    assert queue.studies() == []
    for name in ("a", "b"):
        begun(cohort, tmp_path / name)
        queue.add(tmp_path / name)
    queue.add(tmp_path / "a")  # keeps its place
    assert [one.folder.path.name for one in queue.waiting()] == ["a", "b"]
    queue.leave(tmp_path / "a", "Why it ended.")
    assert [one.folder.path.name for one in queue.waiting()] == ["b"]
    assert {one.says for one in queue.studies()} == {"", "Why it ended."}
    (tmp_path / "b/study.yaml").unlink()
    assert len(queue.studies()) == 1
    queue.file.write_text("{")
    assert queue.studies() == []


def test_known_is_not_wanted(tmp_path, cohort):
    queue = StudyQueue(tmp_path / "studies.json")
    folder = begun(cohort, tmp_path / "a")
    queue.know(folder.path)
    assert (len(queue.studies()), queue.waiting()) == (1, [])
    queue.add(folder.path)
    before = queue.waiting()
    queue.know(folder.path)
    assert queue.waiting() == before


def test_asked_for_again_while_its_process_ends(tmp_path, cohort, monkeypatch):
    """A study is paused and gone on with before the process of before is gone."""
    queue = StudyQueue(tmp_path / "studies.json")
    folder = begun(cohort, tmp_path / "a")
    queue.add(folder.path)
    (first,) = queue.waiting()

    def start(path, log):
        queue.leave(path)
        queue.add(path)
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(study_queue, "_start", start)
    assert do_study(queue, first) == 0
    (again,) = queue.waiting()
    assert again.added > first.added
    monkeypatch.setattr(
        study_queue, "_start", lambda *_: subprocess.Popen([sys.executable, "-c", ""])
    )
    do_study(queue, again)
    assert queue.waiting() == []


def test_words_that_may_name_patients_are_not_kept_twice(tmp_path, cohort, monkeypatch):
    """A study's folder holds them without names; the list only where it has none."""
    queue = StudyQueue(tmp_path / "studies.json")
    folder = begun(cohort, tmp_path / "a")
    queue.add(folder.path)

    def start(path, log):
        log.write(b"spt: Doe has two labels\n")
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])

    def start_and_say(path, log):
        Recorder(folder, [Stage.CHECK]).end(Status.FAILED, "(a patient) has two labels")
        return start(path, log)

    for one, words in ((start, "spt: Doe has two labels"), (start_and_say, "")):
        monkeypatch.setattr(study_queue, "_start", one)
        queue.add(folder.path)
        do_study(queue, queue.waiting()[0])
        assert queue.studies()[0].says == words
    if os.name != "nt":
        assert queue.file.stat().st_mode & 0o077 == 0


def test_somebody_who_looks_does_not_keep_it_from_serving(
    tmp_path, cohort, monkeypatch
):
    queue = StudyQueue(tmp_path / "studies.json")
    queue.add(begun(cohort, tmp_path / "a").path)
    done = []
    monkeypatch.setattr(
        study_queue, "do_study", lambda q, one: done.append(q.leave(Path(one.path)))
    )
    with queue.serving():
        looks = threading.Thread(target=serve, args=(queue,), kwargs={"linger": 0.1})
        looks.start()
        time.sleep(0.1)
    looks.join(5)
    assert len(done) == 1


@pytest.mark.slow
def test_one_after_the_other(tmp_path, cohort):
    queue = StudyQueue(tmp_path / "studies.json")
    folders = [begun(cohort, tmp_path / name, steps=2) for name in "ab"]
    for folder in folders:
        queue.add(folder.path)
    with queue.serving() as is_ours:
        assert is_ours
        assert queue.is_served()
        serve(queue)  # somebody does
        assert folders[0].state() is None
    serve(queue, linger=0.1)
    first, second = (folder.state() for folder in folders)
    assert (first.status, second.status) == ("finished", "finished")
    assert first.when <= second.began
    assert queue.waiting() == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_started_apart_killed_and_told(tmp_path, cohort):
    queue = StudyQueue(tmp_path / "studies.json")
    folder = begun(cohort, tmp_path / "long", steps=100_000)
    queue.add(folder.path)
    serve_apart(queue)
    wait_until(lambda: folder.state() and folder.state().stage == "train")
    state = folder.state()
    # In a session of its own: whoever started it may end.
    assert os.getsid(state.pid) != os.getsid(0)
    assert os.getpriority(os.PRIO_PROCESS, state.pid) > 0
    os.kill(state.pid, signal.SIGKILL)
    wait_until(lambda: not queue.waiting())
    assert not folder.is_held()
    assert folder.state().status == "running"
    # Goes on, and ends when it is asked to.
    queue.add(folder.path)
    serve_apart(queue)
    wait_until(lambda: folder.is_held() and folder.state().pid != state.pid)
    folder.ask(Request.PAUSE)
    began = time.monotonic()
    wait_until(lambda: folder.state().status == "paused")
    assert time.monotonic() - began < 3.5
    wait_until(lambda: not queue.is_served(), 10)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_one_that_has_not_begun_is_ended_at_once(tmp_path, cohort):
    queue = StudyQueue(tmp_path / "studies.json")
    folder = begun(cohort, tmp_path / "long", steps=100_000)
    queue.add(folder.path)
    serve_apart(queue)
    wait_until(queue.is_served)
    queue.leave(folder.path)
    wait_until(lambda: not queue.is_served(), 15)
    state = folder.state()
    assert state is None or state.stage == "check"


def test_the_command_asks_for_the_same(tmp_path):
    settings = StudySettings(
        out=str(tmp_path / "out"),
        goal="both",
        slides=str(tmp_path / "with space"),
        labels=str(tmp_path / "labels.csv"),
        folds=3,
        pretrain_once=True,
        learning_rate=1e-3,
        encode=EncodeSettings(stain="macenko", target_mpp=0.5),
        views=ViewSettings(crop=False, crop_area=(50, 120.5), max_tokens=32),
    )
    arguments = ["study", *study_arguments(settings)]
    args = build_parser("study").parse_args(arguments)
    found = study_settings(args, StudyFolder(tmp_path / "out"))
    assert found == settings
    assert "'" in study_command(settings) or '"' in study_command(settings)
    short = StudySettings(out="o", goal="pretrain", slides="s")
    assert study_command(short) == "spt study o --goal pretrain --slides s"


def test_a_command_in_a_report_names_no_place_of_this_computer(tmp_path):
    given = ["study", "new", "--slides", str(tmp_path), "--labels=a/b.csv", "--folds"]
    said = command_to_share([*given, "3", "--encoder", "small-random"], "new")
    assert said == (
        "spt study FOLDER --slides SLIDES --labels=LABELS --folds 3 "
        "--encoder small-random"
    )
    said = command_to_share(["benchmark", f"x={tmp_path}", "--title", "a b"], "o")
    assert said == "spt benchmark x=X --title 'a b'"
