"""A slide as patch tokens, and the files that hold them."""

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
