"""A slide as patch tokens, and the files that hold them.

Names are loaded when first asked for: a window knows tokens before it reads any file.
"""

from typing import TYPE_CHECKING

from spt_core.lazy import lazy_names

if TYPE_CHECKING:
    from spt_core.tokens.feature_file import (
        TokenIndex,
        read_index,
        read_tokens,
        write_tokens,
    )
    from spt_core.tokens.labels import (
        Labels,
        PatientSource,
        SlideLabel,
        check_labels,
        read_labels,
    )
    from spt_core.tokens.tokens import TokenFacts, Tokens

_HOMES = {
    "Labels": "spt_core.tokens.labels",
    "PatientSource": "spt_core.tokens.labels",
    "SlideLabel": "spt_core.tokens.labels",
    "TokenFacts": "spt_core.tokens.tokens",
    "TokenIndex": "spt_core.tokens.feature_file",
    "Tokens": "spt_core.tokens.tokens",
    "check_labels": "spt_core.tokens.labels",
    "read_index": "spt_core.tokens.feature_file",
    "read_labels": "spt_core.tokens.labels",
    "read_tokens": "spt_core.tokens.feature_file",
    "write_tokens": "spt_core.tokens.feature_file",
}

__all__ = [
    "Labels",
    "PatientSource",
    "SlideLabel",
    "TokenFacts",
    "TokenIndex",
    "Tokens",
    "check_labels",
    "read_index",
    "read_labels",
    "read_tokens",
    "write_tokens",
]

__getattr__ = lazy_names(__name__, _HOMES)
