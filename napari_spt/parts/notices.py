"""Notices, and words for the status bar, as plain text.

Their labels are napari's, and take what looks like HTML for it. Classes and slides have
names that others gave: none is drawn as markup, and no picture that it names is loaded.
"""

from napari.utils import notifications


def for_napari(words: str) -> str:
    """The same without a sign that could begin a tag."""
    return words.replace("<", "‹")


def show_info(words: str) -> None:
    notifications.show_info(for_napari(words))


def show_warning(words: str) -> None:
    notifications.show_warning(for_napari(words))


def show_error(words: str) -> None:
    notifications.show_error(for_napari(words))
