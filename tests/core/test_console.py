import contextlib
import signal

import pytest

from spt_core.commands.console import Console
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
