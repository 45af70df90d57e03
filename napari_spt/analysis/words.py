"""Slides, progress and trouble in words."""

from napari_spt.analysis.state import CANCELLED, FAILED, Analysis, Pace
from napari_spt.slides.slide_source import SlideSource


def slide_words(source: SlideSource) -> str:
    """Which slide it is, and how large."""
    width, height = source.l0_size_xy
    if source.mpp_xy is None:
        return f"{source.name}: {width:,} × {height:,} pixels"
    um_x, um_y = source.mpp_xy
    return f"{source.name}: {width * um_x / 1000:.1f} × {height * um_y / 1000:.1f} mm"


def trouble_words(analysis: Analysis) -> str:
    """Why an analysis ended before its end, and what is to be known of it."""
    said = list(analysis.notes)
    if analysis.state == CANCELLED:
        stays = " What was found so far stays." if analysis.reading is not None else ""
        said.insert(0, f"Cancelled.{stays}")
    elif analysis.state == FAILED:
        said.insert(0, analysis.sentence)
    return "\n".join(dict.fromkeys(said))


def pace_words(pace: Pace | None) -> str:
    """How far the work is, in words."""
    if pace is None:
        return "Getting ready…"
    words = pace.message[:1].upper() + pace.message[1:]
    if not pace.total:
        return f"{words}…"
    parts = [f"{words}: {pace.done:,} of {pace.total:,}"]
    if pace.rate:
        parts.append(f"{pace.rate:.0f} a second")
    if pace.seconds_left is not None:
        parts.append(f"{_time_words(pace.seconds_left)} left")
    return ", ".join(parts)


def _time_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
