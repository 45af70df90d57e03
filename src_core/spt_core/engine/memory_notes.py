"""Telling that work goes on in smaller portions."""

import logging
from collections.abc import Iterator

from spt_core.engine.messages import Say


class MemoryNotes(logging.Handler):
    """Hears that work went on in smaller portions, and says so once."""

    SENTENCE = (
        "Memory ran short, so the work goes on in smaller portions. That is slower, "
        "and the result is the same."
    )

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._heard = self._said = False
        self._logger = logging.getLogger("spt_core.devices")

    def __enter__(self) -> "MemoryNotes":
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._heard = self._heard or "Out of memory" in record.getMessage()

    def new(self) -> Iterator[Say]:
        if self._heard and not self._said:
            self._said = True
            yield Say.note(self.SENTENCE)
