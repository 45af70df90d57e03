"""HiDisc: patches of one patient, of one slide, and views of one patch, are alike.

Hierarchical discrimination (Jiang et al. 2023). With z of unit length, I all views of a
batch, and P_l(i) those other views of I that share view i's patient, slide or patch:

    L_l = 1/|I| sum_i -1/|P_l(i)| sum over p in P_l(i) of
          log( exp(z_i.z_p / t) / sum_{a in I, a != i} exp(z_i.z_a / t) )

    L = (w_patient L_patient + w_slide L_slide + w_patch L_patch) / (sum of w)

The published sum of the three is this mean times the sum of weights; as a mean, a
learning rate means the same whatever the weights. The temperature, 0.07, and the head,
one linear layer to 128 numbers, are those of the authors' configurations.
"""

from collections.abc import Sequence

from torch import Tensor

from spt_core.training.heads import LINEAR, PROJECTED, projection_head
from spt_core.training.objectives.objective import Objective
from spt_core.training.objectives.supcon import contrastive_loss

LEVELS = ("patient", "slide", "patch")


def hidisc_losses(z: Tensor, whose: Tensor, temperature: float) -> dict[str, Tensor]:
    """The loss of each level.

    Parameters
    ----------
    z : (views, batch, k)
    whose : (batch, 3)
        Numbers of each patch's patient, slide and itself. The same patch may come
        twice, a patient may have one patch alone: the masks are made from the numbers.
    """
    return {
        name: contrastive_loss(z, whose[:, level], temperature)
        for level, name in enumerate(LEVELS)
    }


class HiDisc(Objective):
    """A projection, and the three losses."""

    needs_labels = True

    def __init__(
        self,
        dim: int,
        *,
        weights: Sequence[float] = (1.0, 1.0, 1.0),
        head: str = LINEAR,
        temperature: float = 0.07,
    ) -> None:
        super().__init__()
        self.head = projection_head(dim, dim, PROJECTED, head=head)
        self.weights, self.temperature = tuple(weights), temperature

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        if labels is None:
            raise ValueError("HiDisc needs to know whose each patch is.")
        z = self.head(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        parts = hidisc_losses(z, labels, self.temperature)
        weighted = [
            w * parts[n] for n, w in zip(LEVELS, self.weights, strict=True) if w
        ]
        loss = sum(weighted, z.new_zeros(())) / sum(self.weights)
        return {"loss": loss, **{f"{name}_loss": part for name, part in parts.items()}}
