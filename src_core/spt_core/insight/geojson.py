"""Patches as GeoJSON that QuPath opens: detections with classes and measurements."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.files import written_whole
from spt_core.insight.colours import class_colour
from spt_core.insight.geometry import Geometry
from spt_core.insight.maps import TIMES_AVERAGE, UNITS, attention_values
from spt_core.insight.results import ClassMap, Prediction

# Objects are named by their slide and place: exporting again gives the same names.
_NAMES = uuid.UUID("6f6c2f8e-2f0b-5a51-9d0c-3b0c1a7d4e55")


def write_geojson(
    path: Path,
    prediction: Prediction,
    classes: ClassMap | None = None,
    geometry: Geometry | None = None,
) -> None:
    """Write one square per patch, in level-0 pixels less the bounds' origin."""
    with (
        written_whole(Path(path)) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.write('{"type": "FeatureCollection", "features": [')
        for number, feature in enumerate(_features(prediction, classes, geometry)):
            file.write(",\n" if number else "\n")
            json.dump(feature, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n]}\n")


def _features(
    prediction: Prediction, classes: ClassMap | None, geometry: Geometry | None
) -> Iterator[dict[str, Any]]:
    l0_bounds = np.asarray(geometry.l0_bounds_xy if geometry else (0, 0))
    width, height = prediction.facts.l0_patch_xy or (1, 1)
    corners = prediction.xy - l0_bounds
    columns: dict[str, NDArray[np.floating]] = {
        f"Attention ({unit})": attention_values(prediction.attention, unit=unit)
        for unit in UNITS
    }
    if len(prediction.attention) > 1:
        columns |= {
            f"Attention head {head + 1} ({TIMES_AVERAGE})": attention_values(
                prediction.attention, head=head, unit=TIMES_AVERAGE
            )
            for head in range(len(prediction.attention))
        }
    labels = None
    if classes is not None:
        labels = classes.labels
        kind = "probability" if classes.calibrated else "score"
        for number, name in enumerate(classes.classes):
            columns[f"{name} ({kind})"] = classes.probabilities[:, number]
    for row, (x, y) in enumerate(corners.tolist()):
        ring = [
            [x, y],
            [x + width, y],
            [x + width, y + height],
            [x, y + height],
            [x, y],
        ]
        properties: dict[str, Any] = {"objectType": "detection"}
        if labels is not None and classes is not None:
            label = int(labels[row])
            properties["classification"] = {
                "name": classes.name_of(label),
                "color": list(class_colour(label)),
            }
        # JSON has no NaN: a patch without neighbours has no number.
        properties["measurements"] = {
            name: float(f"{values[row]:.6g}")
            for name, values in columns.items()
            if np.isfinite(values[row])
        }
        name = f"{prediction.fingerprint}:{x}:{y}:{row}"
        yield {
            "type": "Feature",
            "id": str(uuid.uuid5(_NAMES, name)),
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": properties,
        }
