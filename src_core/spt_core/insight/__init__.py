"""What a model says of a slide, where it looks, and whether to believe it.

Names are loaded when first asked for: result types, maps and exploration are numpy,
and a window that shows them never loads torch.
"""

from typing import TYPE_CHECKING

from spt_core.lazy import lazy_names

if TYPE_CHECKING:
    from spt_core.insight.class_map import class_map
    from spt_core.insight.exploring import explore, look_alikes
    from spt_core.insight.exporting import Findings, write_findings
    from spt_core.insight.faithfulness import faithfulness, what_if
    from spt_core.insight.growing import predict_slide
    from spt_core.insight.maps import CellMap, attention_values, cell_map
    from spt_core.insight.predicting import predict
    from spt_core.insight.results import ClassMap, Prediction

_HOMES = {
    "CellMap": "spt_core.insight.maps",
    "ClassMap": "spt_core.insight.results",
    "Findings": "spt_core.insight.exporting",
    "Prediction": "spt_core.insight.results",
    "attention_values": "spt_core.insight.maps",
    "cell_map": "spt_core.insight.maps",
    "class_map": "spt_core.insight.class_map",
    "explore": "spt_core.insight.exploring",
    "faithfulness": "spt_core.insight.faithfulness",
    "look_alikes": "spt_core.insight.exploring",
    "predict": "spt_core.insight.predicting",
    "predict_slide": "spt_core.insight.growing",
    "what_if": "spt_core.insight.faithfulness",
    "write_findings": "spt_core.insight.exporting",
}

__all__ = [
    "CellMap",
    "ClassMap",
    "Findings",
    "Prediction",
    "attention_values",
    "cell_map",
    "class_map",
    "explore",
    "faithfulness",
    "look_alikes",
    "predict",
    "predict_slide",
    "what_if",
    "write_findings",
]

__getattr__ = lazy_names(__name__, _HOMES)
