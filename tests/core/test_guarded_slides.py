"""Slides that a helper process reads: the same pixels, and nothing lost with it."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from spt_core import proving
from spt_core.errors import InputError
from spt_core.slides import UnreadableRegionError, guarded_file, open_slide
from spt_core.slides import helper_process as process_module
from spt_core.slides.guarded_file import GuardedFile, ReaderLostError
from spt_core.slides.openslide_file import OpenSlideFile
from spt_core.slides.overview import read_overview
from tests.made_dicom import write_dicom_that_crashes
from tests.made_slides import CASES, picture, write_scn, write_svs

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc, forks")
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals")

# The helper, whose openslide ends it or never comes back at one place of level 0, and
# writes down what it was asked.
BAD_HELPER = """
import os, signal, sys, time
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("helper", {helper!r})
helper = module_from_spec(spec)
spec.loader.exec_module(helper)
helper.openslide_file = helper._beside("openslide_file")
kind = helper.openslide_file.OpenSlideFile
real = kind.read
def read(self, level, x, y, w, h):
    with open({log!r}, "a") as log:
        log.write(f"{{level}} {{x}} {{y}} {{w}} {{h}}\\n")
    time.sleep({pause})
    if level == 0 and x <= 700 < x + w and y <= 800 < y + h:
        {does}
    return real(self, level, x, y, w, h)
kind.read = read
helper.main()
"""
DIES = "os.kill(os.getpid(), signal.SIGTERM)"
HANGS = "time.sleep(600)"


@pytest.fixture(autouse=True)
def guarded():
    guarded_file.end_helper()
    proving.switch_on()
    yield
    proving.switch_off()
    guarded_file.end_helper()


@pytest.fixture
def bad_helper(tmp_path, monkeypatch):
    """Let such a helper be started; gives what it was asked so far."""
    log = tmp_path / "asked.txt"

    def use(does, pause=0.0):
        text = BAD_HELPER.format(
            helper=str(process_module.SCRIPT), log=str(log), does=does, pause=pause
        )
        script = tmp_path / "bad_helper.py"
        script.write_text(text)
        monkeypatch.setattr(process_module, "SCRIPT", script)
        return lambda: log.read_text().splitlines() if log.exists() else []

    return use


@pytest.fixture
def scn(tmp_path):
    path = tmp_path / "a.scn"
    write_scn(path, picture(1400, 1300))
    return path


def helper():
    return guarded_file._helpers.process


def unguarded(path):
    """The whole of level 0, as openslide gives it here."""
    found = OpenSlideFile(path)
    width, height = found.level_dimensions[0]
    pixels = np.frombuffer(found.read(0, 0, 0, width, height), np.uint8)
    found.close()
    return pixels.reshape(height, width, 3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_helper_gives_what_this_process_would_read(tmp_path, case):
    path = case.make(tmp_path)
    with closing(open_slide(path)) as slide:
        guarded = [a_part(slide, level) for level in range(len(slide.levels))]
        facts = (slide.properties, slide.identifiers, slide.bounds, slide.mpp_xy)
        pictures = {k: v.tobytes() for k, v in slide.associated_images.items()}
    proving.switch_off()
    with closing(open_slide(path)) as slide:
        for level, pixels in enumerate(guarded):
            assert (a_part(slide, level) == pixels).all()
        here = (slide.properties, slide.identifiers, slide.bounds, slide.mpp_xy)
        assert here == facts
        assert pictures == {k: v.tobytes() for k, v in slide.associated_images.items()}


def a_part(slide, level):
    size = slide.levels[level]
    return slide.read(level, 0, 0, min(1500, size.width), min(1500, size.height))


def test_regions_larger_than_a_slot_and_smaller_ones_from_many_threads(scn):
    whole = unguarded(scn)
    height, width = whole.shape[:2]
    assert whole.nbytes > 4 * process_module.SLOT_BYTES
    file = GuardedFile(scn)
    rng = np.random.default_rng(0)
    places = []
    for number in range(120):
        w, h = (int(n) for n in rng.integers(1, 300, 2))
        if number % 20 == 0:
            w, h = width, height
        x = int(rng.integers(width - w + 1))
        y = int(rng.integers(height - h + 1))
        places.append((x, y, w, h))
    with ThreadPoolExecutor(16) as pool:  # more than there are slots
        found = list(pool.map(lambda place: file.read(0, *place), places))
    for (x, y, w, h), pixels in zip(places, found, strict=True):
        assert (pixels.reshape(h, w, 3) == whole[y : y + h, x : x + w]).all()
    file.close()


def test_a_tile_that_openslide_does_not_survive_is_hatched_and_told_once(tmp_path):
    good, bad = write_dicom_that_crashes(tmp_path, picture(1500, 1200))
    whole = unguarded(good)
    slide = open_slide(bad)
    told = []
    slide.on_unreadable = told.append
    for _ in range(2):
        pixels = np.asarray(slide.pyramid[0])
        wrong = (pixels != whole).any(axis=-1)
        assert wrong[256:512, 512:768].mean() > 0.9
        wrong[256:512, 512:768] = False
        assert not wrong.any()
    assert len(told) == 1
    assert told[0].l0_xy == (512, 256)
    assert "a.dcm" in str(told[0])
    assert "does not survive" in str(told[0])
    with pytest.raises(UnreadableRegionError):
        slide.read(0, 500, 250, 100, 100)
    assert (slide.read(0, 0, 0, 512, 256) == whole[:256, :512]).all()
    assert not read_overview(slide).unreadable.all()


@POSIX
def test_what_ends_helpers_is_to_blame_and_not_asked_again(scn, bad_helper):
    asked = bad_helper(DIES, pause=0.02)
    whole = unguarded(scn)
    file = GuardedFile(scn)
    places = [(x, y) for y in range(0, 2560, 256) for x in range(0, 2304, 256)]

    def read(place):
        try:
            return file.read(0, *place, 256, 256).reshape(256, 256, 3)
        except ReaderLostError:
            return None

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(read, places))
    for (x, y), pixels in zip(places, found, strict=True):
        if (x, y) == (512, 768):
            assert pixels is None
        else:
            assert (pixels == whole[y : y + 256, x : x + 256]).all()
    times = asked().count("0 512 768 256 256")
    assert times == 2
    # Nor is any region that holds it, nor by another slide of the same file.
    first = helper()
    for reader in (file, GuardedFile(scn)):
        for place in ((512, 768, 256, 256), (0, 700, 1000, 1000)):
            with pytest.raises(ReaderLostError):
                reader.read(0, *place)
    assert helper() is first
    assert len(file.read(0, 512, 768, 100, 100)) == 100 * 100 * 3


def test_what_holds_up_a_helper_is_to_blame_and_not_asked_in_parts(
    scn, bad_helper, monkeypatch
):
    asked = bad_helper(HANGS)
    monkeypatch.setattr(guarded_file, "SECONDS", 4.0)
    whole = unguarded(scn)
    slide = open_slide(scn)
    began = time.monotonic()
    told = []
    slide.on_unreadable = told.append
    pixels = np.asarray(slide.pyramid[0][512:1024, 0:1536].compute())
    assert time.monotonic() - began < 60
    assert [error.l0_xy for error in told] == [(512, 512)]
    assert "too long" in str(told[0])
    pixels[:, 512:1024] = whole[512:1024, 512:1024]
    assert (pixels == whole[512:1024, :1536]).all()
    assert asked().count("0 512 512 512 512") == 1
    assert not any(line.startswith("0 512 512 256") for line in asked())


def test_what_was_late_may_have_waited_for_a_disk_and_is_asked_again(
    scn, bad_helper, monkeypatch
):
    asked = bad_helper(HANGS)
    monkeypatch.setattr(guarded_file, "SECONDS", 1.0)
    monkeypatch.setattr(guarded_file, "LATE_SECONDS", 2.0)
    file = GuardedFile(scn)
    region = (0, 699, 799, 4, 4)
    for _ in range(2):
        with pytest.raises(ReaderLostError, match="too long"):
            file.read(*region)
    assert len(asked()) == 1
    time.sleep(2)
    with pytest.raises(ReaderLostError, match="too long"):
        file.read(*region)
    assert len(asked()) == 2


@POSIX
def test_a_helper_that_somebody_ends_takes_nothing_with_it(scn, bad_helper):
    bad_helper("pass", pause=0.3)
    whole = unguarded(scn)
    file = GuardedFile(scn)
    places = [(x, 900) for x in range(0, 1024, 256)]
    with ThreadPoolExecutor(4) as pool:
        coming = [pool.submit(file.read, 0, x, y, 256, 256) for x, y in places]
        time.sleep(0.1)
        first = helper()
        os.kill(first.process.pid, signal.SIGKILL)
        found = [one.result() for one in coming]
    for (x, y), pixels in zip(places, found, strict=True):
        assert (pixels.reshape(256, 256, 3) == whole[y : y + 256, x : x + 256]).all()
    assert helper() is not first


@POSIX
def test_a_file_that_ends_many_helpers_is_not_asked_for_ever(
    scn, bad_helper, monkeypatch
):
    asked = bad_helper(DIES)
    monkeypatch.setattr(guarded_file, "MOST_LOST", 3)
    file = GuardedFile(scn)
    for side in (8, 6, 4, 2):  # each holds the place, none holds the one before
        with pytest.raises(ReaderLostError):
            file.read(0, 700 - side // 2, 800 - side // 2, side, side)
    assert len(asked()) == 2 * 3
    os.utime(scn, (1, 1))  # it was mended, and may be asked again
    with pytest.raises(ReaderLostError):
        GuardedFile(scn).read(0, 700, 800, 1, 1)
    assert len(asked()) == 2 * 4


@POSIX
def test_a_file_that_cannot_be_opened_in_a_helper_is_refused(
    tmp_path, scn, monkeypatch
):
    script = tmp_path / "ends.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGABRT)\n")
    monkeypatch.setattr(process_module, "SCRIPT", script)
    with pytest.raises(InputError, match=r"a\.scn.*does not survive it"):
        open_slide(scn)
    monkeypatch.undo()
    open_slide(scn).close()


def test_a_read_that_is_broken_off_does_not_mix_up_answers(scn, monkeypatch):
    whole = unguarded(scn)
    file = GuardedFile(scn)
    file.read(0, 0, 0, 8, 8)
    first = helper()

    def interrupted(mine):
        raise KeyboardInterrupt

    monkeypatch.setattr(first, "_listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        file.read(0, 300, 700, 512, 512)
    assert first.is_lost
    found = file.read(0, 500, 800, 64, 64).reshape(64, 64, 3)
    assert (found == whole[800:864, 500:564]).all()


def test_slides_that_nobody_uses_are_let_go_of(tmp_path, scn):
    write_svs(tmp_path / "b.svs", picture(600, 500))
    open_slide(tmp_path / "b.svs")  # so that a helper runs, and remains
    if sys.platform == "linux":
        before = len(os.listdir(f"/proc/{helper().process.pid}/fd"))
    for number in range(6):
        slide = open_slide(scn)
        slide.read(0, 0, 0, 64, 64)
        if number % 2:
            slide.close()
        del slide
    gc.collect()
    GuardedFile(scn).close()
    if sys.platform == "linux":
        after = len(os.listdir(f"/proc/{helper().process.pid}/fd"))
        assert after <= before
    scn.unlink()  # Windows does not, while anybody has it open


def test_a_pickled_slide_is_read_without_a_helper_where_none_is_asked_for(scn):
    with closing(open_slide(scn)) as slide:
        want, packed = slide.read(0, 300, 700, 50, 50), pickle.dumps(slide)
    guarded_file.end_helper()
    proving.switch_off()
    with closing(pickle.loads(packed)) as slide:
        assert (slide.read(0, 300, 700, 50, 50) == want).all()
    assert helper().is_lost


@LINUX
def test_a_fork_has_a_helper_of_its_own(scn):
    file = GuardedFile(scn)
    want = file.read(0, 300, 700, 50, 50).tobytes()
    first = helper().process.pid
    pid = os.fork()
    if pid == 0:
        is_good = file.read(0, 300, 700, 50, 50).tobytes() == want
        is_other = helper().process.pid != first
        guarded_file.end_helper()
        os._exit(0 if is_good and is_other else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert file.read(0, 300, 700, 50, 50).tobytes() == want
    assert helper().process.pid == first


PARENT = """
import sys, threading, time
from pathlib import Path
from spt_core.slides import guarded_file, helper_process
helper_process.SCRIPT = Path(sys.argv[2])
file = guarded_file.GuardedFile(Path(sys.argv[1]))
threading.Thread(target=file.read, args=(0, 600, 700, 200, 200), daemon=True).start()
time.sleep(0.3)
print(guarded_file._helpers.process.process.pid, flush=True)
sys.stdin.read()
"""


def test_a_helper_ends_with_its_parent_even_while_it_hangs(scn, bad_helper):
    bad_helper(HANGS)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(scn), str(process_module.SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()  # SIGKILL
    _, said = parent.communicate()
    child.wait(20)
    assert not said


FRESH = """
import sys
from spt_core import open_slide, proving
proving.switch_on()
slide = open_slide(sys.argv[1])
slide.read(0, 0, 0, 1500, 1500)
"""


@LINUX
def test_nothing_is_said_or_left_at_the_end(tmp_path, scn):
    before = set(Path("/dev/shm").iterdir())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", FRESH, str(scn)],
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert set(Path("/dev/shm").iterdir()) <= before
    assert list(tmp_path.iterdir()) == [scn]


@LINUX
def test_lost_helpers_leave_neither_threads_nor_descriptors(scn):
    file = GuardedFile(scn)

    def measured():
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    before = measured()
    for _ in range(5):
        helper().process.kill()
        file.read(0, 0, 0, 64, 64)
    gc.collect()
    until = time.monotonic() + 10
    while measured() > before and time.monotonic() < until:
        time.sleep(0.1)
    assert measured() <= before


@POSIX
def test_what_never_opens_is_given_no_more_time_once_the_helper_runs(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    helper = process_module.HelperProcess()
    began = time.monotonic()
    with pytest.raises(process_module.HelperLostError) as lost:
        helper.ask(guarded_file.OPEN, 1, words=str(tmp_path / "pipe"), seconds=1.0)
    assert lost.value.is_late
    assert time.monotonic() - began < process_module._START_SECONDS / 2


def test_a_file_whose_regions_never_come_rests(scn, bad_helper, monkeypatch):
    asked = bad_helper(HANGS)
    monkeypatch.setattr(guarded_file, "SECONDS", 3.0)
    monkeypatch.setattr(guarded_file, "MOST_LATE", 1)
    file = GuardedFile(scn)
    for x in (700, 0):
        with pytest.raises(ReaderLostError) as lost:
            file.read(0, x, 800, 8, 8)
        assert lost.value.is_late
    assert asked() == ["0 700 800 8 8"]
    file._rests_until = 0.0
    assert len(file.read(0, 0, 800, 8, 8)) == 8 * 8 * 3
