"""The folded part: everything that has a good default."""

from pathlib import Path
from typing import Any

from napari.utils.notifications import show_error
from qtpy.QtCore import QSignalBlocker, Qt, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QFileDialog,
    QFormLayout,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QWidget,
)

from napari_spt.analysis.view_controls import MEAN, PERCENTILE, TIMES
from napari_spt.parts.background import run_in_background
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.widgets import text

AUTOMATIC = "Automatic"
FILE_WORDS = "From a file…"
GIGABYTE = 1_000_000_000
ROOM_GB = 5


class Advanced(QWidget):
    """Encoder, device, stain, pixel size, batch; which attention; the cache."""

    view_changed = Signal()
    cache_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        kept = remembered("advanced", {})
        self.encoder = _choice("Patch encoder", [("The model's own", None)])
        self.encoder.setToolTip("What turns patches into numbers; a model has its own")
        self.device = _choice("Device", [(AUTOMATIC, None)])
        self.device_note = text("", "What automatic means here")
        self.stain = _choice(
            "Stain normalisation", [("As it is", "none"), ("Macenko", "macenko")]
        )
        self.stain.setToolTip("Without a model only: a model brings its own")
        self.pixel_size = QDoubleSpinBox()
        self.pixel_size.setRange(0.0, 20.0)
        self.pixel_size.setDecimals(4)
        self.pixel_size.setSpecialValueText("As the slide says")
        self.pixel_size.setSuffix(" µm")
        self.pixel_size.setAccessibleName("Pixel size where the slide says none")
        self.pixel_size.setToolTip("Only for slides that do not say it themselves")
        self.batch = QSpinBox()
        self.batch.setRange(0, 1024)
        self.batch.setSpecialValueText(AUTOMATIC)
        self.batch.setAccessibleName("Patches at once")
        self.batch.setToolTip("Patches at once; fewer need less memory")
        self.batch.setValue(int(kept.get("batch", 0)))
        self.head = _choice("Attention head", [("Mean of all", MEAN)])
        self.head.setToolTip("A model looks in several ways at once; choose one alone")
        self.unit = _choice(
            "Attention scale",
            [("Times average", TIMES), ("Percentiles of this slide", PERCENTILE)],
        )
        self.unit.setToolTip(
            "Times average is the same on every slide; percentiles use all colours on "
            "each, however even it is"
        )
        self.room = QSpinBox()
        self.room.setRange(1, 1000)
        self.room.setSuffix(" GB")
        self.room.setValue(int(kept.get("room_gb", ROOM_GB)))
        self.room.setAccessibleName("Keep at most")
        self.cache = text("", "Space that kept features take")
        self.clear = QPushButton("Clear kept features")
        self.clear.setToolTip(
            "What was computed from slides is kept, so that asking again, or another "
            "model, takes seconds. Nothing of the slide's name is kept."
        )
        self.async_note = text(
            "With Preferences > Experimental > asynchronous, slides load beside the "
            "window. It is left as you have it."
        )
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        for name, control in (
            ("Encoder", self.encoder),
            ("Device", self.device),
            ("Stain", self.stain),
            ("Pixel size", self.pixel_size),
            ("Batch", self.batch),
            ("Head", self.head),
            ("Scale", self.unit),
            ("Keep at most", self.room),
        ):
            form.addRow(name, control)
            if control is self.device:
                form.addRow("", self.device_note)
        form.addRow(self.cache)
        form.addRow(self.clear)
        form.addRow(self.async_note)
        self._fill_encoders()
        _choose(self.encoder, kept.get("encoder"))
        _choose(self.stain, kept.get("stain", "none"))
        self.wanted_device = kept.get("device")
        self.head.currentIndexChanged.connect(self.view_changed)
        self.unit.currentIndexChanged.connect(self.view_changed)
        self.clear.clicked.connect(self.clear_cache)

    @property
    def request(self) -> dict[str, Any]:
        """What is asked of the engine."""
        stain = self.stain.currentData()
        return {
            "encoder": self.encoder.currentData(),
            "device": self.chosen_device,
            "batch_size": self.batch.value() or None,
            "stain": None if stain == "none" else stain,
        }

    @property
    def chosen_device(self) -> str | None:
        """None lets the engine choose; before it has told its devices, as before."""
        if self.device.count() > 1:
            return self.device.currentData()
        return self.wanted_device

    @property
    def slide_mpp(self) -> float | None:
        if not self.pixel_size.isEnabled():
            return None
        return self.pixel_size.value() or None

    def follow_slide(self, says_size: bool) -> None:
        """What a slide says itself cannot be told otherwise."""
        if says_size == self.pixel_size.isEnabled():
            self.pixel_size.setValue(0.0)
        self.pixel_size.setEnabled(not says_size)

    def keep(self) -> None:
        remember(
            "advanced",
            {
                "encoder": self.encoder.currentData(),
                "device": self.chosen_device,
                "stain": self.stain.currentData(),
                "batch": self.batch.value(),
                "room_gb": self.room.value(),
            },
        )

    def show_devices(self, about: dict[str, Any]) -> None:
        """List the devices by name, once the engine has told them."""
        devices = about.get("devices") or []
        if not devices or self.device.count() > 1:
            return
        best = next((d["name"] for d in devices if d["id"] == about.get("device")), "")
        self.device_note.setText(f"{AUTOMATIC}: {best}" if best else "")
        for device in devices:
            self.device.addItem(device["name"], device["id"])
        # Names may be longer than the column is wide.
        for row in range(self.device.count()):
            words = self.device.itemText(row)
            self.device.setItemData(row, words, Qt.ItemDataRole.ToolTipRole)
        self.device.currentTextChanged.connect(self.device.setToolTip)
        _choose(self.device, self.wanted_device)

    def show_heads(self, count: int) -> None:
        """Offer each head of the model's attention."""
        if self.head.count() == count + 1:
            return
        before = self.head.currentData()
        with QSignalBlocker(self.head):
            while self.head.count() > 1:
                self.head.removeItem(1)
            for head in range(count):
                self.head.addItem(f"Head {head + 1}", head)
            _choose(self.head, before)
        if self.head.currentData() != before:
            self.view_changed.emit()

    def show_cache(self) -> None:
        self._tend_cache(None)

    def make_room(self) -> None:
        """Let what was not used for longest go, until the limit holds."""
        self._tend_cache(self.room.value() * GIGABYTE)

    def clear_cache(self) -> None:
        self._tend_cache(-1)

    def _tend_cache(self, limit: int | None) -> None:
        """Beside the window: a folder may be large, or on a slow disk."""
        run_in_background(
            lambda: _cache_size(limit),
            self._say_size,
            lambda error: show_error(f"The kept features cannot be tended: {error}"),
            owner=self,
        )

    def _say_size(self, size: int) -> None:
        self.cache.setText(f"Kept features take {size / GIGABYTE:.2f} GB.")
        self.cache_changed.emit()

    def _fill_encoders(self) -> None:
        own = remembered("advanced", {}).get("encoder")
        if own:
            self.encoder.addItem(Path(own).stem, own)
        self.encoder.addItem(FILE_WORDS, FILE_WORDS)
        self.encoder.activated.connect(self._choose_encoder)

    def _choose_encoder(self, index: int) -> None:
        if self.encoder.itemData(index) != FILE_WORDS:
            return
        self.encoder.setCurrentIndex(0)
        self.dialog = QFileDialog(self, "Choose the encoder's weights")
        self.dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        self.dialog.fileSelected.connect(self.take_encoder)
        self.dialog.open()

    def take_encoder(self, path: str) -> None:
        """Use an encoder's file."""
        self.encoder.insertItem(1, Path(path).stem, path)
        self.encoder.setCurrentIndex(1)


def cache_folder() -> Path:
    """Where the plugin keeps what can be made again."""
    import os

    from platformdirs import user_cache_path

    told = os.environ.get("NAPARI_SPT_CACHE")
    return Path(told) if told else user_cache_path("napari-spt", appauthor=False)


def features_folder() -> Path:
    return cache_folder() / "features"


def pictures_folder() -> Path:
    """Where pictures of the window alone are written down, to be analysed."""
    return cache_folder() / "pictures"


def _cache_size(limit: int | None) -> int:
    """Bytes that kept features take, after making room where there is a limit."""
    from spt_core.engine.cache import feature_cache_size, trim

    folder = features_folder()
    pictures = sorted(pictures_folder().glob("*.tif"), key=lambda p: p.stat().st_mtime)
    size = sum(path.stat().st_size for path in pictures)
    if limit is not None:
        # Pictures are quickly written again, features are not.
        while pictures and size + feature_cache_size(folder) > limit:
            path = pictures.pop(0)
            size -= path.stat().st_size
            path.unlink(missing_ok=True)
        trim(folder, limit - size if limit >= 0 else limit)
    return size + feature_cache_size(folder)


def _choice(name: str, items: list[tuple[str, Any]]) -> QComboBox:
    box = QComboBox()
    box.setAccessibleName(name)
    box.setSizeAdjustPolicy(
        QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
    )
    box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    for words, data in items:
        box.addItem(words, data)
    return box


def _choose(box: QComboBox, data: Any) -> None:
    at = box.findData(data)
    if at >= 0:
        box.setCurrentIndex(at)
