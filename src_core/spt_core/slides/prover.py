"""The helper process: opens slides that nobody has opened here, and reads a little.

Run as a script, with openslide alone, so that it starts quickly. Damaged files take
openslide down, and this process with it, instead of the one that asked.
"""

import json
import sys
import time

_MOST_BYTES = 8 * 2**30
_SIDE = 64
_OVERVIEW_PIXELS, _PIECE = 2**23, 1024
_PLAIN_TIFF_MAKERS = ("aperio", "generic-tiff")
# Reading may take as long as opening did, and so much more: somebody waits for it.
# Damaged frames of DICOM are what openslide does not survive, so these are read whole.
_MORE_SECONDS = 0.02
_READ_WHOLE = ("dicom",)


def main() -> None:
    import openslide

    _limit_memory()
    for line in sys.stdin:
        asked = json.loads(line)
        found = None
        try:
            if asked["do"] == "series":
                with openslide.OpenSlide(asked["path"]) as slide:
                    found = slide.properties.get("dicom.SeriesInstanceUID")
            elif openslide.OpenSlide.detect_format(asked["path"]) is not None:
                began = time.monotonic()
                _read_a_little(openslide.OpenSlide(asked["path"]), began)
        # What is wrong is said by whoever opens it in earnest; here it only must not
        # end the process.
        except Exception:  # noqa: BLE001
            pass
        _say({"done": found})


def _read_a_little(slide, began) -> None:  # type: ignore[no-untyped-def]
    opened = time.monotonic()
    until = opened + (opened - began) + _MORE_SECONDS
    with slide:
        _say({"beat": 1})
        if slide.properties.get("openslide.vendor") in _READ_WHOLE:
            until = float("inf")
        for place, level, side in _places(slide):
            if time.monotonic() > until:
                return
            slide.read_region(place, level, (side, side))
            _say({"beat": 1})


def _places(slide):  # type: ignore[no-untyped-def]
    """Three of each level, and all of what the window and tissue finding see first.

    That is the last level, where it is not large. Tiles of plain TIFFs are not decoded
    by openslide, so it is not asked for them.
    """
    width, height = slide.dimensions
    for level in range(slide.level_count):
        for place in ((0, 0), (width // 2, height // 2), (width - 1, height - 1)):
            yield place, level, _SIDE
    if slide.properties.get("openslide.vendor") in _PLAIN_TIFF_MAKERS:
        return
    level = slide.level_count - 1
    width, height = slide.level_dimensions[level]
    if width * height > _OVERVIEW_PIXELS:
        return
    scale = slide.level_downsamples[level]
    for y in range(0, height, _PIECE):
        for x in range(0, width, _PIECE):
            yield (round(x * scale), round(y * scale)), level, _PIECE


def _say(what: dict) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass


if __name__ == "__main__":
    main()
