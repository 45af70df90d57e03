"""Slide Pre-trained Transformers for whole-slide pathology: the core.

``__all__`` is the public Python interface; ``docs/api.md`` describes it. What is not in
it is private and may change. Names are loaded when first asked for, so that importing
the package costs nothing and a window that only shows slides never loads torch.
"""

from typing import TYPE_CHECKING

from spt_core._version import __version__
from spt_core.lazy import lazy_names

if TYPE_CHECKING:
    from spt_core.errors import InputError
    from spt_core.events import finish
    from spt_core.insight.class_map import class_map
    from spt_core.insight.exploring import explore
    from spt_core.insight.exporting import Findings, write_findings
    from spt_core.insight.faithfulness import faithfulness
    from spt_core.insight.growing import predict_slide
    from spt_core.insight.maps import CellMap, attention_values, cell_map
    from spt_core.insight.predicting import predict
    from spt_core.insight.results import ClassMap, Prediction
    from spt_core.insight.wording import prediction_sentence
    from spt_core.learning.model_file import SlideModel, load_model, save_model
    from spt_core.learning.settings import TrainSettings
    from spt_core.learning.slide_encoder import SlideEncoder
    from spt_core.learning.training import train
    from spt_core.learning.views import ViewSettings, slide_views
    from spt_core.patches.encode import encode_slide, encode_slides, slide_tasks
    from spt_core.patches.settings import EncodeSettings
    from spt_core.patches.training.augmentation_settings import Augmentation
    from spt_core.patches.training.settings import PatchTrainSettings
    from spt_core.patches.training.training import train_patches
    from spt_core.slides import Slide, open_slide
    from spt_core.studies.evaluation import Evaluation, evaluate
    from spt_core.tokens import (
        Labels,
        TokenFacts,
        Tokens,
        read_labels,
        read_tokens,
        write_tokens,
    )

_HOMES = {
    "Augmentation": "spt_core.patches.training.augmentation_settings",
    "CellMap": "spt_core.insight.maps",
    "ClassMap": "spt_core.insight.results",
    "EncodeSettings": "spt_core.patches.settings",
    "Evaluation": "spt_core.studies.evaluation",
    "Findings": "spt_core.insight.exporting",
    "InputError": "spt_core.errors",
    "Labels": "spt_core.tokens",
    "PatchTrainSettings": "spt_core.patches.training.settings",
    "Prediction": "spt_core.insight.results",
    "Slide": "spt_core.slides",
    "SlideEncoder": "spt_core.learning.slide_encoder",
    "SlideModel": "spt_core.learning.model_file",
    "TokenFacts": "spt_core.tokens",
    "Tokens": "spt_core.tokens",
    "TrainSettings": "spt_core.learning.settings",
    "ViewSettings": "spt_core.learning.views",
    "attention_values": "spt_core.insight.maps",
    "cell_map": "spt_core.insight.maps",
    "class_map": "spt_core.insight.class_map",
    "encode_slide": "spt_core.patches.encode",
    "encode_slides": "spt_core.patches.encode",
    "evaluate": "spt_core.studies.evaluation",
    "explore": "spt_core.insight.exploring",
    "faithfulness": "spt_core.insight.faithfulness",
    "finish": "spt_core.events",
    "load_model": "spt_core.learning.model_file",
    "open_slide": "spt_core.slides",
    "predict": "spt_core.insight.predicting",
    "predict_slide": "spt_core.insight.growing",
    "prediction_sentence": "spt_core.insight.wording",
    "read_labels": "spt_core.tokens",
    "read_tokens": "spt_core.tokens",
    "save_model": "spt_core.learning.model_file",
    "slide_tasks": "spt_core.patches.encode",
    "slide_views": "spt_core.learning.views",
    "train": "spt_core.learning.training",
    "train_patches": "spt_core.patches.training.training",
    "write_findings": "spt_core.insight.exporting",
    "write_tokens": "spt_core.tokens",
}

__all__ = [
    "Augmentation",
    "CellMap",
    "ClassMap",
    "EncodeSettings",
    "Evaluation",
    "Findings",
    "InputError",
    "Labels",
    "PatchTrainSettings",
    "Prediction",
    "Slide",
    "SlideEncoder",
    "SlideModel",
    "TokenFacts",
    "Tokens",
    "TrainSettings",
    "ViewSettings",
    "__version__",
    "attention_values",
    "cell_map",
    "class_map",
    "encode_slide",
    "encode_slides",
    "evaluate",
    "explore",
    "faithfulness",
    "finish",
    "load_model",
    "open_slide",
    "predict",
    "predict_slide",
    "prediction_sentence",
    "read_labels",
    "read_tokens",
    "save_model",
    "slide_tasks",
    "slide_views",
    "train",
    "train_patches",
    "write_findings",
    "write_tokens",
]

__getattr__ = lazy_names(__name__, _HOMES)
