"""What processes tell of their cells: lines of a file each, read along as they come.

Not a queue: a process may be killed at any moment, and a lock or half a message that
it leaves behind would stop everybody else.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spt_core.events import event_record
from spt_core.plain_data import from_json


def tell(folder: str, cell: str, event: Any) -> None:
    """Write down an event of a cell, in this process's own file."""
    line = json.dumps([cell, event_record(event)], ensure_ascii=False, default=str)
    with (Path(folder) / f"{os.getpid()}.jsonl").open("ab") as file:
        file.write(line.encode() + b"\n")


class Told:
    """Reads what was told since the last look."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="spt-told-")
        self._read: dict[Path, int] = {}

    def read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Cells and their events, as plain data; lines cut by a kill are left out."""
        for path in sorted(Path(self.folder).glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            end = data.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + end
            for line in data[:end].splitlines():
                cell, record = from_json(line)
                yield str(cell), record

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
