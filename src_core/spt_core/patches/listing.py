"""Which patch encoders there are, and what each still needs. Without torch.

:func:`list_encoders` is for whoever offers encoders: commands, docks.
"""

from dataclasses import dataclass
from enum import StrEnum

from spt_core import bundled
from spt_core.patches.encoder_card import (
    FROM_FILE,
    FROM_PACKAGE,
    FROM_SEED,
    EncoderCard,
    read_encoder_card,
)
from spt_core.patches.known import KNOWN
from spt_core.patches.store import stored_file


class EncoderState(StrEnum):
    """What an encoder needs before it can run here."""

    READY = "ready"
    OPEN = "can be fetched"
    GATED = "its authors ask who fetches it"
    FILE = "file needed"
    UNSUPPORTED = "features only"


@dataclass(frozen=True)
class ListedEncoder:
    """One encoder, its state, and in words how to get it; empty where it is ready."""

    card: EncoderCard
    state: EncoderState
    how: str = ""

    @property
    def is_ready(self) -> bool:
        return self.state is EncoderState.READY


def list_encoders() -> list[ListedEncoder]:
    """All encoders with a name, the bundled one first, then those of the paper."""
    own = read_encoder_card(bundled.encoder_path())
    listed = [] if own is None else [ListedEncoder(own, EncoderState.READY)]
    for known in KNOWN.values():
        card = known.card
        if known.unsupported:
            state, how = EncoderState.UNSUPPORTED, known.unsupported
        else:
            state = encoder_state(card)
            how = "" if state is EncoderState.READY else how_to_get(card)
        listed.append(ListedEncoder(card, state, how))
    return listed


def encoder_state(card: EncoderCard) -> EncoderState:
    """What an encoder that can be loaded needs before it runs here."""
    if card.weights in (FROM_PACKAGE, FROM_SEED) or stored_file(card.name).exists():
        return EncoderState.READY
    if card.weights == FROM_FILE:
        return EncoderState.FILE
    return EncoderState.GATED if card.gated else EncoderState.OPEN


def how_to_get(card: EncoderCard) -> str:
    """What to do to have an encoder's weights, as the rest of a sentence."""
    by_file = f"with --encoder {card.name} --encoder-weights FILE"
    kept = f"keep it with 'spt encoders get {card.name} --from FILE'"
    if card.weights == FROM_FILE:
        where = f" from {card.page}" if card.page else ""
        return f"give its file{where} {by_file}, or {kept}"
    if card.gated:
        return (
            f"accept its terms at {card.page}, then 'spt encoders get {card.name}' "
            f"with your own token (HF_TOKEN); or give a file that you have {by_file}"
        )
    return (
        f"fetch its weights once with 'spt encoders get {card.name}', or give them "
        "with --encoder-weights FILE"
    )
