"""Maps as OME-TIFF: one pixel per patch, one channel per map, with physical size."""

from pathlib import Path

import numpy as np
import tifffile

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.insight.geometry import Geometry
from spt_core.insight.maps import UNITS, attention_values, cell_map
from spt_core.insight.results import ClassMap, Prediction


def write_ome_tiff(
    path: Path,
    prediction: Prediction,
    classes: ClassMap | None = None,
    geometry: Geometry | None = None,
    *,
    name: str | None = None,
) -> None:
    """Write attention in three units, then each class; NaN where there is no patch.

    The position of the first pixel's corner on the slide is each plane's position.
    """
    if len(prediction) == 0:
        raise InputError("An empty slide has no map to write as OME-TIFF.")
    names = [f"attention ({unit})" for unit in UNITS]
    columns = [attention_values(prediction.attention, unit=unit) for unit in UNITS]
    if classes is not None:
        names += list(classes.classes)
        columns += list(classes.probabilities.T)
    drawn = cell_map(
        np.stack(columns, axis=1), prediction.p, prediction.xy, prediction.facts
    )
    planes = np.ascontiguousarray(np.moveaxis(drawn.values, -1, 0))
    metadata: dict[str, object] = {
        "axes": "CYX",
        "Name": name or prediction.pseudonym,
        "Channel": {"Name": names},
    }
    resolution = None
    um = geometry.um_pixel_xy if geometry else None
    if um is not None:
        step = drawn.l0_step_xy[0] * um[0], drawn.l0_step_xy[1] * um[1]
        corner = drawn.l0_origin_xy[0] * um[0], drawn.l0_origin_xy[1] * um[1]
        metadata |= {
            "PhysicalSizeX": step[0],
            "PhysicalSizeXUnit": "µm",
            "PhysicalSizeY": step[1],
            "PhysicalSizeYUnit": "µm",
            "Plane": {
                "PositionX": [corner[0]] * len(names),
                "PositionXUnit": ["µm"] * len(names),
                "PositionY": [corner[1]] * len(names),
                "PositionYUnit": ["µm"] * len(names),
            },
        }
        resolution = (1e4 / step[0], 1e4 / step[1])
    with written_whole(Path(path)) as temporary:
        tifffile.imwrite(
            temporary,
            planes,
            ome=True,
            photometric="minisblack",
            metadata=metadata,
            compression="zlib",
            resolution=resolution,
            resolutionunit="CENTIMETER" if resolution else None,
        )
