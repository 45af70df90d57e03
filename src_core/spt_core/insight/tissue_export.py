"""A map of kinds of tissue for other programs: QuPath objects and OME-TIFF."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.insight.geometry import Geometry
from spt_core.insight.maps import cell_map
from spt_core.insight.results import Prediction
from spt_core.insight.tissue_map import TissueMap

_NAMES = uuid.UUID("0e0f3ad2-6f1c-5f0e-9d0c-3b0c1a7d4e55")


def write_tissue_geojson(path: Path, found: TissueMap, geometry: Geometry) -> None:
    """Write one square per patch, in level-0 pixels less the bounds' origin."""
    with (
        written_whole(Path(path)) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.write('{"type": "FeatureCollection", "features": [')
        for number, feature in enumerate(_features(found, geometry)):
            file.write(",\n" if number else "\n")
            json.dump(feature, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n]}\n")


def _features(found: TissueMap, geometry: Geometry) -> Iterator[dict[str, Any]]:
    width, height = found.facts.l0_patch_xy or (1, 1)
    corners = found.xy - np.asarray(geometry.l0_bounds_xy)
    titles, colours = found.kinds.titles, found.kinds.rgb.tolist()
    for row, (x, y) in enumerate(corners.tolist()):
        right, bottom = x + width, y + height
        ring = [[x, y], [right, y], [right, bottom], [x, bottom], [x, y]]
        label = int(found.labels[row])
        name = f"{found.facts.slide_fingerprint or ''}:{x}:{y}:{row}"
        yield {
            "type": "Feature",
            "id": str(uuid.uuid5(_NAMES, name)),
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": {
                "objectType": "detection",
                "classification": {"name": titles[label], "color": colours[label]},
                "measurements": {
                    "Unlike all others": float(f"{found.outlier_score[row]:.4g}")
                },
            },
        }


def write_tissue_ome_tiff(
    path: Path,
    found: TissueMap,
    prediction: Prediction,
    geometry: Geometry,
    *,
    name: str,
) -> None:
    """Write one channel per kind, 1 where a patch is of it; NaN without a patch.

    ``prediction`` gives the cells of the same patches.
    """
    if len(found.labels) == 0:
        raise InputError("An empty slide has no map to write as OME-TIFF.")
    columns = np.eye(len(found.kinds), dtype=np.float32)[found.labels]
    drawn = cell_map(columns, prediction.p, prediction.xy, prediction.facts)
    planes = np.ascontiguousarray(np.moveaxis(drawn.values, -1, 0))
    count = len(planes)
    metadata: dict[str, object] = {
        "axes": "CYX",
        "Name": name,
        "Channel": {"Name": found.kinds.titles},
    }
    resolution = None
    um = geometry.um_pixel_xy
    if um is not None:
        step = drawn.l0_step_xy[0] * um[0], drawn.l0_step_xy[1] * um[1]
        corner = drawn.l0_origin_xy[0] * um[0], drawn.l0_origin_xy[1] * um[1]
        metadata |= {
            "PhysicalSizeX": step[0],
            "PhysicalSizeXUnit": "µm",
            "PhysicalSizeY": step[1],
            "PhysicalSizeYUnit": "µm",
            "Plane": {
                "PositionX": [corner[0]] * count,
                "PositionXUnit": ["µm"] * count,
                "PositionY": [corner[1]] * count,
                "PositionYUnit": ["µm"] * count,
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
