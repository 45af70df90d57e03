"""Pages of a dock of which one is shown, with as many rows of tabs as they need."""

from itertools import pairwise

from qtpy.QtCore import QEvent, QObject, Signal
from qtpy.QtWidgets import QSizePolicy, QToolButton, QVBoxLayout, QWidget
from superqt.utils import QFlowLayout

from napari_spt.parts.settings import remember, remembered

GAP = 2


class Tabs(QWidget):
    """Pages by name; a page that is hidden by its owner has no tab.

    The page that was chosen last is shown where it is there, else the first. Not Qt's
    tabs: those are as wide as all their words, however large the text.
    """

    chosen = Signal(str)

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self._wanted: str = remembered(key, "")
        self.pages: dict[str, QWidget] = {}
        self.buttons: dict[str, QToolButton] = {}
        self._frames: dict[str, QWidget] = {}
        self.row = _Row()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 8, 0, 0)
        box.setSpacing(6)
        box.addWidget(self.row)
        self._box = box

    def add(self, name: str, page: QWidget) -> None:
        button = QToolButton()
        button.setObjectName("spt_tab")
        button.setText(name)
        button.setCheckable(True)
        button.clicked.connect(lambda _=False, name=name: self.choose(name))
        self.row.flow.addWidget(button)
        # A frame of ours is shown and hidden: the page itself is its owner's.
        frame = QWidget()
        inner = QVBoxLayout(frame)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.addWidget(page)
        self._box.addWidget(frame)
        self.pages[name], self.buttons[name] = page, button
        self._frames[name] = frame
        page.installEventFilter(self)
        self._follow()

    def put_after(self, before: QWidget) -> None:
        """Let the tab key come to the tabs after a widget."""
        for one, other in pairwise((before, *self.buttons.values())):
            QWidget.setTabOrder(one, other)

    @property
    def current(self) -> str:
        """The page that is shown; empty where there is none."""
        there = [name for name, page in self.pages.items() if not page.isHidden()]
        if self._wanted in there:
            return self._wanted
        return there[0] if there else ""

    def choose(self, name: str) -> None:
        """Show a page, now and next time."""
        self._wanted = name
        remember(self._key, name)
        self._follow()
        self.chosen.emit(name)

    def show_page(self, name: str) -> None:
        """Show a page now."""
        self._wanted = name
        self._follow()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.ShowToParent, QEvent.Type.HideToParent):
            self._follow()
        return False

    def _follow(self) -> None:
        current = self.current
        for name, page in self.pages.items():
            self.buttons[name].setVisible(not page.isHidden())
            self.buttons[name].setChecked(name == current)
            self._frames[name].setVisible(name == current)
        self.setVisible(bool(current))
        self.row.take_room()


class _Row(QWidget):
    """Tabs side by side, in further rows where there is no room."""

    def __init__(self) -> None:
        super().__init__()
        self.flow = QFlowLayout(self)
        self.flow.setContentsMargins(0, 0, 0, 0)
        self.flow.setHorizontalSpacing(GAP)
        self.flow.setVerticalSpacing(GAP)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def take_room(self) -> None:
        """As high as its rows; a scroll area asks nobody for that."""
        height = self.flow.heightForWidth(self.width())
        if self.height() != height:
            self.setFixedHeight(height)

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        self.take_room()

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            self.take_room()
        return done
