"""A slide as patch tokens, and the files that hold them."""

from spt_core.tokens.feature_file import (
    TokenIndex,
    read_index,
    read_tokens,
    write_tokens,
)
from spt_core.tokens.tokens import TokenFacts, Tokens

__all__ = [
    "TokenFacts",
    "TokenIndex",
    "Tokens",
    "read_index",
    "read_tokens",
    "write_tokens",
]
