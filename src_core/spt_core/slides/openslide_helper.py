"""The helper process: opens and reads slides with openslide for another process.

Run as a script, with openslide alone, so that it starts quickly. A damaged file takes
this process down instead of the one that asked.

A request and its answer are a few numbers on standard input and output. Words and
pixels lie in memory that both processes share, in one slot for each request that is
under way; what is larger than a slot is fetched piece by piece.
"""

import json
import mmap
import os
import signal
import struct
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Lock, Thread
from typing import Any

# What to do, the slot, the file's number, then five numbers of that request's own.
REQUEST = struct.Struct("<8q")
# The slot, whether it was done, and how many bytes the answer has.
ANSWER = struct.Struct("<3q")
OPEN, READ, PICTURE, SERIES, CLOSE, MORE = range(6)
DONE, REFUSED, FAILED = range(3)
READY = -1  # a slot's number: this process has started
SLOT_BYTES = 4 * 2**20

_MOST_BYTES = 8 * 2**30


class Helper:
    """Answers requests from as many threads as there are slots, and one more.

    So one always listens, and notices when the other process has ended.
    """

    def __init__(self, memory: mmap.mmap, answers: int) -> None:
        self.memory = memory
        self.answers = answers
        self.files: dict[int, Any] = {}
        self.rests: dict[int, bytes] = {}
        self.listening = Lock()

    def serve(self) -> None:
        while True:
            with self.listening:
                request = sys.stdin.buffer.read(REQUEST.size)
            if len(request) < REQUEST.size:
                os._exit(0)
            what, slot, file, *numbers = REQUEST.unpack(request)
            try:
                answer, how = self.answer(what, slot, file, numbers), DONE
            except openslide_file.openslide.OpenSlideUnsupportedFormatError:
                answer, how = b"", REFUSED
            # Whoever asked says what is wrong.
            except Exception as error:  # noqa: BLE001
                answer, how = str(error).encode(errors="replace"), FAILED
            # Only what does not go into the slot at once is kept.
            if what != MORE:
                self.rests[slot] = answer if len(answer) > SLOT_BYTES else b""
            start = slot * SLOT_BYTES
            part = answer[:SLOT_BYTES]
            self.memory[start : start + len(part)] = part
            os.write(self.answers, ANSWER.pack(slot, how, len(answer)))

    def answer(self, what: int, slot: int, file: int, numbers: list[int]) -> bytes:
        if what == READ:
            level, x, y, w, h = numbers
            return self.files[file].read(level, x, y, w, h)
        if what == MORE:
            piece = self.rests[slot][numbers[0] : numbers[0] + SLOT_BYTES]
            if numbers[0] + SLOT_BYTES >= len(self.rests[slot]):
                self.rests[slot] = b""
            return piece
        if what == CLOSE:
            # Whichever thread reads it last lets go of it.
            self.files.pop(file, None)
            return b""
        start = slot * SLOT_BYTES
        words = json.loads(self.memory[start : start + numbers[0]])
        if what == OPEN:
            self.files[file] = found = openslide_file.OpenSlideFile(Path(words))
            facts = {
                "properties": found.properties,
                "level_dimensions": found.level_dimensions,
                "level_downsamples": found.level_downsamples,
                "picture_names": found.picture_names,
            }
            return json.dumps(facts).encode()
        if what == SERIES:
            with openslide_file.openslide.OpenSlide(words) as slide:
                series = slide.properties.get("dicom.SeriesInstanceUID")
            return json.dumps(series).encode()
        picture = self.files[file].picture(words)
        size = struct.pack("<2q", *picture.size)
        return size + picture.tobytes()


def _beside(name: str) -> Any:
    """A module of this folder, without its package, which takes a second to import."""
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _shared_memory(name: str, size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size, tagname=name)
    memory = mmap.mmap(int(name), size)
    os.close(int(name))
    return memory


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass


def main() -> None:
    name, slots = sys.argv[1], int(sys.argv[2])
    # Ctrl-C in a terminal is meant for the other process; this one ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not come among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    memory = _shared_memory(name, slots * SLOT_BYTES)
    _limit_memory()
    helper = Helper(memory, answers)
    os.write(answers, ANSWER.pack(READY, DONE, 0))
    for _ in range(slots):
        Thread(target=helper.serve, daemon=True).start()
    helper.serve()


if __name__ == "__main__":
    openslide_file = _beside("openslide_file")
    main()
