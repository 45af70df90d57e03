"""Forms of settings, built by magicgui from a settings class and its hints."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from magicgui.widgets import (
    CheckBox,
    ComboBox,
    Container,
    FileEdit,
    FloatSpinBox,
    LineEdit,
)
from magicgui.widgets.bases import ValueWidget

from spt_core.hints import Setting, settings_of

AUTOMATIC = "Automatic"
_MOST = 1_000_000  # where a hint has no maximum

Choices = Mapping[str, Sequence[tuple[str, Any]]]


class NumberBox(FloatSpinBox):
    """A whole or fractional number with its unit; None at its very bottom.

    magicgui's own box of whole numbers has neither a suffix nor a word for None.
    """

    def __init__(self, setting: Setting, **options: Any) -> None:
        hint = setting.hint
        self._is_whole = setting.is_whole
        self._has_none = setting.optional
        digits = 0 if self._is_whole else hint.digits
        step = 10.0**-digits
        low = hint.minimum if hint.above is None else hint.above + step
        high = hint.maximum if hint.below is None else hint.below - step
        low = -_MOST if low is None else low
        super().__init__(
            min=low - step if self._has_none else low,
            max=_MOST if high is None else high,
            **options,
        )
        self.native.setDecimals(digits)
        # Decimals round the limits that were set before.
        self.range = (low - step if self._has_none else low, self.max)
        if hint.unit:
            self.native.setSuffix(f" {hint.unit}")
        if self._has_none:
            self.native.setSpecialValueText(AUTOMATIC)

    def get_value(self) -> float | None:
        value = self.native.value()
        if self._has_none and value <= self.native.minimum():
            return None
        return round(value) if self._is_whole else value

    def set_value(self, value: float | None) -> None:
        super().set_value(self.min if value is None else value)

    def _on_value_change(self, value: float | None = None) -> None:
        self.changed.emit(self.get_value())


class ChoiceBox(ComboBox):
    null_string = AUTOMATIC


class TextBox(LineEdit):
    """A line of text; an empty one is None where that is allowed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self._nullable:
            self.native.setPlaceholderText(AUTOMATIC)

    def get_value(self) -> str | None:
        return super().get_value() or (None if self._nullable else "")

    def set_value(self, value: str | None) -> None:
        words = "" if value is None else value
        if words != super().get_value():  # the same again would move the cursor
            super().set_value(words)

    def _on_value_change(self, value: str | None = None) -> None:
        self.changed.emit(self.get_value())


class TupleBox(Container[NumberBox]):
    """The parts of a tuple of numbers, in a row."""

    def __init__(self, setting: Setting, parts: int, **options: Any) -> None:
        boxes = [NumberBox(setting, name=f"part_{i}") for i in range(parts)]
        super().__init__(layout="horizontal", labels=False, widgets=boxes, **options)
        self.margins = (0, 0, 0, 0)

    @property
    def value(self) -> tuple[float, ...]:
        return tuple(box.get_value() for box in self)

    @value.setter
    def value(self, values: Sequence[float]) -> None:
        for box, value in zip(self, values, strict=True):
            box.value = value


class SettingsForm(Container):
    """A row for each setting; ``changed`` is emitted when any of them is.

    A row's widget is ``form[name]``.
    """

    def __init__(self, cls: type, names: Sequence[str], choices: Choices) -> None:
        self._cls = cls
        known = settings_of(cls)
        self._names = tuple(names or known)
        super().__init__()
        self.margins = (0, 0, 0, 0)
        # Only rows that are added to a finished container get labels of one width.
        self.extend(_row(known[name], choices.get(name)) for name in self._names)

    @property
    def value(self) -> dict[str, Any]:
        """The settings as they stand, by name."""
        return {name: self[name].value for name in self._names}

    @value.setter
    def value(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self[name].value = value

    def settings(self, **others: Any) -> Any:
        """An object of the settings class, with others beside those of the form."""
        return self._cls(**{**others, **self.value})


def settings_form(
    cls: type,
    *names: str,
    values: Mapping[str, Any] | None = None,
    choices: Choices | None = None,
) -> SettingsForm:
    """A form of a settings class: of the named settings, or of all that have hints.

    Parameters
    ----------
    values
        To begin with, instead of the class's defaults.
    choices
        ``(words, value)`` pairs of settings whose choices are known only now.
    """
    form = SettingsForm(cls, names, choices or {})
    form.value = values or {}
    return form


def _row(setting: Setting, choices: Sequence[tuple[str, Any]] | None) -> Any:
    options = {
        "name": setting.name,
        "label": setting.label,
        "tooltip": _tooltip(setting),
    }
    widget = _widget(setting, choices, options)
    widget.native.setAccessibleName(setting.label)
    if setting.default is not MISSING:
        widget.value = setting.default
    return widget


def _widget(
    setting: Setting,
    choices: Sequence[tuple[str, Any]] | None,
    options: dict[str, Any],
) -> ValueWidget | TupleBox:
    hint = setting.hint
    if not choices and hint.choices:
        labels = hint.choice_labels or hint.choices
        choices = list(zip(labels, hint.choices, strict=True))
    if choices:
        return ChoiceBox(choices=choices, nullable=setting.optional, **options)
    if setting.length:
        return TupleBox(setting, setting.length, **options)
    if setting.kind in (int, float):
        return NumberBox(setting, **options)
    if setting.kind is bool:
        return CheckBox(**options)
    if setting.kind is Path:
        return FileEdit(nullable=setting.optional, **options)
    return TextBox(nullable=setting.optional, **options)


def _tooltip(setting: Setting) -> str:
    words = setting.hint.help[:1].upper() + setting.hint.help[1:]
    if setting.hint.automatic:
        words += f". {AUTOMATIC}: {setting.hint.automatic}"
    return words
