"""The shape of a vision transformer in plain numbers: what builds it needs no file."""

from dataclasses import dataclass

CLS = "cls"  # the class token after the last norm
CLS_AND_MEAN = "cls+mean"  # it, and after it the mean of the patches' tokens


@dataclass(frozen=True)
class VitShape:
    """Of a vision transformer as timm builds it.

    Attributes
    ----------
    dim, depth, heads
        Length of a token, number of blocks, and heads of each.
    patch, side
        Pixels per side of a token's patch, and of the whole picture.
    mlp
        ``gelu``, ``quick_gelu`` or ``swiglu``.
    mlp_ratio
        Rows of a block's first linear layer, for each of ``dim``; both halves of a
        ``swiglu`` are counted.
    layer_scale
        Whether each block scales what it adds.
    registers
        Tokens that stand for no patch, beside the class token.
    bare_class
        The class token and the registers have no position.
    norm_first
        A norm before the first block, as CLIP has it.
    eps
        Of the norms.
    projected
        Length after a last projection without bias, as CLIP has it; 0 without one.
    output
        ``cls`` or ``cls+mean``.
    """

    dim: int
    depth: int
    heads: int
    patch: int
    side: int = 224
    mlp: str = "gelu"
    mlp_ratio: float = 4.0
    layer_scale: bool = False
    registers: int = 0
    bare_class: bool = False
    norm_first: bool = False
    eps: float = 1e-6
    projected: int = 0
    output: str = CLS

    @property
    def length(self) -> int:
        """Length of the vectors that it gives."""
        if self.projected:
            return self.projected
        return 2 * self.dim if self.output == CLS_AND_MEAN else self.dim
