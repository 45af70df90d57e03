"""The slides that were opened lately, however they were opened."""

from pathlib import Path

from napari_spt.parts.settings import remember, remembered

_MOST = 8


def recent_slides() -> list[str]:
    """Slides opened lately that still exist, newest first."""
    return [path for path in remembered("recent_slides", []) if Path(path).exists()]


def remember_slide(path: Path) -> None:
    recent = dict.fromkeys([str(path), *recent_slides()])
    remember("recent_slides", list(recent)[:_MOST])
    remember("last_folder", str(path.parent))
