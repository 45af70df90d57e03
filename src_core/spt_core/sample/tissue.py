"""What sample tissue is made of: the classes of the truth mask and their names."""

from dataclasses import dataclass
from enum import IntEnum

UM_PER_PIXEL = 0.5


class TissueClass(IntEnum):
    """One class of the truth mask; the number is the pixel value."""

    GLASS = 0
    STROMA = 1
    ADIPOSE = 2
    LYMPHOCYTES = 3
    BLOOD = 4
    NECROSIS = 5
    BENIGN = 6
    GLANDULAR = 7
    SMALL_CELL = 8
    LARGE_CELL = 9


# The label of a slide is the kind of its tumour.
TUMOURS = {
    "glandular": TissueClass.GLANDULAR,
    "small-cell": TissueClass.SMALL_CELL,
    "large-cell": TissueClass.LARGE_CELL,
}


# How much of a slide's tissue is tumour, from and to: a small part of it, as in a first
# biopsy, or most, as in resected specimens and most public cohorts.
MINORITY, MAJORITY = "minority", "majority"
TUMOUR_SHARES = {MINORITY: (0.07, 0.16), MAJORITY: (0.55, 0.80)}


@dataclass(frozen=True)
class Description:
    """How a class is named and coloured in the truth mask."""

    name: str
    colour: tuple[int, int, int]
    text: str


DESCRIPTIONS = {
    TissueClass.GLASS: Description("glass", (255, 255, 255), "no tissue"),
    TissueClass.STROMA: Description(
        "stroma", (244, 172, 183), "collagen with fibroblasts and small vessels"
    ),
    TissueClass.ADIPOSE: Description("adipose", (255, 229, 153), "fat cells"),
    TissueClass.LYMPHOCYTES: Description(
        "lymphocytes", (84, 101, 168), "dense aggregates of lymphocytes"
    ),
    TissueClass.BLOOD: Description("blood", (178, 34, 34), "red cells outside vessels"),
    TissueClass.NECROSIS: Description(
        "necrosis", (150, 150, 150), "smudged tissue with ghost nuclei and debris"
    ),
    TissueClass.BENIGN: Description(
        "benign", (130, 190, 130), "lobules of small, regular ducts"
    ),
    TissueClass.GLANDULAR: Description(
        "glandular", (214, 96, 77), "tumour of irregular glands of columnar cells"
    ),
    TissueClass.SMALL_CELL: Description(
        "small-cell", (128, 55, 155), "tumour of packed small, dark, moulded nuclei"
    ),
    TissueClass.LARGE_CELL: Description(
        "large-cell", (230, 130, 20), "tumour of nests of large pleomorphic cells"
    ),
}
