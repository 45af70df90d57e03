"""Tokens of known places and facts, made without torch."""

import numpy as np

from spt_core.tokens import TokenFacts, Tokens

DIM, STEP = 16, 100
FACTS = TokenFacts(
    name="made-up",
    encoder="made-up",
    encoder_sha256="ab" * 32,
    mpp=0.5,
    patch_size=50,
    patch_um=25.0,
    stain="none",
    l0_patch_xy=(STEP, STEP),
    l0_step_xy=(STEP, STEP),
    l0_size_xy=(4000, 4000),
)


def grid_tokens(x, *, cols=None, origin=(0, 0), **facts):
    """Tokens that fill a rectangle of the lattice, row by row."""
    x = np.asarray(x, np.float32)
    cols = cols or max(1, int(np.ceil(np.sqrt(len(x)))))
    p = np.stack(np.divmod(np.arange(len(x)), cols), axis=1)
    xy = (p + origin)[:, ::-1] * STEP
    known = {**FACTS.__dict__, "g_origin": origin, **facts}
    return Tokens(x, p, xy, TokenFacts(**known))
