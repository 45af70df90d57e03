"""What napari's style leaves out: tool buttons, and what is chosen of them."""

from napari.settings import get_settings
from napari.utils.theme import get_theme
from qtpy.QtGui import QFont


def ink_of(theme: str) -> str:
    """The colour of text."""
    return get_theme(theme).text.as_hex()


def ground_of(theme: str) -> str:
    """The colour behind it."""
    return get_theme(theme).background.as_hex()


def tool_style(theme: str) -> str:
    """The style of our folds, tabs, pictures and other tool buttons."""
    ink, mark = ink_of(theme), get_theme(theme).current.as_hex()
    size = get_settings().appearance.font_size
    return (
        f"QToolButton {{ font-size: {size}pt; color: {ink}; }}"
        "QToolButton::menu-indicator { image: none; }"
        "QToolButton#spt_fold { font-weight: bold; text-align: left;"
        " border: none; padding: 2px 0px; }"
        "QToolButton#spt_tab { border: none; border-radius: 3px;"
        " padding: 4px 8px; }"
        f"QToolButton#spt_tab:checked {{ background: {mark};"
        f" color: {_ink_on(mark)}; }}"
        "QToolButton#spt_region { border: 2px solid transparent;"
        " border-radius: 4px; padding: 0px; }"
        f"QToolButton#spt_region:checked {{ border-color: {mark};"
        f" background: {mark}; color: {_ink_on(mark)}; }}"
        "QToolButton#spt_name { border: 1px solid transparent;"
        " border-radius: 3px; padding: 1px 3px; }"
        f"QToolButton#spt_name:checked {{ border-color: {ink}; }}"
    )


def text_font(font: QFont) -> QFont:
    """A font in the size of napari's text, for what is painted rather than styled."""
    font = QFont(font)
    font.setPointSize(get_settings().appearance.font_size)
    return font


def table_style() -> str:
    """The style of tables, whose text napari leaves small."""
    size = get_settings().appearance.font_size
    return f"QTableWidget, QHeaderView::section {{ font-size: {size}pt; }}"


def _ink_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 140 else "white"
