"""What stays below all pages: Start, Copy as command, and why it cannot start."""

from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from napari_spt.parts.widgets import Text, text
from spt_core.notice import NOT_FOR_DIAGNOSIS


class StartBar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.start = QPushButton("Start")
        self.start.setToolTip("Begin the study; it goes on when napari is closed")
        self.why_not = text("", "What is missing before it can start")
        self.copy = QPushButton("Copy as command")
        self.copy.setToolTip("The same study for a terminal, on the clipboard")
        self.command = Text()  # to be read: breaks are in it that no shell knows
        self.command.setAccessibleName("The command that was copied")
        self.notice = text(NOT_FOR_DIAGNOSIS)
        box = QVBoxLayout(self)
        box.setContentsMargins(10, 6, 10, 6)
        box.setSpacing(4)
        row = QHBoxLayout()
        for button in (self.start, self.copy):
            button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            row.addWidget(button)
        box.addWidget(self.why_not)
        box.addLayout(row)
        box.addWidget(self.command)
        box.addWidget(self.notice)
        self.refuse("")

    def show_start(self, *, ready: bool, at_work: bool, is_new: bool) -> None:
        self.start.setEnabled(ready)
        self.start.setVisible(not at_work)
        self.start.setText("Start" if is_new else "Start with these settings")
        self.copy.setText("Copy as command")
        self.command.hide()

    def refuse(self, why: str) -> None:
        """Why it cannot start; "" where it can."""
        self.why_not.setText(why)
        self.why_not.setVisible(bool(why))

    def copied(self, command: str) -> None:
        """Put a command on the clipboard, and show it."""
        QGuiApplication.clipboard().setText(command)
        self.copy.setText("Copied")
        self.command.setText(command)
        self.command.show()
