"""Which slides a folder holds, and the summary that a run leaves behind."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from spt_core.csv_files import write_csv
from spt_core.errors import InputError
from spt_core.patches.settings import SlideResult
from spt_core.slides.folders import slides_in

SUMMARY = "summary.csv"
_COLUMNS = ("slide", "status", "patches", "seconds", "reason")


def find_slides(paths: Iterable[Path]) -> list[Path]:
    """The slides among files and folders, in order; folders are searched recursively.

    A folder of one slide's DICOM files is one slide, and so is an OME-Zarr folder.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"There is no file or folder {path}.")
        if not path.is_dir():
            found.append(path)
            continue
        slides = list(slides_in(path))
        if not slides:
            raise InputError(f"There are no slides in the folder {path}.")
        found += slides
    return list(dict.fromkeys(found))


def write_summary(folder: Path, results: Sequence[SlideResult]) -> Path:
    """Write ``summary.csv``: one line per slide."""
    path = folder / SUMMARY
    write_csv(path, _COLUMNS, (_row(result) for result in results))
    return path


def summary_table(results: Sequence[SlideResult]) -> str:
    """The summary for a person: counts, then one line per slide."""
    counts = {
        status: sum(r.status == status for r in results)
        for status in ("done", "skipped", "busy", "failed")
    }
    patches = sum(r.patches for r in results if r.status == "done")
    seconds = sum(r.seconds for r in results)
    lines = [
        f"{counts['done']} done ({patches} patches), {counts['skipped']} skipped, "
        f"{counts['failed']} failed"
        + (f", {counts['busy']} left to another process" if counts["busy"] else "")
    ]
    shown = [_COLUMNS, *(_row(result) for result in results)]
    if seconds == 0 and not counts["failed"] and len(results) > 20:
        return lines[0]
    widths = [max(len(str(row[i])) for row in shown) for i in range(4)]
    for row in shown:
        cells = [
            str(value).ljust(width) if i < 2 else str(value).rjust(width)
            for i, (value, width) in enumerate(zip(row[:4], widths, strict=True))
        ]
        lines.append("  ".join([*cells, str(row[4])]).rstrip())
    return "\n".join(lines)


def _row(result: SlideResult) -> tuple[str, str, int, str, str]:
    return (
        result.name,
        result.status,
        result.patches,
        f"{result.seconds:.1f}",
        result.reason,
    )
