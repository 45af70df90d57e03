"""Keys that go from slide to slide."""

from napari.components import ViewerModel

from napari_spt.parts.actions import Action, register_actions

NEXT_SLIDE = "napari-spt:next_slide"
PREVIOUS_SLIDE = "napari-spt:previous_slide"


def next_slide(viewer: ViewerModel) -> None:
    """Show the next slide."""
    _go_on(viewer, 1)


def previous_slide(viewer: ViewerModel) -> None:
    """Show the slide before."""
    _go_on(viewer, -1)


def _go_on(viewer: ViewerModel, step: int) -> None:
    from napari_spt.slides.slide_table import table_of

    table_of(viewer).go_on(step)


ACTIONS = {
    NEXT_SLIDE: Action(next_slide, "Slides: show the next one", "."),
    PREVIOUS_SLIDE: Action(previous_slide, "Slides: show the one before", ","),
}


def register() -> None:
    register_actions(ACTIONS)
