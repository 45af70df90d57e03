"""DICOM pictures for tests, written by pydicom."""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import imagecodecs
import numpy as np
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.filewriter import dcmwrite
from pydicom.uid import (
    UID,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    VLWholeSlideMicroscopyImageStorage,
    generate_uid,
)

TILE = 256


def write_dicom(
    path: Path,
    picture: np.ndarray,
    *,
    syntax: str = ExplicitVRLittleEndian,
    encode: Callable[[np.ndarray], bytes] = np.ndarray.tobytes,
    tiled: bool = True,
    dyes: Sequence[str] = (),
    mpp: float = 0.5,
) -> Path:
    """Write ``(y, x, 3)`` in colour or ``(c, y, x)`` of channels, in tiles or whole."""
    samples = picture.shape[-1] if picture.shape[-1] == 3 else 1
    planes = [picture] if samples == 3 else list(picture)
    height, width = planes[0].shape[:2]
    frames = [tile for one in planes for tile in (_tiles(one) if tiled else [one])]
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = syntax
    meta.MediaStorageSOPClassUID = VLWholeSlideMicroscopyImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID = meta.MediaStorageSOPClassUID
    data.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    data.SeriesInstanceUID = "1.2.3"
    data.PatientName, data.Modality = "Planted^Name", "SM"
    data.ImageType = ["ORIGINAL", "PRIMARY", "VOLUME", "NONE"]
    data.Rows, data.Columns = frames[0].shape[:2]
    data.NumberOfFrames, data.SamplesPerPixel = len(frames), samples
    data.PhotometricInterpretation = "RGB" if samples == 3 else "MONOCHROME2"
    if samples == 3:
        data.PlanarConfiguration = 0
    data.BitsAllocated = data.BitsStored = 8 * picture.itemsize
    data.HighBit, data.PixelRepresentation = data.BitsStored - 1, 0
    if tiled:
        data.TotalPixelMatrixRows, data.TotalPixelMatrixColumns = height, width
        data.DimensionOrganizationType = "TILED_FULL"
    data.OpticalPathSequence = [Dataset() for _ in dyes]
    for number, (one, dye) in enumerate(
        zip(data.OpticalPathSequence, dyes, strict=True)
    ):
        one.OpticalPathIdentifier = str(number)
        one.OpticalPathDescription = dye
    measures, shared = Dataset(), Dataset()
    measures.PixelSpacing = [mpp / 1000, mpp / 1000]
    shared.PixelMeasuresSequence = [measures]
    data.SharedFunctionalGroupsSequence = [shared]
    encoded = [encode(np.ascontiguousarray(one)) for one in frames]
    if syntax in (ExplicitVRLittleEndian, ImplicitVRLittleEndian):
        data.PixelData = b"".join(encoded)
    else:
        data.PixelData = encapsulate(encoded)
        data["PixelData"].is_undefined_length = True
    data["PixelData"].VR = "OB" if picture.itemsize == 1 else "OW"
    path.parent.mkdir(parents=True, exist_ok=True)
    if UID(syntax).is_transfer_syntax:
        data.save_as(path, enforce_file_format=True)
    else:  # pydicom does not know it yet
        how = {"implicit_vr": False, "little_endian": True, "force_encoding": True}
        dcmwrite(path, data, **how)
    return path


def write_dicom_that_crashes(folder: Path, picture: np.ndarray) -> tuple[Path, Path]:
    """Write a slide, and the same with one false bit in its table of tiles.

    openslide 4.0 does not survive reading the tile that now seems to lie elsewhere: row
    1, column 2, of a picture that is 6 tiles wide.
    """
    good, bad = folder / "good" / "a.dcm", folder / "bad" / "a.dcm"
    encode = partial(imagecodecs.jpeg8_encode, level=90)
    write_dicom(good, picture, syntax=JPEGBaseline8Bit, encode=encode)
    content = bytearray(good.read_bytes())
    table = content.index(b"\xe0\x7f\x10\x00OB") + 20
    (offset,) = struct.unpack_from("<I", content, table + 4 * 8)
    struct.pack_into("<I", content, table + 4 * 8, offset ^ 1 << 20)
    bad.parent.mkdir(parents=True)
    bad.write_bytes(content)
    return good, bad


def _tiles(picture: np.ndarray) -> list[np.ndarray]:
    found = []
    for y in range(0, picture.shape[0], TILE):
        for x in range(0, picture.shape[1], TILE):
            tile = np.zeros((TILE, TILE, *picture.shape[2:]), picture.dtype)
            part = picture[y : y + TILE, x : x + TILE]
            tile[: part.shape[0], : part.shape[1]] = part
            found.append(tile)
    return found
