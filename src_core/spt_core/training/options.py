"""Settings that every training has: their types, each with its hint."""

from typing import Annotated

from spt_core.hints import Hint

HEADS = ("batchnorm", "paper")

Head = Annotated[
    str,
    Hint(
        "projection head: with batch norms, or the paper's plain one",
        label="Projection head",
        choices=HEADS,
        choice_labels=("With batch norms", "The paper's"),
        advanced=True,
    ),
]
LearningRate = Annotated[
    float,
    Hint(
        "largest learning rate",
        label="Learning rate",
        above=0,
        digits=6,
        advanced=True,
        flags=("--learning-rate", "--lr"),
        metavar="LR",
    ),
]
Momentum = Annotated[
    float,
    Hint(
        "momentum of BYOL's target network at the start; it ends at 1",
        minimum=0,
        maximum=1,
        digits=4,
        advanced=True,
        metavar="M",
    ),
]
Temperature = Annotated[
    float,
    Hint(
        "temperature of SimCLR and SupCon: the smaller, the more the likest slides "
        "count",
        above=0,
        digits=3,
        advanced=True,
        metavar="T",
    ),
]
VicregWeights = Annotated[
    tuple[float, float, float],
    Hint(
        "weights of VICReg's invariance, variance and covariance",
        label="VICReg weights",
        minimum=0,
        digits=1,
        advanced=True,
        metavar=("INV", "VAR", "COV"),
    ),
]
WeightDecay = Annotated[
    float,
    Hint("weight decay of AdamW", minimum=0, digits=4, advanced=True, metavar="W"),
]
WarmUp = Annotated[
    float,
    Hint(
        "share of the steps in which the learning rate rises",
        minimum=0,
        maximum=1,
        advanced=True,
    ),
]
Seed = Annotated[
    int, Hint("number that every random choice follows from", minimum=0, advanced=True)
]
MixedPrecision = Annotated[
    bool,
    Hint(
        "use mixed precision on a GPU",
        label="Mixed precision on a GPU",
        advanced=True,
        flags=("--full-precision",),
    ),
]
MicroBatch = Annotated[
    int | None,
    Hint(
        "views in one pass through the model; gradients stay those of the whole batch",
        above=0,
        automatic="as many as memory allows",
        advanced=True,
    ),
]
CheckpointSteps = Annotated[
    int,
    Hint(
        "steps between checkpoints; a large model is written less often",
        label="Steps between checkpoints",
        above=0,
        advanced=True,
    ),
]
ValidateEpochs = Annotated[
    int | None,
    Hint(
        "epochs between validations",
        label="Epochs between validations",
        above=0,
        automatic="20 validations in a run",
        advanced=True,
    ),
]
