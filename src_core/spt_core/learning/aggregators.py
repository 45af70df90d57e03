"""All ways from tokens to a slide embedding, by name."""

from inspect import signature
from typing import Any

from spt_core.errors import InputError
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.clam import Clam
from spt_core.learning.dsmil import DualStream
from spt_core.learning.gated_attention import GatedAttention
from spt_core.learning.hipt import Hipt
from spt_core.learning.pooling import MaxPooling, MeanPooling
from spt_core.learning.slide_encoder import PRESETS, SlideEncoder
from spt_core.learning.transmil import TransMil

AGGREGATORS: dict[str, type[Aggregator]] = {
    kind.name: kind
    for kind in (
        SlideEncoder,
        MeanPooling,
        MaxPooling,
        GatedAttention,
        Clam,
        DualStream,
        TransMil,
        Hipt,
    )
}
# What a new one has and a model file need not state.
NEW: dict[str, dict[str, Any]] = {"abmil": {"dropout": 0.25}}


def build_encoder(name: str, in_dim: int, **config: Any) -> Aggregator:
    """Make an encoder by a preset's name or an aggregator's, with its own options."""
    kind: type[Aggregator] = SlideEncoder if name in PRESETS else AGGREGATORS[name]
    unknown = sorted(config.keys() - signature(kind).parameters.keys())
    if unknown:
        raise InputError(f"The model {name} has no option {', '.join(unknown)}.")
    usual = PRESETS.get(name) or NEW.get(name, {})
    try:
        return kind(in_dim, **{**usual, **config})
    except ValueError as error:  # sizes that do not go together
        raise InputError(f"The model {name} cannot be built: {error}") from error
