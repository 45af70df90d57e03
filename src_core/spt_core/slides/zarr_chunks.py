"""How much the chunks of zarr unpack to, before they are unpacked.

Kilobytes can be made to unpack to all memory that there is. Most packers state the size
in front, and trust it; of those that do not it is counted.
"""

import io
import struct
import zlib
from collections.abc import Callable
from math import prod
from typing import Any, BinaryIO

from spt_core.errors import InputError
from spt_core.slides.source import DamagedPartError

# What anybody can spare, and what no chunk takes.
SPARE_BYTES = 2**28
_MOST_CHUNK_BYTES = 2**32
# Filters may widen numbers, and small chunks have headers.
_WIDEST, _HEADERS = 8, 2**12
_MOST_DEFLATED = 1032  # times as much as there is, at the very most
_BLOCK = 2**17  # of zstd, unpacked


def by_blosc(file: BinaryIO, most: int) -> int:
    head = file.read(16)
    return struct.unpack_from("<I", head, 4)[0] if len(head) == 16 else 0


def by_lz4(file: BinaryIO, most: int) -> int:
    head = file.read(4)
    return struct.unpack("<I", head)[0] if len(head) == 4 else 0


def by_zstd(file: BinaryIO, most: int) -> int:
    """The size in the frame's header; without one, what its blocks can hold."""
    head = file.read(18).ljust(18, b"\0")
    flags = head[4]
    at = 5 + (not flags & 0x20) + (0, 1, 2, 4)[flags & 3]
    width = (1 if flags & 0x20 else 0, 2, 4, 8)[flags >> 6]
    if not width:
        return _of_blocks(file, at, most)
    size = int.from_bytes(head[at : at + width], "little")
    return size + 256 if width == 2 else size


def _of_blocks(file: BinaryIO, at: int, most: int) -> int:
    """At most: the last block is seldom full."""
    found, is_last = -_BLOCK, False
    while not is_last and found <= most:
        file.seek(at)
        head = int.from_bytes(file.read(3).ljust(3, b"\1"), "little")
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        found += _BLOCK if kind == 2 else size
        at += 3 + (1 if kind == 1 else size)
    return found


def by_deflate(file: BinaryIO, most: int) -> int:
    """What it unpacks to, counted: gzip and zlib do not say."""
    found, reader = 0, zlib.decompressobj(wbits=47)
    data = file.read()
    if _MOST_DEFLATED * len(data) <= most:
        return 0
    try:
        while data and found <= most:
            found += len(reader.decompress(data, 2**20))
            data = reader.unconsumed_tail
            if reader.eof:
                data = reader.unused_data
                reader = zlib.decompressobj(wbits=47)
    except zlib.error:
        pass  # zarr says what is wrong with it
    return found


SIZES: dict[str, Callable[[BinaryIO, int], int]] = {
    "blosc": by_blosc,
    "lz4": by_lz4,
    "zstd": by_zstd,
    "gzip": by_deflate,
    "zlib": by_deflate,
}
_COUNTED = ("gzip", "zlib")


# Each is a file that is looked for, or a place in one.
_MANY_CHUNKS, _SMALL_CHUNK = 100_000, 1024


def check_chunks(array: Any) -> None:
    """Refuse chunks that no memory holds, or far larger than all of the array."""
    size = prod(array.shape) * array.dtype.itemsize
    chunk = prod(array.chunks) * array.dtype.itemsize
    if min(array.chunks, default=1) < 1:
        raise ValueError("its chunks hold nothing")
    count = prod(
        -(-side // of) for side, of in zip(array.shape, array.chunks, strict=True)
    )
    if count > _MANY_CHUNKS and prod(array.chunks) < _SMALL_CHUNK:
        shown = " × ".join(str(side) for side in array.chunks)
        raise InputError(
            f"has {count:,} chunks of {shown} numbers, which take hours to read. Save "
            "it again in larger chunks."
        )
    if chunk > min(max(size, SPARE_BYTES), _MOST_CHUNK_BYTES):
        raise InputError(
            f"has chunks of {chunk / 2**30:,.1f} GB each, more than can be unpacked. "
            "Save it again in smaller chunks."
        )


def check_while_unpacking() -> None:
    """Let zarr refuse, in this process, chunks that unpack to more than their share."""
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
    from zarr.codecs._v2 import V2Codec

    for kind in (BloscCodec, GzipCodec, ZstdCodec, V2Codec):
        if not hasattr(kind._decode_single, "unchecked"):
            kind._decode_single = _checked(kind._decode_single)


def _checked(unchecked: Any) -> Any:
    async def decode(self: Any, packed: Any, spec: Any) -> Any:
        _refuse_bomb(_packer(self), packed, spec)
        return await unchecked(self, packed, spec)

    decode.unchecked = unchecked  # type: ignore[attr-defined]
    return decode


def _packer(codec: Any) -> str:
    # Codecs of version 2 hold a packer; those of 3 are one, such as ZstdCodec.
    held = getattr(codec, "compressor", None)
    name = getattr(held, "codec_id", None) or type(codec).__name__
    return str(name).removesuffix("Codec").lower()


def _refuse_bomb(packer: str, packed: Any, spec: Any) -> None:
    kind = spec.dtype.to_native_dtype()
    if packer not in SIZES or kind.kind not in "biufc":
        return
    own = prod(spec.shape) * max(kind.itemsize, _WIDEST) + _HEADERS
    most = max(own, SPARE_BYTES) if packer in _COUNTED else own
    with io.BytesIO(packed.to_bytes()) as file:
        if SIZES[packer](file, most) > most:
            raise DamagedPartError(
                f"a chunk unpacks to more than the {own:,} bytes that it may take"
            )
