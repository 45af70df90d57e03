"""All sentences of the map of slides."""

from collections.abc import Sequence

from napari_spt.slide_map.colouring import LABEL, PREDICTION, SITE, values_of
from spt_core.insight.slide_map import MapOfSlides
from spt_core.tokens import Labels

EMPTY = (
    "A map lays slides that are alike side by side: classes that lie apart, slides "
    "that are like no other, scanners that a model tells apart though it should not. "
    "Choose a folder of features, one file per slide: every study of the Train dock "
    "has one."
)
NO_SLIDE = "Open a slide of this map, or click a point: here are those most like it."
NO_CHOICE = (
    "Press “Lasso” and draw around slides, or drag with the Shift key held: here is "
    "the list of them."
)
UNUSUAL_HELP = (
    "Slides that are far from all others: another stain, another tissue, a scan that "
    "went wrong, or a rare finding."
)


def learned_words(found: MapOfSlides) -> str:
    """A warning where the model's answers are about slides that it learned from."""
    count = int(found.learned.sum())
    if found.shares is None or not count:
        return ""
    some = "all" if count == len(found) else f"{count}"
    return (
        f"This model has learned from {some} of these slides. That it is right about "
        "them says nothing of how good it is."
    )


def site_words(found: MapOfSlides) -> str:
    """A warning where a model had to do without a slide's site."""
    if not found.by_themselves:
        return ""
    some = "all" if found.by_themselves == len(found) else f"{found.by_themselves}"
    return (
        "This model judges a slide among others of its site. It does not know the site "
        f"of {some} of these slides and took each by itself alone: choose labels with "
        "a column “site”."
    )


def slide_lines(
    row: int, found: MapOfSlides, labels: Labels | None, coloured: Sequence[str] = ()
) -> list[str]:
    """What is known of a slide, for the eye: its name first."""
    lines = [found.names[row]]
    known = labels.by_slide.get(lines[0]) if labels else None
    if known and known.label:
        lines.append(known.label)
    if found.shares is not None:
        share = float(found.shares[row].max())
        answer = found.classes[int(found.shares[row].argmax())]
        learned = ", learned from it" if found.learned[row] else ""
        lines.append(f"model: {answer} ({share:.0%}{learned})")
    if known and known.site:
        lines.append(known.site)
    return [*lines, *(one for one in coloured if one not in lines)]


def nearest_words(
    row: int, distance: float, found: MapOfSlides, labels: Labels | None
) -> str:
    return " · ".join([f"{distance:.3f}", *slide_lines(row, found, labels)])


def unusual_words(
    row: int, times: float, found: MapOfSlides, labels: Labels | None
) -> str:
    return " · ".join([f"{times:.1f}×", *slide_lines(row, found, labels)])


def chosen_table(
    rows: Sequence[int], found: MapOfSlides, labels: Labels | None, *, named: bool
) -> list[list[str]]:
    """A table of slides to be saved: no patient, and no name unless asked for."""
    called = found.names if named else found.pseudonyms
    names = {"label": LABEL, "model says": PREDICTION, "site": SITE}
    values = {title: values_of(key, found, labels) for title, key in names.items()}
    used = [title for title, column in values.items() if any(column)]
    table = [["slide", *used]]
    for row in rows:
        table.append([called[row], *(values[title][row] or "" for title in used)])
    return table
