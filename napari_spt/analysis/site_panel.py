"""Where a slide is from, for models that judge a slide among others of its site."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from qtpy.QtWidgets import QComboBox

from napari_spt.analysis.panel import Panel
from napari_spt.analysis.site_dialog import SiteDialog
from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.background import run_in_background
from napari_spt.parts.notices import show_error, show_info
from napari_spt.parts.widgets import text
from spt_core.errors import InputError
from spt_core.insight.model_words import read_model_words
from spt_core.learning.model_card import SCANNER, SITE, Standardising

NOT_SAID = "Not said"
KNOWN = "the model knows this slide"
SCANNED = "by its scanner"
UNKNOWN = "this model does not know it"
LEARN = "Learn a new site from the analysed slides…"
ABOUT = (
    "This model judges a slide among others of its site: say where it was stained and "
    "scanned."
)
WHERE = "Where this slide was stained and scanned"
AGAIN = "The answer below is from before this was said: analyse again."
WAITING = "Learning the site…"
NONE_ANALYSED = (
    "A site is learned from slides that this model has looked at: analyse a handful of "
    "its slides first."
)


class SitePanel(Panel):
    """The site of the chosen slide; shown for models that need to know it."""

    shows = frozenset({Change.BEGUN, Change.ENDED})

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.words = text(ABOUT, "Why the site is asked for")
        self.list = QComboBox()
        self.list.setAccessibleName("Site of this slide")
        # A long name would make the dock as wide as itself.
        self.list.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.list.setMinimumContentsLength(9)
        self.again = text(AGAIN, "What to do now that the site is said")
        self.box.addWidget(self.words)
        self.box.addWidget(self.list)
        self.box.addWidget(self.again)
        self.list.activated.connect(self._on_activated)
        state.model_changed.connect(self.refresh)
        state.options_changed.connect(self._show_again)
        self.refresh()

    def refresh(self) -> None:
        card = self.card()
        self.setVisible(card is not None and self.state.source is not None)
        if card is None:
            return
        stated = self.state.site or ""
        analysis = self.state.analysis
        known = None if analysis is None or stated else self.site_of(analysis)
        self.list.clear()
        how = SCANNED if card.sites_from == SCANNER else KNOWN
        self.list.addItem(NOT_SAID if known is None else f"{known} ({how})", "")
        for name in card.site_names:
            self.list.addItem(name, name)
        if stated and stated not in card.site_names:
            self.list.addItem(f"{stated} ({UNKNOWN})", stated)
        self.list.addItem(LEARN, None)
        self.list.setCurrentIndex(max(self.list.findData(stated), 0))
        # Of a long name the list shows the beginning.
        self.list.setToolTip(f"{self.list.currentText()}\n{WHERE}")
        self._show_again()

    def _show_again(self) -> None:
        """Whether the answer is of before the site was said."""
        state, analysis = self.state, self.state.analysis
        self.again.setVisible(
            analysis is not None
            and analysis.prediction is not None
            and not analysis.is_open
            and analysis.asked.model == state.model
            and analysis.asked.site != state.site
        )

    def card(self) -> Standardising | None:
        """What the chosen model says of sites; None where it need not know any."""
        if self.state.model is None:
            return None
        with suppress(InputError, OSError):
            found = read_model_words(self.state.model).card.standardising
            return found if found.kind == SITE else None
        return None

    def sites(self) -> tuple[str, ...] | None:
        """The sites that the chosen model knows; None where it need not know any."""
        card = self.card()
        return None if card is None else card.site_names

    def site_of(self, analysis: Analysis) -> str | None:
        """The site as which the chosen model would judge a slide; None for none."""
        card, found = self.card(), analysis.prediction
        stated = self.state.stated_sites.get(analysis.key)
        if card is None or stated in card.site_names:
            return stated
        if stated is not None or found is None:
            return None
        known = card.known_site(found.facts)
        return known if known in card.site_names else None

    def _on_activated(self, index: int) -> None:
        if self.list.itemText(index) == LEARN:
            self.refresh()
            self.ask_name()
        else:
            self.state.state_site(self.list.itemData(index) or None)

    # Learning a site

    def analysed(self) -> list[Analysis]:
        """Of the open slides those that this model has looked at, all of each."""
        return [
            one
            for one in self.state.analyses.values()
            if one.features is not None and one.asked.model == self.state.model
        ]

    def ask_name(self) -> None:
        card, analyses = self.card(), self.analysed()
        if card is None:
            return
        if not analyses:
            show_info(NONE_ANALYSED)
            return
        stated = self.state.site or ""
        self.dialog = SiteDialog(
            self,
            [(one.slide.name, self.site_of(one)) for one in analyses],
            "" if stated in card.site_names else stated,
            # One that was added may be measured again, from more of its slides.
            [one.name for one in card.sites if not one.added],
        )
        self.dialog.answered.connect(
            lambda name, rows: self.learn(name, [analyses[row] for row in rows])
        )
        self.dialog.open()

    def learn(self, name: str, analyses: list[Analysis]) -> None:
        """Let the model's file know a site, from some analysed slides."""
        state, model = self.state, self.state.model
        files = [one.features for one in analyses if one.features is not None]
        if model is None or not files:
            return

        def learned(said: str) -> None:
            self.words.setText(ABOUT)
            self.list.setEnabled(True)
            for one in analyses:
                state.stated_sites[one.key] = name
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
    command = [sys.executable, "-m", "spt_core", "add-site", "--replace"]
    done = subprocess.run(
        [*command, "--", str(model), name, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InputError(done.stderr.strip().removeprefix("spt: "))
    return f"The model knows the site {name} now. Analyse its slides again."
