"""The napari reader: one multiscale RGB layer per slide, in micrometres."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import napari
from napari.utils.colormaps import Colormap

from napari_spt.parts.notices import show_warning
from napari_spt.parts.window_calls import make_window_calls_safe
from napari_spt.slides.dask_scheduler import use_threads_by_default
from napari_spt.slides.recent import remember_slide
from napari_spt.slides.slide_source import USUAL_MPP
from spt_core import proving
from spt_core.errors import InputError
from spt_core.slides import (
    Slide,
    UnreadableRegionError,
    is_ome_zarr,
    is_slide_name,
    open_slide,
    slide_name,
)
from spt_core.slides.channel_levels import Channel
from spt_core.slides.properties import doubt_note
from spt_core.slides.tiff_checks import wrong_with
from spt_core.slides.tiff_parts import refuse_lost_parts

if TYPE_CHECKING:
    from napari_spt.slides.slide_table import SlideTable

LayerData = tuple[Any, dict[str, Any], str]

# Images up to this side, napari shows from memory at least as well as we do.
_ORDINARY_SIDE = 4096


def get_reader(path: str | Sequence[str]) -> Callable[[Any], list[LayerData]] | None:
    """Offer to read ``path``, or decline with None; the file's pixels are not read."""
    paths = [path] if isinstance(path, str) else list(path)
    if all(_is_ours(Path(p)) for p in paths):
        return read_slides
    return None


def read_slides(path: str | Sequence[str]) -> list[LayerData]:
    """Read each slide as one layer; napari shows the message of an InputError."""
    paths = [path] if isinstance(path, str) else list(path)
    proving.switch_on()  # a slide must not take the window down
    use_threads_by_default()
    make_window_calls_safe()
    table = _table()
    layers = []
    for one in map(Path, paths):
        try:
            slide = open_slide(one, title=one.name)
        except InputError as error:
            if table is not None and len(table.troubles.changed):
                table.troubles.tell(one, str(error))
            raise
        remember_slide(slide.path)
        layers += slide_layers_of(slide)
    return layers


def _table() -> "SlideTable | None":
    """The table of the viewer that is about to get a layer; None without a window."""
    viewer = napari.current_viewer()
    if viewer is None:
        return None
    # Here, because it needs Qt: files can be read without a window too.
    from napari_spt.slides.slide_table import table_of

    return table_of(viewer)


def slide_layers_of(slide: Slide) -> list[LayerData]:
    """A slide as napari layers: one in colour, or one per channel."""
    if not slide.channels:
        return [slide_layer(slide)]
    _, options, _ = slide_layer(slide)
    layers: list[LayerData] = []
    for number, channel in enumerate(slide.channels):
        facts = {**options["metadata"]["spt"], "channel": number}
        own = {
            **options,
            "name": f"{channel.name} – {options['name']}",
            "rgb": False,
            "contrast_limits": channel.limits,
            "colormap": _colormap(channel),
            "blending": "additive",
            "metadata": {"spt": {**facts, "name": options["name"]}},
        }
        layers.append((channel.pyramid, own, "image"))
    return layers


def _colormap(channel: Channel) -> Colormap:
    """From black to a channel's colour."""
    full = tuple(part / 255 for part in channel.colour)
    return Colormap([(0, 0, 0, 1), (*full, 1)], name=f"channel {channel.name}")


def slide_layer(slide: Slide) -> LayerData:
    """A slide as napari layer data.

    The layer shows the scanned part of the canvas; ``translate`` puts it in place, so
    that world coordinates are those of the full canvas, in micrometres, with the centre
    of level-0 pixel (0, 0) at the origin.
    """
    slide.on_unreadable = _warn_unreadable
    table = _table()
    doubt = slide.doubted_mpp_xy and doubt_note(slide.doubted_mpp_xy)
    for note in slide.notes:
        if note == doubt and table is not None and len(table.troubles.changed):
            continue  # docks say it where they tell the slide's size
        if table is None:
            show_warning(f"{slide.path.name}: {note}")
        else:
            table.troubles.tell(slide.path, note, is_open=True)
    l0_x, l0_y, l0_w, l0_h = slide.bounds
    levels = []
    for array, level in zip(slide.pyramid, slide.levels, strict=True):
        x_step = slide.dimensions[0] / level.width
        y_step = slide.dimensions[1] / level.height
        levels.append(
            array[
                round(l0_y / y_step) : max(1, round((l0_y + l0_h) / y_step)),
                round(l0_x / x_step) : max(1, round((l0_x + l0_w) / x_step)),
            ]
        )
    unit = "pixel" if slide.mpp_xy is None else "um"
    if table is not None:
        unit = table.unit_of_next(slide.mpp_xy)
    usual = USUAL_MPP if unit == "um" else 1.0
    um_x, um_y = slide.mpp_xy or (usual, usual)
    options = {
        "name": slide_name(slide.path),
        "rgb": True,
        "multiscale": True,
        "contrast_limits": (0, 255),
        # The slide keeps its own bounded cache; napari's takes a tenth of the memory.
        "cache": False,
        "scale": (um_y, um_x),
        "translate": (l0_y * um_y, l0_x * um_x),
        "units": (unit, unit),
        "metadata": {"spt": slide_facts(slide)},
    }
    return levels, options, "image"


def slide_facts(slide: Slide) -> dict[str, Any]:
    """What later steps need to know about a slide's layer, as plain data."""
    return {
        "path": str(slide.path),
        "mpp_xy": None if slide.mpp_xy is None else list(slide.mpp_xy),
        "doubted_mpp_xy": slide.doubted_mpp_xy and list(slide.doubted_mpp_xy),
        "dimensions": list(slide.dimensions),
        "bounds": list(slide.bounds),
        "level_downsamples": list(slide.level_downsamples),
        "reader": slide.reader,
    }


def _is_ours(path: Path) -> bool:
    """Whether to read it: slides, and TIFFs too large to be ordinary images."""
    if path.is_dir():
        # An empty folder is ours too, so that the user is told what is wrong.
        is_empty = not any(path.iterdir())
        return is_empty or is_ome_zarr(path) or any(path.glob("*.dcm"))
    if not is_slide_name(path):
        return False
    if path.suffix.lower() in (".tif", ".tiff") and path.is_file():
        return not _is_ordinary_tiff(path)
    return True


def _is_ordinary_tiff(path: Path) -> bool:
    """Whether a TIFF is a small image without levels, which napari reads itself."""
    import tifffile

    try:
        # Ours to refuse: with directories in a circle tifffile comes to no end.
        if wrong_with(path):
            return False
        with tifffile.TiffFile(path) as tiff:
            refuse_lost_parts(tiff, path)
            first = tiff.pages[0]
            size = (first.imagewidth, first.imagelength)
            has_levels = len(tiff.series[0].levels) > 1 or any(
                page.is_tiled and (page.imagewidth, page.imagelength) != size
                for page in tiff.pages[1:]
            )
    # Not readable as a TIFF, or not alone: the user is told why when it is opened.
    except Exception:  # noqa: BLE001
        return False
    return max(size) <= _ORDINARY_SIDE and not has_levels


def _warn_unreadable(error: UnreadableRegionError) -> None:
    """Tell the user once; the region is hatched, the rest still shows."""
    show_warning(f"{error} It is shown hatched in red; the rest of the slide is shown.")
