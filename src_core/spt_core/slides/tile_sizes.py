"""How large a compressed tile says that it is, before its codec makes room for it.

Codecs believe what a tile's own header says: a few kilobytes can claim a gigabyte.
"""

import math
import struct
from collections.abc import Callable
from typing import Any

import tifffile

from spt_core.slides.source import DamagedPartError

_JPEG, _JPEG_2000 = b"\xff\xd8", b"\xff\x4f\xff\x51"
_JP2, _PNG, _WEBP = b"\0\0\0\x0cjP  ", b"\x89PNG\r\n\x1a\n", b"WEBP"
# Tiles at the edge and padded ones are a little larger than stated.
_SPARE = 2**20


def refuse_larger(encoded: bytes, page: Any) -> None:
    """Refuse a tile that says it is far larger than those of its page.

    Raises
    ------
    DamagedPartError
        With both sizes.
    """
    stated = stated_size(encoded)
    most = 2 * math.prod(page.chunks) + _SPARE
    if stated is not None and stated[0] * stated[1] > most:
        raise DamagedPartError(
            f"a tile states a size of {stated[0]} × {stated[1]} pixels, which those of "
            "this file do not have"
        )


def guard(page: Any) -> None:
    """Let a page of tifffile's refuse such tiles, whoever reads it."""
    decode: Callable[..., Any] = page.decode
    if getattr(decode, "is_guarded", False):
        return

    def guarded(encoded: bytes | None, *args: Any, **options: Any) -> Any:
        for part in (options.get("jpegheader"), encoded):
            if part is not None:
                refuse_larger(part, page)
        return decode(encoded, *args, **options)

    guarded.is_guarded = True  # type: ignore[attr-defined]
    page.decode = guarded


def guard_series(series: tifffile.TiffPageSeries) -> None:
    for level in series.levels:
        guard(level.keyframe)


def stated_size(encoded: bytes) -> tuple[int, int] | None:
    """(width, height) by the header of a JPEG, JPEG 2000, PNG or WebP; else None."""
    try:
        if encoded[:2] == _JPEG:
            return _of_jpeg(encoded)
        if encoded[:12].startswith(_JP2) or encoded[:4] == _JPEG_2000:
            return _of_jpeg_2000(encoded)
        if encoded[:8] == _PNG:
            return struct.unpack_from(">II", encoded, 16)
        if encoded[8:12] == _WEBP:
            return _of_webp(encoded)
    except struct.error:
        pass  # cut off: its codec says so
    return None


def _of_jpeg(encoded: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 4 <= len(encoded):
        if encoded[at] != 0xFF:
            at = encoded.find(b"\xff", at)
            if at < 0:
                return None
            continue
        marker = encoded[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker == 0x00 or marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", encoded, at + 5)
            return width, height
        if marker == 0xDA or marker == 0xD9:  # pixels, or the end
            return None
        at += 2 + struct.unpack_from(">H", encoded, at + 2)[0]
    return None


def _of_jpeg_2000(encoded: bytes) -> tuple[int, int] | None:
    at = encoded.find(_JPEG_2000)
    if at < 0:
        return None
    right, bottom, left, top = struct.unpack_from(">IIII", encoded, at + 8)
    return max(0, right - left), max(0, bottom - top)


def _of_webp(encoded: bytes) -> tuple[int, int] | None:
    kind = encoded[12:16]
    if kind == b"VP8X":
        return (
            1 + int.from_bytes(encoded[24:27], "little"),
            1 + int.from_bytes(encoded[27:30], "little"),
        )
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", encoded, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", encoded, 26)
    return width & 0x3FFF, height & 0x3FFF
