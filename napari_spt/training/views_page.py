"""The page "Views": what training compares of a slide, and every parameter of it."""

from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_spt.training.advanced_forms import AdvancedForms
from napari_spt.training.draft import StudyDraft
from napari_spt.training.views_panel import ViewsPanel

if TYPE_CHECKING:
    from napari.viewer import Viewer


class ViewsPage(QWidget):
    """The views of the open slide, drawn anew as the parameters move."""

    def __init__(self, viewer: "Viewer", draft: StudyDraft) -> None:
        super().__init__()
        self.draft = draft
        self.panel = ViewsPanel(viewer, lambda: draft.view_settings)
        self.advanced = AdvancedForms(draft, "views")
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 4, 0, 0)
        box.addWidget(self.panel)
        box.addWidget(self.advanced)
        self.panel.crop_accepted.connect(self._take_crop)
        draft.changed.connect(self.refresh)

    def refresh(self) -> None:
        out = self.draft.out_folder
        made = out / "features" if out is not None else None
        given = Path(self.draft.features) if self.draft.features else None
        there = next((one for one in (given, made) if one and one.is_dir()), None)
        self.panel.use_features(there)
        self.panel.refresh()

    def read_again(self) -> None:
        """There may be features of more slides than before."""
        self.panel.use_features(None)
        self.refresh()

    def _take_crop(self, low: float, high: float) -> None:
        self.draft.set(views={**self.draft.views, "crop_area": (low, high)})

    def close_page(self) -> None:
        self.panel.close_panel()
