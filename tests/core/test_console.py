import contextlib
import signal
import subprocess
import sys

import pytest

from spt_core.cli import main
from spt_core.commands import console
from spt_core.commands.console import Console, interrupts
from spt_core.events import Progress


@pytest.fixture
def hears_interrupts():
    # A shell's background jobs ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
def test_a_lost_interrupt_still_stops_the_work():
    closed = []

    def work():
        try:
            for step in range(100):
                if step == 3:
                    # as Python does in a destructor
                    with contextlib.suppress(KeyboardInterrupt):
                        signal.raise_signal(signal.SIGINT)
                yield Progress(step, 100, 1.0, "")
        finally:
            closed.append(step)

    with pytest.raises(KeyboardInterrupt):
        Console(json_lines=True).follow(work())
    assert closed == [3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("hears_interrupts")
def test_a_second_signal_does_not_break_off_the_keeping(monkeypatch):
    """Ctrl-C twice, or what torchrun sends after the terminal did."""
    kept = []

    def work():
        try:
            yield Progress(0, 2, 1.0, "")
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            kept.append("checkpoint")
            signal.raise_signal(signal.SIGINT)
            kept.append("state")

    with interrupts() as interrupted:
        with pytest.raises(KeyboardInterrupt):
            Console(json_lines=True).follow(work())
        assert interrupted()
        signal.raise_signal(signal.SIGTERM)
        # But nobody waits for ever for what hangs.
        monkeypatch.setattr(console, "_KEEPING_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert kept == ["checkpoint", "state"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_at_the_very_end_of_a_stopped_process_is_no_traceback():
    code = """
import atexit, signal
from spt_core.commands.console import interrupts

atexit.register(signal.raise_signal, signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
with interrupts(to_the_end=True):
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"")


def test_what_the_system_refuses_says_what_to_do(tmp_path, capsys):
    (tmp_path / "features").mkdir()
    (tmp_path / "out").write_text("a file")
    words = ["train", str(tmp_path / "features"), "--objective", "simclr"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "out" in said
    assert "There is a file where a folder belongs: choose another place." in said
