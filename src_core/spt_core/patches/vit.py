"""Vision transformers of the published encoders, built on timm's."""

from functools import partial

import torch
from timm.layers import SwiGLUPacked
from timm.layers.activations import QuickGELU
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from spt_core.patches.vit_shape import CLS_AND_MEAN, VitShape


class Vit(VisionTransformer):
    """timm's vision transformer with the output that an encoder was published with.

    Its weights have timm's names, and ``proj.weight`` where it has a projection.
    """

    def __init__(self, shape: VitShape) -> None:
        swiglu = shape.mlp == "swiglu"
        layers = {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU} if swiglu else {}
        if shape.mlp == "quick_gelu":
            layers = {"act_layer": QuickGELU}
        super().__init__(
            img_size=shape.side,
            patch_size=shape.patch,
            num_classes=0,
            embed_dim=shape.dim,
            depth=shape.depth,
            num_heads=shape.heads,
            mlp_ratio=shape.mlp_ratio,
            # LayerScale exists where it has a value to begin with.
            init_values=1e-5 if shape.layer_scale else None,
            no_embed_class=shape.bare_class,
            reg_tokens=shape.registers,
            pre_norm=shape.norm_first,
            norm_layer=partial(nn.LayerNorm, eps=shape.eps),
            **layers,
        )
        self.shape = shape
        self.proj = (
            nn.Linear(shape.dim, shape.projected, bias=False)
            if shape.projected
            else None
        )

    def forward(self, pixels: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        tokens = self.forward_features(pixels)  # (b, prefix + cells, dim)
        out = tokens[:, 0]
        if self.shape.output == CLS_AND_MEAN:
            out = torch.cat([out, tokens[:, self.num_prefix_tokens :].mean(1)], dim=1)
        return out if self.proj is None else self.proj(out)


def cells_per_side(shape: VitShape) -> int:
    return shape.side // shape.patch
