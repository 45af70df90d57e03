"""Where a slide is from, for models that judge a slide among others of its site."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from napari.utils.notifications import show_error, show_info
from qtpy.QtWidgets import QComboBox, QInputDialog

from napari_spt.analysis.panel import Panel
from napari_spt.analysis.slide_analysis import Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.background import run_in_background
from napari_spt.parts.widgets import text
from napari_spt.slides.slide_source import key_of
from spt_core.errors import InputError
from spt_core.insight.model_words import read_model_words
from spt_core.learning.model_card import SITE

NOT_SAID = "Not said"
LEARN = "Learn a new site from the analysed slides…"
ABOUT = (
    "This model judges a slide among others of its site: say where it was stained and "
    "scanned."
)
WAITING = "Learning the site…"
NONE_ANALYSED = (
    "A site is learned from slides that this model has looked at: analyse a handful of "
    "its slides first."
)


class SitePanel(Panel):
    """The site of the chosen slide; shown for models that need to know it."""

    shows = frozenset({Change.ENDED})

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.words = text(ABOUT, "Why the site is asked for")
        self.list = QComboBox()
        self.list.setAccessibleName("Site of this slide")
        self.list.setToolTip("Where this slide was stained and scanned")
        self.box.addWidget(self.words)
        self.box.addWidget(self.list)
        self.list.activated.connect(self._on_activated)
        state.model_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        sites = self.sites()
        self.setVisible(sites is not None and self.state.source is not None)
        if sites is None:
            return
        self.list.clear()
        self.list.addItem(NOT_SAID, "")
        for name in sites:
            self.list.addItem(name, name)
        self.list.addItem(LEARN, None)
        self.list.setCurrentIndex(max(self.list.findData(self.state.site or ""), 0))

    def sites(self) -> tuple[str, ...] | None:
        """The sites that the chosen model knows; None where it need not know any."""
        if self.state.model is None:
            return None
        with suppress(InputError, OSError):
            found = read_model_words(self.state.model).card.standardising
            return found.site_names if found.kind == SITE else None
        return None

    def _on_activated(self, index: int) -> None:
        if self.list.itemText(index) == LEARN:
            self.refresh()
            self.ask_name()
        else:
            self.state.state_site(self.list.itemData(index) or None)

    # Learning a site

    def analysed(self) -> list[Path]:
        """Features of the open slides that this model looked at, of no other site."""
        state = self.state
        return [
            one.features
            for one in state.analyses.values()
            if one.features is not None
            and one.asked.model == state.model
            and state.stated_sites.get(key_of(one.layer)) is None
        ]

    def ask_name(self) -> None:
        files = self.analysed()
        if not files:
            show_info(NONE_ANALYSED)
            return
        count = "1 slide" if len(files) == 1 else f"{len(files)} slides"
        self.naming = QInputDialog(self)
        self.naming.setWindowTitle("Learn a site")
        self.naming.setLabelText(
            f"From {count} whose site is not said. The model's file will know the "
            "site by this name, which whoever gets the file can read:"
        )
        self.naming.textValueSelected.connect(self.learn)
        self.naming.open()

    def learn(self, name: str) -> None:
        """Let the model's file know a site, from the analysed slides."""
        state, model, files = self.state, self.state.model, self.analysed()
        name = name.strip()
        if model is None or not name or not files:
            return
        keys = [
            key_of(one.layer)
            for one in state.analyses.values()
            if one.features in files
        ]

        def learned(said: str) -> None:
            self.words.setText(ABOUT)
            self.list.setEnabled(True)
            for key in keys:
                state.stated_sites[key] = name
            show_info(said)
            self.refresh()
            state.options_changed.emit()

        def failed(error: Exception) -> None:
            self.words.setText(ABOUT)
            self.list.setEnabled(True)
            show_error(str(error))

        self.words.setText(WAITING)
        self.list.setEnabled(False)
        run_in_background(
            lambda: add_site(model, name, files), learned, failed, owner=self
        )


def add_site(model: Path, name: str, files: list[Path]) -> str:
    """In a process of its own, which loads the model; what it says in the end."""
    command = [sys.executable, "-m", "spt_core", "add-site", str(model), name]
    done = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InputError(done.stderr.strip().removeprefix("spt: "))
    return f"The model knows the site {name} now. Analyse its slides again."
