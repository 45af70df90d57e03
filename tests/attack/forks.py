"""Each case in a process of its own, with little time and memory.

All is imported once; a case costs a fork. A case is a function that raises, or gives
back whether what it found is sound.
"""

import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from spt_core.errors import InputError

ENDS = ("sentence", "read", "silent", "traceback", "signal", "hang", "memory")
BAD = ENDS[2:]
SECONDS, BYTES = 20, 4 * 2**30


@dataclass
class Table:
    """How cases ended, by kind of input."""

    counts: dict[str, Counter] = field(default_factory=dict)
    failed: list[tuple[str, str, str, str]] = field(default_factory=list)

    def add(self, kind, case, end, words=""):
        self.counts.setdefault(kind, Counter())[end] += 1
        if end in BAD:
            self.failed.append((kind, case, end, words))

    @property
    def tried(self):
        return sum(sum(one.values()) for one in self.counts.values())

    def __str__(self):
        rows = [("", "tried", *ENDS)]
        total = Counter()
        for kind, ends in self.counts.items():
            rows.append((kind, sum(ends.values()), *(ends[end] for end in ENDS)))
            total += ends
        rows.append(("all", sum(total.values()), *(total[end] for end in ENDS)))
        lines = ["  ".join(f"{cell!s:>10}" for cell in row) for row in rows]
        lines += [f"{k} {case}: {end}: {words}" for k, case, end, words in self.failed]
        return "\n".join(lines)


def run(case, *, seconds=SECONDS, memory=BYTES):
    """How a case ends, and its last words."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _in_child(case, write, seconds, memory)
    os.close(write)
    until = time.monotonic() + seconds
    status = None
    while status is None and time.monotonic() < until:
        done, found = os.waitpid(pid, os.WNOHANG)
        status = found if done else None
        if status is None:
            time.sleep(0.002)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    if status is None:
        return "hang", said
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "signal", signal.Signals(number).name
    end, _, words = said.partition("\n")
    return (end, words) if end in ENDS else ("traceback", said)


def _in_child(case, write, seconds, memory):
    end, words = "read", ""
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        end = "read" if case() is not False else "silent"
    except InputError as error:
        end, words = "sentence", str(error)
        if not words.strip():
            end = "traceback"
    except MemoryError:
        end = "memory"
    except BaseException as error:  # noqa: BLE001
        last = traceback.extract_tb(sys.exc_info()[2])[-1]
        place = f"{os.path.basename(last.filename)}:{last.lineno}"
        end, words = "traceback", f"{type(error).__name__} at {place}: {error}"[:300]
    os.write(write, f"{end}\n{words}".encode(errors="replace")[:60_000])
    os._exit(0)
