"""The card of a patch encoder: what it is and takes. Without torch.

Encoder files hold it in their metadata as JSON (:mod:`spt_core.card_file`); it is read
strictly: a value of another type is refused with a sentence that names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spt_core import card_file
from spt_core.card_file import DataSource
from spt_core.errors import InputError
from spt_core.records import from_record, the_rest, to_record
from spt_core.training.stages import Stage

KIND = "spt-patch-encoder"
FORMAT = 1
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# Where weights come from, if not from an address by which they can be fetched.
FROM_SEED, FROM_FILE, FROM_PACKAGE = "seed", "file", "bundled"


@dataclass(frozen=True)
class PatchTrainingSummary:
    """What an encoder learned from, in numbers, and how; it names nobody.

    Attributes
    ----------
    method
        ``simclr`` or ``hidisc``.
    start
        What it began from: ``imagenet``, ``none`` or a file of weights.
    patches, slides, patients
        How many of each in memory at a time; no patients where none are known.
    step, steps
        The training step of the weights, of all steps.
    torch
        The version of torch.
    settings
        The other settings of the run by name.
    slide_fingerprints, patient_hmacs
        The slides and tiles by their pixels; the patients under the key in the run's
        folder.
    earlier
        The trainings of the encoder that this one began from.
    """

    method: str
    start: str | None = None
    patches: int | None = None
    slides: int | None = None
    patients: int | None = None
    step: int | None = None
    steps: int | None = None
    torch: str | None = None
    settings: Mapping[str, Any] = the_rest()
    slide_fingerprints: frozenset[str] = frozenset()
    patient_hmacs: frozenset[str] = frozenset()
    earlier: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class EncoderCard:
    """What there is to know of an encoder before it is loaded.

    Attributes
    ----------
    name
        By which settings and feature files name it.
    dim
        Length of the vectors.
    patch_size, mpp
        The patch it is made for, unless the user asks for another.
    input_size
        Pixels per side that it must be given; None where it takes any.
    mean, std
        Of red, green and blue from 0 to 1, by which pixels are normalised.
    weights
        Where they come from: ``seed`` (none needed), ``file`` (the user's),
        ``bundled`` (the package's), or the address by which ``spt encoders get``
        fetches them. An encoder file does not state it.
    licence, citation, about
        On which terms it may be used, what to cite, and what it is.
    page
        Where its authors state the licence and give the weights.
    terms
        What the licence forbids or asks for, as published; models made with the
        encoder carry it on.
    gated
        Its authors ask who fetches it.
    output
        What of the network the vectors are: ``mean`` of a feature map, ``cls``,
        ``cls+mean`` or ``projection``.
    resize_to
        Pixels per side to which patches are brought before the middle ``input_size``
        are cut out, where an encoder was published so.
    precision
        In which its authors run it on a GPU; None where any will do.
    architecture
        The registered encoder, or model of timm, whose module the weights of an
        encoder file fill.
    version
        The version of napari-spt that wrote the file.
    training
        What it learned from, where it was trained here.
    data
        Where that came from.
    trained_on
        The public collections that it, or what it began from, was trained on, such as
        ``TCGA``, or single cases of one, such as ``TCGA-CR-7395``; empty where unknown.
    more
        What else its file states, kept as it is.
    """

    name: str
    dim: int
    patch_size: int
    mpp: float
    input_size: int | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    weights: str = FROM_FILE
    licence: str = "unknown"
    citation: str = ""
    about: str = ""
    page: str | None = None
    terms: tuple[str, ...] = ()
    gated: bool = False
    output: str | None = None
    resize_to: int | None = None
    precision: str | None = None
    architecture: str | None = None
    version: str | None = None
    training: PatchTrainingSummary | None = None
    data: tuple[DataSource, ...] = ()
    trained_on: tuple[str, ...] = ()
    more: Mapping[str, Any] = the_rest()

    def __post_init__(self) -> None:
        for what, value, least, most in (
            ("dim", self.dim, 1, 2**20),
            ("patch_size", self.patch_size, 1, 2**13),
            ("mpp", self.mpp, 1e-3, 1e3),
            ("input_size", self.input_size, 1, 2**11),
            ("resize_to", self.resize_to, 1, 2**11),
            *(("mean", value, -1e3, 1e3) for value in self.mean),
            *(("std", value, 1e-6, 1e3) for value in self.std),
        ):
            if value is not None and not least <= value <= most:
                raise InputError(f"a {what} of {value:.6g} is not possible.")

    def seen_size(self, patch_size: int) -> int:
        """Pixels per side in which patches of a size are handed to the encoder."""
        return self.resize_to or self.input_size or patch_size

    def stages(self) -> list[Stage]:
        """The trainings here that led to the encoder, its own first.

        None of an encoder from elsewhere, of which ``trained_on`` says what is known.
        """
        own = self.training
        if own is None:
            return []
        stage = Stage(
            f"patch encoder: {own.method}",
            own.slide_fingerprints,
            own.patient_hmacs,
            same_key=True,
            known=bool(own.slide_fingerprints),  # files of earlier versions state none
        )
        return [stage, *own.earlier]


def read_encoder_card(path: Path) -> EncoderCard | None:
    """Read the card of an encoder file; None where the file is bare weights.

    Raises
    ------
    InputError
        Where there is no file, it is no patch encoder, or its card cannot be read.
    """
    record = card_file.read_record(path)
    if record is None:
        return None
    if record.get("kind") != KIND:
        raise InputError(
            f"{path.name} is a {record.get('kind', 'file of another kind')}, not a "
            "patch encoder of 'spt train-patches'."
        )
    known = card_file.without_header(path, record, FORMAT)
    whose = f"{path.name}: the card"
    card = from_record(EncoderCard, known, whose)
    if card.architecture is None:
        raise InputError(f"{whose} lacks architecture.")
    return replace(card, weights=FROM_FILE)


def encoder_metadata(card: EncoderCard) -> dict[str, str]:
    """The card as the metadata of an encoder file."""
    record = to_record(card)
    del record["weights"]
    return card_file.metadata(KIND, FORMAT, record)
