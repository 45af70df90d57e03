"""The patch encoders that are known by name: their cards and shapes, without torch.

What is stated was published by their authors; licences are given as published, and the
page beside each is what counts. Nothing is ever fetched unless the user asks.
"""

from spt_core.patches.known_conditional import CONDITIONAL
from spt_core.patches.known_entry import KnownEncoder
from spt_core.patches.known_open import PAPER, PERMISSIVE, SMALL_RANDOM

KNOWN: dict[str, KnownEncoder] = {
    one.card.name: one for one in (*PAPER, *PERMISSIVE, *CONDITIONAL, SMALL_RANDOM)
}


def find_known(name: str) -> KnownEncoder | None:
    """An encoder by its own name, or by the name that another tool gives it."""
    key = name.lower()
    if key in KNOWN:
        return KNOWN[key]
    found = (one for one in KNOWN.values() if key in one.also)
    return next(found, None)
