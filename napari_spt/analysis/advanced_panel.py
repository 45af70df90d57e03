"""The folded part: everything that has a good default."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QFileDialog,
    QFormLayout,
    QPushButton,
    QWidget,
)

from napari_spt.analysis.map_settings import MEAN, MapSettings
from napari_spt.analysis.panel import Panel
from napari_spt.analysis.slide_analysis import Change
from napari_spt.analysis.state import AnalysisState, Options
from napari_spt.parts.encoder_dialog import BUTTON, TOOLTIP, EncoderDialog
from napari_spt.parts.widgets import Folded, text
from spt_core.engine.cache import GIGABYTE

FILE = "From a file…"
OWN_TOOLTIPS = {
    "encoder": "What turns patches into numbers; a model has its own. Listed are those "
    "whose weights are here.",
    "stain": "Without a model only: a model brings its own",
    "slide_mpp": "Only for slides that do not say it themselves",
    "channels": "Which of the slide's channels are seen as red, green and blue: one to "
    "three names or numbers, such as DAPI,FITC,TRITC. Write srh for stimulated Raman "
    "histology. Empty takes the model's choice, or all channels in their colours.",
}


class AdvancedPanel(Panel):
    """How slides are encoded; which attention is shown; what is kept.

    Its forms are made when it is opened for the first time: that takes a while, and
    few people ever do.
    """

    shows = frozenset({Change.PREDICTION})
    opened = Signal()
    clear_asked = Signal()

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.content = QWidget()
        self.folded = Folded("Advanced", self.content)
        self.box.addWidget(self.folded)
        self.is_built = False
        self.folded.button.toggled.connect(self._on_toggled)
        state.engine_changed.connect(self._show_devices)
        state.cache_changed.connect(self._show_cache)

    def open(self, is_open: bool = True) -> None:
        self.folded.open(is_open)

    def _on_toggled(self, is_open: bool) -> None:
        if is_open:
            self.build()
            self.opened.emit()

    def build(self) -> None:
        """Make the forms, once."""
        if self.is_built:
            return
        from napari_spt.parts.forms import settings_form
        from spt_core.patches.settings import EncodeSettings

        names = ("encoder", "device", "stain", "slide_mpp", "channels", "batch_size")
        self._defaults = {name: getattr(EncodeSettings, name) for name in names}
        self.encoding = settings_form(
            EncodeSettings,
            *self._defaults,
            choices={"encoder": self._encoders(), "device": self._devices()},
        )
        self.encoding["slide_mpp"].native.setSpecialValueText("As stated")
        self.maps = settings_form(
            MapSettings, "head", "unit", choices={"head": self._heads()}
        )
        self.room = settings_form(Options, "room_gb")
        self._forms = (self.encoding, self.maps, self.room)
        self.all_encoders = QPushButton(BUTTON)
        self.all_encoders.setToolTip(TOOLTIP)
        for name, words in OWN_TOOLTIPS.items():
            self.encoding[name].tooltip = words
        self.device_note = text("", "What automatic means here")
        self.cache = text("", "Space that kept features take")
        self.clear = QPushButton("Clear kept features")
        self.clear.setToolTip(
            "What was computed from slides is kept, so that asking again, or another "
            "model, takes seconds. Nothing of the slide's name is kept."
        )
        self._lay_out()
        self.is_built = True
        self._fill()
        self.encoding.changed.connect(self._on_encoding)
        self.maps.changed.connect(self._on_maps)
        self.room.changed.connect(self._on_room)
        self.clear.clicked.connect(self.clear_asked)
        self.all_encoders.clicked.connect(self.show_encoders)
        self.state.options_changed.connect(self._fill)
        self._show_devices()
        self._show_cache()
        self.refresh()

    def _lay_out(self) -> None:
        """The rows of all forms in one, whose long labels stand above their fields."""
        self._layout = layout = QFormLayout(self.content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        layout.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        rows = [row for form in self._forms for row in form]
        for row in rows:
            layout.addRow(row.label, row.native)
            if row.name == "encoder":
                layout.addRow(self.all_encoders)
            if row.name == "device":
                # Names of devices may be longer than the column is wide.
                row.native.setSizeAdjustPolicy(
                    QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
                )
                layout.addRow(self.device_note)
        for widget in (self.cache, self.clear):
            layout.addRow(widget)
        # Reached after the button that opens them; Qt puts new widgets last.
        natives = [row.native for row in rows]
        natives.insert(1, self.all_encoders)
        for before, after in pairwise([self.folded.button, *natives, self.clear]):
            QWidget.setTabOrder(before, after)

    def refresh(self) -> None:
        if not self.is_built:
            return
        source, analysis = self.state.source, self.state.analysis
        # What a slide says itself cannot be told otherwise.
        self.encoding["slide_mpp"].enabled = source is None or source.mpp_xy is None
        channels = self.encoding["channels"].native
        for widget in (channels, self._layout.labelForField(channels)):
            widget.setVisible(source is not None and source.in_channels)
        if analysis is not None and analysis.prediction is not None:
            heads = self._heads(len(analysis.prediction.attention))
            if len(self.maps["head"].choices) != len(heads):
                # The mean where there is no such head any more.
                self.maps["head"].choices = heads

    def take_encoder(self, path: str) -> None:
        """Use an encoder's file."""
        self.state.set_options(encoder=path)

    def show_encoders(self) -> EncoderDialog:
        """All encoders that are known, and how to get them."""
        self.dialog = EncoderDialog(self)
        self.dialog.chosen.connect(self.take_encoder)
        self.dialog.open()
        return self.dialog

    # Between the forms and the state

    def _fill(self) -> None:
        options = self.state.options
        with self.encoding.changed.blocked(), self.room.changed.blocked():
            self.encoding["encoder"].choices = self._encoders()
            known = {value for _, value in self._devices()}
            for name, default in self._defaults.items():
                value = getattr(options, name)
                if name == "device" and value not in known:
                    continue  # the engine has not told its devices yet
                self.encoding[name].value = default if value is None else value
            self.room["room_gb"].value = options.room_gb

    def _on_encoding(self) -> None:
        values = self.encoding.value
        if values["encoder"] == FILE:
            self._fill()
            self._choose_encoder()
            return
        if self.state.engine is None:
            del values["device"]  # what is remembered is still wanted
        self.state.set_options(
            **{
                name: None if value == self._defaults[name] else value
                for name, value in values.items()
            }
        )

    def _on_maps(self) -> None:
        self.state.set_view(**self.maps.value)

    def _on_room(self) -> None:
        self.state.set_options(**self.room.value)

    # Choices

    def _encoders(self) -> list[tuple[str, Any]]:
        from spt_core.bundled import ENCODER
        from spt_core.patches.encoder_card import FROM_SEED
        from spt_core.patches.listing import list_encoders

        listed = [one for one in list_encoders() if one.card.weights != FROM_SEED]
        ready = [one.card.name for one in listed if one.is_ready]
        named = [(name, name) for name in ready if name != ENCODER]
        own = self.state.options.encoder
        chosen = [] if own is None or own in ready else [(Path(own).stem, own)]
        return [("The model's own", ENCODER), *named, *chosen, (FILE, FILE)]

    def _devices(self) -> list[tuple[str, Any]]:
        engine = self.state.engine
        named = () if engine is None else engine.devices
        return [("Automatic", "auto"), *((one.name, one.id) for one in named)]

    @staticmethod
    def _heads(count: int = 0) -> Sequence[tuple[str, Any]]:
        numbered = ((f"Head {head + 1}", head) for head in range(count))
        return [("Mean of all", MEAN), *numbered]

    def _choose_encoder(self) -> None:
        self.dialog = QFileDialog(self, "Choose the encoder's weights")
        self.dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        self.dialog.fileSelected.connect(self.take_encoder)
        self.dialog.open()

    # What is told from elsewhere

    def _show_devices(self) -> None:
        """List the devices by name, once the engine has told them."""
        engine = self.state.engine
        if engine is None or not self.is_built:
            return
        box = self.encoding["device"]
        with self.encoding.changed.blocked():
            box.choices = self._devices()
        for row in range(box.native.count()):
            words = box.native.itemText(row)
            box.native.setItemData(row, words, Qt.ItemDataRole.ToolTipRole)
        best = next((d.name for d in engine.devices if d.id == engine.device), "")
        self.device_note.setText(f"Automatic: {best}" if best else "")
        self._fill()

    def _show_cache(self) -> None:
        size = self.state.cache_bytes
        if self.is_built and size is not None:
            self.cache.setText(f"Kept features take {size / GIGABYTE:.2f} GB.")
