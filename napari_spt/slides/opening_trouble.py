"""What went wrong while slides were opened, kept until somebody has read it."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from psygnal import Signal
from qtpy.QtWidgets import QFrame, QPushButton, QVBoxLayout

from napari_spt.parts.notices import show_error, show_warning
from napari_spt.parts.widgets import text


@dataclass(frozen=True)
class Trouble:
    """A file and a sentence about it; with ``is_open`` it is shown all the same."""

    name: str
    words: str
    is_open: bool = False


class Troubles:
    """All that nobody has read yet, in the order in which it came."""

    changed = Signal()

    def __init__(self) -> None:
        self.unread: tuple[Trouble, ...] = ()

    def tell(self, path: Path, words: str, *, is_open: bool = False) -> None:
        """Tell in the docks that listen; where none does, napari notifies."""
        trouble = Trouble(path.name, words, is_open)
        if trouble not in self.unread:
            self.unread = (*self.unread, trouble)
        if len(self.changed):
            self.changed.emit()
        else:
            notify = show_warning if is_open else show_error
            notify(words if path.name in words else f"{path.name}: {words}")

    def clear(self) -> None:
        self.unread = ()
        self.changed.emit()


class TroubleBox(QFrame):
    """Unread trouble in full, file name first, there until it is put away."""

    def __init__(self, troubles: Troubles) -> None:
        super().__init__()
        self.setObjectName("spt_trouble")
        self.setStyleSheet(
            "#spt_trouble { border: 1px solid #c4302b; border-radius: 4px; }"
        )
        self._troubles = troubles
        self.words = text("", "What went wrong while opening", is_html=True)
        self.read = QPushButton("I have read it")
        self.read.setToolTip("Put this message away")
        box = QVBoxLayout(self)
        box.setContentsMargins(8, 6, 8, 8)
        box.addWidget(self.words)
        box.addWidget(self.read)
        self.read.clicked.connect(troubles.clear)
        troubles.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        unread = self._troubles.unread
        self.words.setText("<br><br>".join(_paragraph(one) for one in unread))
        self.setVisible(bool(unread))

    def close_box(self) -> None:
        """Listen no longer: the dock is closed."""
        self._troubles.changed.disconnect(self.refresh)


def _paragraph(trouble: Trouble) -> str:
    state = "is open, but not all is well" if trouble.is_open else "cannot be opened"
    words = trouble.words
    # The name stands above already.
    for start in (f"{trouble.name}: ", f"{trouble.name} "):
        if words.startswith(start):
            words = words[len(start) :]
            words = words if start.endswith(": ") else f"It {words}"
    return f"<b>{escape(trouble.name)}</b> {state}.<br>{escape(words)}"
